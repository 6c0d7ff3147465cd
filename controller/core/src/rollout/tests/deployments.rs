//! Updates of parked `Deployment`s.

use pitstop_api::quantity::Resources;
use pitstop_api::rollout::{OnFailure, TemplateChanges, UpdateEnd};

use super::super::child::RESIZES;
use super::updates::{image, of};
use super::*;
use crate::deed::Commit;
use crate::template::{Change, Delta, Size, Wanted};
use crate::workload::UNKNOWN;
use crate::workload::{Set, Sets, Template, Version};

fn set(name: &str, created: i64) -> Set {
    let version = Version { name: name.into(), uid: name.into(), resource_version: "1".into() };
    Set { created, version, seen: true, ..Set::default() }
}

impl World {
    /// A parked `Deployment` of three Pods, whose template changed its image.
    pub(super) fn deployment() -> Self {
        let mut world = Self::new("Deployment", &json!({"soakSeconds": 0}), &[], 1);
        world.rollout.spec.template_changes = TemplateChanges::InPlace;
        world.rollout.spec.restarted_at = None;
        // The rollout existed when the workload was parked.
        world.rollout.status.phase = Some(Phase::Idle);
        for name in ["a", "b", "c"] {
            world.put(of("", "shop/web:v1", name));
        }
        let active = Set { old: true, ..set("web-1", 1) };
        let workload = world.workload.as_mut().unwrap();
        workload.desired = 3;
        workload.template = Some(Template {
            resource_version: "9".into(),
            sets: Sets { active: vec![active], kept: true, ..Sets::default() },
            ..Template::default()
        });
        world.changes("v1", "v2", 2);
        world
    }

    /// The template changes its image from `old` to `new`, which may be equal.
    fn changes(&mut self, old: &str, new: &str, generation: i64) {
        let [before, after] = [old, new].map(|tag| format!("shop/web:{tag}"));
        let change = if old == new { Change::InPlace(Delta::default()) } else { image(&before, &after) };
        let template = self.workload.as_mut().unwrap().template.as_mut().unwrap();
        (template.generation, template.seen, template.holds) = (generation, true, true);
        template.committed = true;
        (template.revision, template.previous) = (Some(format!("id-{new}")), Some(format!("id-{old}")));
        template.changes = [(format!("id-{old}"), change.clone()), (String::new(), change)].into();
        template.sets.wanted = [("app".to_owned(), Wanted { image: after, ..Wanted::default() })].into();
        for set in template.sets.active.iter_mut().chain(&mut template.sets.others) {
            set.new = set.old && old == new;
        }
        template.parked = Some("Unpaused".into());
        let (kind, mark) = (TargetKind::Deployment, "Unpaused".into());
        self.parked = Some(Parked { mark, kind, key: ObjectKey::new("shop", "web"), generation });
    }

    /// Writes a `ReplicaSet`.
    pub(super) fn commit(&mut self, commit: &Commit) -> Done {
        self.committed.push(commit.step.clone());
        let template = self.workload.as_mut().unwrap().template.as_mut().unwrap();
        assert_eq!((&*commit.deployment.uid, &*commit.deployment.resource_version), ("w", "9"));
        if commit.step == CommitStep::Swap && template.sets.swapped() {
            return Done::Conflict;
        }
        let Sets { active, others, .. } = &mut template.sets;
        let mut other = |of: &Set, new, old| {
            let other = others.iter_mut().find(|other| other.version == of.version).unwrap();
            (other.new, other.old) = (new, old);
        };
        match &commit.step {
            CommitStep::Make => others.push(Set { old: true, ..set("memo", 9) }),
            CommitStep::Swap => {
                for set in others {
                    set.old = false;
                }
                (active[0].new, active[0].old) = (true, true);
                template.changes.insert(String::new(), Change::InPlace(Delta::default()));
            }
            CommitStep::Keep(kept) => other(kept, false, true),
            CommitStep::Void(void) => other(void, false, false),
        }
        // A Pod of the new template is made before the controller knows of the write.
        match self.late_pod.take_if(|_| commit.step == CommitStep::Swap) {
            Some(late) => {
                self.put(late);
                Done::Retry("no answer".into())
            }
            None => Done::Effected,
        }
    }

