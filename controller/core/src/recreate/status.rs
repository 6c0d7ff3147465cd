//! From decisions to the status of a request, and from a change of status to events.

use chrono::{DateTime, Utc};
use pitstop_api::condition::{self, Condition, ConditionStatus, Progress, Summary};
use pitstop_api::recreate::{
    ContainerRecreateRequestStatus, ContainerRecreateState, ContainerStatusSnapshot, MAX_CONTAINER_ID, Phase,
    Target, conditions,
};

use super::drain;
use super::hooks;
use super::judge::replaced;
use super::observe::{Observed, Request};
use crate::blocker::{self, Blocker};
use crate::change::Note;
use crate::guard::POLICY;
use crate::kind::{Ahead, UNKNOWN, note};
use crate::pod::Pod;

/// Why a request waits; the reason of its condition `Complete=False`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Another request for the Pod goes first.
    Queued(Blocker),
    /// The Pod is not out of service, or not for long enough.
    Drain(drain::Wait),
    /// The API server is not known to keep each daemon to its own node, so no order is placed.
    Policy,
    /// The node's order book has no place for the order.
    BookFull,
    /// The node's daemon has not answered yet.
    Daemon,
    /// The daemon stops the container.
    Stopping(String),
    /// The container's image is not pinned yet.
    Pin(String),
    /// The container's image is pinned, and the kubelet has not ended it yet.
    Pinned(String),
    /// The daemon's stops of the container have no effect: its message.
    StopRetried(String, String),
    /// The daemon took the order up, and has been silent for longer than a stop can take, in seconds.
    StopOverdue(String, u64),
    /// The kubelet has not started the container again.
    Restart(String),
    /// The kubelet does not start the container: its message.
    NotStarted(String, String),
    /// The new container is not ready.
    NotReady(String),
    /// The new container is ready, and has not run for that many seconds yet.
    MinStarted(String, i32),
}

/// Every reason of [`Wait`].
pub(super) const WAITS: [&str; 18] = [
    Blocker::REASONS[0],
    Blocker::REASONS[1],
    drain::Wait::REASONS[0],
    drain::Wait::REASONS[1],
    drain::Wait::REASONS[2],
    drain::Wait::REASONS[3],
    "WaitingForPolicy",
    "WaitingForPlace",
    "WaitingForDaemon",
    "Stopping",
    "PinningImage",
    "WaitingForKubelet",
    "StopRetried",
    "StopOverdue",
    "WaitingForRestart",
    "ContainerNotStarted",
    "ContainerNotReady",
    "WaitingForMinStarted",
];

impl Wait {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Queued(blocker) => blocker.reason(),
            Self::Drain(wait) => wait.reason(),
            Self::Policy => "WaitingForPolicy",
            Self::BookFull => "WaitingForPlace",
            Self::Daemon => "WaitingForDaemon",
            Self::Stopping(_) => "Stopping",
            Self::Pin(_) => "PinningImage",
            Self::Pinned(_) => "WaitingForKubelet",
            Self::StopRetried(..) => "StopRetried",
            Self::StopOverdue(..) => "StopOverdue",
            Self::Restart(_) => "WaitingForRestart",
            Self::NotStarted(..) => "ContainerNotStarted",
            Self::NotReady(_) => "ContainerNotReady",
            Self::MinStarted(..) => "WaitingForMinStarted",
        }
    }

    pub(super) fn message(&self) -> String {
        match self {
            Self::Queued(blocker) => blocker.to_string(),
            Self::Drain(wait) => wait.message(),
            Self::Policy => format!(
                "places no order until the ValidatingAdmissionPolicy {POLICY} restricts each daemon to its \
                 own node: apply it and its binding"
            ),
            Self::BookFull => "waits for a place in the order book of the node: other requests have all \
                               places, or all that one namespace may have"
                .to_owned(),
            Self::Daemon => "waits for the node's daemon to take up the order".to_owned(),
            Self::Stopping(name) => format!("the node's daemon stops container {name}"),
            Self::Pin(name) => format!("pins the image of container {name} to the digest that it runs"),
            Self::Pinned(name) => {
                format!("waits for the kubelet to restart container {name}, whose image is pinned now")
            }
            Self::StopOverdue(name, seconds) => format!(
                "the node's daemon has been stopping container {name} for more than {seconds} s, longer than its grace \
                 period allows, and says nothing: look at the daemon and the runtime of that node"
            ),
            Self::StopRetried(name, words) => format!("container {name}: {words}"),
            Self::Restart(name) => format!("waits for the kubelet to start container {name} again"),
            Self::NotStarted(name, words) => format!("the kubelet does not start container {name}: {words}"),
            Self::NotReady(name) => format!("waits for the new container {name} to be ready"),
            Self::MinStarted(name, seconds) => {
                format!("waits for the new container {name} to have run for {seconds} s (minStartedSeconds)")
            }
        }
    }
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Every container was restarted.
    Complete,
    /// The request is invalid: why.
    Invalid(String),
    /// The Pod is gone.
    PodGone,
    /// The deadline has passed.
    DeadlineExceeded,
    /// The node's daemon never answered.
    DaemonSilent,
    /// The Pod's node has no container runtime.
    VirtualNode,
    /// A container could not be restarted.
    ContainerFailed,
}

