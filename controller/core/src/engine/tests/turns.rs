//! Whose turn it is with a Pod, and what an event costs however many wait.

use pitstop_api::condition::{self, Condition};
use pitstop_api::image_update::{ContainerStatus, Phase as ImagePhase, PodImageUpdateStatus, Target};

use super::pullers::update;
use super::resizes::{begin, is_patch, patched, resize, sizable, status, written};
use super::*;
use crate::image::ImageUpdate;

fn complete(conditions: &[Condition]) -> (&str, &str) {
    let complete = condition::find(conditions, "Complete").unwrap();
    (&complete.reason, &complete.message)
}

/// The request appears; the bench carries out what follows for requests and books.
fn asks(bench: &mut Bench, request: Request) {
    bench.requests.insert(request.key.clone(), request.clone());
    let actions = bench.step(Event::of::<Request>(Watch::Upsert(request)));
    bench.all(actions);
}

fn stored<'a>(bench: &'a Bench, name: &str) -> &'a Request {
    &bench.requests[&ObjectKey::new("shop", name)]
}

/// A resize whose patch is on its way.
fn at_work(bench: &mut Bench, name: &str, created: i64) -> Resize {
    let mut grow = resize(name, created, "300m");
    let accept = only(begin(bench, &grow));
    assert!(is_patch(&only(written(bench, &mut grow, &accept))));
    grow
}

fn accepts(action: &Action, name: &str) -> bool {
    matches!(action, Action::Write { object: Object { key, .. }, write: Write::Status { status: Status::Recreate(status), .. } } if key.name == name && status.target.is_some())
}

#[test]
fn a_restart_waits_for_a_resize_until_the_kubelet_is_done() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    at_work(&mut bench, "grow", 5);
    // Created earlier, but not begun.
    asks(&mut bench, request("a", "web", 0));
    let message = "waits for its turn: PodResize shop/grow goes first";
    assert_eq!(complete(&stored(&bench, "a").status.conditions), ("Queued", message));
    let next = patched(&mut bench, 300);
    assert!(next.iter().any(|action| accepts(action, "a")), "{next:?}");
}

/// Memory in use can delay a resize for any time, and the restart may be what frees it.
#[test]
fn a_restart_waits_a_minute_for_a_resize_that_does_not_get_on() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    at_work(&mut bench, "grow", 0);
    asks(&mut bench, request("a", "web", 1));
    bench.now = Mono(59_999);
    assert!(!bench.step(Event::Tick).iter().any(|action| accepts(action, "a")));
    bench.now = Mono(60_000);
    assert_eq!(bench.wake_at(), Some(bench.now));
    assert!(bench.step(Event::Tick).iter().any(|action| accepts(action, "a")));
}

/// The update ends by its own times, and takes a restart for a crash of the new image.
#[test]
fn a_restart_waits_for_an_image_update_for_as_long_as_that_takes() {
    let web = pod("web");
    let app = &web.containers[0];
    let written =
        ContainerStatus { name: "app".into(), written: app.image.clone(), ..ContainerStatus::default() };
    let status = PodImageUpdateStatus {
        phase: Some(ImagePhase::Updating),
        target: Some(Target { pod_uid: web.uid.clone(), node_name: "node1".into() }),
        containers: vec![written],
        ..PodImageUpdateStatus::default()
    };
    let update = ImageUpdate { status, ..update("new") };
    let mut bench = Bench::new(vec![web.clone()], Vec::new());
    bench.step(Event::of::<ImageUpdate>(Watch::list(vec![update])));
    asks(&mut bench, request("a", "web", 1));
    for now in [60_000, 299_000] {
        bench.now = Mono(now);
        assert!(!bench.step(Event::Tick).iter().any(|action| accepts(action, "a")), "{now}");
    }
}

#[test]
fn a_resize_waits_for_a_restart_until_no_container_is_left_to_stop() {
    let mut bench = Bench::new(vec![sizable()], vec![request("a", "web", 0)]);
    assert_eq!((bench.phase("a"), bench.orders()), (Some(Phase::Recreating), 1));
    let mut grow = resize("grow", 0, "300m");
    assert_eq!(begin(&mut bench, &grow), [], "that is reported later");
    bench.now = Mono(3_000);
    let waiting = bench.step(Event::Tick);
    let waiting = waiting
        .iter()
        .find(|a| matches!(a, Action::Write { write: Write::Status { status: Status::Resize(_), .. }, .. }))
        .unwrap();
    let message = "waits for its turn: ContainerRecreateRequest shop/a goes first";
    assert_eq!(complete(&status(waiting).conditions), ("Queued", message));
    bench.acknowledge();
    // Another instance runs, but is not ready: that may take any time, and need more memory.
    let mut pod = sizable();
    let app = pod.containers[0].status.as_mut().unwrap();
    (app.container_id, app.restart_count, app.ready) = (format!("containerd://{:064x}", 2), 1, false);
    pod.resource_version = "2".into();
    bench.step(Event::Pods(Watch::Upsert(pod)));
    let accept = only(written(&mut bench, &mut grow, &waiting.clone()));
    assert!(status(&accept).target.is_some(), "{accept:?}");
    assert_eq!(bench.phase("a"), Some(Phase::Recreating));
}

