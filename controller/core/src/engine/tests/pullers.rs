//! Puller Pods: their changes concern their requests, and left-over Pods are deleted.

use pitstop_api::image_update::{Phase as ImagePhase, PodImageUpdateStatus, Target};
use serde_json::json;

use super::*;
use crate::deed::{Deed, Done};
use crate::image::{self, ImageUpdate};
use crate::pod::Made;

pub(super) fn update(name: &str) -> ImageUpdate {
    let spec =
        json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "image": "r.example.com/web:v2"}]});
    ImageUpdate {
        key: ObjectKey::new("shop", name),
        uid: format!("uid-{name}"),
        resource_version: "1".into(),
        spec: serde_json::from_value(spec).unwrap(),
        ..ImageUpdate::default()
    }
}

fn over(name: &str) -> ImageUpdate {
    let target = Some(Target { pod_uid: "uid-web".into(), node_name: "node1".into() });
    let status = PodImageUpdateStatus {
        phase: Some(ImagePhase::Failed),
        completion_time: Some(DateTime::UNIX_EPOCH),
        target,
        ..PodImageUpdateStatus::default()
    };
    ImageUpdate { status, ..update(name) }
}

fn puller(of: &str) -> Pod {
    let owner = Owner { kind: "PodImageUpdate".into(), name: of.into(), uid: format!("uid-{of}") };
    let made = Some(Box::new(Made { owner, ..Made::default() }));
    Pod { made, ..pod(&format!("pitstop-pull-uid-{of}")) }
}

fn bench(updates: Vec<ImageUpdate>) -> Bench {
    let mut bench = Bench::new(vec![pod("web")], Vec::new());
    bench.step(Event::of::<ImageUpdate>(Watch::list(updates)));
    bench
}

fn swept(actions: &[Action]) -> Vec<(&str, &str)> {
    fn of(action: &Action) -> Option<(&str, &str)> {
        let Action::Do { object, deed: Deed::DeletePod { uid, .. } } = action else { return None };
        Some((&object.key.name, uid))
    }
    actions.iter().filter_map(of).collect()
}

fn upsert(pod: Pod) -> Event {
    Event::Pods(Watch::Upsert(pod))
}

#[test]
fn an_event_of_such_a_pod_plans_its_request_alone() {
    let mut bench = bench(vec![update("a"), update("b"), over("c")]);
    for event in [upsert(puller("a")), Event::Pods(Watch::Gone(puller("a")))] {
        let before = bench.engine.planned();
        bench.step(event);
        assert_eq!(bench.engine.planned(), before + 1);
    }
    let before = bench.engine.planned();
    bench.step(upsert(puller("no-such")));
    bench.step(upsert(pod("other")));
    assert_eq!(bench.engine.planned(), before);
    // A list does not name the Pod.
    bench.step(upsert(puller("a")));
    bench.step(Event::Pods(Watch::list(vec![pod("web")])));
    assert!(bench.engine.planned() > before + 1);
}

#[test]
fn what_is_left_of_a_request_that_is_over_and_through_is_deleted() {
    let mut bench = bench(vec![over("a"), over("b")]);
    assert_eq!(bench.engine.stores.images.resting.len(), 2);
    let listed = bench.step(Event::Pods(Watch::list(vec![pod("web"), puller("a")])));
    assert_eq!(swept(&listed), [("a", "uid-pitstop-pull-uid-a")]);
    let late = bench.step(upsert(puller("b")));
    assert_eq!(swept(&late), [("b", "uid-pitstop-pull-uid-b")]);
    // The deletion fails; it is tried again later.
    let object = Object::new(image::ID, ObjectKey::new("shop", "b"), "uid-b");
    let deed = Box::new(Deed::AskNode("node1".into()));
    bench.step(Event::DeedDone { object, deed, done: Done::Refused("no".into()) });
    assert_eq!(bench.wake_at(), Some(Mono(60_000)));
    bench.now = Mono(60_000);
    assert_eq!(swept(&bench.step(Event::Tick)).len(), 2);
    for name in ["a", "b"] {
        assert_eq!(bench.step(Event::Pods(Watch::Gone(puller(name)))), []);
    }
    assert_eq!(bench.wake_at(), None);
}

#[test]
fn a_pod_of_somebody_else_is_not_touched() {
    let mut bench = bench(vec![over("a")]);
    let name = puller("a").key.name;
    assert_eq!(bench.step(upsert(pod(&name))), [], "nobody has made it");
    let mut other = puller("a");
    other.made.as_mut().unwrap().owner.uid = "uid-b".into();
    assert_eq!(bench.step(upsert(other)), [], "another one of that name has");
    let going = Pod { deleting: true, ..puller("a") };
    assert_eq!(bench.step(upsert(going)), []);
}
