//! Pulls: after the stop, by policy, and with back-off by Pod and image string.

use super::*;
use crate::node::registry::{Refusing, Registry};

/// A node that pulls in two seconds, and a Pod that runs on it.
fn bench() -> Bench {
    let mut b = Bench::new();
    *b.node.runtime.registry_mut() = Registry::new(2_000, true);
    b.put(app("{}"));
    b.until(5_000, Bench::ready);
    b
}

fn set_image(b: &mut Bench, image: &str) {
    b.edit(|p| p["spec"]["containers"][0]["image"] = json!(image));
}

fn waits_for(b: &Bench, reason: &str) -> bool {
    b.status("app").state.waiting.is_some_and(|w| w.reason == reason)
}

#[test]
fn the_old_container_ends_before_the_pull() {
    let mut b = bench();
    let old = b.status("app").image_id;
    set_image(&mut b, "app:2");
    b.until(500, |b| b.running("app").is_none());
    b.pass(1_500);
    assert!(b.running("app").is_none() && b.node.runtime.image("app:2").is_none());
    b.until(3_000, |b| b.running("app").is_some_and(|c| c.info.attempt == 1));
    // The kubelet renews its status after the pass.
    b.until(1_000, |b| b.ready() && b.status("app").image_id != old);
    let id = b.node.runtime.image("app:2").unwrap().id.clone();
    assert_eq!(b.running("app").unwrap().info.image_id, id);
}

#[test]
fn what_the_node_has_is_not_asked_for_again() {
    let mut b = bench();
    let fetched = b.node.runtime.fetch(b.now, Client::KUBELET, "app:2");
    let id = fetched.unwrap();
    // The tag moves, but the node uses the image that it has.
    b.node.runtime.registry_mut().tag("app:2", "app:3");
    set_image(&mut b, "app:2");
    assert!(b.until(2_000, |b| b.running("app").is_some_and(|c| c.info.attempt == 1)) < 1_500);
    assert_eq!(b.running("app").unwrap().info.image_id, id);
    b.edit(|p| {
        p["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
        p["spec"]["containers"][0]["image"] = json!("app:2@nothing");
    });
    b.pass(500);
    assert!(b.running("app").is_none(), "it asks all the same");
}

#[test]
fn a_pull_that_fails_is_told_and_waits() {
    let mut b = bench();
    set_image(&mut b, "app:missing");
    b.until(5_000, |b| waits_for(b, "ErrImagePull"));
    assert!(b.running("app").is_none(), "it was ended first");
    b.until(30_000, |b| waits_for(b, "ImagePullBackOff"));
    b.node.runtime.registry_mut().refuse(Refusing::Busy, b.now + 60_000);
    b.pass(60_000);
    assert!(b.running("app").is_none());
    // Another image string has no back-off.
    set_image(&mut b, "app:2");
    b.until(5_000, Bench::ready);
}

#[test]
fn what_is_not_to_be_pulled_is_not() {
    let mut b = bench();
    b.edit(|p| {
        p["spec"]["containers"][0]["imagePullPolicy"] = json!("Never");
        p["spec"]["containers"][0]["image"] = json!("app:2");
    });
    b.until(5_000, |b| waits_for(b, "ErrImageNeverPull"));
}

#[test]
fn content_does_as_its_first_tag_says() {
    let mut b = bench();
    b.node.runtime.registry_mut().tag("app:fine", "app:crash-1");
    set_image(&mut b, "app:fine");
    b.until(20_000, |b| waits_for(b, "CrashLoopBackOff"));
    set_image(&mut b, "app:unready");
    b.until(5_000, |b| b.running("app").is_some());
    b.pass(20_000);
    assert!(!b.ready());
    set_image(&mut b, "app:nostart");
    b.until(20_000, |b| waits_for(b, "RunContainerError"));
}

#[test]
fn what_no_container_uses_is_collected() {
    let mut b = bench();
    b.node.runtime.fetch(b.now, Client::KUBELET, "app:2").unwrap();
    b.node.runtime.collect_images();
    assert!(b.node.runtime.image("app:2").is_none() && b.node.runtime.image("app:1").is_some());
}
