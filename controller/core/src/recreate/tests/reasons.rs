//! The lists of reasons, which documentation and metrics use, are complete.

use std::collections::BTreeSet;

use super::super::status::{End, REASONS, WAITS, Wait};
use super::*;

/// One wait of each kind. The match names them all, so that a new one is not forgotten here.
fn waits() -> Vec<Wait> {
    let name = String::new;
    let all = vec![
        Wait::Queued(Blocker::TooMany(0)),
        Wait::Queued(first()),
        Wait::Drain(crate::drain::Wait::NotReadyPod),
        Wait::Drain(crate::drain::Wait::ForeignGate(name())),
        Wait::Drain(crate::drain::Wait::Draining(0)),
        Wait::Drain(crate::drain::Wait::NoGate(0)),
        Wait::Policy,
        Wait::BookFull,
        Wait::Daemon,
        Wait::Stopping(name()),
        Wait::Pin(name()),
        Wait::Pinned(name()),
        Wait::StopRetried(name(), name()),
        Wait::StopOverdue(name(), 0),
        Wait::Restart(name()),
        Wait::NotStarted(name(), name()),
        Wait::NotReady(name()),
        Wait::MinStarted(name(), 0),
    ];
    for wait in &all {
        match wait {
            Wait::Queued(_)
            | Wait::Drain(_)
            | Wait::Policy
            | Wait::BookFull
            | Wait::Daemon
            | Wait::Stopping(_)
            | Wait::Pin(_)
            | Wait::Pinned(_)
            | Wait::StopRetried(..)
            | Wait::StopOverdue(..)
            | Wait::Restart(_)
            | Wait::NotReady(_)
            | Wait::NotStarted(..)
            | Wait::MinStarted(..) => {}
        }
    }
    all
}

#[test]
fn every_wait_is_in_the_list() {
    let all = waits();
    let reasons: BTreeSet<&str> = all.iter().map(Wait::reason).collect();
    assert_eq!(reasons.len(), all.len(), "no two waits have one reason");
    assert_eq!(reasons, WAITS.into());
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
    let reasons: BTreeSet<&str> = all.iter().map(End::reason).collect();
    let listed: BTreeSet<&str> = REASONS.into_iter().filter(|reason| *reason != "Unknown").collect();
    assert_eq!((reasons.len(), reasons), (all.len(), listed));
}

/// `tests/manifests` looks up each reason in `docs/troubleshooting.md`: a reason that is missing here may stay
/// unexplained.
#[test]
fn whatever_is_said_is_among_the_reasons_to_explain() {
    let listed: BTreeSet<&str> = all_reasons().collect();
    let waits = waits();
    let used = waits.iter().map(Wait::reason).chain(REASONS);
    let events =
        ["RecreateStarted", "RecreateCompleted", "RecreateFailed", "FailedPreStopHook", "NotDrained"];
    let others = ["Resolved", "PreRecreateGrace", "Draining", "Drained", "NotDrained"];
    let missing: Vec<&str> =
        used.chain(events).chain(others).filter(|reason| !listed.contains(reason)).collect();
    assert_eq!(missing, ["Unknown"], "a label's value for what is not known is never said to people");
}

/// The kubelet's words are for people; programs use pitstop's reasons.
#[test]
fn no_word_of_the_kubelet_is_a_reason() {
    for (reason, message, text) in [
        ("CrashLoopBackOff", "back-off 5m0s", "CrashLoopBackOff: back-off 5m0s"),
        ("not a reason: at all", "", "not a reason: at all"),
        ("", "nobody says why", "waits for the kubelet to start container app again"),
    ] {
        let mut scene = Scene::admitted(&["app"]);
        scene.status("app", |s| {
            s.ready = false;
            s.state = ContainerState::Waiting { reason: reason.into(), message: message.into() };
        });
        scene.act();
        let status = scene.plan().status.unwrap().status;
        let complete = condition::find(&status.conditions, conditions::COMPLETE).unwrap();
        let expected = if reason.is_empty() { "WaitingForRestart" } else { "ContainerNotStarted" };
        assert_eq!(complete.reason, expected);
        assert!(complete.message.ends_with(text), "{}", complete.message);
    }
}

/// The conditions for the columns of `kubectl get` and for kstatus, from the first write to the last.
#[test]
fn the_conditions_read_like_those_of_kubernetes() {
    let summary = |scene: &Scene| -> Vec<String> {
        let all = scene.request.status.conditions.iter();
        all.map(|c| format!("{}={:?}/{}", c.type_, c.status, c.reason)).collect()
    };
    let mut scene = Scene::admitted(&["app"]);
    scene.ahead = Some(Ahead { blocker: first(), until: None, has_pod: false, crowded: false });
    scene.act();
    assert_eq!(summary(&scene), ["Complete=False/Queued", "Reconciling=True/Pending"]);
    scene.ahead = None;
    scene.act();
    let accepted = "Accepted=True/Resolved";
    let begun = ["Complete=False/WaitingForDaemon", "Reconciling=True/Recreating", accepted];
    assert_eq!(summary(&scene), begun);
    scene.act();
    scene.acknowledge("app");
    scene.restarts("app", true);
    scene.settle();
    assert_eq!(summary(&scene), ["Complete=True/Complete", "Reconciling=False/Completed", accepted]);

    let mut scene = Scene::ordered(&["app"]);
    scene.pod = None;
    scene.at(10 * S).settle();
    let gone = ["Failed=True/PodGone", "Stalled=True/PodGone"];
    let failed = ["Complete=False/PodGone", "Reconciling=False/Completed", gone[0], gone[1]];
    assert!(failed.iter().all(|c| summary(&scene).iter().any(|t| t == c)), "{:?}", summary(&scene));
}