    fn revision(&self, pod: &str) -> u64 {
        self.pods[&ObjectKey::new("shop", pod)].revision
    }
}

#[test]
fn every_pod_is_updated_before_the_replica_set_gets_the_template() {
    let mut world = World::deployment();
    world.settle();
    for pod in ["a", "b", "c"] {
        assert_eq!((world.open(), world.committed.len()), (vec![pod], 0));
        world.updated(pod, "shop/web:v2");
    }
    assert_eq!(world.committed, [CommitStep::Make, CommitStep::Swap]);
    assert_eq!((world.released, world.ended()), (Some(Strategy::Unpaused), Some(UpdateEnd::Updated)));
    assert_eq!(
        world.report(),
        ("Updated", "Deployment web has revision id-v2: all Pods were updated in place")
    );
    let writes = world.writes;
    world.later(600);
    assert_eq!((world.writes, world.asked.len()), (writes, 0));
    assert!(world.marked.is_empty(), "their ReplicaSet says what they are");
}

#[test]
fn what_a_pod_was_given_is_told_by_its_request_and_then_by_its_replica_set() {
    let mut world = World::deployment();
    world.settle();
    world.updated("a", "shop/web:v2");
    world.restart();
    world.settle();
    assert_eq!((world.open(), world.begun.len()), (vec!["b"], 2), "another process knows");
    // The watch shows deletions late.
    world.shows_deleted = true;
    for pod in ["b", "c"] {
        world.updated(pod, "shop/web:v2");
    }
    assert_eq!((world.ended(), world.asked.len()), (Some(UpdateEnd::Updated), 3));
    world.changes("v2", "v3", 3);
    world.later(1);
    assert_eq!(world.open(), ["a"]);
    world.shows_deleted = false;
    world.asked.retain(|_, asked| asked.ended.is_none());
    for pod in ["a", "b", "c"] {
        world.updated(pod, "shop/web:v3");
    }
    assert_eq!((world.ended(), world.asked.len()), (Some(UpdateEnd::Updated), 0));
    assert!(world.marked.is_empty(), "{:?}", world.marked);
}

#[test]
fn pods_that_were_updated_go_back_from_a_template_that_no_replica_set_has() {
    let mut world = World::deployment();
    world.rollout.spec.strategy.as_mut().unwrap().on_failure = OnFailure::RollBack;
    let none = Change::InPlace(Delta::default());
    world.back = [("id-v1".to_owned(), none.clone()), (String::new(), none)].into();
    world.settle();
    world.updated("a", "shop/web:v2");
    world.fails("b");
    assert_eq!((world.open(), world.revision("a")), (vec!["a"], revision_hash(UNKNOWN)));
    let asked = world.asked.values().find(|asked| asked.ended.is_none()).unwrap();
    assert_eq!(asked.spec["containers"][0]["image"], "shop/web:v1");
    world.updated("a", "shop/web:v1");
    assert_eq!((world.ended(), world.begun.len()), (Some(UpdateEnd::RolledBack), 3));
    assert_eq!((world.committed.len(), world.released), (0, None));
}

/// The workload's own controller makes Pods of the new template. Updated Pods have it already.
#[test]
fn a_user_who_releases_it_in_mid_roll_leaves_pods_of_an_unknown_revision() {
    let mut world = World::deployment();
    world.settle();
    world.updated("a", "shop/web:v2");
    world.parked = None;
    let template = world.workload.as_mut().unwrap().template.as_mut().unwrap();
    (template.parked, template.holds) = (None, false);
    world.later(1);
    assert_eq!((world.ended(), world.asked.len()), (Some(UpdateEnd::Superseded), 0));
    let unknown = revision_hash(UNKNOWN);
    assert_eq!(["a", "b", "c"].map(|pod| world.revision(pod)), [unknown, unknown, 0]);
}

