//! Updated Pods go back when others fail.

use pitstop_api::rollout::{OnFailure, UpdateEnd};

use super::updates::{image, of};
use super::*;
use crate::template::{Change, Delta};
use crate::workload::Template;

impl World {
    /// A parked `StatefulSet` of three Pods that rolls back.
    pub(super) fn rolls_back() -> Self {
        let mut world = Self::parked();
        world.rollout.spec.strategy.as_mut().unwrap().on_failure = OnFailure::RollBack;
        world.back = [
            ("old".into(), Change::InPlace(Delta::default())),
            ("new".into(), image("shop/web:v2", "shop/web:v1")),
        ]
        .into();
        world
    }

    /// The update of the Pod fails, and the Pod has its old image again.
    pub(super) fn fails(&mut self, pod: &str) {
        self.has(pod, "shop/web:v1");
        self.end(pod, false);
    }

    /// Compares other revisions with `back`. For a `Deployment`, the `ReplicaSet` with Pods has that revision.
    pub(super) fn compared_with(&self, back: &str, template: &mut Template) {
        (template.back, template.changes) = (Some(back.to_owned()), self.back.clone());
        let image = back.strip_prefix("id-").map(|tag| format!("shop/web:{tag}"));
        for (wanted, image) in template.sets.wanted.values_mut().zip(image) {
            wanted.image = image;
        }
        for set in &mut template.sets.active {
            set.new = true;
        }
    }

    fn image(&self, pod: &str) -> &str {
        &self.pods[&ObjectKey::new("shop", pod)].containers[0].image
    }

    pub(super) fn ready(&mut self, pod: &str, ready: bool) {
        let key = ObjectKey::new("shop", pod);
        self.pods.get_mut(&key).unwrap().ready = ready;
        self.changed(&key);
        self.settle();
    }
}

/// `web-2` is updated, and `web-1` fails.
fn half() -> World {
    let mut world = World::rolls_back();
    world.settle();
    assert_eq!(world.rollout.status.update.as_ref().unwrap().from.as_deref(), Some("old"));
    world.updated("web-2", "shop/web:v2");
    world.fails("web-1");
    world
}

#[test]
fn pods_go_back_and_the_workload_stays_parked() {
    let mut world = half();
    let update = world.rollout.status.update.clone().unwrap();
    assert_eq!((update.rolling_back, &*update.message), (true, "Pod web-1 failed: it did not come up"));
    assert_eq!(
        (world.open(), world.phase(), world.report().0),
        (vec!["web-2"], Some(Phase::Progressing), "RollingBack")
    );
    let (_, asked) =
        world.asked.iter().find(|(_, asked)| asked.pod == "web-2" && asked.ended.is_none()).unwrap();
    assert_eq!(asked.spec["containers"], json!([{"name": "app", "image": "shop/web:v1"}]));
    world.updated("web-2", "shop/web:v1");
    assert_eq!((world.phase(), world.ended()), (Some(Phase::Stalled), Some(UpdateEnd::RolledBack)));
    let message = "the Pods of StatefulSet web are at revision old again: Pod web-1 failed: it did not come up; StatefulSet web stays \
                parked until its template changes: undo the change, or give it a good one";
    assert_eq!(world.report(), ("RolledBack", message));
    assert_eq!((world.marked.last().unwrap().as_str(), world.released), ("web-2", None));
    assert_eq!((world.asked.len(), world.counts()), (0, (3, 3, 0, 0)));
    assert!(["web-0", "web-1", "web-2"].iter().all(|pod| world.image(pod) == "shop/web:v1"));
    assert_eq!(world.begun, ["web-2", "web-1", "web-2"], "web-0 was never touched");
}

