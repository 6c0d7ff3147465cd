//! The lists of reasons, which documentation and metrics go by, are complete.

use std::collections::BTreeSet;

use super::super::status::{End, REASONS, WAITS, Wait};

/// One wait of each kind. The match names them all, so that a new one is not forgotten here.
fn waits() -> Vec<Wait> {
    let name = String::new;
    let all = vec![
        Wait::Queued(name()),
        Wait::NotReadyPod,
        Wait::ForeignGate(name()),
        Wait::Draining(0),
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
