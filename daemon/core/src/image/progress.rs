//! Progress of one order to pull.

use std::time::Duration;

use pitstop_api::condition::truncate;
use pitstop_api::id::ContainerId;
use pitstop_api::image::Reference;
use pitstop_api::logic::backoff::Backoff;
use pitstop_api::logic::pull::Meaning;
use pitstop_api::logic::time::{Mono, earliest, seconds};
use pitstop_api::nodework::{
    Answer, AnswerReason, AnswerState, ImageAnswer, MAX_MESSAGE, Order, Pull, PullPolicy, Pulled, Running,
};

use super::{Look, report};
use crate::action::{Action, CallFailure};
use crate::decision::well_formed;
use crate::order::{answer, reused_id};

/// The daemon reports a pull that takes longer than this; most do not. It also waits this long to report that the
/// pulled image runs: most kubelets report that sooner, and then the order is withdrawn.
const REPORT_AFTER: Duration = Duration::from_secs(3);
/// Time between looks once the node has the image: at first, and after [`FRESH`].
const OFTEN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(2);
const FRESH: Duration = Duration::from_mins(1);
/// Time between looks while the container has ended and no other has started, for at most [`BETWEEN`].
const AT_ONCE: Duration = Duration::from_millis(250);
const BETWEEN: Duration = Duration::from_secs(30);
/// Longest wait between two tries of a pull.
const RETRY: Duration = Duration::from_secs(30);
/// Changes of the running container that are reported at once; later at most one per [`PACE`]: a container may crash
/// repeatedly.
const CHANGES: u32 = 3;
const PACE: Duration = Duration::from_secs(10);

/// What this process does about an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The daemon asks the runtime, or waits to ask.
    Look,
    /// The image is to be pulled.
    Queue,
    /// It is being pulled.
    Pulling,
    /// The order is over; its final answer.
    Over(Box<Answer>),
}

/// One order's progress.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    step: Step,
    /// The runtime is being asked.
    pub(super) looking: bool,
    /// The order as first seen: a book could have two with its ID.
    order: Order,
    /// The container that it names.
    target: Option<ContainerId>,
    /// The image.
    wanted: Option<Reference>,
    /// Since when the order waits for the image.
    since: Mono,
    /// How long the pull took, in milliseconds.
    took: Option<i64>,
    /// Whether the registry was asked; `Always` needs that only once.
    asked: bool,
    /// The last failure; the daemon tries again.
    trouble: Option<String>,
    /// Back-off of failed looks.
    backoff: Backoff,
    /// Back-off of failed pulls.
    retries: Backoff,
    /// When to look again.
    next_look: Option<Mono>,
    /// The image, once the node has it.
    pulled: Option<Pulled>,
    /// Since when the node has it.
    pulled_since: Mono,
    /// Whether the node had the image and lost it.
    image_gone: bool,
    /// The newest other container that was started.
    running: Option<Running>,
    changes: u32,
    changed_at: Mono,
    /// Since when no container of the name runs.
    ended_at: Option<Mono>,
}

impl Progress {
    /// A new order; what an earlier process reported is checked again.
    pub(super) fn new(now: Mono, order: &Order, stored: Option<&Answer>) -> Self {
        let pull = order.action.pull.clone().unwrap_or_default();
        let checked = well_formed(order).and_then(|target| Ok((target, Reference::parse(&pull.image)?)));
        let (step, target, wanted) = match (checked, stored) {
            (Err(why), _) => {
                let text = truncate(&why, MAX_MESSAGE);
                let over = answer(&order.id, AnswerState::Refused, Some(AnswerReason::InvalidOrder), text);
                (Step::Over(Box::new(over)), None, None)
            }
            (Ok((target, wanted)), Some(stored)) if is_final(stored) => {
                (Step::Over(Box::new(stored.clone())), Some(target), Some(wanted))
            }
            (Ok((target, wanted)), _) => (Step::Look, Some(target), Some(wanted)),
        };
        let image = stored.and_then(|stored| stored.image.as_deref());
        let pulled = image.and_then(|image| image.pulled.clone());
        let image_gone = stored.is_some_and(|stored| stored.reason == Some(AnswerReason::ImageGone));
        Self {
            step,
            looking: false,
            order: order.clone(),
            target,
            wanted,
            since: now,
            took: pulled.as_ref().filter(|pulled| !pulled.present).map(|pulled| pulled.milliseconds),
            asked: image_gone || pulled.is_some(),
            trouble: None,
            backoff: Backoff::default(),
            retries: Backoff::default(),
            next_look: None,
            pulled,
            pulled_since: now,
            image_gone,
            running: image.and_then(|image| image.running.clone()),
            changes: 0,
            changed_at: now,
            ended_at: None,
        }
    }