/// The requests of a deleted rollout are gone with it.
#[test]
fn a_rollout_that_is_made_for_a_parked_deployment_looks_at_what_pods_have() {
    for (phase, left) in [(None, 1), (Some(Phase::Pending), 1), (Some(Phase::Idle), 0)] {
        let mut world = World::deployment();
        world.rollout.status.phase = phase;
        world.changes("v1", "v1", 3);
        world.put(of("", "shop/web:v2", "b"));
        world.settle();
        let from = world.rollout.status.update.as_ref().unwrap().from.is_some();
        assert_eq!((world.open().len(), from), (left, left == 0), "{phase:?}");
    }
}

#[test]
fn a_pod_that_comes_in_the_midst_is_updated_if_it_is_old() {
    let mut world = World::deployment();
    world.settle();
    for pod in ["a", "b"] {
        world.updated(pod, "shop/web:v2");
    }
    // The user scales up while the last Pod is updated.
    world.put(of("", "shop/web:v1", "d"));
    world.updated("c", "shop/web:v2");
    assert_eq!((world.open(), world.committed.len()), (vec!["d"], 0));
    // After the last read, the workload's controller makes another Pod of the old template.
    let template = world.workload.as_mut().unwrap().template.as_mut().unwrap();
    template.committed = false;
    world.updated("d", "shop/web:v2");
    assert_eq!((world.committed.len(), world.report().0), (2, "WaitingForController"));
    world.put(of("", "shop/web:v1", "e"));
    world.put(of("", "shop/web:v2", "f"));
    // Admission pinned the image of another new Pod.
    let digest = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
    world.put(of("", &format!("shop/web@{digest}"), "g"));
    world.later(1);
    assert_eq!((world.open(), world.released), (vec!["e"], None));
    world.workload.as_mut().unwrap().template.as_mut().unwrap().committed = true;
    world.updated("e", "shop/web:v2");
    world.later(1);
    assert_eq!((world.released, world.ended()), (Some(Strategy::Unpaused), Some(UpdateEnd::Updated)));
    assert_eq!(
        world.begun,
        ["a", "b", "c", "d", "e"],
        "those that were made of the new template are current"
    );
}

#[test]
fn what_a_pod_has_of_a_template_that_nobody_keeps_goes_too() {
    let mut world = World::deployment();
    world.settle();
    world.updated("a", "shop/web:v2");
    // The Pod has the new image, but its request fails.
    world.pods.get_mut(&ObjectKey::new("shop", "b")).unwrap().containers[0].image = "shop/web:v2".into();
    world.end("b", false);
    assert_eq!((world.report().0, world.revision("b")), ("PodsFailed", 0));
    world.changes("v1", "v1", 3);
    world.later(1);
    for pod in ["a", "b"] {
        assert_eq!(world.open(), [pod]);
        assert_eq!(world.revision(pod), revision_hash(UNKNOWN), "before its request is deleted");
        world.updated(pod, "shop/web:v1");
        assert_eq!(world.revision(pod), revision_hash("id-v1"));
    }
    assert_eq!((world.committed.len(), world.released), (0, Some(Strategy::Unpaused)));
    assert_eq!(
        (world.begun.len(), world.ended()),
        (4, Some(UpdateEnd::Updated)),
        "the third was never touched"
    );
}

/// Their mark never changes: the previous update wrote it.
#[test]
fn pods_of_an_update_before_go_back_to_it_from_a_template_that_nobody_keeps() {
    let mut world = World::deployment();
    for pod in ["a", "b", "c"] {
        world.pods.get_mut(&ObjectKey::new("shop", pod)).unwrap().revision = revision_hash("id-v1");
    }
    world.settle();
    world.has("a", "shop/web:v2");
    world.changes("v1", "v1", 3);
    world.later(1);
    world.end("a", true);
    assert_eq!((world.open(), world.released), (vec!["a"], None));
    world.updated("a", "shop/web:v1");
    assert_eq!((world.ended(), world.released), (Some(UpdateEnd::Updated), Some(Strategy::Unpaused)));
    assert_eq!(world.begun, ["a", "a"]);
}

