//! Inputs of a decision about one resize.

use std::collections::BTreeMap;

use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::resize::{Phase, PodResizeSpec, PodResizeStatus, Restoring, conditions};

use super::judge::{Progress, SpecState, is_restored, progress, restore_progress, stopped};
use super::refusal;
use super::restart;
use super::shrink::{containers, spec_state};
use super::status::{EVICTED, NODE_BUSY, NODE_CAPACITY};
use crate::blocker::Blocker;
use crate::change::Sizing;
use crate::deed::{Deed, Done};
use crate::hold::Force;
use crate::hold::admission::{FRESH, LastSurvey, Usage};
use crate::key::ObjectKey;
use crate::kind::{Dormant, Relative};
use crate::nodework::OrderView;
use crate::pod::Pod;
use crate::pod_check::PodCheck;
use crate::reduced::Reduced;
use crate::time::{Mono, note_since};

/// A `PodResize`, reduced to what decisions need.
pub type Resize = Reduced<PodResizeSpec, PodResizeStatus>;

impl Resize {
    /// Key of the Pod that the request names.
    pub fn pod_key(&self) -> ObjectKey {
        ObjectKey::new(&self.key.namespace, &self.spec.pod_ref.name)
    }

    /// Whether the request has ended.
    pub fn completed(&self) -> bool {
        self.status.completion_time.is_some()
    }

    /// Whether the request was accepted and has not ended.
    pub fn started(&self) -> bool {
        !self.completed() && self.status.target.is_some()
    }

    /// Whether the request is at work on this exact Pod.
    pub fn started_for(&self, pod: &Pod) -> bool {
        !self.deleting && self.started() && self.is_for(pod)
    }

    /// Message of the kubelet about a resize that was pending when this request was accepted; empty if none was.
    pub fn pending_before(&self) -> &str {
        self.status.target.as_ref().map_or("", |target| &target.pending_before)
    }

    /// The end that follows the eviction; `None` unless the request evicts its Pod.
    pub fn evicting(&self) -> Option<&Restoring> {
        self.status.restoring.as_ref().filter(|restoring| restoring.reason == EVICTED)
    }

    /// Whether the request restores the original resources, or has restored them.
    fn restores(&self) -> bool {
        self.status.restoring.is_some() && self.evicting().is_none()
    }

    /// Whether the status gives this reason for a wait.
    pub(super) fn waits_for(&self, reason: &str) -> bool {
        let complete = condition::find(&self.status.conditions, conditions::COMPLETE);
        !self.completed() && complete.is_some_and(|complete| complete.reason == reason)
    }

    /// Reason of the condition `InForce=False`, if the status has it.
    pub fn dormant_reason(&self) -> Option<&str> {
        let in_force = condition::find(&self.status.conditions, conditions::IN_FORCE);
        in_force.filter(|c| c.status == ConditionStatus::False).map(|c| c.reason.as_str())
    }

    /// Whether admission can use the survey: it is fresh and the request is not accepted yet.
    pub fn is_admitted_by(&self, now: Mono, survey: &LastSurvey) -> bool {
        survey.ended.after(FRESH) >= now && self.status.target.is_none()
    }

    /// Whether the request was accepted for this exact Pod.
    pub fn is_for(&self, pod: &Pod) -> bool {
        self.status.target.as_ref().is_some_and(|target| target.pod_uid == pod.uid)
    }
}

/// What this process remembers of a resize. A new process counts anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// When this process first saw the request.
    pub first_seen: Mono,
    /// When it first saw the request completed.
    pub completed_seen: Option<Mono>,
    /// Whether the Pod's spec was seen with resources of the request.
    pub applied: bool,
    /// Since when the Pod is being changed; `None` once that ends.
    pub busy_since: Option<Mono>,
    /// Since when the node is too small.
    pub infeasible_since: Option<Mono>,
    /// Since when the node has no room.
    pub deferred_since: Option<Mono>,
    /// Since when the Pod has the desired resources.
    pub sized_since: Option<Mono>,
    /// Since when the kubelet is done, but reports another CPU limit.
    pub unreported_since: Option<Mono>,
    /// When the kubelet first reported the resize as done; a later report does not reset it.
    pub done_since: Option<Mono>,
    /// Since when the Pod's spec has a nudge: the smallest step above the desired resources.
    pub nudged_since: Option<Mono>,
    /// Number of nudges seen.
    pub nudges: u32,
    /// Since when the change only waits for a stopped container to run.
    pub stuck_since: Option<Mono>,
    /// Since when the original resources are being restored.
    pub restoring_since: Option<Mono>,
    /// Refusals of the change in a row; `None` after another result.
    pub refused: Option<Refusals>,
    /// Whether the request was accepted before this process saw it. Then a write of another process may still be on its
    /// way.
    pub inherited: Option<bool>,
    /// A dry run has shown that the API server would store the change.
    pub dry_run_passed: bool,
    /// When the API server last refused the dry run of a request that waits for its turn.
    pub dry_run_refused: Option<Mono>,
    /// Since when a question to the daemon is unanswered.
    pub asked_since: Option<Mono>,
    /// When each answer of the daemon was first seen, by order ID.
    pub answers: BTreeMap<String, Mono>,
    /// Whether the resize's recreate request restarted every container; `None` while it was never seen.
    pub restarted: Option<bool>,
    /// Results of the resize's deeds.
    pub deeds: Deeds,
}

