//! Holds: placed while a request is at work, and removed whatever its end.

use pitstop_api::recreate::RecreateStrategy;

use super::*;
use crate::readiness::{Gate, PITSTOP_READY};

const HELD: &str = r#"[{"userAgent":"ContainerRecreateRequest","key":"shop/a"}]"#;

/// A Pod whose condition has that message; it is True if the message lists no hold.
fn gated(message: &str) -> Pod {
    let condition = GateCondition { open: message == "[]", message: message.into() };
    let gate = Gate { type_: PITSTOP_READY.into(), condition: Some(condition) };
    Pod { gates: vec![gate], ..pod("web") }
}

fn draining(seconds: i64) -> Request {
    let mut request = request("a", "web", 0);
    let strategy = RecreateStrategy { unready_grace_period_seconds: Some(seconds), ..Default::default() };
    request.spec.strategy = Some(strategy);
    request
}

fn condition(bench: &Bench) -> (bool, &str) {
    let pod = &bench.pods[&ObjectKey::new("shop", "web")];
    let condition = pod.gates[0].condition.as_ref().unwrap();
    (condition.open, &condition.message)
}

/// The watch catches up with our own writes, and then shows the Pod changed.
fn changed(bench: &mut Bench, change: impl FnOnce(&mut Pod)) -> Vec<Action> {
    bench.version += 1;
    let pod = bench.pods.get_mut(&ObjectKey::new("shop", "web")).unwrap();
    let ours = pod.clone();
    change(pod);
    pod.resource_version = bench.version.to_string();
    let theirs = pod.clone();
    let mut actions = bench.step(Event::Pods(Watch::Upsert(ours)));
    actions.extend(bench.step(Event::Pods(Watch::Upsert(theirs))));
    actions
}

/// The kubelet has seen the hold.
fn not_ready(bench: &mut Bench) -> Vec<Action> {
    changed(bench, |pod| pod.ready = false)
}

#[test]
fn a_gate_that_nobody_has_written_opens() {
    let mut new = gated("[]");
    new.gates[0].condition = None;
    let bench = Bench::new(vec![new], Vec::new());
    assert_eq!(condition(&bench), (true, "[]"));
}

/// A `StatefulSet` makes its Pods again under the same names.
#[test]
fn a_pod_made_anew_is_served_though_the_own_write_has_not_come_by() {
    let mut new = gated("[]");
    new.gates[0].condition = None;
    let mut bench = Bench::new(vec![new.clone()], Vec::new());
    let other = Pod { uid: "other".into(), resource_version: "7".into(), ..new };
    let opens = only(bench.step(Event::Pods(Watch::Upsert(other))));
    let Action::PatchPod { uid, resource_version, .. } = opens else { panic!("{opens:?}") };
    assert_eq!((uid.as_str(), resource_version.as_str()), ("other", "7"));
}

#[test]
fn a_pod_is_held_from_the_acceptance_to_the_end() {
    let web = Pod { ready: true, ..gated("[]") };
    let mut bench = Bench::new(vec![web], vec![draining(2)]);
    assert_eq!((bench.phase("a"), condition(&bench)), (Some(Phase::Recreating), (false, HELD)));
    assert_eq!(bench.orders(), 0);
    let out = not_ready(&mut bench);
    bench.all(out);
    assert_eq!((bench.orders(), bench.wake_at()), (0, Some(Mono(2000))));
    bench.now = Mono(2000);
    let drained = bench.step(Event::Tick);
    bench.all(drained);
    assert_eq!(bench.orders(), 1);
    let acknowledged = bench.acknowledge();
    bench.all(acknowledged);
    let end = only(changed(&mut bench, |pod| {
        let status = pod.containers[0].status.as_mut().unwrap();
        (status.container_id, status.restart_count) = (format!("containerd://{:064x}", 2), 1);
    }));
    let ended = bench.write(&end);
    let last: Vec<Action> =
        bench.step(ended).into_iter().filter(|a| !matches!(a, Action::Emit(_) | Action::Count(_))).collect();
    assert!(
        matches!(&last[..], [Action::PatchPod { .. }, Action::Write { write: Write::Metadata { .. }, .. }]),
        "the Pod comes back before anything is tidied up: {last:?}"
    );
    bench.all(last);
    assert_eq!(condition(&bench), (true, "[]"));
    assert!(bench.requests[&ObjectKey::new("shop", "a")].more.annotations.is_empty());
}