/// The restart may still stop the instance that has taken the container's place.
#[test]
fn a_resize_waits_for_a_forced_restart_whose_container_has_ended_by_itself() {
    for forced in [true, false] {
        let mut drains = request("a", "web", 0);
        drains.spec.strategy = Some(pitstop_api::recreate::RecreateStrategy {
            force_recreate: forced,
            unready_grace_period_seconds: Some(60),
            ..Default::default()
        });
        let mut bench = Bench::new(vec![sizable()], vec![drains]);
        begin(&mut bench, &resize("grow", 1, "300m"));
        let mut pod = sizable();
        let app = pod.containers[0].status.as_mut().unwrap();
        (app.container_id, app.restart_count) = (format!("containerd://{:064x}", 2), 1);
        pod.resource_version = "2".into();
        let next = bench.step(Event::Pods(Watch::Upsert(pod)));
        let accepted = next
            .iter()
            .any(|a| matches!(a, Action::Write { write: Write::Status { status: Status::Resize(status), .. }, .. } if status.target.is_some()));
        assert_eq!(accepted, !forced, "{next:?}");
    }
}

/// A resize that was accepted before the watch showed a restart must not be sent beside it.
#[test]
fn an_accepted_resize_sends_nothing_beside_a_restart_that_has_begun() {
    let mut bench = Bench::new(vec![sizable()], vec![request("a", "web", 0)]);
    let mut other = Bench::new(vec![sizable()], Vec::new());
    let mut grow = resize("grow", 1, "300m");
    let accept = only(begin(&mut other, &grow));
    grow.status = status(&accept).clone();
    let next = bench.step(Event::of::<Resize>(Watch::Upsert(grow.clone())));
    assert!(!next.iter().any(is_patch), "{next:?}");
    bench.now = Mono(600_000);
    assert!(!bench.step(Event::Tick).iter().any(is_patch), "and it goes on waiting");
}

/// The answer to a dry run concerns that one, though others exist, too.
#[test]
fn what_comes_of_a_dry_run_ends_it_though_it_is_not_the_first() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let (mut one, mut other) = (resize("a", 0, "300m"), resize("b", 1, "400m"));
    (one.spec.dry_run, other.spec.dry_run) = (true, true);
    let accept = only(begin(&mut bench, &one));
    let accepts = only(begin(&mut bench, &other));
    let trial = only(written(&mut bench, &mut one, &accept));
    assert_eq!(written(&mut bench, &mut other, &accepts), [], "one write of a Pod at a time");
    let Action::PatchPod { key, uid, .. } = &trial else { panic!("{trial:?}") };
    let tried = || Event::PodTried { key: key.clone(), uid: uid.clone(), outcome: Outcome::Written(()) };
    let next = bench.step(tried());
    assert_eq!(next.len(), 2, "the end of the one, the trial of the other: {next:?}");
    // The end of the first is on its way.
    let end = only(bench.step(tried()));
    assert_eq!(status(&end).phase, Some(pitstop_api::resize::Phase::Succeeded), "it is not tried again");
}

#[test]
fn restarts_and_resizes_go_in_order_of_creation() {
    for (created, resize_first) in [(1, true), (3, false)] {
        let requests = vec![request("a", "web", 0), request("b", "web", 2)];
        let mut bench = Bench::new(vec![sizable()], requests);
        begin(&mut bench, &resize("grow", created, "300m"));
        let acknowledged = bench.acknowledge();
        bench.all(acknowledged);
        let mut pod = sizable();
        let app = pod.containers[0].status.as_mut().unwrap();
        (app.container_id, app.restart_count) = (format!("containerd://{:064x}", 2), 1);
        pod.resource_version = "2".into();
        let over = bench.step(Event::Pods(Watch::Upsert(pod)));
        let resized = over
            .iter()
            .any(|a| matches!(a, Action::Write { write: Write::Status { status: Status::Resize(status), .. }, .. } if status.target.is_some()));
        assert_eq!(resized, resize_first, "no container is left to stop: {over:?}");
        let end = over.iter().find(|a| status_write(a).is_some()).unwrap();
        let answer = bench.write(end);
        let next = bench.step(answer);
        assert_eq!(next.iter().any(|action| accepts(action, "b")), !resize_first, "{next:?}");
    }
}