/// Results of a resize's deeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deeds {
    /// The last deed and its time, if it took effect.
    pub done: Option<(Mono, Deed)>,
    /// Refusals in a row; `None` after another result.
    pub refused: Option<Refusals>,
    /// Time and message, if the last deed was put off.
    pub postponed: Option<(Mono, String)>,
}

/// Refusals in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Number of refusals.
    pub times: u32,
    /// Time of the first one.
    pub since: Mono,
    /// Time of the last one.
    pub last: Mono,
    /// Text of the last one.
    pub text: String,
}

impl Refusals {
    fn add(before: Option<Self>, now: Mono, text: String) -> Self {
        let before = before.unwrap_or_else(|| Self { since: now, ..Self::default() });
        Self { times: before.times.saturating_add(1), last: now, text, ..before }
    }
}

impl Memory {
    /// Memory of a resize that is first seen now.
    pub fn new(now: Mono) -> Self {
        Self { first_seen: now, ..Self::default() }
    }

    /// Updates the memory from Pod and orders. `held`: orders by which the daemon sets resources, including repairs.
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
        note_since(&mut self.restoring_since, now, resize.restores());
        let pod = pod.filter(|pod| resize.started_for(pod));
        let change = pod.filter(|_| !resize.restores()).and_then(|pod| ChangeState::of(resize, pod));
        self.applied |= change.is_some();
        let nudged = matches!(change, Some(ChangeState { spec: SpecState::Nudged(_), .. }));
        self.nudges = self.nudges.saturating_add(u32::from(nudged && self.nudged_since.is_none()));
        note_since(&mut self.nudged_since, now, nudged);
        let unreported = matches!(change, Some(ChangeState { progress: Progress::Unreported, .. }));
        note_since(&mut self.unreported_since, now, unreported);
        let change = change.map(|change| change.settled(now, self.unreported_since));
        note_since(&mut self.busy_since, now, pod.is_some_and(|pod| is_busy(resize, pod, change.as_ref())));
        note_since(&mut self.stuck_since, now, pod.is_some_and(|pod| is_stuck(resize, pod, change.as_ref())));
        self.see_room(now, resize, change.as_ref().map(|change| &change.progress));
        let sized = change.is_some_and(|c| c.spec == SpecState::Desired && c.progress == Progress::Sized);
        note_since(&mut self.sized_since, now, sized);
        self.done_since = self.done_since.or(self.sized_since);
    }

    /// Notes when answers came, and since when a question is unanswered.
    fn see_answers(&mut self, now: Mono, orders: &[OrderView<'_>], held: &[OrderView<'_>]) {
        let answered = orders.iter().chain(held).filter(|o| o.answer.is_some()).map(|o| &o.order.id);
        self.answers =
            answered.map(|id| (id.clone(), self.answers.get(id).copied().unwrap_or(now))).collect();
        note_since(&mut self.asked_since, now, orders.iter().any(|o| o.answer.is_none()));
    }

    /// Notes since when the node has no room, or is too small.
    fn see_room(&mut self, now: Mono, resize: &Resize, progress: Option<&Progress>) {
        // With the mechanism CRI, a request that waits for room is not accepted yet.
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

    /// Restarts `busy_since` while a restart has the Pod and the change is not applied.
    pub fn reset_busy(&mut self, now: Mono) {
        if !self.applied {
            self.busy_since = self.busy_since.map(|_| now);
        }
    }

    /// Notes the state of the restart. `request`: the recreate request with the name that the resize uses.
    pub fn see_restart(&mut self, resize: &Resize, request: Option<&Relative<'_>>) {
        let own = request.filter(|request| request.is_of(&resize.uid));
        self.restarted = self.restarted.max(own.map(restart::succeeded));
    }

    /// Notes the result of a deed.
    pub fn deed_done(&mut self, now: Mono, deed: Deed, done: Done) {
        let before = std::mem::take(&mut self.deeds);
        match done {
            Done::Effected | Done::Gone => self.deeds.done = Some((now, deed)),
            Done::Read(_) | Done::Conflict => {}
            Done::Retry(text) => self.deeds.postponed = Some((now, text)),
            Done::Refused(text) => self.deeds.refused = Some(Refusals::add(before.refused, now, text)),
        }
    }

    /// When the answer to an order was first seen.
    pub fn answered_since(&self, order_id: &str) -> Option<Mono> {
        self.answers.get(order_id).copied()
    }

    /// Notes the result of a dry run: stored, refused with a text, or unknown. `dry_run`: the request itself is one.
    pub fn dry_run_done(&mut self, now: Mono, dry_run: bool, stored: bool, refused: Option<String>) {
        self.dry_run_passed |= stored;
        if dry_run {
            self.sizing_written(now, refused);
        } else if refused.is_some() {
            self.dry_run_refused = Some(now);
        }
    }

    /// Notes the result of a write of the Pod's resources; `refused`: text of a refusal.
    pub fn sizing_written(&mut self, now: Mono, refused: Option<String>) {
        self.refused = refused.map(|text| Refusals::add(self.refused.take(), now, text));
    }
}

