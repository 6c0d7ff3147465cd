//! The status of an update.

use std::time::Duration;

use chrono::{DateTime, Utc};
use pitstop_api::condition::{self, Condition, ConditionStatus, Progress, Summary};
use pitstop_api::image_update::{
    ContainerStatus, Phase, PodImageUpdateStatus, Pull, Restoring, Target, conditions,
};

use super::observe::{ImageUpdate, Observed};
use crate::blocker::Blocker;
use crate::change::Note;
use crate::config::Config;
use crate::drain::{self, initial_condition};
use crate::guard::POLICY;
use crate::kind::{UNKNOWN, end_note, note};
use crate::pod::Pod;

/// What a request waits for: its reason, its phase meanwhile, and a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) phase: Phase,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Wait {
    pub(super) fn new(phase: Phase, reason: &'static str, message: impl Into<String>) -> Self {
        Self { phase, reason, message: message.into() }
    }

    pub(super) fn policy() -> Self {
        let text = format!(
            "places no order until the ValidatingAdmissionPolicy {POLICY} restricts each daemon to its own \
             node: apply it and its binding"
        );
        Self::new(Phase::Pulling, WAITING_FOR_POLICY, text)
    }

    /// A puller Pod has pulled: the daemon is asked.
    pub(super) fn proof() -> Self {
        let text = "the kubelet has pulled: waits for the node's daemon to confirm the image";
        Self::new(Phase::Pulling, DAEMON, text)
    }

    /// The node's daemon is to pull. The message fits before the daemon's first answer and while it pulls, so it is
    /// written once, at the acceptance.
    pub(super) fn asked(silent_after: Duration) -> Self {
        let limit = silent_after.as_secs();
        let text =
            format!("the node's daemon is asked to pull ({DAEMON_SILENT} if it says nothing for {limit} s)");
        Self::new(Phase::Pulling, PULLING, text)
    }
}

/// Others go first.
const QUEUED: &str = Blocker::REASONS[0];
/// The API server is asked whether it would store the change.
pub(super) const CHECKING: &str = "Checking";
/// The node's daemon has yet to report what a puller Pod has pulled.
pub(super) const DAEMON: &str = "WaitingForDaemon";
/// The node's order book has no place.
pub(super) const BOOK_FULL: &str = "WaitingForPlace";
/// No daemon is asked without the policy that keeps each to its own node.
pub(super) const WAITING_FOR_POLICY: &str = "WaitingForPolicy";
/// The node pulls.
pub(super) const PULLING: &str = "Pulling";
/// A puller Pod is made, or pulls.
pub(super) const PULLER: &str = "WaitingForPullerPod";
/// The request is suspended.
pub(super) const SUSPENDED: &str = "Suspended";
/// The change is sent to the API server.
pub(super) const WRITING: &str = "WritingImages";
/// The kubelet stops and starts containers.
pub(super) const KUBELET: &str = "WaitingForKubelet";
/// The Pod's node is not ready, so nothing new is known of its containers.
pub(super) const NODE: &str = "NodeNotReady";
/// A new container is not ready.
pub(super) const UNREADY: &str = "ContainerNotReady";
/// The daemon has not reported what runs.
pub(super) const ATTESTING: &str = "Attesting";
/// The new containers are watched.
pub(super) const OBSERVING: &str = "Observing";
/// The old images are put back.
pub(super) const ROLLING_BACK: &str = "RollingBack";
/// Every reason of a wait.
const WAITS: [&str; 21] = [
    QUEUED,
    Blocker::REASONS[1],
    drain::Wait::REASONS[0],
    drain::Wait::REASONS[1],
    drain::Wait::REASONS[2],
    drain::Wait::REASONS[3],
    CHECKING,
    DAEMON,
    BOOK_FULL,
    WAITING_FOR_POLICY,
    PULLING,
    PULLER,
    SUSPENDED,
    WRITING,
    KUBELET,
    NODE,
    UNREADY,
    ATTESTING,
    OBSERVING,
    ROLLING_BACK,
    PULLED,
];

