//! Status, conditions and events of a resize.

use chrono::{DateTime, Utc};
use pitstop_api::condition::{self, Condition, ConditionStatus, Progress, Summary};
use pitstop_api::quantity::Resources;
use pitstop_api::resize::{
    ContainerStatus, Mechanism, Phase, PodResizeStatus, Restoring, Target, Values, conditions,
};

use super::observe::{Observed, Resize};
use super::verify::{self, Finding};
use super::{refusal, resolve};
use crate::blocker::Blocker;
use crate::change::Note;
pub(super) use crate::hold::admission::{ADMITTING, NODE_BUSY};
use crate::kind::{UNKNOWN, end_note, note};
use crate::pod::Pod;

/// Why a request waits: phase, reason, and a sentence.
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
}

/// Another request for the Pod goes first.
pub(super) const QUEUED: &str = Blocker::REASONS[0];
/// The namespace has the maximum number of open requests.
const TOO_MANY: &str = Blocker::REASONS[1];
/// The controller sends the change to the API server.
pub(super) const PROPOSING: &str = "Proposing";
/// The daemon has yet to take up or finish an order.
pub(super) const DAEMON: &str = "WaitingForDaemon";
/// The kubelet has yet to take up or finish the change.
pub(super) const KUBELET: &str = "WaitingForKubelet";
/// A memory limit is not lowered below the memory in use.
pub(super) const MEMORY_IN_USE: &str = "MemoryInUse";
/// The kubelet or the runtime fails, and tries again.
pub(super) const RUNTIME_ERROR: &str = "RuntimeError";
/// A container has yet to start again.
pub(super) const RESTART: &str = "WaitingForRestart";
/// The controller watches the Pod with its new resources.
pub(super) const OBSERVING: &str = "Observing";
/// The controller asks the daemon for the kernel's values.
pub(super) const VERIFYING: &str = "Verifying";
/// The kernel has other values than wanted.
pub(super) const KERNEL_DIFFERS: &str = "KernelDiffers";
/// The controller asks no daemon without the policy that restricts each to its own node.
pub(super) const POLICY: &str = "WaitingForPolicy";
/// The requested restart is under way.
pub(super) const RESTARTING: &str = "Restarting";
/// The node is too small, and may grow.
pub(super) const NODE_CAPACITY: &str = refusal::REASONS[0];
/// The controller evicts the Pod.
pub(super) const EVICTING: &str = "Evicting";
/// A `PodDisruptionBudget` delays the eviction.
pub(super) const DISRUPTION_BUDGET: &str = "DisruptionBudget";
/// The controller restores the original resources.
pub(super) const RESTORING: &str = "Restoring";
/// Every reason of a wait.
const WAITS: [&str; 19] = [
    ADMITTING,
    DAEMON,
    QUEUED,
    TOO_MANY,
    PROPOSING,
    KUBELET,
    NODE_BUSY,
    MEMORY_IN_USE,
    RUNTIME_ERROR,
    RESTART,
    OBSERVING,
    VERIFYING,
    KERNEL_DIFFERS,
    POLICY,
    RESTARTING,
    NODE_CAPACITY,
    EVICTING,
    DISRUPTION_BUDGET,
    RESTORING,
];

/// The Pod has the resources.
pub(super) const RESIZED: &str = "Resized";
/// A dry run: the Pod would get the resources.
pub(super) const WOULD_RESIZE: &str = "WouldResize";
/// The Pod is gone.
pub(super) const POD_GONE: &str = "PodGone";
/// The deadline has passed.
pub(super) const DEADLINE: &str = "DeadlineExceeded";
/// Another client changed the Pod's resources, or a later request replaces this one.
pub(super) const SUPERSEDED: &str = "Superseded";
/// The user cancelled the request.
pub(super) const CANCELLED: &str = "Cancelled";
/// A container ran out of memory.
pub(super) const OOM_KILLED: &str = "OOMKilled";
/// A container has restarted.
pub(super) const RESTARTED: &str = "Restarted";
/// Not all containers were restarted as requested.
pub(super) const RESTART_FAILED: &str = "RestartFailed";
/// The Pod was evicted as requested.
pub(super) const EVICTED: &str = "Evicted";
/// The requested eviction is not possible.
pub(super) const EVICTION_FORBIDDEN: &str = "EvictionForbidden";
/// The Pod is not ready.
pub(super) const NOT_READY: &str = "NotReady";

