//! Pinned images: a write with an unknown end may still take effect.

use pitstop_api::recreate::{Mechanism, RecreateStrategy};

use super::*;

pub(super) fn pinnable() -> Pod {
    let mut pod = pod("web");
    let app = &mut pod.containers[0];
    app.image = "app:1".into();
    app.status.as_mut().unwrap().image_id = format!("app@sha256:{:064x}", 7);
    pod
}

/// The version of the Pod that the write of images requires.
fn pins(actions: &[Action]) -> Option<&str> {
    actions.iter().find_map(|action| match action {
        Action::PatchPod { resource_version, change: PodChange::Images(_), .. } => Some(&**resource_version),
        _ => None,
    })
}

fn ends(actions: &[Action]) -> bool {
    actions
        .iter()
        .any(|a| matches!(a, Action::Write { write: Write::Status { status: Status::Recreate(status), .. }, .. } if status.completion_time.is_some()))
}

/// A request through the kubelet with that deadline, accepted and with its pin under way.
fn pinning(seconds: i64) -> Bench {
    let mut wants = request("a", "web", 0);
    wants.spec.active_deadline_seconds = Some(seconds);
    wants.spec.strategy =
        Some(RecreateStrategy { mechanism: Some(Mechanism::Kubelet), ..RecreateStrategy::default() });
    let mut bench = Bench::new(vec![pinnable()], Vec::new());
    bench.requests.insert(wants.key.clone(), wants.clone());
    let accepts = only(bench.step(Event::of::<Request>(Watch::Upsert(wants))));
    let accepted = bench.write(&accepts);
    let next = bench.step(accepted);
    assert_eq!(pins(&next), Some("1"), "{next:?}");
    let labels =
        next.iter().find(|a| matches!(a, Action::Write { write: Write::Metadata { .. }, .. })).unwrap();
    let labelled = bench.write(labels);
    bench.step(labelled);
    bench
}

fn written(bench: &mut Bench, outcome: Outcome<Pod>) -> Vec<Action> {
    let web = pinnable();
    bench.step(Event::PodWritten { key: web.key, uid: web.uid, outcome })
}

#[test]
fn no_outcome_is_written_while_a_pin_may_take_effect_yet() {
    let mut bench = pinning(3);
    bench.now = Mono(3000);
    assert!(!ends(&bench.step(Event::Tick)), "it is under way");
    let mut bench = pinning(3);
    written(&mut bench, Outcome::Retry);
    bench.now = Mono(3000);
    let probe = bench.step(Event::Tick);
    assert!(!ends(&probe), "{probe:?}");
    assert_eq!(pins(&probe), Some("1"), "a write on the same version tells");
    assert!(ends(&written(&mut bench, Outcome::Conflict)));
}

#[test]
fn a_pin_cannot_take_effect_once_the_pod_is_another_version() {
    let mut bench = pinning(3);
    written(&mut bench, Outcome::Retry);
    let moved = Pod { resource_version: "2".into(), ..pinnable() };
    assert!(!ends(&bench.step(Event::Pods(Watch::Upsert(moved)))));
    bench.now = Mono(3000);
    let over = bench.step(Event::Tick);
    assert!(ends(&over) && pins(&over).is_none(), "{over:?}");
}

#[test]
fn a_pin_that_is_refused_again_and_again_ends_the_request_with_the_words_of_the_refusal() {
    let mut bench = pinning(60);
    // No wait is reported meanwhile.
    bench.engine.config.progress_after = Duration::from_mins(1);
    for _ in 1..4 {
        let refused = written(&mut bench, Outcome::Refused("no such right".into()));
        assert!(!ends(&refused), "{refused:?}");
        bench.now = bench.wake_at().unwrap();
        assert_eq!(pins(&bench.step(Event::Tick)), Some("1"));
    }
    let end = only(written(&mut bench, Outcome::Refused("no such right".into())));
    let Action::Write { write: Write::Status { status: Status::Recreate(status), .. }, .. } = end else {
        panic!("{end:?}")
    };
    let entry = &status.container_recreate_states[0];
    assert_eq!(entry.phase, Phase::Failed);
    assert!(entry.message.ends_with("cannot be pinned: no such right"), "{}", entry.message);
}

/// Otherwise it would take the other's pin for its own, and the Pod for drained (seed 324475).
#[test]
fn the_next_request_is_accepted_for_the_pod_that_the_pin_makes() {
    let mut bench = pinning(60);
    let gone = bench.requests.remove(&ObjectKey::new("shop", "a")).unwrap();
    bench.step(Event::of::<Request>(Watch::Gone(gone)));
    let next = bench.step(Event::of::<Request>(Watch::Upsert(request("b", "web", 1))));
    assert!(!next.iter().any(|a| status_write(a).is_some()), "{next:?}");
    let pinned = Pod { resource_version: "2".into(), ..pinnable() };
    let next = written(&mut bench, Outcome::Written(pinned));
    assert!(next.iter().any(|a| status_write(a).is_some()), "{next:?}");
}

/// The API server would refuse another order: a strategic merge patch reorders what it names (seed 216346).
#[test]
fn images_are_changed_in_the_order_of_the_pods_containers() {
    let mut pod = pinnable();
    let mut log = pod.containers[0].clone();
    log.name = "log".into();
    log.status.as_mut().unwrap().container_id = format!("containerd://{:064x}", 9);
    pod.containers.push(log);
    let mut wants = request("a", "web", 0);
    wants.spec.containers = ["log", "app"]
        .map(|name| RecreateContainer { name: name.into(), ..RecreateContainer::default() })
        .to_vec();
    wants.spec.strategy =
        Some(RecreateStrategy { mechanism: Some(Mechanism::Kubelet), ..RecreateStrategy::default() });
    let mut bench = Bench::new(vec![pod], Vec::new());
    bench.requests.insert(wants.key.clone(), wants.clone());
    let accepts = only(bench.step(Event::of::<Request>(Watch::Upsert(wants))));
    let accepted = bench.write(&accepts);
    let next = bench.step(accepted);
    let images = next.iter().find_map(|action| match action {
        Action::PatchPod { change: PodChange::Images(images), .. } => Some(images),
        _ => None,
    });
    let names: Vec<&str> = images.unwrap().iter().map(|i| i.container.as_str()).collect();
    assert_eq!(names, ["app", "log"]);
}
