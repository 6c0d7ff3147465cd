//! Who must act next on a request, and the command that helps, by the request's reason.

use crate::summary::NOT_SEEN;
use crate::target::RequestKind;
use crate::target::RequestKind::{ImageUpdate, Resize, Restart, Rollout};

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocker {
    /// Who must act, or which time must pass; empty: the request is over.
    pub(crate) actor: &'static str,
    /// The command that helps; empty: none. `{pod}`, `{node}`, `{daemon}`, `{name}`, `{target}` and `{workload}` stand
    /// for names. `{-n}` stands for the option with the request's namespace, `{system}` for pitstop's namespace, and
    /// `{--in}` for the option with that.
    pub(crate) command: &'static str,
}

/// The kind (`None`: all kinds), the reason, who must act, and the command.
type Row = (Option<RequestKind>, &'static str, &'static str, &'static str);

/// What a request of that kind with that reason waits for; `None`: unknown reason.
pub(crate) fn blocker(kind: RequestKind, reason: &str) -> Option<Blocker> {
    let all = || ROWS.iter().filter(|(_, named, ..)| *named == reason);
    let own = all().find(|(of, ..)| *of == Some(kind));
    let (_, _, actor, command) = own.or_else(|| all().find(|(of, ..)| of.is_none()))?;
    Some(Blocker { actor, command })
}

const DESCRIBE: &str = "kubectl describe pod {pod} {-n}";
const LOGS: &str = "kubectl logs {pod} {-n} --previous";
const WRITERS: &str = "kubectl get pod {pod} {-n} --output yaml --show-managed-fields";
const QUEUE: &str = "kubectl pitstop status pod/{pod} {-n}";
const OPEN: &str = "kubectl pitstop status {-n}";
const NODE: &str = "kubectl describe node {node}";
const ON_NODE: &str = "kubectl pitstop node {node}{--in}";
const DAEMON_LOG: &str = "kubectl logs {daemon} --namespace {system}";
const CONTROLLER_LOG: &str = "kubectl logs deployment/pitstop-controller --namespace {system}";
const BUDGETS: &str = "kubectl get pdb {-n}";
const STATUS: &str = "kubectl pitstop status {target} {-n}";
const UNDO: &str = "kubectl pitstop undo {workload} {-n}";
const ROLLOUTS: &str = "kubectl get inplacerollouts {-n}";
const UNSUSPEND: &str =
    r#"kubectl patch podimageupdate {name} {-n} --type merge --patch '{"spec":{"suspend":false}}'"#;
const ALLOW_ONE: &str = r#"kubectl patch inplacerollout {name} {-n} --type merge --patch '{"spec":{"strategy":{"maxUnavailable":1}}}'"#;
const DOCTOR: &str = "kubectl pitstop doctor {-n}{--in}";

/// A row for one kind overrides a row for all.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    (None, NOT_SEEN, "the controller", DOCTOR),
    (None, "Queued", "earlier requests for the Pod", QUEUE),
    (None, "TooManyRequests", "older open requests of the namespace", OPEN),
    (None, "WaitingForNotReady", "the kubelet, which reports the Pod not ready", DESCRIBE),
    (None, "Draining", "the time of the drain (unreadyGracePeriodSeconds)", ""),
    (None, "NoReadinessGate", "the time of the drain (unreadyGracePeriodSeconds)", ""),
    (None, "ReadinessGateInUse", "the client that wrote the Pod's readiness gate", WRITERS),
    (None, "WaitingForPolicy", "you or the cluster administrator: an admission policy is missing", DOCTOR),
    (None, "WaitingForPlace", "other orders of the node", ON_NODE),
    (None, "WaitingForDaemon", "the node's daemon", ON_NODE),
    (None, "WaitingForKubelet", "the kubelet", NODE),
    (None, "WaitingForRestart", "the kubelet, which restarts the container", DESCRIBE),
    (None, "ContainerNotStarted", "the kubelet, which does not start the container", DESCRIBE),
    (None, "ContainerNotReady", "the container's readiness probe", DESCRIBE),
    (None, "Observing", "the observation time (observeSeconds)", ""),
    (Some(Restart), "Stopping", "the node's daemon: preStop hook and grace period", ""),
    (Some(Restart), "StopOverdue", "the node's daemon, which does not answer", DAEMON_LOG),
    (Some(Restart), "StopRetried", "the container runtime, whose stops have no effect", DAEMON_LOG),
    (Some(Restart), "PinningImage", "the controller, which writes the Pod's image", CONTROLLER_LOG),
    (Some(Restart), "WaitingForMinStarted", "the time of minStartedSeconds", ""),
    (Some(Restart), "Invalid", "", DESCRIBE),
    (Some(Restart), "VirtualNode", "", NODE),
    (Some(Restart), "ContainerFailed", "", DESCRIBE),
    (None, "DaemonNotResponding", "", ON_NODE),
    (Some(Resize), "Admitting", "the controller", CONTROLLER_LOG),
    (Some(Resize), "Proposing", "the API server, which must accept the change", CONTROLLER_LOG),
    (Some(Resize), "NodeBusy", "the kubelet, until the node has room", NODE),
    (Some(Resize), "NodeCapacity", "the node, which is too small", NODE),
    (Some(Resize), "Evicting", "the API server, which evicts the Pod", DESCRIBE),
    (Some(Resize), "DisruptionBudget", "the PodDisruptionBudget that the message names", BUDGETS),
    (Some(Resize), "MemoryInUse", "the containers of the Pod, which use more memory than the new limit", "kubectl top pod {pod} {-n} --containers"),
    (Some(Resize), "RuntimeError", "the kubelet or the daemon, which try again", NODE),
    (Some(Resize), "Restarting", "the ContainerRecreateRequest that the message names", QUEUE),
    (Some(Resize), "Verifying", "the node's daemon, which reads the control groups", ON_NODE),
    (Some(Resize), "KernelDiffers", "the kubelet or the daemon, which write the control groups", NODE),
    (Some(Resize), "Restoring", "the controller, which restores the original resources", ""),
    (Some(Resize), "OOMKilled", "", LOGS),
    (Some(Resize), "Restarted", "", LOGS),
    (Some(Resize), "NotReady", "", DESCRIBE),
    (Some(Resize), "Superseded", "", WRITERS),
    (Some(ImageUpdate), "Checking", "the API server, which checks the change", CONTROLLER_LOG),
    (Some(ImageUpdate), "Pulling", "the node's daemon, which pulls the images", DAEMON_LOG),
    (Some(ImageUpdate), "WaitingForPullerPod", "the kubelet, which pulls for a puller Pod", "kubectl get events {-n}"),
    (Some(ImageUpdate), "Pulled", "the controller, which changes the Pod next", ""),
    (Some(ImageUpdate), "Suspended", "you or the rollout, which set spec.suspend", UNSUSPEND),
    (Some(ImageUpdate), "WritingImages", "the API server, which must accept the change", CONTROLLER_LOG),
    (Some(ImageUpdate), "Attesting", "the node's daemon, which reports the digest that runs", DAEMON_LOG),
    (Some(ImageUpdate), "NodeNotReady", "the node", NODE),
    (Some(ImageUpdate), "RollingBack", "the kubelet, which starts the old images again", DESCRIBE),
    (Some(ImageUpdate), "NoDiskRoom", "", NODE),
    (Some(ImageUpdate), "ContainerExited", "", LOGS),
    (Some(ImageUpdate), "CrashLoopBackOff", "", LOGS),
    (Some(ImageUpdate), "ImagePullBackOff", "", DESCRIBE),
    (Some(ImageUpdate), "CreateContainerConfigError", "", DESCRIBE),
    (Some(ImageUpdate), "CreateContainerError", "", DESCRIBE),
    (Some(ImageUpdate), "RunContainerError", "", DESCRIBE),
    (Some(ImageUpdate), "RollbackFailed", "", DESCRIBE),
    (Some(Rollout), "ReadingTarget", "the controller", CONTROLLER_LOG),
    (Some(Rollout), "Restarting", "the requests for its Pods", STATUS),
    (Some(Rollout), "Updating", "the requests for its Pods", STATUS),
    (Some(Rollout), "WaitingForController", "the workload's own controller", "kubectl get {workload} {-n} --output wide"),
    (Some(Rollout), "WaitingForCanary", "the canary Pods", STATUS),
    (Some(Rollout), "DisruptionBudget", "the PodDisruptionBudget that the message names", BUDGETS),
    (Some(Rollout), "WaitingForAvailability", "other Pods of the workload, which are not ready", STATUS),
    (Some(Rollout), "Paused", "you: spec.paused is true", "kubectl pitstop resume {target} {-n}"),
    (Some(Rollout), "PodsFailed", "you: Pods have failed", STATUS),
    (Some(Rollout), "UntouchedPodsFailToo", "you: Pods that the rollout has not touched fail too", STATUS),
    (Some(Rollout), "RollingBack", "the requests that roll its Pods back", STATUS),
    (Some(Rollout), "RolledBack", "you: the workload needs another template", UNDO),
    (Some(Rollout), "CannotRollBack", "you: the workload needs a good template", STATUS),
    (Some(Rollout), "UnknownPark", "you: the label pitstop.dev/parked is wrong", "kubectl get {workload} {-n} --show-labels"),
    (Some(Rollout), "ReleaseRefused", "the API server, which refuses the release", "kubectl get rolebindings {-n}"),
    (Some(Rollout), "RequestRefused", "the quota or the admission policy that the message names", "kubectl get resourcequotas {-n}"),
    (Some(Rollout), "ProgressDeadlineExceeded", "its Pods, none of which is finished", STATUS),
    (Some(Rollout), "NeedsUnavailability", "you: no Pod may be unavailable", ALLOW_ONE),
    (Some(Rollout), "TargetNotFound", "you: there is no such workload", ROLLOUTS),
    (Some(Rollout), "TargetUnreadable", "the cluster administrator: the controller lacks a right", CONTROLLER_LOG),
    (Some(Rollout), "TooManySelectors", "other rollouts of the namespace", ROLLOUTS),
    (Some(Rollout), "Conflict", "the older rollout", ROLLOUTS),
    (Some(Rollout), "Invalid", "you: spec is wrong", "kubectl edit inplacerollout {name} {-n}"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reasons::reasons_in;

    /// Words of the page that are no waits: ends, phases, events, and the kubelet's words in a message.
    const OVER: &[&str] = &[
        "ContainerCreating",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImagePull",
        "ImagePullBackOff",
        "RunContainerError",
        "Updated",
        "WouldUpdate",
        "PullFailed",
        "CannotProvePull",
        "OtherImage",
        "LeftToKubelet",
        "ImageUpdateStarted",
        "ImageUpdateCompleted",
        "ImageUpdateFailed",
        "Pending",
        "NothingRequested",
        "Restarted",
        "NotInPlace",
        "Superseded",
        "RolloutStarted",
        "RolloutCompleted",
        "WorkloadReleased",
        "WorkloadLeftParked",
        "RolloutStalled",
        "RolloutRollingBack",
    ];

    #[test]
    fn of_every_wait_on_the_page_it_is_known_who_acts() {
        for (kind, section) in [
            (Restart, "A request waits"),
            (Resize, "A resize waits"),
            (ImageUpdate, "A PodImageUpdate waits or failed"),
            (Rollout, "An InPlaceRollout waits or is stalled"),
        ] {
            let reasons = reasons_in(section);
            assert!(reasons.len() > 10, "{section} has other tables now");
            let phase = |reason: &str| kind == ImageUpdate && reason == "Updating";
            for reason in reasons.iter().filter(|reason| !OVER.contains(reason) && !phase(reason)) {
                assert!(blocker(kind, reason).is_some(), "{kind:?} {reason}: who must act?");
            }
        }
    }

    #[test]
    fn every_reason_is_on_the_page_and_is_named_once_for_a_kind() {
        let page = reasons_in("");
        for (number, (kind, reason, ..)) in ROWS.iter().enumerate() {
            assert!(*reason == NOT_SEEN || page.contains(reason), "{reason} is not on the page");
            let again =
                ROWS.iter().skip(number + 1).any(|(other, named, ..)| (other, named) == (kind, reason));
            assert!(!again, "{kind:?} {reason}");
        }
    }

    #[test]
    fn a_kind_has_its_own_words_where_the_reason_means_something_else() {
        assert_ne!(blocker(Resize, "Restarting"), blocker(Rollout, "Restarting"));
        assert_eq!(blocker(Restart, "Queued"), blocker(ImageUpdate, "Queued"));
        assert_eq!(blocker(Restart, "NoSuchReason"), None);
        assert_eq!(blocker(Restart, "Paused"), None);
    }

    /// The manual is generated from the program's commands.
    #[test]
    fn every_command_of_this_program_is_in_its_manual_with_its_options() {
        let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/kubectl-pitstop");
        let own = ROWS.iter().filter_map(|(_, _, _, command)| command.strip_prefix("kubectl pitstop "));
        let mut seen = 0;
        for line in own {
            let command = line.split(' ').next().unwrap();
            let page = std::fs::read_to_string(format!("{manual}/{command}.md"));
            let page = page.unwrap_or_else(|_| panic!("there is no command {command}: {line}"));
            assert!(!line.contains("{--in}") || page.contains("--controller-namespace"), "{line}");
            seen += 1;
        }
        assert!(seen > 10, "only {seen} commands are of this program");
    }
}
