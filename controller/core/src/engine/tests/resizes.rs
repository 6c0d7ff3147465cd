//! Resizes, and the restarts that they make.

use pitstop_api::nodework::{Answer, AnswerState, Cgroup, CgroupReading};
use pitstop_api::quantity::Resources;
use pitstop_api::resize::{Phase, PodResizeStatus, Restart};
use serde_json::json;

use super::*;
use crate::deed::{Deed, Done};

/// A Pod whose kubelet resizes.
pub(super) fn sizable() -> Pod {
    let resources = Resources { cpu_request: Some(100), cpu_limit: Some(200), ..Resources::default() };
    let mut pod = pod("web");
    pod.containers[0].resources = resources;
    pod.containers[0].status.as_mut().unwrap().actual = Some(resources);
    pod
}

pub(super) fn resize(name: &str, created: i64, cpu: &str) -> Resize {
    let spec = json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "resources": {"limits": {"cpu": cpu}}}]});
    Resize {
        key: ObjectKey::new("shop", name),
        uid: format!("uid-{name}"),
        resource_version: "1".into(),
        created,
        spec: serde_json::from_value(spec).unwrap(),
        ..Resize::default()
    }
}

/// Creates the resize. Returns the actions.
pub(super) fn begin(bench: &mut Bench, resize: &Resize) -> Vec<Action> {
    bench.step(Event::of::<Resize>(Watch::Upsert(resize.clone())))
}

/// The status that the action writes.
pub(super) fn status(action: &Action) -> &PodResizeStatus {
    let Action::Write { write: Write::Status { status: Status::Resize(status), .. }, .. } = action else {
        panic!("{action:?}")
    };
    status
}

/// A write of the resize took effect.
pub(super) fn written(bench: &mut Bench, resize: &mut Resize, action: &Action) -> Vec<Action> {
    bench.version += 1;
    resize.status = status(action).clone();
    resize.resource_version = bench.version.to_string();
    let (key, uid) = (resize.key.clone(), resize.uid.clone());
    let actions = bench.step(Event::written::<Resize>(key, uid, Outcome::Written(resize.clone())));
    actions.into_iter().filter(|a| !matches!(a, Action::Emit(_) | Action::Count(_))).collect()
}

/// The patch of the Pod took effect, and the kubelet is done with it.
pub(super) fn patched(bench: &mut Bench, cpu: i64) -> Vec<Action> {
    let mut pod = sizable();
    pod.containers[0].resources.cpu_limit = Some(cpu);
    pod.containers[0].status.as_mut().unwrap().actual = Some(pod.containers[0].resources);
    stored(bench, pod)
}

/// The patch of the Pod took effect.
fn stored(bench: &mut Bench, mut pod: Pod) -> Vec<Action> {
    bench.version += 1;
    pod.resource_version = bench.version.to_string();
    let (key, uid) = (pod.key.clone(), pod.uid.clone());
    let actions = bench.step(Event::PodWritten { key, uid, outcome: Outcome::Written(pod) });
    actions.into_iter().filter(|a| !matches!(a, Action::Emit(_) | Action::Count(_))).collect()
}

/// The recreate request that a resize makes.
fn restart_of(action: &Action, resize: &Resize) -> Request {
    let Action::Do { object: Object { key, uid, .. }, deed: Deed::Create(new) } = action else {
        panic!("{action:?}")
    };
    assert_eq!((key, uid), (&resize.key, &resize.uid));
    let mut request = request(&new.key.name, new.spec["podName"].as_str().unwrap(), 5);
    request.owner = Some(Owner { kind: "PodResize".into(), name: resize.key.name.clone(), uid: uid.clone() });
    request
}

fn deed_done(bench: &mut Bench, resize: &Resize, done: Done) -> Vec<Action> {
    let entry = bench.engine.stores.resizes.objects.get(&resize.key);
    let deed = entry.and_then(|entry| entry.deeds.doing().first().cloned());
    let deed = deed.unwrap_or(Deed::AskNode("node1".into()));
    let object = Object::new(resize::ID, resize.key.clone(), resize.uid.clone());
    bench.step(Event::DeedDone { object, deed: Box::new(deed), done })
}