    /// Refuses the order if it differs from the order first seen.
    pub(super) fn compare(&mut self, order: &Order) {
        if self.order != *order {
            (self.step, self.next_look) = (Step::Over(Box::new(reused_id(&order.id))), None);
        }
    }

    fn pull_of(&self) -> Option<&Pull> {
        self.order.action.pull.as_ref()
    }

    fn policy(&self) -> PullPolicy {
        self.pull_of().and_then(|pull| pull.policy).unwrap_or_default()
    }

    /// Deadline for the image.
    fn until(&self) -> Mono {
        self.since.after(seconds(self.pull_of().map_or(1, |pull| pull.timeout_seconds)))
    }

    /// Whether the order waits for the image.
    fn waits(&self) -> bool {
        matches!(self.step, Step::Look | Step::Queue | Step::Pulling)
            && self.pulled.is_none()
            && !self.looking
    }

    /// Fails the order if it still waits for the image at its deadline.
    pub(super) fn expire(&mut self, now: Mono) {
        if self.waits() && now >= self.until() {
            let pulls = self.step == Step::Pulling;
            let first = if pulls { "the pull has not ended" } else { "other pulls of the node went first" };
            let why = self.trouble.clone().unwrap_or_else(|| first.to_owned());
            let text = format!("not pulled in time: {why}");
            self.over(AnswerState::Failed, AnswerReason::PullTimedOut, &text);
        }
    }

    /// Asks the runtime, if due; with `room`, before a pull, also for the free bytes.
    pub(super) fn look(&mut self, now: Mono, room: bool) -> Option<Action> {
        let due = self.step == Step::Look && !self.looking && self.next_look.is_none_or(|at| at <= now);
        let container_id = self.target.clone().filter(|_| due)?;
        (self.looking, self.next_look) = (true, None);
        Some(Action::LookAtImage {
            order_id: self.order.id.clone(),
            container_id,
            pod_uid: self.order.pod.uid.clone(),
            container: self.order.container.name.clone(),
            image: self.wanted.as_ref()?.to_string(),
            room: room && self.pulled.is_none(),
        })
    }

    pub(super) fn wants_pull(&self) -> bool {
        self.step == Step::Queue
    }

    /// Begins the pull; returns the image and the time limit.
    pub(super) fn pull(&mut self, now: Mono) -> Option<(String, Duration)> {
        let image = self.wanted.as_ref()?.to_string();
        self.step = Step::Pulling;
        Some((image, self.until().since(now)))
    }

    /// Joins a pull of its image that is under way.
    pub(super) fn join(&mut self, under_way: impl Fn(&str) -> bool) {
        let image = self.wanted.as_ref().filter(|_| self.step == Step::Queue);
        if image.is_some_and(|image| under_way(&image.to_string())) {
            self.step = Step::Pulling;
        }
    }

    /// The image whose pull it waits for.
    pub(super) fn awaited_image(&self) -> Option<String> {
        self.wanted.as_ref().filter(|_| self.step == Step::Pulling).map(ToString::to_string)
    }