/// Every reason of [`End`], and one for unknown reasons: the values of a label.
pub const REASONS: [&str; 8] = [
    COMPLETE,
    "Invalid",
    "PodGone",
    "DeadlineExceeded",
    "DaemonNotResponding",
    "VirtualNode",
    "ContainerFailed",
    UNKNOWN,
];
/// Reason of a success: what the column `RESULT` shows.
pub(super) const COMPLETE: &str = "Complete";

impl End {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Complete => COMPLETE,
            Self::Invalid(_) => "Invalid",
            Self::PodGone => "PodGone",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::DaemonSilent => "DaemonNotResponding",
            Self::VirtualNode => "VirtualNode",
            Self::ContainerFailed => "ContainerFailed",
        }
    }

    /// `status.message`, in `OpenKruise`'s words where it has some.
    fn message(&self) -> &str {
        match self {
            Self::Complete | Self::ContainerFailed => "",
            Self::Invalid(why) => why,
            Self::PodGone => "pod has gone",
            Self::DeadlineExceeded => "recreating has exceeded the activeDeadlineSeconds",
            Self::DaemonSilent => "daemon has not responded for a long time",
            Self::VirtualNode => {
                "the Pod is on a virtual-kubelet node, which has no container runtime to restart containers through"
            }
        }
    }
}

/// Reason of `Accepted` once the containers were found.
const RESOLVED: &str = "Resolved";

/// Reasons of the events on a request and its Pod: beginning, impossible drain, failed hook, ends.
const EVENTS: [&str; 5] = [STARTED, drain::NOT_DRAINED, hooks::FAILED, FAILED, COMPLETED];
const STARTED: &str = "RecreateStarted";
const COMPLETED: &str = "RecreateCompleted";
const FAILED: &str = "RecreateFailed";

/// Every reason of a request's conditions and of events about it, with repetitions.
pub fn all_reasons() -> impl Iterator<Item = &'static str> {
    let ends = REASONS.into_iter().filter(|reason| *reason != UNKNOWN);
    let grace = [RESOLVED, conditions::PRE_RECREATE_GRACE];
    let phases = [Phase::Pending, Phase::Recreating, Phase::Completed].map(Phase::name);
    WAITS.into_iter().chain(ends).chain(EVENTS).chain(drain::REASONS).chain(grace).chain(phases)
}