/// D23: holds of requests that were deleted while the controller was away come off when it is back.
#[test]
fn d23_a_hold_without_a_request_is_swept_at_the_start() {
    let bench = Bench::new(vec![gated(HELD)], Vec::new());
    assert_eq!(condition(&bench), (true, "[]"));
}

/// D23: the same for requests that ended, or ask for no drain, or are for another Pod of that name.
#[test]
fn d23_a_hold_of_a_request_that_is_not_at_work_is_swept() {
    let at_work = Bench::new(vec![gated("[]")], vec![draining(60)]);
    let stored = at_work.requests[&ObjectKey::new("shop", "a")].clone();
    assert!(stored.status.target.is_some());
    let mut over = stored.clone();
    over.status.completion_time = Some(DateTime::UNIX_EPOCH);
    let mut other = stored.clone();
    other.status.target.as_mut().unwrap().pod_uid = "other".into();
    other.status.completion_time = Some(DateTime::UNIX_EPOCH);
    let mut plain = stored.clone();
    plain.spec.strategy = None;
    for request in [over, other, plain] {
        let bench = Bench::new(vec![gated(HELD)], vec![request]);
        assert_eq!(condition(&bench), (true, "[]"));
    }
    let bench = Bench::new(vec![gated(HELD)], vec![stored]);
    assert_eq!(condition(&bench), (false, HELD), "one at work keeps it");
}

/// D23: a deletion, also one with force that no finalizer delays, releases the hold at once.
#[test]
fn d23_a_deleted_request_releases_its_hold() {
    for force in [false, true] {
        let mut bench = Bench::new(vec![gated("[]")], vec![draining(60)]);
        assert_eq!(condition(&bench), (false, HELD));
        let stored = bench.requests[&ObjectKey::new("shop", "a")].clone();
        bench.step(Event::of::<Request>(Watch::Upsert(stored.clone())));
        let deleted = if force {
            Watch::Gone(stored)
        } else {
            Watch::Upsert(Request { deleting: true, resource_version: "900".into(), ..stored })
        };
        let release = only(bench.step(Event::of::<Request>(deleted)));
        bench.all(vec![release]);
        assert_eq!(condition(&bench), (true, "[]"));
    }
}

#[test]
fn a_pod_that_is_going_is_left_alone() {
    for pod in [Pod { deleting: true, ..gated(HELD) }, Pod { finished: true, ..gated(HELD) }] {
        let bench = Bench::new(vec![pod], Vec::new());
        assert_eq!(condition(&bench), (false, HELD));
    }
}

#[test]
fn a_conflict_with_the_kubelet_is_resolved_by_the_watch() {
    let mut bench = Bench::new(vec![gated("[]")], Vec::new());
    bench.requests.insert(ObjectKey::new("shop", "a"), draining(0));
    let accept = only(bench.step(Event::of::<Request>(Watch::Upsert(draining(0)))));
    let accepted = bench.write(&accept);
    let hold = bench.step(accepted).into_iter().find(|a| matches!(a, Action::PatchPod { .. })).unwrap();
    let Action::PatchPod { key, uid, resource_version, .. } = &hold else { panic!("{hold:?}") };
    assert_eq!(resource_version, "1");
    let (key, uid) = (key.clone(), uid.clone());
    assert!(bench.step(Event::PodWritten { key, uid, outcome: Outcome::Conflict }).is_empty());
    let again = not_ready(&mut bench);
    let hold = again.iter().find(|a| matches!(a, Action::PatchPod { .. })).unwrap();
    assert!(matches!(hold, Action::PatchPod { resource_version, .. } if *resource_version != "1"));
    bench.all(again);
    assert_eq!(condition(&bench), (false, HELD));
}