    /// Takes the runtime's answer.
    pub(super) fn seen(&mut self, now: Mono, result: Result<Box<Look>, CallFailure>, room: u64) {
        if !std::mem::take(&mut self.looking) || self.step != Step::Look {
            return;
        }
        let look = match result {
            Ok(look) => look,
            Err(failure) => {
                self.backoff.failed(now);
                self.next_look = self.backoff.waits_until(now);
                self.trouble = Some(truncate(&failure.message, MAX_MESSAGE));
                return;
            }
        };
        self.backoff.succeeded();
        let Some(wanted) = self.wanted.clone() else { return };
        let had = self.pulled.is_some() || self.image_gone;
        if !had || look.image.is_none() {
            // Only the book says that the node had the image, and the book is not trusted. So each pull is checked.
            let known = look.named.as_ref().or(look.heir.as_ref());
            if had && known.is_none() {
                // As when a Pod starts again after its node was started again.
                self.lost(now);
                self.next_look = Some(now.after(SELDOM));
                return;
            }
            if let Some((reason, text)) = report::refused(&self.order, &wanted, known) {
                return self.over(AnswerState::Refused, reason, &text);
            }
        }
        self.see_running(now, &wanted, &look);
        let asks = self.policy() == PullPolicy::Always && !self.asked;
        match &look.image {
            Some(image) if !asks => self.found(now, report::pulled(&wanted, image, self.took)),
            None if self.policy() == PullPolicy::Never => {
                let text = "the node does not have the image, and the order does not allow a pull";
                self.over(AnswerState::Failed, AnswerReason::ImageNeverPull, text);
            }
            Some(_) | None => {
                self.lost(now);
                self.step = Step::Queue;
                if let Some(text) = report::too_full(look.free, room) {
                    self.over(AnswerState::Failed, AnswerReason::NoDiskRoom, &text);
                }
            }
        }
    }

    /// The node has lost the image.
    fn lost(&mut self, now: Mono) {
        if self.pulled.take().is_some() {
            (self.image_gone, self.since, self.took) = (true, now, None);
        }
    }

    fn found(&mut self, now: Mono, pulled: Pulled) {
        if self.pulled.is_none() {
            self.pulled_since = now;
        }
        (self.pulled, self.image_gone, self.trouble) = (Some(pulled), false, None);
        let between = self.ended_at.is_some_and(|at| now < at.after(BETWEEN));
        let fresh = now < self.pulled_since.after(FRESH);
        let pause = match (between, fresh) {
            (true, _) => AT_ONCE,
            (false, true) => OFTEN,
            (false, false) => SELDOM,
        };
        self.next_look = Some(now.after(pause));
    }

    /// Notes the newest container of the name, unless the order names that container.
    fn see_running(&mut self, now: Mono, wanted: &Reference, look: &Look) {
        let Some(newest) = &look.newest else { return };
        let named = self.target.as_ref() == Some(&newest.id);
        if newest.runs {
            self.ended_at = None;
        } else {
            self.ended_at.get_or_insert(now);
        }
        if named || !newest.started {
            return;
        }
        let running = report::running(wanted, newest);
        let paced = self.changes < CHANGES || now >= self.changed_at.after(PACE);
        if self.running.as_ref() != Some(&running) && paced {
            self.running = Some(running);
            (self.changes, self.changed_at) = (self.changes.saturating_add(1), now);
        }
    }