/// The Pod runs the images.
pub(super) const UPDATED: &str = "Updated";
/// A dry run: the API server would store them.
pub(super) const WOULD_UPDATE: &str = "WouldUpdate";
/// The request is invalid for its Pod.
pub(super) const INVALID: &str = "Invalid";
/// The API server refuses the change.
pub(super) const REFUSED: &str = "Refused";
/// The Pod is gone.
pub(super) const POD_GONE: &str = "PodGone";
/// The deadline has passed.
pub(super) const DEADLINE: &str = "DeadlineExceeded";
/// The node's daemon never answered.
pub(super) const DAEMON_SILENT: &str = "DaemonNotResponding";
/// The node cannot have the image.
pub(super) const PULL_FAILED: &str = "PullFailed";
/// Nothing proves that the node can have it.
pub(super) const CANNOT_PROVE: &str = "CannotProvePull";
/// The node has no room for it.
pub(super) const NO_ROOM: &str = "NoDiskRoom";
/// Another writer has changed the images.
pub(super) const SUPERSEDED: &str = "Superseded";
/// The user has cancelled it.
pub(super) const CANCELLED: &str = "Cancelled";
/// Not ready in time, or not for long enough.
pub(super) const NOT_READY: &str = "NotReady";
/// A new container has ended.
pub(super) const EXITED: &str = "ContainerExited";
/// It has used up its memory.
pub(super) const OOM_KILLED: &str = "OOMKilled";
/// It has restarted.
pub(super) const RESTARTED: &str = "Restarted";
/// It runs another image than the pulled one.
pub(super) const OTHER_IMAGE: &str = "OtherImage";
/// The old images are not restored in time.
pub(super) const ROLLBACK_FAILED: &str = "RollbackFailed";
/// The kubelet cannot start a new container.
const NOT_STARTED: &str = "ContainerNotStarted";

/// Every reason of an end.
pub const REASONS: [&str; 25] = [
    UPDATED,
    WOULD_UPDATE,
    INVALID,
    REFUSED,
    POD_GONE,
    DEADLINE,
    DAEMON_SILENT,
    PULL_FAILED,
    CANNOT_PROVE,
    NO_ROOM,
    SUPERSEDED,
    CANCELLED,
    NOT_READY,
    EXITED,
    OOM_KILLED,
    RESTARTED,
    OTHER_IMAGE,
    ROLLBACK_FAILED,
    NOT_STARTED,
    "ImagePullBackOff",
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    UNKNOWN,
];

/// Those that mean success.
pub(super) const SUCCESSES: [&str; 2] = [UPDATED, WOULD_UPDATE];

/// The reason of an end for the kubelet's reason not to start a container.
pub(super) fn end_reason(reason: &str) -> &'static str {
    REASONS.into_iter().find(|known| *known == reason).unwrap_or(NOT_STARTED)
}

/// Reason of `Accepted` once the containers were found.
const RESOLVED: &str = "Resolved";
/// Reasons of `Pulled`, and of the wait of a request that needs no further pull and does not know its turn yet.
pub(super) const PULLED: &str = "Pulled";
const LEFT_TO_KUBELET: &str = "LeftToKubelet";

/// Reasons of the events on a request and its Pod.
const EVENTS: [&str; 3] = [STARTED, COMPLETED, FAILED];
const STARTED: &str = "ImageUpdateStarted";
const COMPLETED: &str = "ImageUpdateCompleted";
const FAILED: &str = "ImageUpdateFailed";

/// Every reason that a condition of a request, or an event on it and its Pod, can have, with repetitions.
pub fn all_reasons() -> impl Iterator<Item = &'static str> {
    let reasons = WAITS.into_iter().chain(REASONS).chain(EVENTS);
    let conditions = [RESOLVED, LEFT_TO_KUBELET, drain::NOT_DRAINED, conditions::DRAINED];
    reasons.chain(conditions).chain(Phase::ALL.map(Phase::name))
}