#[test]
fn yet_another_template_is_compared_with_what_pods_have() {
    let mut world = World::deployment();
    world.settle();
    world.updated("a", "shop/web:v2");
    world.changes("v1", "v3", 3);
    world.later(1);
    // The open request for the previous template ends first.
    world.end("b", true);
    while let Some(pod) = world.open().first().map(|pod| (*pod).to_owned()) {
        let asked = world.asked.values().find(|asked| asked.pod == pod && asked.ended.is_none()).unwrap();
        assert_eq!(asked.spec["containers"][0]["image"], "shop/web:v3");
        world.has(&pod, "shop/web:v3");
        assert_ne!(world.revision(&pod), revision_hash("id-v3"), "its request is not over");
        world.end(&pod, true);
    }
    assert_eq!((world.ended(), world.committed.len()), (Some(UpdateEnd::Updated), 2));
    let marked = revision_hash("id-v3");
    assert_eq!(["a", "b", "c"].map(|pod| world.revision(pod)), [marked, marked, 0]);
}

#[test]
fn another_replica_set_that_has_the_template_keeps_the_old_one() {
    let mut world = World::deployment();
    let template = world.workload.as_mut().unwrap().template.as_mut().unwrap();
    let other = Set { new: true, ..set("web-0", 0) };
    template.sets.others.push(other.clone());
    world.settle();
    for pod in ["a", "b", "c"] {
        world.updated(pod, "shop/web:v2");
    }
    assert_eq!(world.committed, [CommitStep::Keep(other), CommitStep::Swap]);
}

#[test]
fn a_deployment_in_a_rolling_update_or_without_pods_is_released() {
    let mut world = World::deployment();
    world.workload.as_mut().unwrap().template.as_mut().unwrap().sets.active.push(set("x", 2));
    world.settle();
    assert_eq!((world.begun.len(), world.ended()), (0, Some(UpdateEnd::NotInPlace)));
    assert!(world.report().1.ends_with("a rolling update is under way"), "{}", world.report().1);
    let mut world = World::deployment();
    world.pods.clear();
    world.workload.as_mut().unwrap().desired = 0;
    world.workload.as_mut().unwrap().template.as_mut().unwrap().sets.active.clear();
    world.settle();
    assert_eq!(world.released, Some(Strategy::Unpaused));
}

#[test]
fn a_replica_set_that_cannot_be_written_says_so() {
    let mut world = World::deployment();
    world.settle();
    world.refuses = true;
    for pod in ["a", "b", "c"] {
        world.updated(pod, "shop/web:v2");
    }
    let (reason, message) = world.report();
    assert!(
        reason == "ReleaseRefused" && message.ends_with("no right to replicasets"),
        "{reason}: {message}"
    );
    world.refuses = false;
    world.later(10);
    assert_eq!(world.ended(), Some(UpdateEnd::Updated));
}

