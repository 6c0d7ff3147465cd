//! A container that runs an image proves that its node has it.

use pitstop_api::nodework::PullPolicy;

use super::*;
use crate::image::proof::proven;

fn pinned() -> Value {
    json!({"containers": [{"name": "app", "image": format!("registry.example.com/shop/web:v2@{NEW}")}]})
}

/// Another update of the same rollout that has succeeded, and its Pod.
fn other() -> (ImageUpdate, Pod) {
    let mut world = World::new(&json!({"observeSeconds": 0}));
    world.settle();
    world.pulled();
    world.starts(true);
    world.runs("config-2");
    assert_eq!(world.phase(), Phase::Succeeded);
    (world.update, world.pod.unwrap())
}

#[test]
fn what_the_node_is_known_to_have_its_daemon_is_not_asked_for() {
    let mut world = World { proven: vec![("app".into(), pulled())], quick: true, ..World::new(&pinned()) };
    world.settle();
    let written = format!("registry.example.com/shop/web:v2@{NEW}");
    assert_eq!((world.image(), world.phase(), world.orders.len()), (written.as_str(), Phase::Updating, 0));
    assert_eq!(world.update.status.containers[0].pulled, Some(pulled()));
    assert_eq!(world.condition(conditions::PULLED).status, ConditionStatus::True);
    assert_eq!(world.writes, 1, "its acceptance, with what the Pod gets");
    // The other update may be gone by now.
    world.proven.clear();
    world.starts(true);
    assert_eq!((world.phase(), world.orders.len()), (Phase::Observing, 0), "the kubelet reports what runs");
    world.pass(30);
    assert_eq!((world.phase(), world.reason()), (Phase::Succeeded, "Updated"));
}

/// It also drains the Pod, if requested.
#[test]
fn what_the_node_has_waits_for_its_turn_all_the_same() {
    let with = |field: &str, value: Value| {
        let mut spec = pinned();
        spec[field] = value;
        World { proven: vec![("app".into(), pulled())], quick: true, ..World::new(&spec) }
    };
    let mut world = with("suspend", true.into());
    world.settle();
    assert_eq!((world.reason(), world.writes, world.update.changes()), ("Suspended", 1, false));
    let mut world = with("pull", "Required".into());
    world.earlier = Some(Named { kind: crate::image::ID, key: ObjectKey::new("shop", "older") });
    world.settle();
    assert_eq!((world.reason(), world.writes, world.update.changes()), ("Queued", 1, false));
    let mut world = with("unreadyGracePeriodSeconds", 5.into());
    world.settle();
    assert!(world.update.drains() && !world.update.changes(), "{:?}", world.update.status);
    assert_eq!(world.orders.len(), 0);
}

/// Then its daemon reports what runs.
#[test]
fn a_kubelet_that_tells_something_else_is_not_believed() {
    let mut world = World { proven: vec![("app".into(), pulled())], ..World::new(&pinned()) };
    world.settle();
    world.starts(true);
    world.show(|status| status.image_id = format!("registry.example.com/shop/web@{OLD}3"));
    assert_eq!((world.phase(), world.order_ids()), (Phase::Updating, vec!["u-1/app/1"]));
}

