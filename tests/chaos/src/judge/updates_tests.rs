//! What an update may do to containers, and each thing that it may not.

use super::*;
use crate::facts::{Killed, Outcome, Request, Target};
use crate::judge::{Findings, judge};

const CONTAINER: &str = "app";

/// Instances by ID and version, one each ten seconds.
fn pod(starts: &[(&str, &str)]) -> Pod {
    let entry = |((id, version), n): (&(&str, &str), u64)| Entry {
        event: Event::Started,
        container: CONTAINER.to_owned(),
        id: (*id).to_owned(),
        version: (*version).to_owned(),
        time: 1000 * n,
    };
    let trace = starts.iter().zip(1..).map(entry).collect();
    Pod { node: "node1".to_owned(), is_ready: true, trace, ..Pod::default() }
}

/// An update that was made while `replaced` ran, gave the Pod that version, and ended so; it lasted from 5 s to 35 s.
fn update(replaced: &str, version: &str, phase: Phase, reason: &str) -> Update {
    let app = |text: &str| [(CONTAINER.to_owned(), text.to_owned())].into();
    let images = if version == CRASHING { Images::Crashing } else { Images::Good };
    Update {
        pod: "web".to_owned(),
        wanted: app(version),
        images,
        before: app(replaced),
        replaced: app(replaced),
        end: Some(End { phase, reason: reason.to_owned() }),
        seen: (500, 3500),
        is_gone: false,
    }
}

fn good(replaced: &str, version: &str) -> Update {
    update(replaced, version, Phase::Succeeded, "Updated")
}

fn put_back(replaced: &str, version: &str) -> Update {
    update(replaced, version, Phase::RolledBack, "ContainerExited")
}

/// One of which the registry has not all images.
fn missing(phase: Phase, reason: &str) -> Update {
    let nothing = Update { images: Images::Missing, ..update("a", "2", phase, reason) };
    Update { replaced: [].into(), ..nothing }
}

fn facts(starts: &[(&str, &str)], updates: &[Update]) -> Facts {
    let updates = updates.iter().zip(1..).map(|(update, n)| (format!("u{n}"), update.clone())).collect();
    Facts { updates, pods: [("web".to_owned(), pod(starts))].into(), ..Facts::default() }
}

fn judged(starts: &[(&str, &str)], updates: &[Update]) -> Findings {
    judge(&facts(starts, updates))
}

#[track_caller]
fn assert_fine(starts: &[(&str, &str)], updates: &[Update]) {
    let Findings { lost, doubled, stuck, .. } = judged(starts, updates);
    assert!(lost.is_empty() && doubled.is_empty() && stuck.is_empty(), "{lost:?} {doubled:?} {stuck:?}");
}

/// What is lost and doubled.
fn wrong(starts: &[(&str, &str)], updates: &[Update]) -> (usize, usize) {
    let findings = judged(starts, updates);
    (findings.lost.len(), findings.doubled.len())
}

#[test]
fn an_update_makes_one_new_container() {
    let starts = [("a", "1"), ("b", "2")];
    assert_fine(&starts, &[good("a", "2")]);
    assert_eq!(judged(&starts, &[good("a", "2")]).updated, [("Succeeded Updated".to_owned(), 1)].into());
    // The same image by another name, or by the same one, which changes nothing.
    assert_fine(&[("a", "2"), ("b", "2")], &[good("a", "2")]);
    assert_fine(&[("a", "2")], &[good("a", "2")]);
    // A second new one.
    assert_eq!(wrong(&[("a", "1"), ("b", "2"), ("c", "2")], &[good("a", "2")]), (0, 1));
    // Without any update.
    assert_eq!(wrong(&starts, &[]), (0, 1));
}

#[test]
fn what_is_put_back_makes_two() {
    let crash = put_back("a", CRASHING);
    assert_fine(&[("a", "1"), ("b", CRASHING), ("c", "1")], std::slice::from_ref(&crash));
    // It ends by itself, and the kubelet starts it again.
    let again = [("a", "1"), ("b", CRASHING), ("c", CRASHING), ("d", CRASHING), ("e", "1")];
    assert_fine(&again, std::slice::from_ref(&crash));
    // The old image came back twice.
    let twice = [("a", "1"), ("b", CRASHING), ("c", "1"), ("d", "1")];
    assert_eq!(wrong(&twice, std::slice::from_ref(&crash)), (0, 1));
    // The kubelet starts it by one image string and stops it for another one.
    let stopped = |at| {
        let mut facts = facts(&twice, std::slice::from_ref(&crash));
        let trace = &mut facts.pods.get_mut("web").unwrap().trace;
        let c = trace.iter().find(|entry| entry.id == "c").unwrap().clone();
        trace.push(Entry { event: Event::Asked, time: c.time + at, ..c });
        judge(&facts).doubled.len()
    };
    assert_eq!((stopped(40), stopped(500)), (0, 1));
    // Before the kubelet had done anything.
    assert_fine(&[("a", "1")], &[crash]);
    // In a Pod of two containers of which the other one crashes.
    let beside = Update { images: Images::Crashing, ..put_back("a", "2") };
    assert_fine(&[("a", "1"), ("b", "2"), ("c", "1")], std::slice::from_ref(&beside));
    assert_eq!(wrong(&[("a", "1"), ("b", "2"), ("c", "2"), ("d", "1")], &[beside]), (0, 1));
}

