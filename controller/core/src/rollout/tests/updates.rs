//! Updates of parked workloads.

use pitstop_api::rollout::{TemplateChanges, UpdateEnd};

use super::*;
use crate::pod::Container;
use crate::template::{Change, Delta, Image};
use crate::workload::{Sets, Template};

pub(super) fn image(before: &str, image: &str) -> Change {
    let image = Image { container: "app".into(), image: image.into(), before: before.into() };
    Change::InPlace(Delta { images: vec![image], ..Delta::default() })
}

pub(super) fn of(revision: &str, image: &str, name: &str) -> Pod {
    Pod {
        revision: revision_hash(revision),
        containers: vec![Container { image: image.into(), ..container("app") }],
        ..pod(name)
    }
}

fn parked(kind: TargetKind, generation: i64) -> Parked {
    let mark = if kind == TargetKind::DaemonSet { "RollingUpdate" } else { "0" };
    Parked { mark: mark.into(), kind, key: ObjectKey::new("shop", "web"), generation }
}

impl World {
    /// A parked `StatefulSet` of three Pods, whose template changed its image.
    pub(super) fn parked() -> Self {
        let mut world = Self::new("StatefulSet", &json!({"soakSeconds": 0}), &[], 1);
        world.rollout.spec.template_changes = TemplateChanges::InPlace;
        world.rollout.spec.restarted_at = None;
        world.parked = Some(parked(TargetKind::StatefulSet, 2));
        for name in ["web-0", "web-1", "web-2"] {
            world.put(of("old", "shop/web:v1", name));
        }
        let workload = world.workload.as_mut().unwrap();
        workload.desired = 3;
        workload.partition = 2_147_483_647;
        workload.template = Some(Template {
            generation: 2,
            resource_version: "9".into(),
            seen: true,
            parked: Some("0".into()),
            holds: true,
            revision: Some("new".into()),
            committed: true,
            // Its controller counts marks at once.
            updated: u32::MAX,
            previous: Some("old".into()),
            back: None,
            changes: [
                ("old".into(), image("shop/web:v1", "shop/web:v2")),
                ("new".into(), Change::InPlace(Delta::default())),
            ]
            .into(),
            sets: Sets::default(),
        });
        world
    }

    /// Sets the value of the park label.
    fn parks(&mut self, mark: &str) {
        self.template().parked = Some(mark.into());
        self.parked.as_mut().unwrap().mark = mark.into();
    }

    pub(super) fn template(&mut self) -> &mut Template {
        self.workload.as_mut().unwrap().template.as_mut().unwrap()
    }

    /// The Pod has the image, but its request is still open.
    pub(super) fn has(&mut self, pod: &str, image: &str) {
        let key = ObjectKey::new("shop", pod);
        self.pods.get_mut(&key).unwrap().containers[0].image = image.into();
        self.changed(&key);
        self.settle();
    }

    /// The update of the Pod succeeds.
    pub(super) fn updated(&mut self, pod: &str, image: &str) {
        let key = ObjectKey::new("shop", pod);
        self.pods.get_mut(&key).unwrap().containers[0].image = image.into();
        self.end(pod, true);
    }

    pub(super) fn ended(&self) -> Option<UpdateEnd> {
        self.rollout.status.update.as_ref().unwrap().ended
    }
}

#[test]
fn every_pod_gets_the_image_then_its_mark_and_the_workload_is_released() {
    let mut world = World::parked();
    world.settle();
    for pod in ["web-2", "web-1", "web-0"] {
        assert_eq!((world.open(), world.phase()), (vec![pod], Some(Phase::Progressing)));
        assert_eq!(world.report().0, "Updating");
        let asked = world.asked.values().find(|asked| asked.pod == pod).unwrap();
        assert_eq!(asked.spec["containers"], json!([{"name": "app", "image": "shop/web:v2"}]));
        assert_eq!((world.released, asked.spec["observeSeconds"].as_i64()), (None, Some(0)));
        world.updated(
            pod,
            "shop/web:v2@sha256:1111111111111111111111111111111111111111111111111111111111111111",
        );
    }
    assert_eq!(world.marked, ["web-2", "web-1", "web-0"]);
    assert_eq!(world.released, Some(Strategy::Partition(0)));
    assert_eq!((world.phase(), world.ended()), (Some(Phase::Complete), Some(UpdateEnd::Updated)));
    let message = "StatefulSet web has revision new: all Pods were updated in place";
    assert_eq!(world.report(), ("Updated", message));
    assert_eq!(world.rollout.status.update.as_ref().unwrap().generation, 2);
    assert!(world.asked.is_empty(), "its requests are deleted");
    let writes = world.writes;
    world.later(600);
    assert_eq!((world.writes, world.counts()), (writes, (3, 3, 0, 0)));
}