#[test]
fn what_was_updated_last_goes_back_first() {
    let mut world = World::rolls_back();
    world.settle();
    world.updated("web-2", "shop/web:v2");
    world.updated("web-1", "shop/web:v2");
    world.fails("web-0");
    assert_eq!(world.open(), ["web-1"]);
    world.updated("web-1", "shop/web:v1");
    assert_eq!(world.open(), ["web-2"]);
    world.updated("web-2", "shop/web:v1");
    assert_eq!(world.ended(), Some(UpdateEnd::RolledBack));
}

#[test]
fn what_has_failed_is_not_tried_again_until_the_template_changes() {
    let mut world = half();
    world.updated("web-2", "shop/web:v1");
    let (writes, readings) = (world.writes, world.readings);
    // Only the number of Pods changes.
    world.template().generation = 3;
    world.parked.as_mut().unwrap().generation = 3;
    world.later(600);
    assert_eq!((world.begun.len(), world.ended(), world.writes), (3, Some(UpdateEnd::RolledBack), writes));
    assert!(world.readings <= readings + 2, "it asks for little: {}", world.readings - readings);
    // The user undoes the change: nothing is left to do.
    world.template().revision = Some("old".into());
    world.template().changes = world.back.clone();
    world.template().generation = 4;
    world.parked.as_mut().unwrap().generation = 4;
    world.later(1);
    assert_eq!((world.released, world.ended()), (Some(Strategy::Partition(0)), Some(UpdateEnd::Updated)));
    assert_eq!(world.begun.len(), 3);
}

/// The workload is no longer parked, and its own controller gives all Pods the template.
#[test]
fn a_user_who_releases_it_takes_it_over() {
    let mut world = half();
    world.updated("web-2", "shop/web:v1");
    assert_eq!(world.ended(), Some(UpdateEnd::RolledBack));
    world.parked = None;
    (world.template().parked, world.template().holds) = (None, false);
    world.settle();
    assert_eq!((world.phase(), world.ended()), (Some(Phase::Idle), Some(UpdateEnd::Superseded)));
}

/// The template may not change for a long time.
#[test]
fn pods_that_come_and_go_meanwhile_leave_nothing() {
    let mut world = half();
    world.updated("web-2", "shop/web:v1");
    for name in ["web-3", "web-4"] {
        let key = ObjectKey::new("shop", name);
        world.put(of("old", "shop/web:v1", name));
        world.settle();
        assert!(world.memory.sorted.pods.contains_key(&key));
        world.pods.remove(&key);
        world.changed(&key);
        world.settle();
        assert_eq!((world.memory.sorted.pods.len(), world.ended()), (3, Some(UpdateEnd::RolledBack)));
    }
    assert_eq!((world.begun.len(), world.counts()), (3, (3, 3, 0, 0)));
}

#[test]
fn a_process_that_begins_while_pods_go_back_goes_on() {
    let mut world = half();
    world.restart();
    world.settle();
    assert_eq!((world.open(), world.report().0), (vec!["web-2"], "RollingBack"));
    world.updated("web-2", "shop/web:v1");
    world.restart();
    world.settle();
    assert_eq!((world.ended(), world.begun.len(), world.released), (Some(UpdateEnd::RolledBack), 3, None));
}

#[test]
fn if_untouched_pods_fail_too_none_goes_back() {
    let mut world = World::rolls_back();
    world.put(of("old", "shop/web:v1", "web-3"));
    world.workload.as_mut().unwrap().desired = 4;
    world.settle();
    world.updated("web-3", "shop/web:v2");
    // It begins, since it is unavailable anyway.
    world.ready("web-0", false);
    assert_eq!(world.open(), ["web-0", "web-2"]);
    world.fails("web-2");
    assert_eq!((world.open(), world.report().0), (vec!["web-0"], "UntouchedPodsFailToo"));
    world.fails("web-0");
    assert_eq!(
        (world.open().len(), world.phase(), world.report().0),
        (0, Some(Phase::Stalled), "UntouchedPodsFailToo")
    );
    assert!(!world.rollout.status.update.as_ref().unwrap().rolling_back);
    // It has recovered, so the change was the cause.
    world.ready("web-0", true);
    assert_eq!(world.report().0, "RollingBack");
}