/// A resize that asks for a restart, and the action that creates it.
fn to_restart(bench: &mut Bench) -> (Resize, Action) {
    let mut grow = resize("grow", 0, "300m");
    grow.spec.restart = Some(Restart::Always);
    let accept = only(begin(bench, &grow));
    written(bench, &mut grow, &accept);
    let make = only(patched(bench, 300));
    (grow, make)
}

#[test]
fn a_restart_is_made_once_and_followed() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let (grow, make) = to_restart(&mut bench);
    let request = restart_of(&make, &grow);
    assert_eq!(bench.step(Event::Pods(Watch::Upsert(sizable()))), [], "it is under way");
    assert_eq!(deed_done(&mut bench, &grow, Done::Retry("away".into())), []);
    bench.now = bench.wake_at().unwrap();
    let again = only(bench.step(Event::Tick));
    assert_eq!(restart_of(&again, &grow).key, request.key, "whether it is there, the same again shows");
    assert_eq!(deed_done(&mut bench, &grow, Done::Conflict), [], "it is there");
    let accept = only(bench.step(Event::of::<Request>(Watch::Upsert(request))));
    assert!(status_write(&accept).is_some(), "{accept:?}");
}

#[test]
fn a_restart_of_a_resize_that_is_over_restarts_nothing() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let (grow, make) = to_restart(&mut bench);
    let request = restart_of(&make, &grow);
    bench.step(Event::of::<Resize>(Watch::Gone(grow)));
    let end = only(bench.step(Event::of::<Request>(Watch::Upsert(request))));
    let Action::Write { write: Write::Status { status: Status::Recreate(status), .. }, .. } = end else {
        panic!("{end:?}")
    };
    assert!(status.completion_time.is_some() && status.target.is_none(), "{status:?}");
}

#[test]
fn an_answer_about_another_resize_of_that_name_says_nothing() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let (grow, _) = to_restart(&mut bench);
    let other = Resize { uid: "uid-other".into(), ..grow.clone() };
    assert_eq!(deed_done(&mut bench, &other, Done::Effected), []);
    assert_eq!(deed_done(&mut bench, &grow, Done::Effected), [], "the watch shows it");
    bench.step(Event::Leader(false));
    assert_eq!(deed_done(&mut bench, &grow, Done::Effected), [], "late");
}

#[test]
fn a_new_leader_confirms_a_resize_before_it_restarts_anything() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let (mut grow, _) = to_restart(&mut bench);
    let mut pod = sizable();
    let app = &mut pod.containers[0];
    app.resources.cpu_limit = Some(300);
    app.status.as_mut().unwrap().actual = Some(app.resources);
    let mut next = Bench::empty();
    next.step(Event::Leader(true));
    next.step(Event::Pods(Watch::list(vec![pod])));
    next.step(Event::NodeWorks(Watch::list(Vec::new())));
    next.step(Event::of::<Resize>(Watch::list(vec![grow.clone()])));
    let confirm = only(next.step(Event::of::<Request>(Watch::list(Vec::new()))));
    let make = only(written(&mut next, &mut grow, &confirm));
    assert!(matches!(make, Action::Do { deed: Deed::Create(_), .. }), "{make:?}");
}

pub(super) fn is_patch(action: &Action) -> bool {
    matches!(action, Action::PatchPod { change: PodChange::Resources(_), .. })
}

