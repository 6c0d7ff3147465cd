//! The lists of reasons, which documentation and metrics go by, are complete.

use std::collections::BTreeSet;

use super::super::status::{End, REASONS, WAITS, Wait, all_reasons};

/// One wait of each kind. The match names them all, so that a new one is not forgotten here.
fn waits() -> Vec<Wait> {
    let name = String::new;
    let all = vec![
        Wait::Queued(name()),
        Wait::NotReadyPod,
        Wait::ForeignGate(name()),
        Wait::Draining(0),
        Wait::Policy,
        Wait::Daemon,
        Wait::Stopping(name()),
        Wait::Pin(name()),
        Wait::Pinned(name()),
        Wait::StopRetried(name(), name()),
        Wait::StopOverdue(name(), 0),
        Wait::Restart(name()),
        Wait::NotReady(name()),
        Wait::MinStarted(name(), 0),
    ];
    for wait in &all {
        match wait {
            Wait::Queued(_)
            | Wait::NotReadyPod
            | Wait::ForeignGate(_)
            | Wait::Draining(_)
            | Wait::Policy
            | Wait::Daemon
            | Wait::Stopping(_)
            | Wait::Pin(_)
            | Wait::Pinned(_)
            | Wait::StopRetried(..)
            | Wait::StopOverdue(..)
            | Wait::Restart(_)
            | Wait::NotReady(_)
            | Wait::MinStarted(..)
            // Its reason is the kubelet's.
            | Wait::Kubelet(..) => {}
        }
    }
    all
}

#[test]
fn every_wait_is_in_the_list() {
    let all = waits();
    let said: BTreeSet<&str> = all.iter().map(Wait::reason).collect();
    assert_eq!(said.len(), all.len(), "no two waits have one reason");
    assert_eq!(said, WAITS.into());
}

#[test]
fn every_end_is_in_the_list() {
    let all = [
        End::Complete,
        End::Invalid(String::new()),
        End::PodGone,
        End::DeadlineExceeded,
        End::DaemonSilent,
        End::VirtualNode,
        End::ContainerFailed,
    ];
    for end in &all {
        match end {
            End::Complete
            | End::Invalid(_)
            | End::PodGone
            | End::DeadlineExceeded
            | End::DaemonSilent
            | End::VirtualNode
            | End::ContainerFailed => {}
        }
    }
    let said: BTreeSet<&str> = all.iter().map(End::reason).collect();
    let listed: BTreeSet<&str> = REASONS.into_iter().filter(|reason| *reason != "Unknown").collect();
    assert_eq!((said.len(), said), (all.len(), listed));
}

/// `tests/manifests` looks each of them up in `docs/troubleshooting.md`: what is left out here may go unexplained.
#[test]
fn whatever_is_said_is_among_the_reasons_to_explain() {
    let told: BTreeSet<&str> = all_reasons().collect();
    let waits = waits();
    let said = waits.iter().map(Wait::reason).chain(REASONS);
    let events =
        ["RecreateStarted", "RecreateCompleted", "RecreateFailed", "FailedPreStopHook", "NotDrained"];
    let others = ["Resolved", "PreRecreateGrace", "Draining", "Drained", "NoReadinessGate"];
    let missing: Vec<&str> =
        said.chain(events).chain(others).filter(|reason| !told.contains(reason)).collect();
    assert_eq!(missing, ["Unknown"], "a label's value for what is not known is never said to people");
}
