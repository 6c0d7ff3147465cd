//! Nodes pull images before there is room for their Pods.

use pitstop_api::rollout::Canary;

use super::updates::of;
use super::*;

impl World {
    /// A parked `StatefulSet` with a new image, and six Pods, each on its own node.
    pub(super) fn six() -> Self {
        Self::six_on(|name| format!("node-of-{name}"))
    }

    /// The same on these nodes.
    fn six_on(node: impl Fn(&str) -> String) -> Self {
        let mut world = Self::parked();
        for name in ["web-0", "web-1", "web-2", "web-3", "web-4", "web-5"] {
            world.put(Pod { node: Some(node(name)), ..of("old", "shop/web:v1", name) });
        }
        world.workload.as_mut().unwrap().desired = 6;
        world
    }

    fn canary(&mut self, pods: i32) {
        let canary = Some(Canary { pods, soak_seconds: Some(60) });
        self.rollout.spec.strategy.as_mut().unwrap().canary = canary;
    }

    /// Names of the Pods whose requests are suspended.
    fn suspended(&self) -> Vec<&str> {
        let suspended = self.asked.values().filter(|asked| asked.suspended());
        suspended.map(|asked| asked.pod.as_str()).collect()
    }
}

#[test]
fn the_nodes_of_two_waves_pull_ahead() {
    let mut world = World::six();
    world.settle();
    assert_eq!((world.open(), world.suspended()), (vec!["web-5"], vec!["web-3", "web-4"]));
    assert_eq!(world.counts(), (6, 0, 1, 0), "those Pods have not begun");
    world.updated("web-5", "shop/web:v2");
    assert_eq!((world.open(), world.suspended()), (vec!["web-4"], vec!["web-2", "web-3"]));
    for pod in ["web-4", "web-3", "web-2", "web-1", "web-0"] {
        world.updated(pod, "shop/web:v2");
    }
    assert_eq!(world.begun, ["web-5", "web-4", "web-3", "web-2", "web-1", "web-0"]);
    assert_eq!(world.pulled, ["web-4", "web-3", "web-2", "web-1", "web-0"]);
    assert_eq!((world.released, world.asked.len()), (Some(Strategy::Partition(0)), 0));
}

/// A node that was asked for one Pod, or has an updated Pod, has the images for its others.
#[test]
fn a_node_pulls_ahead_once() {
    let odd = |name: &str| name.ends_with(['1', '3', '5']);
    let mut world = World::six_on(|name| if odd(name) { "odd" } else { "even" }.to_owned());
    world.settle();
    assert_eq!((world.open(), world.suspended()), (vec!["web-5"], vec!["web-4"]));
    for pod in ["web-5", "web-4", "web-3", "web-2", "web-1", "web-0"] {
        world.updated(pod, "shop/web:v2");
    }
    assert_eq!(world.begun, ["web-5", "web-4", "web-3", "web-2", "web-1", "web-0"]);
    assert_eq!(
        (&world.pulled[..], world.released),
        (&["web-4".to_owned()][..], Some(Strategy::Partition(0)))
    );
}

/// Other Pods of the node need not ask its daemon.
#[test]
fn a_pod_that_has_its_image_proves_that_its_node_has_it() {
    let mut world = World::six_on(|_| "one".to_owned());
    world.settle();
    let key =
        |world: &World| world.asked.iter().find(|(_, a)| a.pod == "web-5").map(|((_, key), _)| key.clone());
    let first = key(&world);
    assert_eq!(world.memory.succeeded_on("one"), None, "it is being updated");
    world.updated("web-5", "shop/web:v2");
    assert_eq!((world.memory.succeeded_on("one"), world.memory.succeeded_on("two")), (first, None));
    world.pods.remove(&ObjectKey::new("shop", "web-5"));
    world.changed(&ObjectKey::new("shop", "web-5"));
    world.settle();
    assert_eq!(world.memory.succeeded_on("one"), None);
}