#[test]
fn a_resize_runs_through() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let mut grow = resize("grow", 0, "300m");
    let accept = only(begin(&mut bench, &grow));
    assert_eq!(status(&accept).phase, Some(Phase::Proposed));
    assert_eq!(bench.engine.open_of(resize::ID), 1);
    let patch = only(written(&mut bench, &mut grow, &accept));
    let Action::PatchPod { resource_version, change: PodChange::Resources(sizing), .. } = &patch else {
        panic!("{patch:?}")
    };
    assert_eq!((resource_version.as_str(), sizing.containers.len(), sizing.dry_run), ("1", 1, false));
    let ask = only(patched(&mut bench, 300));
    let Action::WriteOrders { orders, .. } = &ask else { panic!("{ask:?}") };
    assert!(orders[0].action.verify.is_some());
    let placed = bench.write(&ask);
    assert_eq!(bench.step(placed), []);
    let mut book = bench.book.clone().unwrap();
    book.resource_version = "900".into();
    let cgroup = Cgroup {
        cpu_quota: Some(30_000),
        cpu_period: Some(100_000),
        cpu_shares: Some(102),
        ..Cgroup::default()
    };
    book.status.answers = vec![Answer {
        order_id: orders[0].id.clone(),
        state: AnswerState::Done,
        reason: None,
        message: String::new(),
        acknowledged_uptime_seconds: None,
        acknowledged_by: String::new(),
        observed: Some(Box::new(CgroupReading { container: cgroup, pod: cgroup })),
        image: None,
    }];
    assert_eq!(bench.step(Event::NodeWorks(Watch::Upsert(bench.book.clone().unwrap()))), []);
    let end = only(bench.step(Event::NodeWorks(Watch::Upsert(book))));
    assert_eq!(status(&end).phase, Some(Phase::Succeeded));
    assert_eq!(written(&mut bench, &mut grow, &end), [], "the order is dropped with company");
    assert_eq!(bench.engine.open_of(resize::ID), 0);
    bench.now = bench.wake_at().unwrap();
    let tidy = only(bench.step(Event::Tick));
    assert!(matches!(tidy, Action::WriteOrders { orders, .. } if orders.is_empty()));
}

/// An order may have been withdrawn, and its answer may still be stored.
#[test]
fn no_order_to_verify_has_the_number_of_one_before() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let book = NodeWork {
        node: "node1".into(),
        uid: "book".into(),
        resource_version: "1".into(),
        generation: 7,
        ..NodeWork::default()
    };
    assert_eq!(bench.step(Event::NodeWorks(Watch::Upsert(book))), []);
    let mut grow = resize("grow", 0, "300m");
    let accept = only(begin(&mut bench, &grow));
    written(&mut bench, &mut grow, &accept);
    let ask = only(patched(&mut bench, 300));
    let Action::WriteOrders { orders, .. } = &ask else { panic!("{ask:?}") };
    assert_eq!(orders[0].id, "uid-grow/app/8");
}

/// Repeating the write shows whether it was stored; until then, the change may have been made.
#[test]
fn a_patch_of_unknown_end_is_sent_again_before_the_request_may_end() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let mut grow = resize("grow", 0, "300m");
    let accept = only(begin(&mut bench, &grow));
    let patch = only(written(&mut bench, &mut grow, &accept));
    let Action::PatchPod { key, uid, .. } = &patch else { panic!("{patch:?}") };
    let unknown = Event::PodWritten { key: key.clone(), uid: uid.clone(), outcome: Outcome::Retry };
    assert_eq!(bench.step(unknown), []);
    assert_eq!(begin(&mut bench, &grow), [], "the watch shows the acceptance");
    grow.spec.cancel = true;
    grow.resource_version = "900".into();
    assert_eq!(bench.step(Event::of::<Resize>(Watch::Upsert(grow.clone()))), [], "it may have taken effect");
    bench.now = bench.wake_at().unwrap();
    assert!(is_patch(&only(bench.step(Event::Tick))));
    let back = only(patched(&mut bench, 300));
    assert!(status(&back).restoring.is_some(), "now that it is known, it is taken back");
}

