//! What a decision about one resize sees.

use std::collections::BTreeMap;

use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::resize::{Phase, PodResizeSpec, PodResizeStatus, Restoring, conditions};

use super::judge::{Place, Progress, is_back, progress, return_progress, stopped};
use super::refusal;
use super::restart;
use super::shrink::{containers, place};
use super::status::{EVICTED, NODE_BUSY, NODE_CAPACITY};
use crate::before::Before;
use crate::change::Sizing;
use crate::deed::{Deed, Done};
use crate::hold::Force;
use crate::hold::admission::{Crowd, FRESH, Surveyed};
use crate::key::ObjectKey;
use crate::kind::{Dormant, Relative};
use crate::look::Look;
use crate::nodework::OrderView;
use crate::pod::Pod;
use crate::reduced::Reduced;
use crate::time::{Mono, note_since};

/// A `PodResize`, reduced to what decisions need.
pub type Resize = Reduced<PodResizeSpec, PodResizeStatus>;

impl Resize {
    /// The Pod that it names.
    pub fn pod_key(&self) -> ObjectKey {
        ObjectKey::new(&self.key.namespace, &self.spec.pod_ref.name)
    }

    /// It has ended.
    pub fn completed(&self) -> bool {
        self.status.completion_time.is_some()
    }

    /// It was accepted and has not ended.
    pub fn started(&self) -> bool {
        !self.completed() && self.status.target.is_some()
    }

    /// It is at work on that very Pod.
    pub fn started_for(&self, pod: &Pod) -> bool {
        !self.deleting && self.started() && self.is_for(pod)
    }

    /// The kubelet's words on a resize of the Pod that waited when this one was accepted.
    pub fn pending_before(&self) -> &str {
        self.status.target.as_ref().map_or("", |target| &target.pending_before)
    }

    /// The end that comes once the Pod is evicted, while it is.
    pub fn evicting(&self) -> Option<&Restoring> {
        self.status.restoring.as_ref().filter(|restoring| restoring.reason == EVICTED)
    }

    /// The original resources are to be put back, or are back.
    fn returns(&self) -> bool {
        self.status.restoring.is_some() && self.evicting().is_none()
    }

    /// That is what its status says that it waits for.
    pub(super) fn waits_for(&self, reason: &str) -> bool {
        let complete = condition::find(&self.status.conditions, conditions::COMPLETE);
        !self.completed() && complete.is_some_and(|complete| complete.reason == reason)
    }

    /// Why, by its status, what it gave does not count any more.
    pub fn told_dormant(&self) -> Option<&str> {
        let told = condition::find(&self.status.conditions, conditions::IN_FORCE);
        told.filter(|told| told.status == ConditionStatus::False).map(|told| told.reason.as_str())
    }

    /// What bounds the Pod is known, and is to be judged by: the request is not accepted yet.
    pub fn is_admitted_by(&self, now: Mono, survey: &Surveyed) -> bool {
        survey.at.after(FRESH) >= now && self.status.target.is_none()
    }

    /// It was accepted for that very Pod.
    pub fn is_for(&self, pod: &Pod) -> bool {
        self.status.target.as_ref().is_some_and(|target| target.pod_uid == pod.uid)
    }
}