#[test]
fn of_a_restart_and_a_resize_that_are_listed_together_one_begins() {
    let mut bench = Bench::empty();
    bench.step(Event::Leader(true));
    bench.step(Event::Pods(Watch::list(vec![sizable()])));
    bench.step(Event::of::<Resize>(Watch::list(vec![resize("grow", 0, "300m")])));
    bench.step(Event::NodeWorks(Watch::list(Vec::new())));
    let both = bench.step(Event::of::<Request>(Watch::list(vec![request("a", "web", 0)])));
    let [
        Action::Write { write: Write::Status { status: Status::Resize(begun), .. }, .. },
        Action::Write { write: Write::Status { status: Status::Recreate(queued), .. }, .. },
    ] = &both[..]
    else {
        panic!("{both:?}")
    };
    assert!(begun.target.is_some() && queued.target.is_none());
    assert_eq!(complete(&queued.conditions).0, "Queued");
}

/// A request for that Pod has ended by its deadline, and its stop goes on.
fn outlived(pod: Pod) -> Bench {
    let mut late = request("a", "web", 0);
    late.spec.active_deadline_seconds = Some(3);
    let mut bench = Bench::new(vec![pod], vec![late]);
    let acknowledged = bench.acknowledge();
    bench.all(acknowledged);
    bench.now = Mono(3_000);
    let end = bench.step(Event::Tick);
    bench.all(end);
    assert_eq!((bench.phase("a"), bench.orders()), (Some(Phase::Completed), 1));
    bench
}

/// The stop outlives the request, and its daemon is away: its order is on its way out of the book when the container ends.
#[test]
fn a_stop_is_told_as_long_as_its_order_stands() {
    let mut bench = outlived(pod("web"));
    // The grace period and a minute are over.
    bench.now = Mono(90_000);
    let overdue = bench.step(Event::Tick);
    assert_eq!(bench.orders(), 1);
    assert!(!stored(&bench, "a").status.container_recreate_states[0].is_killed);
    let restarted = bench.restarted("web");
    bench.all(restarted);
    assert!(stored(&bench, "a").status.container_recreate_states[0].is_killed);
    // Once the order is gone, only the request itself is left.
    bench.now = Mono(100_000);
    let tidy = bench.step(Event::Tick);
    bench.all(overdue);
    bench.all(tidy);
    assert_eq!(bench.orders(), 0);
    let book = bench.book.clone().unwrap();
    bench.step(Event::NodeWorks(Watch::Upsert(book)));
    assert!(
        bench.engine.stores.recreates.queues.is_empty() && bench.engine.stores.recreates.by_node.is_empty()
    );
}

/// 300 requests for one Pod wait, and 300 have ended: an event concerns only those at work or next.
#[test]
fn an_event_plans_what_it_concerns_however_many_wait_or_have_ended() {
    let mut counts = Vec::new();
    for many in [2, 300] {
        let mut ended = Bench::new(vec![pod("web")], vec![request("a", "web", 0)]);
        let acknowledged = ended.acknowledge();
        ended.all(acknowledged);
        let over = ended.restarted("web");
        ended.all(over);
        let done = stored(&ended, "a").clone();
        let finished = (0..many).map(|i| Request {
            key: ObjectKey::new("shop", format!("done-{i}")),
            uid: format!("uid-done-{i}"),
            ..done.clone()
        });
        let waiting = (0..many).map(|i| request(&format!("wait-{i:03}"), "web", i));
        let mut bench = Bench::empty();
        let requests: Vec<Request> = finished.chain(waiting).collect();
        bench.requests = requests.iter().map(|r| (r.key.clone(), r.clone())).collect();
        bench.pods = BTreeMap::from([(pod("web").key, pod("web"))]);
        bench.step(Event::Leader(true));
        bench.step(Event::Pods(Watch::list(vec![pod("web")])));
        bench.step(Event::NodeWorks(Watch::list(Vec::new())));
        let first = bench.step(Event::of::<Request>(Watch::list(requests)));
        for action in first {
            let answer = bench.write(&action);
            for next in bench.step(answer) {
                if !matches!(next, Action::Emit(_) | Action::Count(_)) {
                    bench.all(vec![next]);
                }
            }
        }
        let before = bench.engine.planned();
        bench.step(Event::Pods(Watch::Upsert(Pod { resource_version: "7".into(), ..pod("web") })));
        counts.push(bench.engine.planned() - before);
        assert_eq!(bench.engine.open_of(recreate::ID), usize::try_from(many).unwrap());
    }
    assert_eq!(counts, [2, 2], "the one at work, and the next");
}

