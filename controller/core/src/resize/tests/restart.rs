//! The restart of `restart: Always`.

use super::*;
use crate::deed::{Child, Deed, Done};
use crate::resize::restart::{CHILD, restart_key};

/// A request for both containers, which have their new resources.
fn sized(more: &Value) -> Scene {
    let mut spec = json!({"podRef": {"name": "web"}, "restart": "Always", "activeDeadlineSeconds": 600, "containers": [
        {"name": "proxy", "resources": {"limits": {"cpu": "300m"}}}, {"name": "app", "resources": {"limits": {"cpu": "300m"}}}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut scene = Scene::new(spec);
    scene.settle();
    scene.done();
    scene
}

impl Scene {
    fn deed(&mut self) -> Option<Deed> {
        self.plan().deed
    }

    /// The recreate request exists.
    fn created(&mut self) {
        let Some(Deed::Create(new)) = self.deed() else { panic!("{:?}", self.plan()) };
        self.memory.deed_done(self.now, Deed::Create(new.clone()), Done::Effected);
        let Child { key, .. } = *new;
        let owner_uid = Some(self.resize.uid.clone());
        self.restart = Some(Recreate { key, uid: "crr-1".into(), owner_uid, ..Recreate::default() });
    }

    /// The recreate request has ended.
    fn ended(&mut self, status: ConditionStatus, message: &str) {
        let complete = status == ConditionStatus::True;
        self.restart.as_mut().unwrap().ended = Some((complete, message.to_owned()));
    }

    /// These containers have new instances.
    fn restarted(&mut self, names: &[&str]) {
        for name in names {
            let status = self.status(name);
            status.container_id = id(2);
            status.restart_count += 1;
        }
    }
}

#[test]
fn every_container_is_restarted_once_all_have_their_resources() {
    let mut scene = sized(&json!({}));
    scene.later(60);
    assert_eq!(scene.planned(), (Phase::InProgress, "Restarting".into()));
    let Some(Deed::Create(new)) = scene.deed() else { panic!() };
    let expected = Child {
        kind: CHILD,
        key: ObjectKey::new("shop", "grow-restart"),
        labels: [(pitstop_api::labels::POD_UID.to_owned(), "pod-1".to_owned())].into(),
        spec: json!({"podName": "web", "containers": [{"name": "proxy"}, {"name": "app"}], "activeDeadlineSeconds": 540}),
    };
    assert_eq!(*new, expected);
    scene.created();
    assert_eq!(scene.deed(), None, "once");
    scene.status("app").state = ContainerState::Terminated { exit_code: 0 };
    scene.settle();
    assert_eq!(scene.planned().1, "Restarting");
    assert!(scene.orders.is_empty(), "what the kernel has is asked afterwards");
    scene.status("app").state = ContainerState::Running;
    scene.restarted(&["app", "proxy"]);
    scene.ended(ConditionStatus::True, "");
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
}

#[test]
fn what_the_policy_restarts_is_not_restarted_twice() {
    let mut scene = sized(&json!({}));
    scene.resize.status.containers[1].restarts = true;
    scene.restarted(&["app"]);
    let Some(Deed::Create(new)) = scene.deed() else { panic!() };
    assert_eq!(new.spec["containers"], json!([{"name": "proxy"}]));
    scene.resize.status.containers[0].restarts = true;
    scene.restarted(&["proxy"]);
    assert_eq!(scene.deed(), None);
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
}

#[test]
fn nothing_is_restarted_before_every_container_has_its_resources() {
    let mut scene = sized(&json!({}));
    scene.status("proxy").actual = Some(container("proxy").resources);
    assert_eq!(scene.deed(), None);
    let mut scene = Scene::new(grow(&json!({"restart": "Always", "dryRun": true})));
    scene.settle();
    assert_eq!(scene.resize.status.message, "dry run: app: limits.cpu 200m -> 300m; restarts app");
    assert_eq!(scene.deed(), None);
}

#[test]
fn a_restart_that_fails_leaves_the_resources_unless_told_otherwise() {
    for deleted in [true, false] {
        let mut scene = sized(&json!({}));
        scene.created();
        let _ = scene.plan();
        if deleted {
            scene.restart = None;
        } else {
            scene.ended(ConditionStatus::False, "container app is not ready");
        }
        scene.settle();
        assert_eq!(scene.stored(), (Some(Phase::Failed), "RestartFailed"));
        let why = if deleted { "was deleted before it had ended" } else { "container app is not ready" };
        assert!(scene.resize.status.message.contains(why), "{:?}", scene.resize.status.message);
        assert_eq!(scene.cpu_limit(), Some(300));
    }
    let mut scene = sized(&json!({"rollbackOnFailure": {"observeSeconds": 10}}));
    scene.created();
    scene.ended(ConditionStatus::False, "no");
    scene.settle();
    assert_eq!(scene.cpu_limit(), Some(200));
    scene.done();
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::RolledBack), "RestartFailed"));
}