/// A conflict says that the Pod was changed, perhaps by the write with the unknown end; the watch will show it.
#[test]
fn a_conflict_after_an_unknown_end_says_nothing_of_that() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let mut grow = resize("grow", 0, "300m");
    let accept = only(begin(&mut bench, &grow));
    let patch = only(written(&mut bench, &mut grow, &accept));
    let Action::PatchPod { key, uid, .. } = &patch else { panic!("{patch:?}") };
    let outcome = |outcome| Event::PodWritten { key: key.clone(), uid: uid.clone(), outcome };
    assert_eq!(bench.step(outcome(Outcome::Retry)), []);
    assert_eq!(begin(&mut bench, &grow), [], "the watch shows the acceptance");
    bench.now = bench.wake_at().unwrap();
    assert!(is_patch(&only(bench.step(Event::Tick))));
    assert_eq!(bench.step(outcome(Outcome::Conflict)), []);
    grow.spec.cancel = true;
    grow.resource_version = "900".into();
    assert_eq!(bench.step(Event::of::<Resize>(Watch::Upsert(grow.clone()))), [], "it may have taken effect");
    let mut pod = sizable();
    pod.resource_version = "2".into();
    pod.containers[0].resources.cpu_limit = Some(300);
    let back = only(bench.step(Event::Pods(Watch::Upsert(pod))));
    assert!(status(&back).restoring.is_some(), "it had, and is taken back");
}

/// The dry run of a waiting request ends with this outcome.
fn tried(bench: &mut Bench, trial: &Action, outcome: Outcome<()>) -> Vec<Action> {
    let Action::PatchPod { key, uid, change: PodChange::Resources(sizing), .. } = trial else {
        panic!("{trial:?}")
    };
    assert!(sizing.dry_run, "{trial:?}");
    bench.step(Event::PodTried { key: key.clone(), uid: uid.clone(), outcome })
}

/// An earlier resize whose change the kubelet has not made yet, and the dry run of a later one.
fn overtaken(bench: &mut Bench) -> (Resize, Resize, Action) {
    let (mut early, late) = (resize("early", 0, "300m"), resize("late", 1, "400m"));
    let accept = only(begin(bench, &early));
    assert!(is_patch(&only(written(bench, &mut early, &accept))));
    assert_eq!(begin(bench, &late), [], "one write of a Pod at a time");
    let mut pod = sizable();
    pod.containers[0].resources.cpu_limit = Some(300);
    let trial = only(stored(bench, pod));
    (early, late, trial)
}

/// The earlier one restores the original resources, and the later one begins from there.
#[test]
fn a_later_resize_takes_the_place_of_an_earlier_one_once_it_is_seen_to_be_possible() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let (mut early, mut late, trial) = overtaken(&mut bench);
    let restores = only(tried(&mut bench, &trial, Outcome::Written(())));
    assert!(status(&restores).restoring.is_some());
    let back = only(written(&mut bench, &mut early, &restores));
    assert!(is_patch(&back));
    let end = only(patched(&mut bench, 200));
    assert_eq!(status(&end).phase, Some(Phase::Failed));
    let accept = only(written(&mut bench, &mut early, &end));
    assert_eq!(status(&accept).containers[0].original.limits.cpu.as_deref(), Some("200m"));
    assert!(is_patch(&only(written(&mut bench, &mut late, &accept))));
}