    /// The pull ended: how long it took, or why it failed.
    pub(super) fn pulled(&mut self, now: Mono, result: Result<Duration, Meaning>) {
        match result {
            Ok(took) => {
                self.retries.succeeded();
                self.took = Some(i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
                (self.step, self.next_look, self.asked) = (Step::Look, None, true);
            }
            Err(Meaning { reason: Some(reason), text }) => {
                self.over(AnswerState::Failed, reason, &text);
            }
            Err(Meaning { reason: None, text }) => {
                self.trouble = Some(text);
                self.retries.failed(now);
                let at = self.retries.waits_until(now).map(|at| at.min(now.after(RETRY)));
                // Then the daemon checks again what the node has.
                (self.step, self.next_look) = (Step::Look, at);
            }
        }
    }

    fn over(&mut self, state: AnswerState, reason: AnswerReason, text: &str) {
        let over = answer(&self.order.id, state, Some(reason), truncate(text, MAX_MESSAGE));
        (self.step, self.next_look) = (Step::Over(Box::new(over)), None);
    }

    /// Whether that answer is final, too, as far as this process knows.
    fn also_ends(&self, stored: &Answer) -> bool {
        match stored.state {
            AnswerState::Done => !self.image_gone,
            AnswerState::Failed | AnswerState::Refused => true,
            AnswerState::Acknowledged => false,
        }
    }

    /// The answer to the order.
    pub(super) fn answer(&self, now: Mono, before: Option<&Answer>) -> Option<Answer> {
        if let Step::Over(over) = &self.step {
            // The stored answer stands: another daemon of the node has ended the order, too.
            let stored = before.filter(|it| over.state == AnswerState::Failed && self.also_ends(it));
            return Some(stored.unwrap_or(over).clone());
        }
        if let Some(pulled) = &self.pulled {
            let running = if self.delays_report(now, before) {
                before.and_then(|before| before.image.as_ref()?.running.clone())
            } else {
                self.running.clone()
            };
            // The stored answer stands: another daemon of the node has pulled or found the image.
            let stored = stored_image(before).filter(|stored| is_same(stored, pulled));
            let image = ImageAnswer { pulled: Some(stored.unwrap_or(pulled).clone()), running };
            let done = answer(&self.order.id, AnswerState::Done, None, String::new());
            return Some(Answer { image: Some(Box::new(image)), ..done });
        }
        let (reason, text) = match (&self.trouble, &self.step) {
            _ if self.image_gone => (AnswerReason::ImageGone, "the node does not have the image any more"),
            (Some(trouble), _) => (AnswerReason::PullRetried, trouble.as_str()),
            (None, Step::Queue) => (AnswerReason::PullQueued, "other pulls of the node go first"),
            (None, _) => (AnswerReason::Pulling, "the image is being pulled"),
        };
        if before.is_none() && !self.image_gone && now < self.since.after(REPORT_AFTER) {
            return None;
        }
        let waits = answer(&self.order.id, AnswerState::Acknowledged, Some(reason), text.to_owned());
        let runs = self.running.clone().map(|running| ImageAnswer { running: Some(running), pulled: None });
        Some(Answer { image: runs.map(Box::new), ..waits })
    }

    /// Whether to delay the report that the pulled image runs, if nothing else is new.
    fn delays_report(&self, now: Mono, before: Option<&Answer>) -> bool {
        let pulled = self.pulled.as_ref();
        let known = stored_image(before).zip(pulled).is_some_and(|(one, other)| is_same(one, other));
        let is_pulled = self.running.as_ref().map(|running| &running.image_id) == pulled.map(|p| &p.image_id);
        is_pulled && known && now < self.changed_at.after(REPORT_AFTER)
    }

    /// When to act again if no event comes before.
    pub(super) fn wake_at(&self, now: Mono) -> Option<Mono> {
        let comes = self.pulled.is_none() && !matches!(self.step, Step::Over(_));
        let since = if comes { Some(self.since) } else { self.running.as_ref().map(|_| self.changed_at) };
        let report = since.map(|since| since.after(REPORT_AFTER)).filter(|at| *at > now);
        let until = Some(self.until()).filter(|_| self.waits());
        earliest(earliest(self.next_look.filter(|at| *at > now), report), until)
    }

    pub(super) fn retry(&mut self) {
        self.backoff.succeeded();
        self.retries.succeeded();
        if self.pulled.is_none() {
            self.next_look = None;
        }
    }
}

/// The image in the stored answer.
fn stored_image(before: Option<&Answer>) -> Option<&Pulled> {
    before?.image.as_ref()?.pulled.as_ref()
}

/// Whether both are one image, pulled or already present.
fn is_same(one: &Pulled, other: &Pulled) -> bool {
    (&one.image_id, &one.digest) == (&other.image_id, &other.digest)
}

/// Whether no other answer follows it.
fn is_final(stored: &Answer) -> bool {
    matches!(stored.state, AnswerState::Refused | AnswerState::Failed)
}