#[test]
fn resources_come_before_images_and_go_back_too() {
    let mut world = World::deployment();
    let resources = |cpu| Resources { cpu_request: Some(cpu), ..Resources::default() };
    for pod in world.pods.values_mut() {
        pod.containers[0].resources = resources(100);
    }
    world.rollout.spec.strategy.as_mut().unwrap().soak_seconds = Some(7);
    let size = Size { container: "app".into(), resources: resources(250), before: resources(100) };
    let template = world.workload.as_mut().unwrap().template.as_mut().unwrap();
    for change in template.changes.values_mut() {
        let Change::InPlace(lacks) = change else { panic!() };
        lacks.sizes = vec![size.clone()];
    }
    template.sets.wanted.get_mut("app").unwrap().resources = resources(250);
    world.settle();
    let open = |world: &World| {
        let asked = world.asked.values().find(|asked| asked.ended.is_none()).unwrap();
        (asked.kind, asked.spec.clone())
    };
    let (kind, spec) = open(&world);
    assert_eq!(kind, RESIZES);
    assert_eq!(spec["containers"], json!([{"name": "app", "resources": {"requests": {"cpu": "250m"}}}]));
    assert_eq!(spec["podRef"], json!({"name": "a", "uid": "uid-a"}));
    assert!(spec["rollbackOnFailure"].is_null(), "what follows is watched");
    world.pods.get_mut(&ObjectKey::new("shop", "a")).unwrap().containers[0].resources = resources(250);
    world.end("a", true);
    let (kind, spec) = open(&world);
    assert_eq!((kind, spec["observeSeconds"].as_i64()), (UPDATES, Some(7)));
    // The template goes back before the Pod has the image.
    world.end("a", false);
    world.changes("v1", "v1", 3);
    let template = world.workload.as_mut().unwrap().template.as_mut().unwrap();
    template.sets.wanted.get_mut("app").unwrap().resources = resources(100);
    world.later(1);
    let (kind, spec) = open(&world);
    assert_eq!((kind, &spec["containers"][0]["resources"]["requests"]["cpu"]), (RESIZES, &json!("100m")));
    assert_eq!(spec["rollbackOnFailure"]["observeSeconds"], 7);
    world.pods.get_mut(&ObjectKey::new("shop", "a")).unwrap().containers[0].resources = resources(100);
    world.end("a", true);
    assert_eq!((world.ended(), world.released), (Some(UpdateEnd::Updated), Some(Strategy::Unpaused)));
}

#[test]
fn another_class_of_service_goes_the_native_way() {
    let mut world = World::deployment();
    for pod in world.pods.values_mut() {
        pod.containers[0].resources = Resources::default();
    }
    let all = |cpu| Resources { cpu_request: Some(cpu), cpu_limit: Some(cpu), ..Resources::default() };
    let size = Size { container: "app".into(), resources: all(250), before: Resources::default() };
    let template = world.workload.as_mut().unwrap().template.as_mut().unwrap();
    for change in template.changes.values_mut() {
        *change = Change::InPlace(Delta { sizes: vec![size.clone()], ..Delta::default() });
    }
    world.settle();
    assert_eq!((world.begun.len(), world.ended()), (0, Some(UpdateEnd::NotInPlace)));
    assert!(
        world.report().1.contains("of the QoS class BestEffort and would become Burstable"),
        "{}",
        world.report().1
    );
}

/// The template's images are the same as before, so its revision is too.
#[test]
fn another_field_beside_the_image_goes_the_native_way_in_mid_roll() {
    let mut world = World::deployment();
    world.settle();
    world.updated("a", "shop/web:v2");
    world.changes("v1", "v2", 3);
    let why = "spec.template.spec.containers[0].env differs";
    let template = world.workload.as_mut().unwrap().template.as_mut().unwrap();
    for change in template.changes.values_mut() {
        *change = Change::Other(why.into());
    }
    world.later(1);
    assert_eq!((world.committed.len(), world.released), (0, Some(Strategy::Unpaused)));
    assert_eq!((world.ended(), world.report().1.ends_with(why)), (Some(UpdateEnd::NotInPlace), true));
}

/// The watch shows the Pod before the controller knows that the `ReplicaSet` has the new template.
#[test]
fn a_pod_that_was_made_right_after_the_swap_is_current() {
    let mut world = World::deployment();
    world.settle();
    for pod in ["a", "b"] {
        world.updated(pod, "shop/web:v2");
    }
    world.workload.as_mut().unwrap().template.as_mut().unwrap().committed = false;
    world.late_pod = Some(of("", "shop/web:v2", "d"));
    // Nothing must begin for it meanwhile.
    world.rollout.spec.paused = true;
    world.updated("c", "shop/web:v2");
    world.workload.as_mut().unwrap().template.as_mut().unwrap().committed = true;
    world.later(61);
    assert_eq!((world.begun.len(), world.ended()), (3, Some(UpdateEnd::Updated)));
}