/// Every reason of an end.
pub const REASONS: [&str; 27] = [
    RUNTIME_ERROR,
    RESIZED,
    WOULD_RESIZE,
    resolve::INVALID,
    resolve::WOULD_RESTART,
    POD_GONE,
    DEADLINE,
    SUPERSEDED,
    CANCELLED,
    NODE_BUSY,
    OOM_KILLED,
    RESTARTED,
    NOT_READY,
    RESTART_FAILED,
    EVICTED,
    EVICTION_FORBIDDEN,
    refusal::REASONS[0],
    refusal::REASONS[1],
    refusal::REASONS[2],
    refusal::REASONS[3],
    refusal::REASONS[4],
    refusal::REASONS[5],
    refusal::REASONS[6],
    refusal::REASONS[7],
    refusal::REFUSED,
    refusal::INFEASIBLE,
    UNKNOWN,
];

/// Reasons of a success.
pub const SUCCESSES: [&str; 2] = [RESIZED, WOULD_RESIZE];

/// Reason of `Accepted` once the containers were found.
const RESOLVED: &str = "Resolved";

/// Reasons of the events on a request and its Pod.
const EVENTS: [&str; 3] = [STARTED, COMPLETED, FAILED];
const STARTED: &str = "ResizeStarted";
const COMPLETED: &str = "ResizeCompleted";
const FAILED: &str = "ResizeFailed";

/// Every reason of a request's conditions and of events about it, with repetitions.
pub fn all_reasons() -> impl Iterator<Item = &'static str> {
    let reasons = WAITS.into_iter().chain(REASONS).chain(EVENTS).chain(verify::REASONS);
    reasons.chain([RESOLVED]).chain(PHASES.map(Phase::name))
}

/// Every phase: the reasons of `Reconciling`.
const PHASES: [Phase; 9] = [
    Phase::Proposed,
    Phase::Deferred,
    Phase::InProgress,
    Phase::Verifying,
    Phase::Succeeded,
    Phase::Infeasible,
    Phase::Failed,
    Phase::RolledBack,
    Phase::Cancelled,
];

/// The equal entry of [`REASONS`], or `Unknown`.
fn known(reason: &str) -> &'static str {
    REASONS.into_iter().find(|known| *known == reason).unwrap_or(UNKNOWN)
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

    pub(super) fn failed(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Phase::Failed, reason, message)
    }
}

impl From<End> for Restoring {
    fn from(end: End) -> Self {
        Self {
            phase: end.phase,
            reason: end.reason.to_owned(),
            message: condition::truncate(&end.message, condition::MAX_MESSAGE),
        }
    }
}

impl From<&Restoring> for End {
    fn from(restoring: &Restoring) -> Self {
        Self::new(restoring.phase, known(&restoring.reason), restoring.message.clone())
    }
}

/// The status of a request that has just been accepted.
pub(super) fn accepted(
    resize: &Resize,
    pod: &Pod,
    (mechanism, turn): (Mechanism, i64),
    containers: Vec<ContainerStatus>,
    now: DateTime<Utc>,
) -> PodResizeStatus {
    let mut status = resize.status.clone();
    let node_name = pod.node.clone().unwrap_or_default();
    let text = format!("Pod {} on node {node_name}: {}", pod.uid, changes(&containers));
    let pending_before = pod.resize.pending.as_ref().map_or("", |pending| &pending.message);
    let pending_before = condition::truncate(pending_before, condition::MAX_MESSAGE);
    status.target =
        Some(Target { pod_uid: pod.uid.clone(), node_name, ready: pod.ready, turn, pending_before });
    status.mechanism = Some(mechanism);
    status.containers = containers;
    record_resources(&mut status, Some(pod));
    set(&mut status, resize, conditions::ACCEPTED, ConditionStatus::True, RESOLVED, &text, now);
    let (reason, text) = match mechanism {
        Mechanism::Cri => (DAEMON, "asks the node's daemon"),
        Mechanism::Auto | Mechanism::Api => (PROPOSING, "sends the change to the API server"),
    };
    waits(status, resize, &Wait::new(Phase::Proposed, reason, text), now)
}