#[test]
fn a_later_resize_that_would_be_refused_waits_for_the_end_of_the_earlier_one() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let (mut early, mut late, trial) = overtaken(&mut bench);
    let refused = || Outcome::Refused("exceeded quota: q, requested: limits.cpu=100m".to_owned());
    assert_eq!(tried(&mut bench, &trial, refused()), []);
    bench.now = Mono(29_999);
    for wait in bench.step(Event::Tick) {
        let whose = if status(&wait).target.is_some() { &mut early } else { &mut late };
        assert!(!written(&mut bench, whose, &wait).iter().any(is_patch));
    }
    bench.now = Mono(30_000);
    let again = only(bench.step(Event::Tick));
    assert_eq!(tried(&mut bench, &again, refused()), []);
    let mut done = sizable();
    done.resource_version = "900".into();
    done.containers[0].resources.cpu_limit = Some(300);
    done.containers[0].status.as_mut().unwrap().actual = Some(done.containers[0].resources);
    // The watch shows our own write first.
    let own = bench.engine.pods.read(&done.key).unwrap().into_owned();
    bench.step(Event::Pods(Watch::Upsert(own)));
    let verifies = only(bench.step(Event::Pods(Watch::Upsert(done))));
    assert!(matches!(verifies, Action::WriteOrders { .. }), "the earlier one goes on: {verifies:?}");
    // The refusal of a dry run is not final.
    let next = bench.step(Event::of::<Resize>(Watch::Gone(early)));
    let accept = next
        .into_iter()
        .find(|a| matches!(a, Action::Write { write: Write::Status { status: Status::Resize(_), .. }, .. }))
        .unwrap();
    let patch = only(written(&mut bench, &mut late, &accept));
    let Action::PatchPod { key, uid, change: PodChange::Resources(Sizing { dry_run: false, .. }), .. } =
        patch
    else {
        panic!("{patch:?}")
    };
    let end =
        only(bench.step(Event::PodWritten { key, uid, outcome: Outcome::Refused("exceeded quota".into()) }));
    assert!(status(&end).conditions.iter().any(|c| c.reason == "Quota"), "{end:?}");
}

/// The earlier one begins, whatever the names; the other one is not resolved before it has ended.
#[test]
fn of_two_that_come_together_the_earlier_one_begins() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let mut bench = Bench::new(vec![sizable()], Vec::new());
        let (early, late) = (resize(first, 0, "300m"), resize(second, 1, "400m"));
        let both = bench.step(Event::of::<Resize>(Watch::list(vec![early, late])));
        let [
            trial,
            Action::Write {
                object: Object { key, .. },
                write: Write::Status { status: Status::Resize(status), .. },
            },
        ] = &both[..]
        else {
            panic!("{both:?}")
        };
        assert!(key.name == first && status.target.is_some(), "{both:?}");
        assert!(is_patch(trial), "the other one is tried: {both:?}");
    }
}

/// Each of two dry runs gets its own answer.
#[test]
fn a_dry_run_gets_no_answer_of_another_one() {
    for (first, second) in [("a", "b"), ("b", "a")] {
        let mut bench = Bench::new(vec![sizable()], Vec::new());
        let (mut one, mut other) = (resize(first, 0, "300m"), resize(second, 1, "400m"));
        (one.spec.dry_run, other.spec.dry_run) = (true, true);
        let accept = only(begin(&mut bench, &one));
        let accepts = only(begin(&mut bench, &other));
        let trial = only(written(&mut bench, &mut one, &accept));
        let Action::PatchPod { key, uid, .. } = &trial else { panic!("{trial:?}") };
        assert_eq!(written(&mut bench, &mut other, &accepts), [], "one write of a Pod at a time");
        let outcome = Outcome::Refused("exceeded quota: q".into());
        let next = bench.step(Event::PodTried { key: key.clone(), uid: uid.clone(), outcome });
        let ends: Vec<_> = next.iter().filter(|a| !is_patch(a)).collect();
        let [
            Action::Write {
                object: Object { key, .. },
                write: Write::Status { status: Status::Resize(_), .. },
            },
        ] = ends[..]
        else {
            panic!("{next:?}")
        };
        assert_eq!(key.name, first);
    }
}

/// Another process may have ended it, so a write first confirms what this one knows.
#[test]
fn a_new_leader_confirms_a_resize_before_it_changes_the_pod() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let mut grow = resize("grow", 0, "300m");
    let accept = only(begin(&mut bench, &grow));
    grow.status = status(&accept).clone();
    let mut next = Bench::empty();
    next.step(Event::Leader(true));
    next.step(Event::Pods(Watch::list(vec![sizable()])));
    next.step(Event::NodeWorks(Watch::list(Vec::new())));
    next.step(Event::of::<Resize>(Watch::list(vec![grow.clone()])));
    let confirm = only(next.step(Event::of::<Request>(Watch::list(Vec::new()))));
    assert_eq!(status(&confirm), &grow.status);
    assert!(is_patch(&only(written(&mut next, &mut grow, &confirm))));
}