#[test]
fn each_of_many_that_wait_for_a_pod_is_written_a_few_times_at_most() {
    let many = 40;
    let requests: Vec<Request> = (0..many).map(|i| request(&format!("r-{i:02}"), "web", i)).collect();
    let mut bench = Bench::new(vec![pod("web")], requests);
    let mut writes: BTreeMap<String, u32> = BTreeMap::new();
    for turn in 0..many {
        bench.now = bench.now.after(Duration::from_secs(2));
        let acknowledged = bench.acknowledge();
        bench.all(acknowledged);
        let mut pod = Pod { resource_version: format!("pod-{turn}"), ..pod("web") };
        let app = pod.containers[0].status.as_mut().unwrap();
        let restarts = i32::try_from(turn).unwrap() + 1;
        (app.container_id, app.restart_count) = (format!("containerd://{:064x}", restarts + 1), restarts);
        bench.pods.insert(pod.key.clone(), pod.clone());
        let mut todo = VecDeque::from(bench.step(Event::Pods(Watch::Upsert(pod))));
        while let Some(action) = todo.pop_front() {
            if let Some(Object { key, .. }) = status_write(&action) {
                *writes.entry(key.name.clone()).or_default() += 1;
            }
            if !matches!(action, Action::Emit(_) | Action::Count(_)) {
                let answer = bench.write(&action);
                todo.extend(bench.step(answer));
            }
        }
    }
    assert!(bench.requests.values().all(Request::completed));
    // Each has its acceptance and its end written. Few of so many also report their wait, once.
    assert!(writes.values().all(|times| *times <= 3), "{writes:?}");
    assert!(writes.values().sum::<u32>() <= 2 * 40 + 4, "{writes:?}");
}

/// The daemon is away, so no other event of the Pod would wake the resize.
#[test]
fn a_resize_begins_when_the_stop_that_outlived_its_request_is_given_up() {
    let mut bench = outlived(sizable());
    let mut grow = resize("grow", 1, "300m");
    begin(&mut bench, &grow);
    bench.now = Mono(10_000);
    let waiting = only(bench.step(Event::Tick));
    assert_eq!(complete(&status(&waiting).conditions).0, "Queued");
    written(&mut bench, &mut grow, &waiting);
    // The grace period and a minute are over.
    bench.now = Mono(90_000);
    let given_up = bench.step(Event::Tick);
    let accepted = |a: &Action| matches!(a, Action::Write { write: Write::Status { status: Status::Resize(status), .. }, .. } if status.target.is_some());
    assert!(given_up.iter().any(accepted), "{given_up:?}");
}

/// The watch shows the new Pod before the answer to the write of the old one, which does not concern it.
#[test]
fn a_pod_that_replaced_one_with_a_write_under_way_can_be_written_to() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    at_work(&mut bench, "grow", 0);
    let old = sizable();
    let new = Pod { uid: "other".into(), resource_version: "9".into(), ..sizable() };
    bench.step(Event::Pods(Watch::list(vec![new])));
    bench.step(Event::PodWritten { key: old.key.clone(), uid: old.uid.clone(), outcome: Outcome::Gone });
    let tries = only(begin(&mut bench, &resize("next", 1, "300m")));
    assert!(matches!(&tries, Action::PatchPod { uid, .. } if uid == "other"), "{tries:?}");
}

/// An answer about a deleted request does not concern a new one with the same name.
#[test]
fn the_answer_to_a_dry_run_of_a_deleted_request_is_not_taken_for_one_of_the_next() {
    let mut bench = Bench::new(vec![sizable()], Vec::new());
    let mut one = resize("a", 0, "300m");
    one.spec.dry_run = true;
    let mut other = Resize { uid: "other".into(), ..one.clone() };
    let accept = only(begin(&mut bench, &one));
    let trial = only(written(&mut bench, &mut one, &accept));
    bench.step(Event::of::<Resize>(Watch::Gone(one)));
    let accept = only(begin(&mut bench, &other));
    let Action::PatchPod { key, uid, .. } = trial else { panic!("{trial:?}") };
    assert_eq!(bench.step(Event::PodTried { key, uid, outcome: Outcome::Written(()) }), []);
    assert!(matches!(only(written(&mut bench, &mut other, &accept)), Action::PatchPod { .. }));
}