/// `status` with the wait recorded.
pub(super) fn waits(
    mut status: PodResizeStatus,
    resize: &Resize,
    wait: &Wait,
    now: DateTime<Utc>,
) -> PodResizeStatus {
    let phase = wait.phase.name();
    let summary = Summary { progress: Progress::Open, phase, reason: wait.reason, message: &wait.message };
    record_summary(&mut status, resize, summary, now);
    status
}

/// Records how far the request is. The phase follows from the conditions.
fn record_summary(status: &mut PodResizeStatus, resize: &Resize, summary: Summary<'_>, now: DateTime<Utc>) {
    condition::record(&mut status.conditions, summary, now, resize.generation);
    status.phase = condition::phase(&status.conditions);
    status.observed_generation = resize.generation;
}

/// The terminal status.
pub(super) fn ended(observed: &Observed<'_>, end: &End, now: DateTime<Utc>) -> PodResizeStatus {
    let resize = observed.resize;
    let mut status = resize.status.clone();
    record_resources(&mut status, observed.pod.filter(|pod| resize.is_for(pod)));
    status.restoring = None;
    status.completion_time = Some(now);
    status.message = condition::truncate(&end.message, condition::MAX_MESSAGE);
    if status.target.is_none() {
        set(&mut status, resize, conditions::ACCEPTED, ConditionStatus::False, end.reason, &end.message, now);
    }
    let progress = if end.phase == Phase::Succeeded { Progress::Succeeded } else { Progress::Failed };
    let (phase, reason) = (end.phase.name(), end.reason);
    record_summary(&mut status, resize, Summary { progress, phase, reason, message: &end.message }, now);
    status
}

/// Records the kernel's values that the daemon reported.
pub(super) fn record_verification(
    status: &mut PodResizeStatus,
    observed: &Observed<'_>,
    finding: &Finding,
    now: DateTime<Utc>,
) {
    for container in &mut status.containers {
        // Answers of `held` are older than those to questions.
        let orders = observed.held.iter().chain(&observed.orders);
        let answers = orders.filter(|o| o.order.container.name == container.name);
        container.cgroup = answers.filter_map(|o| o.answer?.observed.as_deref().copied()).next_back();
    }
    let (value, reason, text) = match finding {
        Finding::Matches => {
            let text = "the control groups of the containers and of the Pod have the wanted values";
            (ConditionStatus::True, verify::MATCH, text)
        }
        Finding::NoQuota(text) => (ConditionStatus::True, verify::NO_QUOTA, text.as_str()),
        Finding::Unknown(reason, text) => (ConditionStatus::Unknown, *reason, text.as_str()),
        Finding::Differs(text) => (ConditionStatus::False, KERNEL_DIFFERS, text.as_str()),
        Finding::Waits => return,
    };
    set(status, observed.resize, conditions::VERIFIED, value, reason, text, now);
}

/// Records whether the resources are in force again, after a later request that replaced them is gone.
pub(super) fn record_in_force(status: &mut PodResizeStatus, observed: &Observed<'_>, now: DateTime<Utc>) {
    let resize = observed.resize;
    match observed.reinstated {
        Some(Ok(())) if resize.dormant_reason().is_some() => {
            let text = "the resources apply again";
            set(status, resize, conditions::IN_FORCE, ConditionStatus::True, RESIZED, text, now);
        }
        Some(Err(dormant)) if resize.dormant_reason() != Some(dormant.reason) => {
            let text = format!(
                "the later PodResize that replaced this one is gone, but these resources do not apply: {}",
                dormant.text
            );
            let text = condition::truncate(&text, condition::MAX_MESSAGE);
            set(status, resize, conditions::IN_FORCE, ConditionStatus::False, dormant.reason, &text, now);
        }
        _ => {}
    }
}