/// Its next question has a new number: the answer to the question before may still be stored.
#[test]
fn a_new_leader_lets_a_question_stand_until_it_asks_another() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let mut grow = resize("grow", 0, "300m");
    let accept = only(begin(&mut bench, &grow));
    written(&mut bench, &mut grow, &accept);
    let Action::WriteOrders { orders, .. } = only(patched(&mut bench, 300)) else { panic!() };
    let work = NodeWork { node: "node1".into(), uid: "b".into(), orders, ..NodeWork::default() };
    let mut pod = sizable();
    let app = &mut pod.containers[0];
    app.resources.cpu_limit = Some(300);
    let status = app.status.as_mut().unwrap();
    status.actual = Some(app.resources);
    status.container_id = format!("containerd://{:064x}", 2);
    let mut next = Bench::empty();
    next.step(Event::Leader(true));
    next.step(Event::Pods(Watch::list(vec![pod])));
    next.step(Event::NodeWorks(Watch::list(vec![work])));
    next.step(Event::of::<Resize>(Watch::list(vec![grow.clone()])));
    let confirm = only(next.step(Event::of::<Request>(Watch::list(Vec::new()))));
    let ask = only(written(&mut next, &mut grow, &confirm));
    let Action::WriteOrders { orders, .. } = &ask else { panic!("{ask:?}") };
    assert_eq!(orders.iter().map(|o| o.id.as_str()).collect::<Vec<_>>(), ["uid-grow/app/2"]);
}

#[test]
fn a_dry_run_leaves_the_pod_to_the_next_write() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let mut dry = resize("dry", 0, "300m");
    dry.spec.dry_run = true;
    let accept = only(begin(&mut bench, &dry));
    let patch = only(written(&mut bench, &mut dry, &accept));
    let Action::PatchPod { key, uid, change: PodChange::Resources(sizing), .. } = &patch else {
        panic!("{patch:?}")
    };
    assert!(sizing.dry_run);
    let tried = Event::PodTried { key: key.clone(), uid: uid.clone(), outcome: Outcome::Written(()) };
    let end = only(bench.step(tried));
    assert_eq!(status(&end).phase, Some(Phase::Succeeded));
    assert_eq!(written(&mut bench, &mut dry, &end), []);
    let accept = only(begin(&mut bench, &resize("real", 1, "300m")));
    assert!(status(&accept).target.is_some());
}

#[test]
fn a_dry_run_does_not_wait_for_what_is_unknown_of_another_ones_change() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let mut dry = resize("z", 0, "400m");
    dry.spec.dry_run = true;
    let accept = only(begin(&mut bench, &dry));
    let trial = only(written(&mut bench, &mut dry, &accept));
    let Action::PatchPod { key, uid, .. } = &trial else { panic!("{trial:?}") };
    let tried = |outcome| Event::PodTried { key: key.clone(), uid: uid.clone(), outcome };
    let mut grow = resize("grow", 1, "300m");
    let accept = only(begin(&mut bench, &grow));
    assert_eq!(written(&mut bench, &mut grow, &accept), [], "one write of a Pod at a time");
    let next = |bench: &mut Bench, event| {
        let mut actions = bench.step(event);
        while !actions.iter().any(is_patch) {
            bench.now = bench.wake_at().unwrap();
            actions = bench.step(Event::Tick);
        }
        let Action::PatchPod { change: PodChange::Resources(sizing), .. } = &actions[0] else { panic!() };
        sizing.dry_run
    };
    assert!(!next(&mut bench, tried(Outcome::Retry)));
    let unknown = Event::PodWritten { key: key.clone(), uid: uid.clone(), outcome: Outcome::Retry };
    bench.step(unknown);
    assert!(next(&mut bench, Event::of::<Resize>(Watch::Gone(grow))));
    let end = only(bench.step(tried(Outcome::Written(()))));
    assert_eq!(status(&end).phase, Some(Phase::Succeeded), "it is not tried again");
}