/// The untouched Pod crashes forever, and is ready briefly at each start.
#[test]
fn an_untouched_pod_is_well_again_once_it_was_available_for_the_soak() {
    let mut world = World::rolls_back();
    let canary = Some(pitstop_api::rollout::Canary { pods: 1, soak_seconds: None });
    let strategy = world.rollout.spec.strategy.as_mut().unwrap();
    (strategy.canary, strategy.soak_seconds) = (canary, Some(10));
    world.settle();
    world.ready("web-0", false);
    world.fails("web-2");
    for _ in 0..3 {
        assert_eq!((world.open().len(), world.report().0), (0, "UntouchedPodsFailToo"));
        world.later(60);
        world.ready("web-0", true);
        world.now.0 += 300;
        world.ready("web-0", false);
    }
    world.later(20);
    world.ready("web-0", true);
    let recovers_at = Mono(world.now.0 + 10_000);
    world.later(9);
    assert_eq!((world.plan().wake_at, world.report().0), (Some(recovers_at), "UntouchedPodsFailToo"));
    world.later(1);
    assert_eq!((world.ended(), world.begun.len()), (Some(UpdateEnd::RolledBack), 1), "it was the change");
}

#[test]
fn a_pod_that_has_never_been_available_tells_nothing_of_others() {
    let mut world = World::rolls_back();
    world.pods.get_mut(&ObjectKey::new("shop", "web-1")).unwrap().ready = false;
    world.settle();
    assert_eq!(world.open(), ["web-1"], "what is broken goes first");
    world.fails("web-1");
    world.later(1);
    assert_eq!(world.report().0, "RolledBack");
}

#[test]
fn a_canary_that_fails_is_the_only_pod_that_was_touched() {
    let mut world = World::rolls_back();
    let canary = Some(pitstop_api::rollout::Canary { pods: 1, soak_seconds: None });
    let strategy = world.rollout.spec.strategy.as_mut().unwrap();
    (strategy.canary, strategy.failure_threshold) = (canary, Some(3));
    world.settle();
    world.fails("web-2");
    world.later(1);
    assert_eq!((world.ended(), world.begun.len()), (Some(UpdateEnd::RolledBack), 1));
}

#[test]
fn pods_do_not_go_back_to_what_is_not_kept() {
    let mut world = World::rolls_back();
    world.back.clear();
    world.settle();
    world.updated("web-2", "shop/web:v2");
    world.fails("web-1");
    let message = "the previous revision old is not kept";
    assert_eq!((world.phase(), world.report().0), (Some(Phase::Stalled), "CannotRollBack"));
    assert!(world.report().1.contains(message), "{}", world.report().1);
    assert_eq!((world.begun.len(), world.released), (2, None));
}

#[test]
fn another_template_takes_pods_on_their_way_back_with_it() {
    let mut world = half();
    world.template().revision = Some("newer".into());
    world.template().changes = [
        ("old".into(), image("shop/web:v1", "shop/web:v3")),
        ("new".into(), image("shop/web:v2", "shop/web:v3")),
        ("newer".into(), Change::InPlace(Delta::default())),
    ]
    .into();
    world.template().generation = 3;
    world.parked.as_mut().unwrap().generation = 3;
    world.settle();
    assert_eq!(world.open(), ["web-2"], "what has begun goes on");
    world.updated("web-2", "shop/web:v1");
    let update = world.rollout.status.update.clone().unwrap();
    assert_eq!(
        (&*update.revision, update.from.as_deref(), update.rolling_back),
        ("newer", Some("old"), false)
    );
    for pod in ["web-2", "web-1", "web-0"] {
        world.updated(pod, "shop/web:v3");
    }
    assert_eq!((world.ended(), world.released), (Some(UpdateEnd::Updated), Some(Strategy::Partition(0))));
}