#[test]
fn a_process_that_begins_in_the_midst_goes_on() {
    let mut world = World::parked();
    world.settle();
    world.updated("web-2", "shop/web:v2");
    world.restart();
    world.settle();
    assert_eq!((world.open(), world.counts()), (vec!["web-1"], (3, 1, 1, 0)));
    // The new process makes no request again.
    assert_eq!(world.begun, ["web-2", "web-1"]);
}

#[test]
fn a_partition_of_its_user_leaves_lower_ordinals_alone() {
    let mut world = World::parked();
    world.parks("2");
    world.template().committed = false;
    world.settle();
    world.updated("web-2", "shop/web:v2");
    assert_eq!((world.released, world.begun.len()), (Some(Strategy::Partition(2)), 1));
    assert_eq!(world.ended(), Some(UpdateEnd::Updated));
}

#[test]
fn it_is_not_released_before_its_controller_makes_new_pods_of_the_revision() {
    let mut world = World::parked();
    world.template().committed = false;
    world.settle();
    for pod in ["web-2", "web-1", "web-0"] {
        world.updated(pod, "shop/web:v2");
    }
    assert_eq!((world.released, world.report().0), (None, "WaitingForController"));
    // An evicted Pod came back with the old image.
    world.put(Pod { uid: "again".into(), ..of("old", "shop/web:v1", "web-1") });
    world.later(1);
    assert_eq!(world.open(), ["web-1"]);
    world.updated("web-1", "shop/web:v2");
    world.template().committed = true;
    world.later(2);
    assert_eq!((world.released, world.ended()), (Some(Strategy::Partition(0)), Some(UpdateEnd::Updated)));
}

/// Another owner's request may change the Pod's images. A rollout that is made again finds the requests of the deleted
/// one.
#[test]
fn a_pod_with_a_request_of_somebody_else_is_waited_for() {
    let mut world = World::parked();
    world.put(of("new", "shop/web:v2", "web-2"));
    let key = (UPDATES, ObjectKey::new("shop", "web-2-of-somebody-else"));
    let (uid, owner, pod) = ("uid-x".to_owned(), "ipr-0".to_owned(), "web-2".to_owned());
    let asked = Asked { kind: UPDATES, uid, owner, pod, spec: Value::Null, ended: None, pulled: None };
    world.asked.insert(key.clone(), asked);
    world.settle();
    assert_eq!((world.begun.len(), world.counts()), (0, (3, 0, 1, 0)), "it uses up the budget");
    assert_eq!(world.rollout.status.pods_of_interest[0].message, "waits for a request of another client");
    world.has("web-2", "shop/web:v1");
    world.asked.get_mut(&key).unwrap().ended = Some(true);
    world.changed(&ObjectKey::new("shop", "web-2"));
    world.settle();
    assert_eq!(world.open(), ["web-2"], "it has the old image again");
}

/// A `StatefulSet`'s controller waits until all Pods are ready: forever, if the image comes up and fails later.
#[test]
fn a_controller_that_does_not_agree_is_asked_more_and_more_seldom_and_told_of_in_time() {
    let mut world = World::parked();
    world.template().committed = false;
    world.settle();
    for pod in ["web-2", "web-1", "web-0"] {
        world.updated(pod, "shop/web:v2");
    }
    let (before, lists) = (world.readings, world.lists);
    for _ in 0..590 {
        world.later(1);
    }
    assert_eq!(world.report().0, "WaitingForController");
    assert!((60..90).contains(&(world.readings - before)), "{}", world.readings - before);
    world.later(20);
    let why = "3 of 3 Pods updated, 0 in progress: the controller of StatefulSet web has not counted them as \
               updated for 600 s (spec.progressDeadlineSeconds); that of a StatefulSet waits until all Pods are ready";
    assert_eq!((world.report(), world.phase()), (("ProgressDeadlineExceeded", why), Some(Phase::Stalled)));
    let before = world.readings;
    for _ in 0..600 {
        world.later(1);
    }
    assert_eq!((world.readings - before, world.lists - lists), (10, 0), "once a minute, and no list of Pods");
    world.template().committed = true;
    world.later(60);
    assert_eq!((world.released, world.ended()), (Some(Strategy::Partition(0)), Some(UpdateEnd::Updated)));
}

