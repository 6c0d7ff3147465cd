//! Requests for what the Pod has already, and in another order than the Pod's.

use super::*;

/// A strategic merge patch puts containers into its own order, and the API server refuses that of a Pod.
#[test]
fn the_dry_run_names_containers_in_the_order_of_the_pod() {
    let image = "registry.example.com/shop/web:v2";
    let two = json!({"containers": [{"name": "sidecar", "image": image}, {"name": "app", "image": image}]});
    let mut world = World::new(&two);
    world.pod.as_mut().unwrap().containers.push(container("sidecar"));
    let Some(Deed::TryImages { images, .. }) = world.plan().deed else { panic!("no dry run") };
    let names: Vec<&str> = images.iter().map(|change| change.container.as_str()).collect();
    assert_eq!(names, ["app", "sidecar"]);
}
