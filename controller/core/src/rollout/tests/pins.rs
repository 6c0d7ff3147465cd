//! All Pods of an update get what the first node pulled.

use pitstop_api::rollout::{OnFailure, TagMeaning};

use super::*;

fn digest(of: char) -> String {
    format!("sha256:{}", of.to_string().repeat(64))
}

impl World {
    /// The Pod's node pulled this digest for the update.
    fn pulls(&mut self, pod: &str, digest: &str) {
        let asked = self.asked.values_mut().find(|asked| asked.pod == pod && asked.ended.is_none()).unwrap();
        let image = asked.spec["containers"][0]["image"].as_str().unwrap().to_owned();
        asked.pulled = (!image.contains('@')).then(|| (image, digest.to_owned()));
        self.changed(&ObjectKey::new("shop", pod));
        self.settle();
    }

    fn image_for(&self, pod: &str) -> &Value {
        let asked = self.asked.values().find(|asked| asked.pod == pod).unwrap();
        &asked.spec["containers"][0]["image"]
    }
}

#[test]
fn what_the_first_node_has_pulled_is_what_all_get() {
    let mut world = World::six();
    world.settle();
    // The next two nodes were asked before the first one answered.
    assert_eq!((world.open(), world.image_for("web-4")), (vec!["web-5"], &json!("shop/web:v2")));
    world.pulls("web-5", &digest('1'));
    let pinned = format!("shop/web:v2@{}", digest('1'));
    let tags = [TagMeaning { image: "shop/web:v2".into(), digest: digest('1') }];
    assert_eq!(world.rollout.status.update.as_ref().unwrap().images, tags);
    world.pulls("web-4", &digest('1'));
    world.pulls("web-3", &digest('2'));
    world.updated("web-5", &pinned);
    assert_eq!((world.open(), world.image_for("web-2")), (vec!["web-4"], &json!(pinned)));
    // One node pulled the same digest. The other did not, so its request is made again.
    world.restart();
    world.updated("web-4", &pinned);
    assert_eq!((world.open(), world.image_for("web-3")), (vec!["web-3"], &json!(pinned)));
    for pod in ["web-3", "web-2", "web-1", "web-0"] {
        world.updated(pod, &pinned);
    }
    assert_eq!((world.phase(), world.released), (Some(Phase::Complete), Some(Strategy::Partition(0))));
    assert_eq!(world.rollout.status.update.as_ref().unwrap().images, tags);
}

#[test]
fn a_pod_that_got_something_else_has_failed() {
    for back in [false, true] {
        let mut world = World::parked();
        world.workload.as_mut().unwrap().max_unavailable = 2;
        if back {
            world.rollout.spec.strategy.as_mut().unwrap().on_failure = OnFailure::RollBack;
        }
        world.settle();
        assert_eq!(world.open(), ["web-1", "web-2"]);
        world.pulls("web-1", &digest('1'));
        world.pulls("web-2", &digest('2'));
        world.updated("web-2", &format!("shop/web:v2@{}", digest('2')));
        if back {
            assert!(world.rollout.status.update.as_ref().unwrap().rolling_back);
            continue;
        }
        assert_eq!(
            (world.report().0, world.open(), world.counts()),
            ("PodsFailed", vec!["web-1"], (3, 0, 1, 1))
        );
        world.updated("web-1", &format!("shop/web:v2@{}", digest('1')));
        let failed = &world.rollout.status.pods_of_interest[0];
        let (first, other) = (digest('1'), digest('2'));
        let why = format!("TagMoved: this Pod has {other}, but the first Pod has {first}, of shop/web:v2");
        assert_eq!((failed.name.as_str(), &failed.message), ("web-2", &why));
        assert_eq!((world.marked.as_slice(), world.released), (&["web-1".to_owned()][..], None));
        // Without its request, the Pod is tried again, and gets the digest of the others.
        world.asked.retain(|_, asked| asked.pod != "web-2");
        world.changed(&ObjectKey::new("shop", "web-2"));
        world.settle();
        let pinned = format!("shop/web:v2@{first}");
        assert_eq!((world.open(), world.image_for("web-2")), (vec!["web-0", "web-2"], &json!(pinned)));
    }
}