#[test]
fn a_change_that_running_pods_cannot_get_goes_the_native_way() {
    let mut world = World::parked();
    let why = "spec.template.spec.containers[0].env differs";
    world.template().changes.insert("old".into(), Change::Other(why.into()));
    world.settle();
    assert_eq!((world.begun.len(), world.released), (0, Some(Strategy::Partition(0))));
    assert_eq!((world.phase(), world.ended()), (Some(Phase::Idle), Some(UpdateEnd::NotInPlace)));
    let (reason, message) = world.report();
    assert!(reason == "NotInPlace" && message.ends_with(why), "{message}");
}

#[test]
fn the_template_goes_back_and_what_pods_have_of_the_other_revision_goes_too() {
    let mut world = World::parked();
    world.settle();
    world.updated("web-2", "shop/web:v2");
    // The Pod has the new image, its request fails, and its mark is the old one.
    world.pods.get_mut(&ObjectKey::new("shop", "web-1")).unwrap().containers[0].image = "shop/web:v2".into();
    world.end("web-1", false);
    assert_eq!(world.report().0, "PodsFailed");
    *world.template() = Template {
        generation: 3,
        revision: Some("old".into()),
        changes: [
            ("new".into(), image("shop/web:v2", "shop/web:v1")),
            ("old".into(), Change::InPlace(Delta::default())),
        ]
        .into(),
        ..world.template().clone()
    };
    world.parked = Some(parked(TargetKind::StatefulSet, 3));
    world.later(1);
    for pod in ["web-2", "web-1"] {
        world.has(pod, "shop/web:v1");
        assert_eq!((world.open(), world.ended()), (vec![pod], None), "its request is not over");
        world.end(pod, true);
    }
    assert_eq!(world.marked, ["web-2", "web-2"], "that of the other one was never another");
    assert_eq!(
        (world.ended(), &*world.rollout.status.update.as_ref().unwrap().revision),
        (Some(UpdateEnd::Updated), "old")
    );
}

#[test]
fn whoever_releases_it_takes_it_over() {
    let mut world = World::parked();
    world.settle();
    world.parked = None;
    (world.template().parked, world.template().holds) = (None, false);
    world.workload.as_mut().unwrap().partition = 0;
    world.settle();
    assert_eq!((world.phase(), world.ended()), (Some(Phase::Idle), Some(UpdateEnd::Superseded)));
    assert!(world.asked.is_empty());
    // The user changes the strategy but leaves the mark, which the rollout removes.
    let mut world = World::parked();
    world.settle();
    (world.template().holds, world.template().generation) = (false, 3);
    world.parked = Some(parked(TargetKind::StatefulSet, 3));
    world.settle();
    assert_eq!((world.released, world.ended()), (Some(Strategy::AsIs), Some(UpdateEnd::Superseded)));
}

/// A request for the previous template may still change its Pod.
#[test]
fn who_releases_it_before_older_requests_are_over_takes_it_over() {
    let mut world = World::parked();
    world.settle();
    world.template().revision = Some("old".into());
    world.template().changes = [("old".into(), Change::InPlace(Delta::default()))].into();
    world.template().generation = 3;
    world.parked = Some(parked(TargetKind::StatefulSet, 3));
    world.settle();
    assert_eq!((world.open(), world.ended()), (vec!["web-2"], None));
    world.parked = None;
    (world.template().parked, world.template().holds) = (None, false);
    world.workload.as_mut().unwrap().partition = 0;
    world.settle();
    assert_eq!(world.ended(), Some(UpdateEnd::Superseded));
}

#[test]
fn what_cannot_be_released_says_so_and_is_tried_again() {
    let mut world = World::parked();
    world.parks("none");
    world.settle();
    let (reason, message) = world.report();
    assert_eq!(reason, "UnknownPark");
    assert!(
        message.contains("pitstop.dev/parked of StatefulSet web is \"none\"; it must be the partition"),
        "{message}"
    );
    let mut world = World::parked();
    world.release = Done::Refused("forbidden".into());
    world.settle();
    for pod in ["web-2", "web-1", "web-0"] {
        world.updated(pod, "shop/web:v2");
    }
    assert_eq!((world.phase(), world.report().0), (Some(Phase::Stalled), "ReleaseRefused"));
    world.release = Done::Effected;
    world.later(10);
    assert_eq!(world.ended(), Some(UpdateEnd::Updated));
}