/// What this process remembers of a resize; lost when it ends, and then counted anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When this process first saw the request.
    pub first_seen: Mono,
    /// When it first saw the request completed.
    pub completed_seen: Option<Mono>,
    /// The Pod's spec was seen with what the request means.
    pub applied: bool,
    /// Since when the Pod is being changed, without an end of that.
    pub busy_since: Option<Mono>,
    /// Since when the node is too small.
    pub infeasible_since: Option<Mono>,
    /// Since when the node has no room.
    pub deferred_since: Option<Mono>,
    /// Since when the Pod has what the request means.
    pub sized_since: Option<Mono>,
    /// Since when all is done but for a CPU limit that the kubelet does not tell.
    pub untold_since: Option<Mono>,
    /// Since when the kubelet has said that it is done, though it may have said something else later.
    pub done_since: Option<Mono>,
    /// Since when the Pod's spec is at the smallest step beyond what the request means.
    pub nudged_since: Option<Mono>,
    /// How often it was seen to get there.
    pub nudges: u32,
    /// Since when a container does not run that has what the request means only once it does.
    pub stuck_since: Option<Mono>,
    /// Since when the original resources are being put back.
    pub restoring_since: Option<Mono>,
    /// The change was refused, and nothing else came since.
    pub refused: Option<Refused>,
    /// The request was accepted before this process saw it: a write of another process may still be on its way.
    pub inherited: Option<bool>,
    /// A dry run has shown that the change would be stored.
    pub tried: bool,
    /// When the API server last refused that to a request that waits for its turn.
    pub turned_down: Option<Mono>,
    /// Since when the daemon is asked what the kernel has.
    pub asked_since: Option<Mono>,
    /// Since when the daemon's answers are known, by the orders' IDs.
    pub answers: BTreeMap<String, Mono>,
    /// The recreate request that belongs to the resize was seen; whether it had restarted every container.
    pub restarted: Option<bool>,
    /// What came of what the resize has done.
    pub deeds: Deeds,
}

/// What came of what a resize has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// What took effect last, and when.
    pub done: Option<(Mono, Deed)>,
    /// It was refused, and nothing else came since.
    pub refused: Option<Refused>,
    /// It was put off: when, and in what words.
    pub put_off: Option<(Mono, String)>,
}

/// Refusals in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// How many.
    pub times: u32,
    /// Since when.
    pub since: Mono,
    /// When it was said last.
    pub last: Mono,
    /// What was said last.
    pub text: String,
}

impl Refused {
    fn again(before: Option<Self>, now: Mono, text: String) -> Self {
        let before = before.unwrap_or_else(|| Self { since: now, ..Self::default() });
        Self { times: before.times.saturating_add(1), last: now, text, ..before }
    }
}

impl Memory {
    /// First seen now.
    pub fn new(now: Mono) -> Self {
        Self { first_seen: now, ..Self::default() }
    }