/// How a request ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) phase: Phase,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl End {
    pub(super) fn new(phase: Phase, reason: &'static str, message: impl Into<String>) -> Self {
        Self { phase, reason, message: message.into() }
    }

    /// An end that does not restore the old images.
    pub(super) fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Phase::Failed, reason, message)
    }

    /// An end because the new images fail.
    pub(super) fn bad(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Phase::RolledBack, reason, message)
    }
}

impl From<&Restoring> for End {
    fn from(restoring: &Restoring) -> Self {
        let known = REASONS.into_iter().find(|known| *known == restoring.reason);
        Self::new(restoring.phase, known.unwrap_or(UNKNOWN), restoring.message.clone())
    }
}

/// The status says that the Pod is taken out of service or changed.
pub(super) fn has_begun(status: &PodImageUpdateStatus) -> bool {
    condition::find(&status.conditions, conditions::DRAINED).is_some()
        || status.containers.iter().any(|container| !container.written.is_empty())
}

/// The status of a request that has just been accepted.
pub(super) fn accepted(
    update: &ImageUpdate,
    pod: &Pod,
    containers: Vec<ContainerStatus>,
    config: &Config,
    now: DateTime<Utc>,
) -> PodImageUpdateStatus {
    let mut status = update.status.clone();
    let node_name = pod.node.clone().unwrap_or_default();
    let text = format!("Pod {} on node {node_name}: {}", pod.uid, changes(update, &containers));
    status.target = Some(Target { pod_uid: pod.uid.clone(), node_name });
    status.containers = containers;
    set(&mut status, update, conditions::ACCEPTED, ConditionStatus::True, RESOLVED, &text, now);
    let wait = match update.spec.pull() {
        Pull::Required | Pull::IfPossible => Wait::asked(config.daemon_silent_after),
        Pull::Skip => Wait::new(Phase::Pulled, PULLED, "leaves the pull to the kubelet"),
    };
    waits(status, update, &wait, now)
}

/// `status` with this wait.
pub(super) fn waits(
    mut status: PodImageUpdateStatus,
    update: &ImageUpdate,
    wait: &Wait,
    now: DateTime<Utc>,
) -> PodImageUpdateStatus {
    let phase = wait.phase.name();
    let summary = Summary { progress: Progress::Open, phase, reason: wait.reason, message: &wait.message };
    record(&mut status, update, summary, now);
    status
}

/// Writes down how far the request is. The phase follows from the conditions.
fn record(status: &mut PodImageUpdateStatus, update: &ImageUpdate, summary: Summary<'_>, now: DateTime<Utc>) {
    condition::record(&mut status.conditions, summary, now, update.generation);
    status.phase = condition::phase(&status.conditions);
    status.observed_generation = update.generation;
}

/// Writes down that the node has the images, or that the pull is left to its kubelet.
pub(super) fn pulled(
    status: &mut PodImageUpdateStatus,
    update: &ImageUpdate,
    missing: Option<&str>,
    now: DateTime<Utc>,
) {
    let (value, reason, text) = match missing {
        None => {
            let of = |c: &ContainerStatus| {
                let pulled = c.pulled.as_ref()?;
                Some(format!("{}: {} ({} bytes)", c.name, pulled.digest, pulled.bytes))
            };
            let texts: Vec<String> = status.containers.iter().filter_map(of).collect();
            (ConditionStatus::True, PULLED, texts.join("; "))
        }
        Some(why) => (ConditionStatus::Unknown, LEFT_TO_KUBELET, format!("the kubelet is to pull: {why}")),
    };
    set(status, update, conditions::PULLED, value, reason, &text, now);
}