/// The status of a request that has just been accepted.
pub(super) fn accepted(
    request: &Request,
    pod: &Pod,
    target: Target,
    now: DateTime<Utc>,
) -> ContainerRecreateRequestStatus {
    let mut status = request.status.clone();
    status.container_recreate_states = target
        .containers
        .iter()
        .map(|c| ContainerRecreateState {
            name: c.name.clone(),
            phase: Phase::Pending,
            message: String::new(),
            is_killed: false,
        })
        .collect();
    let text = format!("Pod {} on node {}", target.pod_uid, target.node_name);
    status.target = Some(target);
    set(&mut status, request, conditions::ACCEPTED, ConditionStatus::True, RESOLVED, &text, now);
    drain::begin(&mut status, request, pod, now);
    let wait = drain::first_wait(request, pod).map_or(Wait::Daemon, Wait::Drain);
    waits(status, request, &wait, now)
}

/// The status of a request that waits for its turn.
pub(super) fn queued(request: &Request, ahead: &Ahead, now: DateTime<Utc>) -> ContainerRecreateRequestStatus {
    let status = request.status.clone();
    let wait = Wait::Queued(ahead.blocker.clone());
    if blocker::stored_message(&status.conditions, wait.reason()).is_some() {
        status
    } else {
        waits(status, request, &wait, now)
    }
}

/// `status` with the wait recorded.
pub(super) fn waits(
    mut status: ContainerRecreateRequestStatus,
    request: &Request,
    wait: &Wait,
    now: DateTime<Utc>,
) -> ContainerRecreateRequestStatus {
    let phase = if status.target.is_some() { Phase::Recreating } else { Phase::Pending };
    let message = wait.message();
    let summary =
        Summary { progress: Progress::Open, phase: phase.name(), reason: wait.reason(), message: &message };
    record(&mut status, request, summary, now);
    status
}

/// Records how far the request is. The phase follows from the conditions.
fn record(
    status: &mut ContainerRecreateRequestStatus,
    request: &Request,
    summary: Summary<'_>,
    now: DateTime<Utc>,
) {
    condition::record(&mut status.conditions, summary, now, request.generation);
    status.phase = condition::phase(&status.conditions);
    status.observed_generation = request.generation;
}

/// The terminal status.
pub(super) fn ended(
    observed: &Observed<'_>,
    entries: Vec<ContainerRecreateState>,
    end: &End,
    now: DateTime<Utc>,
) -> ContainerRecreateRequestStatus {
    let request = observed.request;
    let mut status = request.status.clone();
    hooks::record(&mut status, observed, now);
    status.completion_time = Some(now);
    status.message = condition::truncate(end.message(), condition::MAX_MESSAGE);
    status.container_recreate_states = entries;
    if let Some(pod) = observed.live_pod() {
        status.container_status_snapshot = snapshot(&status, pod);
    }
    if let End::Invalid(why) = end {
        set(&mut status, request, conditions::ACCEPTED, ConditionStatus::False, end.reason(), why, now);
    }
    let text = outcome(&status, request, end);
    let progress = if *end == End::Complete { Progress::Succeeded } else { Progress::Failed };
    let (phase, reason) = (Phase::Completed.name(), end.reason());
    record(&mut status, request, Summary { progress, phase, reason, message: &text }, now);
    status
}

/// The outcome in one sentence: what went wrong, and which containers were not restarted.
fn outcome(status: &ContainerRecreateRequestStatus, request: &Request, end: &End) -> String {
    let restarted = |name: &str| {
        status.container_recreate_states.iter().any(|s| s.name == name && s.phase == Phase::Succeeded)
    };
    let rest: Vec<&str> =
        request.spec.containers.iter().map(|c| c.name.as_str()).filter(|name| !restarted(name)).collect();
    let why: Vec<&str> = status
        .container_recreate_states
        .iter()
        .filter(|s| s.phase == Phase::Failed)
        .map(|s| s.message.as_str())
        .chain([end.message()])
        .filter(|text| !text.is_empty())
        .collect();
    if rest.is_empty() {
        return format!("restarted {} container(s)", request.spec.containers.len());
    }
    format!("{}; not restarted: {}", why.join("; "), rest.join(", "))
}