#[test]
fn a_good_image_is_put_back_only_where_a_kill_hit_its_start() {
    let hit = |victim, time| {
        let mut facts = facts(&[("a", "1"), ("b", "2"), ("c", "1")], &[put_back("a", "2")]);
        facts.kills = vec![Killed { time, victim }];
        judge(&facts).lost.is_empty()
    };
    assert!(hit(Victim::Kubelet("node1"), 2000) && hit(Victim::Containerd("node1"), 2000));
    assert!(!hit(Victim::Kubelet("node2"), 2000), "of another node");
    assert!(!hit(Victim::Kubelet("node1"), 4000), "after its end");
    assert!(!hit(Victim::Daemon("node1"), 2000) && !hit(Victim::Controllers, 2000));
}

#[test]
fn what_an_update_says_is_so() {
    // Nothing runs the version.
    assert_eq!(wrong(&[("a", "1")], &[good("a", "2")]).0, 2, "neither ran nor runs");
    // It ran before the update was made.
    let starts = [("z", "2"), ("a", "1"), ("b", "1")];
    assert_eq!(judged(&starts, &[good("a", "2")]).lost.len(), 2);
    // It crashes, and is said to do well.
    assert!(wrong(&[("a", "1"), ("b", CRASHING)], &[good("a", CRASHING)]).0 > 0);
    // It is said to be put back, and is not.
    assert_eq!(wrong(&[("a", "1"), ("b", CRASHING)], &[put_back("a", CRASHING)]), (1, 0));
}

#[test]
fn the_last_update_is_what_runs() {
    let both = [good("a", "2"), good("b", "big")];
    assert_fine(&[("a", "1"), ("b", "2"), ("c", "big")], &both);
    let findings = judged(&[("a", "1"), ("b", "2"), ("c", "big"), ("d", "2")], &both);
    assert_eq!((findings.lost.len(), findings.doubled.len()), (1, 1), "{findings:?}");
    // The second one has changed nothing in the end.
    let late = Update { seen: (4000, 9000), ..update("b", "big", Phase::Failed, "DeadlineExceeded") };
    assert_fine(&[("a", "1"), ("b", "2")], &[good("a", "2"), late]);
}

#[test]
fn nothing_is_stopped_for_an_image_that_is_missing() {
    assert_fine(&[("a", "1")], &[missing(Phase::Failed, "PullFailed")]);
    assert_fine(&[("a", "1")], &[missing(Phase::Failed, "DeadlineExceeded")]);
    assert_eq!(wrong(&[("a", "1"), ("b", "1")], &[missing(Phase::Failed, "PullFailed")]), (0, 1));
    assert_eq!(wrong(&[("a", "1")], &[missing(Phase::Succeeded, "Updated")]), (1, 0));
    let given = Update { images: Images::Missing, ..good("a", "2") };
    assert_eq!(wrong(&[("a", "1"), ("b", "2")], &[given]), (1, 1));
}

#[test]
fn an_end_needs_a_reason_that_crashes_can_give() {
    let lost = |phase, reason| wrong(&[("a", "1")], &[update("a", "2", phase, reason)]).0;
    assert_eq!(lost(Phase::Failed, "DaemonNotResponding"), 0);
    assert_eq!(lost(Phase::Failed, "PullFailed"), 1);
    assert_eq!(lost(Phase::Failed, "Superseded"), 1);
    assert_eq!(lost(Phase::Failed, "RollbackFailed"), 1);
    assert_eq!(lost(Phase::Cancelled, "Cancelled"), 1);
}

#[test]
fn one_that_is_gone_or_open_is_told() {
    let starts = [("a", "1"), ("b", "2")];
    assert_eq!(judged(&starts, &[Update { is_gone: true, ..good("a", "2") }]).lost.len(), 1);
    let open = judged(&starts, &[Update { end: None, ..good("a", "2") }]);
    assert_eq!((open.stuck.len(), open.lost.len(), open.doubled.len()), (1, 0, 0), "{open:?}");
}

/// Seen on 1.36: an instance was replaced whose start a kill broke off before it wrote a line.
#[test]
fn what_never_wrote_a_line_comes_up_once_more_only_where_a_kill_hit_it() {
    let starts = [("a", "1"), ("c", "1"), ("d", "2")];
    let by_request = Request {
        pod: "web".to_owned(),
        containers: [CONTAINER.to_owned()].into(),
        outcome: Outcome::Complete,
        target: [(CONTAINER.to_owned(), Target { id: "a".to_owned(), is_pinned: false })].into(),
        ..Request::default()
    };
    let lost = Update { replaced: [(CONTAINER.to_owned(), "b".to_owned())].into(), ..good("a", "2") };
    let mut facts = facts(&starts, &[lost]);
    facts.requests = [("r1".to_owned(), by_request)].into();
    assert_eq!(judge(&facts).doubled.len(), 1, "no kill");
    facts.kills.push(Killed { time: 1500, victim: Victim::Containerd("node1") });
    assert_eq!(judge(&facts).doubled.len(), 0);
    facts.pods = [("web".to_owned(), pod(&[("a", "1"), ("c", "1"), ("e", "1"), ("d", "2")]))].into();
    assert_eq!(judge(&facts).doubled.len(), 1, "only once");
}