/// Records the resources that the kubelet reports for each container.
pub(super) fn record_resources(status: &mut PodResizeStatus, pod: Option<&Pod>) {
    for container in &mut status.containers {
        let found = pod.and_then(|pod| pod.container(&container.name)).and_then(|c| c.status.as_ref());
        let Some(found) = found else { continue };
        container.allocated = found.allocated.as_ref().map(|allocated| Values::from(allocated).requests);
        container.actual = found.actual.as_ref().map(Values::from);
    }
}

fn set(
    status: &mut PodResizeStatus,
    resize: &Resize,
    type_: &'static str,
    value: ConditionStatus,
    reason: &'static str,
    message: &str,
    now: DateTime<Utc>,
) {
    condition::set(
        &mut status.conditions,
        Condition::new(type_, value, reason, message, now, resize.generation),
    );
}

/// Every amount of a container that changes: name in the spec, old value, new value.
fn differing(
    container: &ContainerStatus,
) -> impl Iterator<Item = (&'static str, Option<&str>, Option<&str>)> {
    let (from, to) = (&container.original, &container.desired);
    let amounts = [
        ("requests.cpu", from.requests.cpu.as_deref(), to.requests.cpu.as_deref()),
        ("requests.memory", from.requests.memory.as_deref(), to.requests.memory.as_deref()),
        ("limits.cpu", from.limits.cpu.as_deref(), to.limits.cpu.as_deref()),
        ("limits.memory", from.limits.memory.as_deref(), to.limits.memory.as_deref()),
    ];
    amounts.into_iter().filter(|(_, from, to)| from != to)
}

/// The changes in one line: `app: requests.cpu 100m -> 200m`.
pub(super) fn changes(containers: &[ContainerStatus]) -> String {
    let of = |container: &ContainerStatus| {
        let shown = |amount: Option<&str>| amount.unwrap_or("none").to_owned();
        let changed: Vec<String> = differing(container)
            .map(|(amount, from, to)| format!("{amount} {} -> {}", shown(from), shown(to)))
            .collect();
        (!changed.is_empty()).then(|| format!("{}: {}", container.name, changed.join(", ")))
    };
    let texts: Vec<String> = containers.iter().filter_map(of).collect();
    if texts.is_empty() {
        "nothing (the Pod's spec already has these resources)".to_owned()
    } else {
        texts.join("; ")
    }
}

/// Amounts that the request added and that cannot be removed in place: `limits.memory of app`.
pub(super) fn added(containers: &[ContainerStatus]) -> Vec<String> {
    let of = |c: &ContainerStatus| -> Vec<String> {
        let new = differing(c).filter(|(_, from, _)| from.is_none());
        new.map(|(amount, ..)| format!("{amount} of {}", c.name)).collect()
    };
    containers.iter().flat_map(of).collect()
}

/// The amounts of `to` that differ from `from`.
pub(super) fn difference(from: &Resources, to: &Resources) -> Resources {
    let changed = |from: Option<i64>, to: Option<i64>| to.filter(|_| from != to);
    Resources {
        cpu_request: changed(from.cpu_request, to.cpu_request),
        cpu_limit: changed(from.cpu_limit, to.cpu_limit),
        memory_request: changed(from.memory_request, to.memory_request),
        memory_limit: changed(from.memory_limit, to.memory_limit),
    }
}

/// Events for a change of the status, sent once the change is stored.
pub fn notes(resize: &Resize, old: &PodResizeStatus) -> Vec<Note> {
    let new = &resize.status;
    let mut notes = Vec::new();
    if old.target.is_none() && new.target.is_some() && !resize.spec.dry_run {
        let text = format!("Request {} resizes {}", resize.key, changes(&new.containers));
        notes.push(note(resize, false, STARTED, text));
    }
    notes.extend(end_note(resize, old, [COMPLETED, FAILED]));
    notes
}