    /// Notes since when the Pod is where it is.
    /// `held` are the orders by which the node's daemon gives the Pod what it should have, those that repair too.
    pub fn see(
        &mut self,
        now: Mono,
        resize: &Resize,
        pod: Option<&Pod>,
        orders: &[OrderView<'_>],
        held: &[OrderView<'_>],
    ) {
        self.see_answers(now, orders, held);
        self.inherited.get_or_insert(resize.started());
        note_since(&mut self.completed_seen, now, resize.completed());
        note_since(&mut self.restoring_since, now, resize.returns());
        let pod = pod.filter(|pod| resize.started_for(pod));
        let way = pod.filter(|_| !resize.returns()).and_then(|pod| Way::of(resize, pod));
        self.applied |= way.is_some();
        self.see_step(now, matches!(way, Some(Way { place: Place::Nudged(_), .. })));
        note_since(&mut self.untold_since, now, matches!(way, Some(Way { progress: Progress::Untold, .. })));
        let way = way.map(|way| way.settled(now, self.untold_since));
        note_since(&mut self.busy_since, now, pod.is_some_and(|pod| is_busy(resize, pod, way.as_ref())));
        note_since(&mut self.stuck_since, now, pod.is_some_and(|pod| is_stuck(resize, pod, way.as_ref())));
        self.see_room(now, resize, way.as_ref().map(|way| &way.progress));
        let sized = way.is_some_and(|way| way.place == Place::Desired && way.progress == Progress::Sized);
        note_since(&mut self.sized_since, now, sized);
        self.done_since = self.done_since.or(self.sized_since);
    }

    /// Notes since when the daemon has answered, and since when it has been silent: until it says something.
    fn see_answers(&mut self, now: Mono, orders: &[OrderView<'_>], held: &[OrderView<'_>]) {
        let answered = orders.iter().chain(held).filter(|o| o.answer.is_some()).map(|o| &o.order.id);
        self.answers =
            answered.map(|id| (id.clone(), self.answers.get(id).copied().unwrap_or(now))).collect();
        note_since(&mut self.asked_since, now, orders.iter().any(|o| o.answer.is_none()));
    }

    /// Notes since when the Pod's spec is at the smallest step beyond, and how often it got there.
    fn see_step(&mut self, now: Mono, nudged: bool) {
        self.nudges = self.nudges.saturating_add(u32::from(nudged && self.nudged_since.is_none()));
        note_since(&mut self.nudged_since, now, nudged);
    }

    /// Notes since when the node has no room, or is too small.
    fn see_room(&mut self, now: Mono, resize: &Resize, progress: Option<&Progress>) {
        // The one whose node has no room for what its daemon should give is not accepted yet.
        let open = resize.status.target.is_none();
        let waits = |reason| open && resize.waits_for(reason);
        let deferred = waits(NODE_BUSY) || matches!(progress, Some(Progress::Deferred(_)));
        note_since(&mut self.deferred_since, now, deferred);
        let refused = self.refused.as_ref().and_then(|refused| refusal::end(refused, now));
        if refused.is_some_and(|meaning| meaning.phase == Phase::Infeasible)
            || matches!(progress, Some(Progress::Infeasible(_)))
            || waits(NODE_CAPACITY)
        {
            self.infeasible_since.get_or_insert(now);
        } else if progress.is_some() || open {
            self.infeasible_since = None;
        }
    }

    /// Notes that a restart has the Pod, so that the change has yet to begin.
    pub fn put_off(&mut self, now: Mono) {
        if !self.applied {
            self.busy_since = self.busy_since.map(|_| now);
        }
    }

    /// Notes what is seen of the restart; `request`: the one under the name that the resize gives it.
    pub fn see_restart(&mut self, resize: &Resize, request: Option<&Relative<'_>>) {
        let own = request.filter(|request| request.is_of(&resize.uid));
        self.restarted = self.restarted.max(own.map(restart::succeeded));
    }

    /// What the resize has done came back.
    pub fn deed_done(&mut self, now: Mono, deed: Deed, done: Done) {
        let before = std::mem::take(&mut self.deeds);
        match done {
            Done::Effected | Done::Gone => self.deeds.done = Some((now, deed)),
            Done::Told(_) | Done::Conflict => {}
            Done::Retry(text) => self.deeds.put_off = Some((now, text)),
            Done::Refused(text) => self.deeds.refused = Some(Refused::again(before.refused, now, text)),
        }
    }

    /// Since when the answer to an order is known.
    pub fn answered_since(&self, order_id: &str) -> Option<Mono> {
        self.answers.get(order_id).copied()
    }

    /// A dry run came back: the change would be stored, is refused with that text, or nobody knows. `asks`: that is all
    /// that the request wants to know.
    pub fn sizing_tried(&mut self, now: Mono, asks: bool, stored: bool, refused: Option<String>) {
        self.tried |= stored;
        if asks {
            self.sizing_written(now, refused);
        } else if refused.is_some() {
            self.turned_down = Some(now);
        }
    }

    /// A write of the Pod's resources came back: refused with that text, or else.
    pub fn sizing_written(&mut self, now: Mono, refused: Option<String>) {
        self.refused = refused.map(|text| Refused::again(self.refused.take(), now, text));
    }
}

/// Where a Pod is whose spec has begun to say what a request means.
struct Way {
    place: Place,
    progress: Progress,
}

impl Way {
    /// Absent while its spec says what it said before, or what somebody else wants.
    fn of(resize: &Resize, pod: &Pod) -> Option<Self> {
        let place = place(resize, pod);
        if !matches!(place, Place::Desired | Place::Between(_) | Place::Nudged(_)) {
            return None;
        }
        let progress = progress(&containers(resize, &place), resize.pending_before(), pod);
        Some(Self { place, progress })
    }

    fn settled(self, now: Mono, untold_since: Option<Mono>) -> Self {
        Self { progress: self.progress.settled(now, untold_since), ..self }
    }
}

/// The Pod is being changed, there or back.
fn is_busy(resize: &Resize, pod: &Pod, way: Option<&Way>) -> bool {
    if resize.spec.dry_run || resize.evicting().is_some() {
        return false;
    }
    if resize.returns() {
        let all = &resize.status.containers;
        return !is_back(all, pod) || return_progress(all, pod) != Progress::Sized;
    }
    match way {
        Some(Way { place: Place::Desired, progress }) => progress.changes(),
        Some(_) => true,
        None => place(resize, pod) == Place::Original,
    }
}

/// A container does not run that has what the Pod's spec says, there or back, only once it does.
fn is_stuck(resize: &Resize, pod: &Pod, way: Option<&Way>) -> bool {
    let down = |progress: &Progress| matches!(progress, Progress::Restarting(name) if stopped(pod, name));
    let all = &resize.status.containers;
    if resize.returns() {
        return is_back(all, pod) && down(&return_progress(all, pod));
    }
    way.is_some_and(|way| way.place == Place::Desired && down(&way.progress))
}

/// What goes before a resize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The request.
    pub by: Before,
    /// An earlier resize is at work on the Pod, and gives way once this one is seen to be possible.
    pub gives_way: bool,
}

/// All that a decision about one resize sees.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The request.
    pub resize: &'a Resize,
    /// The Pod under the name that the request gives. Where the node's daemon carries the request out: as its requests and
    /// the daemon make it.
    pub pod: Option<&'a Pod>,
    /// The same as the API server tells it.
    pub told: Option<&'a Pod>,
    /// What the node's daemon should give the Pod, by this request and others.
    pub force: &'a Force,
    /// The orders by which the daemon does so, in the node's book.
    pub held: Vec<OrderView<'a>>,
    /// A later resize of the same Pod, which was seen to be possible.
    pub newer: Option<&'a ObjectKey>,
    /// What goes first for the same Pod.
    pub ahead: Option<Ahead>,
    /// A write of the Pod's resources is under way, or nobody knows yet how it ended.
    pub sizing_now: bool,
    /// What the request has in a write of the Pod that is under way, or of which nobody knows yet how it ended.
    pub sizing: Option<&'a Sizing>,
    /// The recreate request of the name by which the resize restarts its containers.
    pub restart: Option<Relative<'a>>,
    /// What the request has done that is under way, or of which nobody knows yet how it ended.
    pub deed: Option<&'a Deed>,
    /// The request's orders in the node's book: what it asks, and what memory it has reclaimed.
    pub orders: Vec<OrderView<'a>>,
    /// Its orders that repair the cgroup of the Pod; they are none of `orders`.
    pub repairs: Vec<OrderView<'a>>,
    /// The daemon has a record of the Pod: it holds the Pod at other resources than those of its spec, or has yet to give
    /// them back.
    pub recorded: bool,
    /// The last attempt that an order of the request can have had, though the order may be gone.
    pub last_attempt: u32,
    /// The API server is known to keep each daemon to its own node, so that orders may be placed.
    pub guarded: bool,
    /// What came of the last survey.
    pub survey: Option<&'a Surveyed>,
    /// A later request had its place and is gone: whether what it gave counts again. Absent while nobody has asked.
    pub anew: Option<&'a Result<(), Dormant>>,
    /// What other Pods take of what the survey found. Absent without a survey, after acceptance, and while the acceptance
    /// of another resize that counts is being written.
    pub crowd: Option<Crowd<'a>>,
    /// What is known of the Pod while the watch does not show it.
    pub look: &'a Look,
    /// What this process remembers.
    pub memory: &'a Memory,
}