/// If that pull comes to nothing, the node pulls for another Pod.
#[test]
fn a_node_whose_pod_goes_is_asked_for_another_one() {
    let mut world = World::six_on(|name| if name == "web-5" { "one" } else { "two" }.to_owned());
    world.settle();
    assert_eq!((world.open(), world.suspended()), (vec!["web-5"], vec!["web-4"]));
    world.pods.remove(&ObjectKey::new("shop", "web-4"));
    world.changed(&ObjectKey::new("shop", "web-4"));
    world.asked.retain(|_, asked| asked.pod != "web-4");
    world.settle();
    assert_eq!((world.open(), world.suspended()), (vec!["web-5"], vec!["web-3"]));
}

#[test]
fn a_pod_that_is_released_takes_its_place_before_the_watch_shows_it() {
    let mut world = World::six();
    world.settle();
    world.hides_new = true;
    world.updated("web-5", "shop/web:v2");
    assert_eq!(world.begun, ["web-5", "web-4"]);
    assert_eq!((world.suspended(), world.counts()), (vec!["web-3", "web-4"], (6, 1, 1, 0)));
    world.later(29);
    assert_eq!(world.begun, ["web-5", "web-4"]);
    // The resume was lost.
    world.hides_new = false;
    world.later(1);
    assert_eq!(world.begun, ["web-5", "web-4", "web-4"]);
    assert_eq!((world.open(), world.suspended()), (vec!["web-4"], vec!["web-2", "web-3"]));
}

#[test]
fn a_pull_that_fails_stops_it_and_nobody_is_touched() {
    let mut world = World::six();
    world.settle();
    let ahead = world.asked.values_mut().find(|asked| asked.pod == "web-4").unwrap();
    ahead.ended = Some(false);
    world.changed(&ObjectKey::new("shop", "web-4"));
    world.updated("web-5", "shop/web:v2");
    assert_eq!((world.begun.len(), world.report().0, world.counts()), (1, "PodsFailed", (6, 1, 0, 1)));
    assert_eq!(world.suspended().len(), 0, "none is pulled for any more");
    assert_eq!(world.asked.len(), 2, "that which has failed is kept");
}

#[test]
fn nothing_is_pulled_for_the_first_pods_nor_while_it_is_paused() {
    let mut world = World::six();
    world.canary(2);
    world.settle();
    assert_eq!((world.open(), world.pulled.len()), (vec!["web-5"], 0), "web-4 is watched for longer");
    world.updated("web-5", "shop/web:v2");
    let of = |world: &World, pod: &str| {
        let asked = world.asked.values().find(|asked| asked.pod == pod).unwrap();
        asked.spec["observeSeconds"].as_i64().unwrap()
    };
    assert_eq!((world.open(), of(&world, "web-4")), (vec!["web-4"], 60));
    assert_eq!((world.suspended(), of(&world, "web-3")), (vec!["web-2", "web-3"], 0));
    world.rollout.spec.paused = true;
    world.updated("web-4", "shop/web:v2");
    assert_eq!((world.open().len(), world.pulled.len(), world.report().0), (0, 2, "Paused"));
    assert!(world.suspended().is_empty(), "they are asked for again when it goes on");
    world.rollout.spec.paused = false;
    world.later(1);
    assert_eq!((world.open(), world.suspended()), (vec!["web-3"], vec!["web-1", "web-2"]));
}

#[test]
fn what_was_pulled_for_another_template_is_withdrawn_at_once() {
    let mut world = World::six();
    world.settle();
    world.template().revision = Some("newer".into());
    world.template().changes = [
        ("old".into(), super::updates::image("shop/web:v1", "shop/web:v3")),
        ("new".into(), super::updates::image("shop/web:v2", "shop/web:v3")),
        ("newer".into(), crate::template::Change::InPlace(crate::template::Delta::default())),
    ]
    .into();
    world.template().generation = 3;
    world.parked.as_mut().unwrap().generation = 3;
    world.settle();
    assert_eq!((world.open(), world.suspended().len()), (vec!["web-5"], 0), "what has begun goes on");
    world.updated("web-5", "shop/web:v2");
    assert_eq!((world.open(), world.suspended()), (vec!["web-5"], vec!["web-3", "web-4"]));
}

#[test]
fn other_requests_of_a_namespace_have_places_beside() {
    let mut world = World::six();
    world.config.max_open_requests_per_namespace = Some(4);
    world.settle();
    assert_eq!((world.open().len(), world.suspended()), (1, vec!["web-4"]));
}