#[test]
fn a_resize_that_ends_deletes_its_restart_first() {
    for cancel in [true, false] {
        let mut scene = sized(&json!({}));
        scene.created();
        assert!(scene.resize.status.restoring.is_none());
        if cancel {
            scene.resize.spec.cancel = true;
        } else {
            scene.later(600);
        }
        let key = ObjectKey::new("shop", "grow-restart");
        let withdraw = Deed::Delete { kind: CHILD, key, uid: "crr-1".into() };
        assert_eq!(scene.deed(), Some(withdraw.clone()));
        assert!(scene.plan().status.is_none());
        scene.memory.deed_done(scene.now, withdraw, Done::Effected);
        assert_eq!((scene.deed(), scene.plan().status), (None, None), "the watch has yet to show it");
        scene.restart = None;
        scene.settle();
        assert_eq!(scene.cpu_limit(), Some(200));
        scene.done();
        scene.settle();
        let (phase, reason) =
            if cancel { (Phase::Cancelled, "Cancelled") } else { (Phase::Failed, "DeadlineExceeded") };
        assert_eq!(scene.stored(), (Some(phase), reason));
        assert!(cancel || scene.resize.status.message.contains("to restart the containers"));
    }
}

#[test]
fn a_restart_of_unknown_end_is_made_again_before_the_request_may_end() {
    let mut scene = sized(&json!({}));
    let deed = scene.deed();
    scene.memory.deed_done(scene.now, deed.clone().unwrap(), Done::Retry("away".into()));
    scene.deed.clone_from(&deed);
    scene.resize.spec.cancel = true;
    assert_eq!((scene.deed(), scene.plan().status), (deed, None));
    scene.deed = None;
    scene.settle();
    assert_eq!(scene.cpu_limit(), Some(200));
}

#[test]
fn a_request_of_somebody_else_with_that_name_is_left_alone() {
    let mut scene = sized(&json!({}));
    let key = ObjectKey::new("shop", "grow-restart");
    let earlier = Recreate { key, owner_uid: Some("prs-0".into()), ..Recreate::default() };
    scene.restart = Some(earlier.clone());
    assert_eq!((scene.deed(), scene.planned().1.as_str()), (None, "Restarting"), "it goes with its resize");
    scene.restart = Some(Recreate { owner_uid: None, ..earlier });
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "RestartFailed"));
    assert!(scene.resize.status.message.contains("shop/grow-restart does not belong to this PodResize"));
}

#[test]
fn a_restart_that_is_refused_is_tried_for_a_while() {
    let mut scene = sized(&json!({}));
    for _ in 0..3 {
        let deed = scene.deed().unwrap();
        scene.memory.deed_done(scene.now, deed, Done::Refused("no such right".into()));
    }
    assert!(scene.deed().is_some());
    scene.later(10);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "RestartFailed"));
    assert!(scene.resize.status.message.ends_with("no such right"));
}

#[test]
fn another_controller_finds_the_restart_again() {
    let mut scene = sized(&json!({}));
    scene.created();
    scene.memory = Memory::new(scene.now);
    assert_eq!((scene.deed(), scene.planned().1.as_str()), (None, "Restarting"));
    scene.restarted(&["app", "proxy"]);
    scene.ended(ConditionStatus::True, "");
    scene.memory = Memory::new(scene.now);
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
}

#[test]
fn the_restart_that_is_asked_for_is_none_too_many() {
    let watched = json!({"rollbackOnFailure": {"observeSeconds": 10}});
    let mut scene = sized(&watched);
    scene.created();
    let _ = scene.plan();
    scene.restarted(&["app", "proxy"]);
    scene.ended(ConditionStatus::True, "");
    scene.settle();
    assert_eq!(scene.planned().1, "Observing");
    scene.restarted(&["app"]);
    scene.settle();
    assert_eq!(scene.stored().1, "Restoring", "one more is");
    let mut scene = sized(&watched);
    scene.restarted(&["app"]);
    scene.settle();
    assert_eq!(scene.stored().1, "Restoring", "before it was asked for");
}

#[test]
fn the_name_of_a_restart_is_short_and_its_own() {
    let name = |name: &str, uid: &str| {
        let key = ObjectKey::new("shop", name);
        restart_key(&Resize { key, uid: uid.into(), ..Resize::default() }).name
    };
    assert_eq!(name("web-0-grow", "u"), "web-0-grow-restart");
    let (fits, long) = ("n".repeat(55), "n".repeat(56));
    assert_eq!(name(&fits, "u"), format!("{fits}-restart"));
    assert_eq!((name(&long, "u").len(), name(&long, "u").ends_with("-restart")), (63, true));
    assert_ne!(name(&long, "u"), name(&long, "v"));
    assert!(!name(&format!("{}.{}", "n".repeat(45), "m".repeat(20)), "u").contains(".-"));
}