#[test]
fn only_a_container_that_runs_on_the_node_what_was_pulled_there_is_a_proof() {
    let (request, pod) = (asked(&pinned()), web());
    let (update, runs) = other();
    let names = |request: &ImageUpdate, pod: &Pod, update: &ImageUpdate, runs: &Pod| {
        proven(request, pod, (update, runs), true).images.into_iter().map(|pair| pair.0).collect::<Vec<_>>()
    };
    let known = proven(&request, &pod, (&update, &runs), true).images;
    assert_eq!(known, [("app".to_owned(), Pulled { milliseconds: 0, present: true, ..pulled() })]);
    let none = Vec::<String>::new();
    let by_tag = asked(&json!({}));
    assert_eq!(names(&by_tag, &pod, &update, &runs), none, "a tag may mean something else by now");
    let image = format!("registry.example.com/shop/web:v2@{OLD}");
    let another = asked(&json!({"containers": [{"name": "app", "image": image}]}));
    assert_eq!(names(&another, &pod, &update, &runs), none);
    let image = format!("mirror.example.com/shop/web:v2@{NEW}");
    let mirrored = asked(&json!({"containers": [{"name": "app", "image": image}]}));
    assert_eq!(names(&mirrored, &pod, &update, &runs), none, "the kubelet would pull it");
    let elsewhere = Pod { node: Some("node2".into()), ..runs.clone() };
    assert_eq!(names(&request, &pod, &update, &elsewhere), none);
    for (uid, deleting) in [("another", false), (runs.uid.as_str(), true)] {
        let gone = Pod { uid: uid.into(), deleting, ..runs.clone() };
        assert_eq!(names(&request, &pod, &update, &gone), none);
    }
    let mut ended = runs.clone();
    ended.containers[0].status.as_mut().unwrap().state = ContainerState::Terminated { exit_code: 1 };
    assert_eq!(names(&request, &pod, &update, &ended), none);
    let mut changed = runs.clone();
    changed.containers[0].status.as_mut().unwrap().image_id = format!("registry.example.com/shop/web@{OLD}");
    assert_eq!(names(&request, &pod, &update, &changed), none);
    let mut asks = pod.clone();
    asks.containers[0].pull_policy = PullPolicy::Always;
    assert_eq!(names(&request, &asks, &update, &runs), none, "its kubelet asks the registry at the start");
}

#[test]
fn what_the_api_server_has_just_stored_for_another_pod_it_stores_for_this_one() {
    let (request, pod) = (asked(&pinned()), web());
    let (update, runs) = other();
    let image = format!("registry.example.com/shop/web:v2@{NEW}");
    let change = ImageChange { container: "app".into(), init: false, image, tried: false };
    let stored = |request: &ImageUpdate, pod: &Pod, runs: &Pod, just| {
        proven(request, pod, (&update, runs), just).stored
    };
    assert_eq!(stored(&request, &pod, &runs, true), std::slice::from_ref(&change));
    assert_eq!(stored(&request, &pod, &runs, false), [], "admission may be another one by now");
    let asks = asked(&json!({"containers": pinned()["containers"], "dryRun": true}));
    assert_eq!(stored(&asks, &pod, &runs, true), [], "it is all that is asked for");
    let mut other = runs.clone();
    other.containers[0].image = "mirror.example.com/shop/web:v2".into();
    assert_eq!(stored(&request, &pod, &other, true), [], "admission has made something else of it");
    let mut has = pod.clone();
    has.containers[0].image = change.image;
    assert_eq!(stored(&request, &has, &runs, true), [], "there is nothing to store");
}

/// The other updates of its rollout show the result.
#[test]
fn what_is_known_to_be_stored_is_written_without_a_dry_run() {
    let mut world = World { proven: vec![("app".into(), pulled())], quick: true, ..World::new(&pinned()) };
    let image = format!("registry.example.com/shop/web:v2@{NEW}");
    let change = ImageChange { container: "app".into(), init: false, image, tried: false };
    world.memory.stores(world.now, vec![change]);
    world.settle();
    assert_eq!((world.phase(), world.tried, &*world.wrote), (Phase::Updating, 0, &[true][..]));
}

#[test]
fn only_an_update_that_was_seen_to_end_tells_what_is_stored() {
    let mut memory = Memory::new(Mono(1_000));
    assert!(!memory.ended_just(Mono(1_000)), "it is open");
    memory.completed_seen = Some(Mono(1_000));
    assert!(!memory.ended_just(Mono(1_000)), "it was over when it was first seen");
    memory.completed_seen = Some(Mono(2_000));
    assert!(memory.ended_just(Mono(31_999)) && !memory.ended_just(Mono(32_000)));
}