/// State of the change, once the Pod's spec has resources of the request.
struct ChangeState {
    spec: SpecState,
    progress: Progress,
}

impl ChangeState {
    /// `None` if the Pod's spec has the original resources, or those of another client.
    fn of(resize: &Resize, pod: &Pod) -> Option<Self> {
        let spec = spec_state(resize, pod);
        if !matches!(spec, SpecState::Desired | SpecState::Between(_) | SpecState::Nudged(_)) {
            return None;
        }
        let progress = progress(&containers(resize, &spec), resize.pending_before(), pod);
        Some(Self { spec, progress })
    }

    fn settled(self, now: Mono, unreported_since: Option<Mono>) -> Self {
        Self { progress: self.progress.settled(now, unreported_since), ..self }
    }
}

/// Whether the Pod is being changed or restored.
fn is_busy(resize: &Resize, pod: &Pod, change: Option<&ChangeState>) -> bool {
    if resize.spec.dry_run || resize.evicting().is_some() {
        return false;
    }
    if resize.restores() {
        let all = &resize.status.containers;
        return !is_restored(all, pod) || restore_progress(all, pod) != Progress::Sized;
    }
    match change {
        Some(ChangeState { spec: SpecState::Desired, progress }) => progress.changes(),
        Some(_) => true,
        None => spec_state(resize, pod) == SpecState::Original,
    }
}

/// Whether the change or restore only waits for a stopped container to run.
fn is_stuck(resize: &Resize, pod: &Pod, change: Option<&ChangeState>) -> bool {
    let down = |progress: &Progress| matches!(progress, Progress::Restarting(name) if stopped(pod, name));
    let all = &resize.status.containers;
    if resize.restores() {
        return is_restored(all, pod) && down(&restore_progress(all, pod));
    }
    change.is_some_and(|change| change.spec == SpecState::Desired && down(&change.progress))
}

/// Why a resize waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The other request, or the limit of the namespace.
    pub blocker: Blocker,
    /// An earlier resize of the Pod gives way once this one is known to be possible.
    pub gives_way: bool,
}

/// All inputs of a decision about one resize.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The request.
    pub resize: &'a Resize,
    /// The Pod that the request names. With the mechanism CRI, it has the resources in force and those that the daemon
    /// gave.
    pub pod: Option<&'a Pod>,
    /// The same Pod as the API server shows it.
    pub api_pod: Option<&'a Pod>,
    /// Resources that the daemon should give the Pod, for this request and others.
    pub force: &'a Force,
    /// Orders in the node's book by which the daemon gives those resources.
    pub held: Vec<OrderView<'a>>,
    /// A later resize of the same Pod, which was seen to be possible.
    pub newer: Option<&'a ObjectKey>,
    /// Why the request waits for its turn; `None` if it does not.
    pub ahead: Option<Ahead>,
    /// A write of the Pod's resources is under way, or its result is unknown.
    pub sizing_now: bool,
    /// The request's change in a write that is under way, or whose result is unknown.
    pub sizing: Option<&'a Sizing>,
    /// The recreate request with the name that the resize uses for its restart.
    pub restart: Option<Relative<'a>>,
    /// The request's deed that is under way, or whose result is unknown.
    pub deed: Option<&'a Deed>,
    /// The request's orders in the node's book: questions, and orders to reclaim memory.
    pub orders: Vec<OrderView<'a>>,
    /// The request's orders to repair the Pod's cgroup; not part of `orders`.
    pub repairs: Vec<OrderView<'a>>,
    /// The daemon has a record of the Pod: it holds the Pod, or has yet to restore the resources of its spec.
    pub recorded: bool,
    /// Highest attempt that an order of the request can have had, even if the order is gone.
    pub last_attempt: u32,
    /// The API server is known to restrict each daemon to its own node, so orders may be placed.
    pub guarded: bool,
    /// Result of the last survey.
    pub survey: Option<&'a LastSurvey>,
    /// Whether the resources are in force again after a later request that replaced them is gone; `None` if not checked
    /// yet.
    pub reinstated: Option<&'a Result<(), Dormant>>,
    /// Resources in the survey that other Pods take. `None` without a fresh survey, after acceptance, and while the
    /// acceptance of another resize that counts is being written.
    pub usage: Option<Usage<'a>>,
    /// Answers of the API server about a Pod that the watch does not show.
    pub pod_check: &'a PodCheck,
    /// Memory of this process.
    pub memory: &'a Memory,
}