#[test]
fn a_daemon_set_is_released_to_its_rolling_update() {
    let mut world = World::parked();
    world.rollout.spec.target_ref.as_mut().unwrap().kind = TargetKind::DaemonSet;
    world.parked = Some(parked(TargetKind::DaemonSet, 2));
    world.template().parked = Some("RollingUpdate".into());
    world.workload.as_mut().unwrap().partition = 0;
    world.settle();
    while let Some(pod) = world.open().first().map(|pod| (*pod).to_owned()) {
        world.updated(&pod, "shop/web:v2");
    }
    assert_eq!((world.marked.len(), world.released), (3, Some(Strategy::Rolling)));
}

#[test]
fn a_native_one_leaves_a_parked_workload_alone() {
    let mut world = World::parked();
    world.rollout.spec.template_changes = TemplateChanges::Native;
    world.settle();
    assert_eq!((world.readings, world.phase()), (0, Some(Phase::Idle)));
}

fn armed(world: &World) -> (bool, &str) {
    let armed = pitstop_api::condition::find(&world.rollout.status.conditions, "Armed").unwrap();
    (world.rollout.more, &armed.reason)
}

#[test]
fn a_rollout_is_armed_once_its_workload_can_be_released() {
    let mut world = World::parked();
    world.parked = None;
    world.trial = Done::Refused("no right".into());
    world.settle();
    assert_eq!(armed(&world), (false, "CannotRelease"));
    assert_eq!((world.phase(), world.readings), (Some(Phase::Idle), 0));
    // The delay doubles each time. A new spec is tried at once.
    for pause in [60, 120] {
        world.later(pause - 1);
        assert_eq!(world.trials, pause / 60);
        world.later(1);
    }
    world.trial = Done::Effected;
    world.rollout.generation = Some(2);
    world.settle();
    assert_eq!((armed(&world), world.trials), ((true, "CanRelease"), 4));
    // Another process relies on the proof.
    world.restart();
    world.trial = Done::Refused("not asked".into());
    world.settle();
    assert_eq!(armed(&world), (true, "CanRelease"));
    world.rollout.spec.template_changes = TemplateChanges::Native;
    world.settle();
    assert!(
        !world.rollout.more
            && pitstop_api::condition::find(&world.rollout.status.conditions, "Armed").is_none()
    );
}

#[test]
fn a_rollout_whose_workload_cannot_be_released_any_more_is_armed_no_more() {
    let mut world = World::parked();
    world.release = Done::Refused("forbidden".into());
    world.settle();
    for pod in ["web-2", "web-1", "web-0"] {
        world.updated(pod, "shop/web:v2");
    }
    assert_eq!((armed(&world), world.report().0), ((false, "CannotRelease"), "ReleaseRefused"));
}

/// `kubectl rollout restart`, together with a new image of one container.
#[test]
fn a_restart_follows_the_image_and_spares_the_container_that_has_it() {
    let mut world = World::parked();
    for pod in world.pods.values_mut() {
        pod.containers.push(container("other"));
    }
    let Change::InPlace(lacks) = image("shop/web:v1", "shop/web:v2") else { panic!() };
    world.template().changes.insert("old".into(), Change::InPlace(Delta { restart: true, ..lacks }));
    world.settle();
    for pod in ["web-2", "web-1", "web-0"] {
        assert_eq!(world.open(), [pod]);
        world.updated(pod, "shop/web:v2");
        let open = world.asked.values().find(|asked| asked.ended.is_none()).unwrap();
        assert_eq!((open.kind, open.pod.as_str()), (RESTARTS, pod));
        assert_eq!(open.spec["containers"], json!([{"name": "other"}]));
        assert!(!world.marked.contains(&pod.to_owned()), "it is not done");
        world.end(pod, true);
    }
    assert_eq!((world.marked.len(), world.ended()), (3, Some(UpdateEnd::Updated)));
    // Only a restart.
    let mut world = World::parked();
    let restart = Delta { restart: true, ..Delta::default() };
    world.template().changes.insert("old".into(), Change::InPlace(restart));
    assert_eq!(world.run(), 1);
    assert_eq!((world.begun.len(), world.marked.len()), (3, 3));
}