/// Writes down that the node cannot have the images.
pub(super) fn not_pulled(
    status: &mut PodImageUpdateStatus,
    update: &ImageUpdate,
    reason: &'static str,
    text: &str,
    now: DateTime<Utc>,
) {
    set(status, update, conditions::PULLED, ConditionStatus::False, reason, text, now);
}

/// Writes down that the drain begins.
pub(super) fn drain_begins(
    status: &mut PodImageUpdateStatus,
    update: &ImageUpdate,
    pod: &Pod,
    grace: i64,
    now: DateTime<Utc>,
) {
    let (reason, text) = initial_condition(pod, grace);
    set(status, update, conditions::DRAINED, ConditionStatus::False, reason, &text, now);
}

/// Writes down that the Pod was out of service before it was changed. If it could not be taken out, the condition
/// stays.
pub(super) fn drained(
    status: &mut PodImageUpdateStatus,
    update: &ImageUpdate,
    grace: i64,
    now: DateTime<Utc>,
) {
    let drained = condition::find(&status.conditions, conditions::DRAINED);
    if drained.is_some_and(|drained| drained.reason != drain::NO_GATE) {
        let text = format!("the Pod was not ready for {grace} s before it was changed");
        set(status, update, conditions::DRAINED, ConditionStatus::True, conditions::DRAINED, &text, now);
    }
}

/// The terminal status.
pub(super) fn ended(observed: &Observed<'_>, end: &End, now: DateTime<Utc>) -> PodImageUpdateStatus {
    let update = observed.update;
    let mut status = update.status.clone();
    status.restoring = None;
    status.completion_time = Some(now);
    status.message = condition::truncate(&end.message, condition::MAX_MESSAGE);
    if status.target.is_none() {
        set(&mut status, update, conditions::ACCEPTED, ConditionStatus::False, end.reason, &end.message, now);
    }
    let drains = condition::find(&status.conditions, conditions::DRAINED);
    if drains.is_some_and(|c| [drain::DRAINING, drain::GATE_IN_USE].contains(&c.reason.as_str())) {
        let text = "the request ended before the Pod was drained";
        set(&mut status, update, conditions::DRAINED, ConditionStatus::False, drain::NOT_DRAINED, text, now);
    }
    let progress = if end.phase == Phase::Succeeded { Progress::Succeeded } else { Progress::Failed };
    let (phase, reason) = (end.phase.name(), end.reason);
    record(&mut status, update, Summary { progress, phase, reason, message: &end.message }, now);
    status
}

fn set(
    status: &mut PodImageUpdateStatus,
    update: &ImageUpdate,
    type_: &'static str,
    value: ConditionStatus,
    reason: &'static str,
    message: &str,
    now: DateTime<Utc>,
) {
    condition::set(
        &mut status.conditions,
        Condition::new(type_, value, reason, message, now, update.generation),
    );
}

/// What changes, in one line: `app: web:v1 -> web:v2`.
pub(super) fn changes(update: &ImageUpdate, containers: &[ContainerStatus]) -> String {
    let of = |container: &ContainerStatus| {
        let wanted = update.spec.containers.iter().find(|wanted| wanted.name == container.name);
        let image = wanted.map_or("", |wanted| &wanted.image);
        format!("{}: {} -> {image}", container.name, container.before.image)
    };
    containers.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// The events for a change of status, once it is stored.
pub fn notes(update: &ImageUpdate, old: &PodImageUpdateStatus) -> Vec<Note> {
    let new = &update.status;
    let mut notes = Vec::new();
    // For the Pod of a rollout, the kubelet reports that and the new containers.
    let reports = update.owner.is_none();
    let begins = old.target.is_none() && new.target.is_some() && reports;
    if begins && !update.spec.dry_run {
        let text = format!("Request {} changes images: {}", update.key, changes(update, &new.containers));
        notes.push(note(update, false, STARTED, text));
    }
    notes.extend(end_note(update, old, [COMPLETED, FAILED]).filter(|note| note.warning || reports));
    notes
}