fn snapshot(status: &ContainerRecreateRequestStatus, pod: &Pod) -> Vec<ContainerStatusSnapshot> {
    let target = status.target.iter().flat_map(|t| &t.containers);
    target
        .filter_map(|t| {
            let now = pod.container(&t.name)?.status.as_ref()?;
            replaced(t, now).then(|| ContainerStatusSnapshot {
                name: t.name.clone(),
                ready: now.ready,
                restart_count: now.restart_count,
                container_id: condition::truncate(&now.container_id, MAX_CONTAINER_ID),
            })
        })
        .collect()
}

pub(super) fn set(
    status: &mut ContainerRecreateRequestStatus,
    request: &Request,
    type_: &'static str,
    value: ConditionStatus,
    reason: &'static str,
    message: &str,
    now: DateTime<Utc>,
) {
    condition::set(
        &mut status.conditions,
        Condition::new(type_, value, reason, message, now, request.generation),
    );
}

/// Events for a change of the status, sent once the change is stored.
pub fn notes(request: &Request, old: &ContainerRecreateRequestStatus) -> Vec<Note> {
    [begins(request, old), not_drained(request, old), hook_failed(request, old), ends(request, old)]
        .into_iter()
        .flatten()
        .collect()
}

fn names(request: &Request) -> String {
    request.spec.containers.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn begins(request: &Request, old: &ContainerRecreateRequestStatus) -> Option<Note> {
    let target = request.status.target.as_ref().filter(|_| old.target.is_none())?;
    let pinned: Vec<&str> =
        target.containers.iter().filter(|c| c.pin.is_some()).map(|c| c.name.as_str()).collect();
    let how = if pinned.is_empty() {
        String::new()
    } else {
        format!("; through the kubelet, by pinning the image to the digest that runs: {}", pinned.join(", "))
    };
    let text = format!("Request {} restarts container(s) {}{how}", request.key, names(request));
    Some(note(request, false, STARTED, text))
}

fn not_drained(request: &Request, old: &ContainerRecreateRequestStatus) -> Option<Note> {
    let news = drain::impossible(&request.status) && !drain::impossible(old);
    news.then(|| {
        let text = format!(
            "Request {} restarts containers without draining the Pod: it has no readiness gate",
            request.key
        );
        note(request, true, drain::NOT_DRAINED, text)
    })
}

fn hook_failed(request: &Request, old: &ContainerRecreateRequestStatus) -> Option<Note> {
    let news = hooks::news(old, &request.status)?;
    Some(note(request, true, hooks::FAILED, format!("Request {}: {news}", request.key)))
}

fn ends(request: &Request, old: &ContainerRecreateRequestStatus) -> Option<Note> {
    let (key, new) = (&request.key, &request.status);
    if old.completion_time.is_some() || new.completion_time.is_none() {
        return None;
    }
    let failed = condition::find(&new.conditions, conditions::FAILED);
    if let Some(failed) = failed.filter(|failed| failed.status == ConditionStatus::True) {
        let text = format!("Request {key} failed ({}): {}", failed.reason, failed.message);
        return Some(note(request, true, FAILED, text));
    }
    let text = format!("Request {key} restarted container(s) {}{}", names(request), ids(new));
    Some(note(request, false, COMPLETED, text))
}

/// ` (app: old -> new)` with shortened IDs.
fn ids(status: &ContainerRecreateRequestStatus) -> String {
    let short = |id: &str| id.rsplit('/').next().unwrap_or(id).chars().take(12).collect::<String>();
    let changes: Vec<String> = status
        .target
        .iter()
        .flat_map(|t| &t.containers)
        .filter_map(|old| {
            let new = status.container_status_snapshot.iter().find(|s| s.name == old.name)?;
            Some(format!("{}: {} -> {}", old.name, short(&old.container_id), short(&new.container_id)))
        })
        .collect();
    if changes.is_empty() { String::new() } else { format!(" ({})", changes.join(", ")) }
}
