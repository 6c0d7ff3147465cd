//! How memory limits are lowered.

use super::*;

/// Lowers the memory limit of `app` from 128Mi to `to`.
fn shrink(to: &str, how: &Value) -> Scene {
    let containers = json!([{"name": "app", "resources": {"requests": {"memory": "32Mi"}, "limits": {"memory": to, "cpu": "300m"}}}]);
    let spec = json!({"podRef": {"name": "web"}, "containers": containers, "memoryShrink": how,
        "activeDeadlineSeconds": 600});
    Scene::new(spec)
}

impl Scene {
    fn memory(&mut self) -> (i64, i64) {
        let resources = self.container("app").resources;
        (resources.memory_request.unwrap() / MI, resources.memory_limit.unwrap() / MI)
    }
}

#[test]
fn a_limit_is_not_lowered_below_what_is_in_use_and_a_margin() {
    let mut scene = shrink("64Mi", &json!({"margin": "32Mi"}));
    scene.usage = 33 * MI;
    scene.settle();
    assert_eq!(scene.orders[0].id, "prs-1/app/1");
    assert!(scene.orders[0].action.verify.is_some());
    assert_eq!(scene.planned(), (Phase::Proposed, "MemoryInUse".into()));
    let message =
        "container app uses 33Mi of memory: with a margin of 32Mi, that exceeds the new limit of 64Mi";
    assert_eq!(scene.message(), message);
    assert_eq!((scene.memory(), scene.plan().wake_at), ((64, 128), Some(Mono(5_000))));
    // After the wait is stored, the original resources do not count as another client's restore.
    scene.resize.status = scene.plan().status.unwrap().status;
    scene.later(5);
    scene.settle();
    assert_eq!((scene.memory(), scene.orders[0].id.as_str()), ((64, 128), "prs-1/app/2"));
    scene.later(5);
    scene.usage = 32 * MI;
    scene.settle();
    assert_eq!((scene.memory(), scene.cpu_limit()), ((32, 64), Some(300)));
    scene.done();
    scene.later(1);
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded), "{:?}", scene.resize.status);
}

#[test]
fn what_does_not_fit_in_time_is_given_up() {
    let mut scene = shrink("64Mi", &json!({}));
    scene.usage = 65 * MI;
    scene.settle();
    scene.later(600);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "DeadlineExceeded"));
    assert!(scene.resize.status.message.contains("container app uses 65Mi"), "{:?}", scene.resize.status);
    assert_eq!(scene.memory(), (64, 128));
}

#[test]
fn a_limit_is_lowered_step_by_step() {
    let mut scene = shrink("40Mi", &json!({"step": "32Mi", "margin": "10Mi"}));
    scene.settle();
    assert_eq!((scene.memory(), scene.cpu_limit()), ((32, 96), Some(300)), "all else goes with the first");
    assert_eq!(scene.planned().1, "WaitingForKubelet");
    let message = scene.message();
    assert!(message.ends_with("; the limit of app is 96Mi on the way to 40Mi"), "{message}");
    scene.done();
    scene.usage = 60 * MI;
    scene.later(5);
    scene.settle();
    assert_eq!(scene.planned(), (Phase::InProgress, "MemoryInUse".into()));
    assert_eq!(scene.memory(), (32, 96));
    scene.usage = 20 * MI;
    scene.later(5);
    scene.settle();
    assert_eq!(scene.memory(), (32, 64));
    // Another controller continues from the Pod's spec.
    scene.memory = Memory::new(scene.now);
    scene.settle();
    assert_eq!(scene.memory(), (32, 64), "the kubelet has not done it");
    scene.done();
    scene.settle();
    assert_eq!(scene.memory(), (32, 40), "and no further");
    scene.done();
    scene.later(1);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"), "{:?}", scene.resize.status);
}

#[test]
fn between_two_steps_a_request_can_be_given_up() {
    for cancel in [true, false] {
        let mut scene = shrink("40Mi", &json!({"step": "32Mi"}));
        scene.settle();
        assert_eq!(scene.memory(), (32, 96));
        if cancel {
            scene.resize.spec.cancel = true;
        } else {
            scene.later(600);
        }
        scene.settle();
        assert_eq!((scene.memory(), scene.cpu_limit()), ((64, 128), Some(200)));
        scene.done();
        scene.settle();
        assert_eq!(scene.stored().1, if cancel { "Cancelled" } else { "DeadlineExceeded" });
    }
}

#[test]
fn what_somebody_else_changes_on_the_way_is_not_fought_for() {
    let mut scene = shrink("40Mi", &json!({"step": "32Mi"}));
    scene.settle();
    scene.container("app").resources.memory_limit = Some(80 * MI);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "Superseded"));
    assert_eq!(scene.memory(), (32, 80));
    let mut scene = shrink("40Mi", &json!({"step": "32Mi"}));
    scene.settle();
    let before = container("app").resources;
    let _ = scene.plan();
    scene.container("app").resources = before;
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "Superseded"));
}

#[test]
fn a_guaranteed_pod_stays_so_at_every_step() {
    let spec = json!({"podRef": {"name": "web"}, "memoryShrink": {"step": "48Mi"}, "containers": [
        {"name": "app", "resources": {"requests": {"memory": "32Mi"}, "limits": {"memory": "32Mi"}}}]});
    let mut scene = Scene::new(spec);
    scene.container("app").resources.memory_request = Some(128 * MI);
    scene.done();
    let mut seen = Vec::new();
    for _ in 0..3 {
        scene.settle();
        seen.push(scene.memory());
        scene.done();
        scene.later(5);
    }
    assert_eq!(seen, [(80, 80), (32, 32), (32, 32)]);
}

#[test]
fn a_daemon_that_does_not_say_is_waited_for() {
    let mut scene = shrink("64Mi", &json!({}));
    scene.daemon = Daemon::Silent;
    scene.settle();
    assert_eq!(scene.planned().1, "MemoryInUse");
    assert!(scene.message().contains("asks the node's daemon"));
    scene.later(60);
    scene.settle();
    assert!(scene.message().contains("has not said"), "{}", scene.message());
    let mut scene = shrink("64Mi", &json!({}));
    scene.daemon = Daemon::Answers(AnswerState::Failed, AnswerReason::CgroupUnreadable);
    scene.settle();
    assert!(scene.message().contains("does not say"), "{}", scene.message());
    scene.later(5);
    scene.daemon = Daemon::Right;
    scene.settle();
    assert_eq!(scene.memory(), (32, 64));
    let mut scene = shrink("64Mi", &json!({}));
    scene.guarded = false;
    scene.settle();
    assert_eq!((scene.planned().1.as_str(), scene.orders.len()), ("WaitingForPolicy", 0));
}

#[test]
fn only_what_shrinks_is_asked_about() {
    let mut grows = Scene::new(grow(&json!({"memoryShrink": {"margin": "1Gi", "step": "1Mi"}})));
    grows.settle();
    assert_eq!((grows.cpu_limit(), grows.orders.len()), (Some(300), 0));
    let mut plain = shrink("40Mi", &Value::Null);
    plain.settle();
    assert_eq!((plain.memory(), plain.orders.len()), ((32, 40), 0), "as the kubelet takes it");
    // A container that restarts for it frees its memory.
    let mut restarts = shrink("40Mi", &json!({"step": "1Mi"}));
    restarts.container("app").restart_for.memory = true;
    restarts.settle();
    assert_eq!(restarts.memory(), (32, 40));
    let mut stopped = shrink("40Mi", &json!({}));
    stopped.status("app").state = ContainerState::Waiting { reason: String::new(), message: String::new() };
    stopped.settle();
    assert_eq!(stopped.memory(), (32, 40));
}

/// An answer may expire while the patch is under way. A sent change stays wanted until its result is known.
#[test]
fn a_change_that_is_sent_stays_wanted() {
    let mut scene = shrink("64Mi", &json!({}));
    scene.act();
    scene.act();
    let sizing = scene.plan().sizing;
    assert!(sizing.is_some());
    scene.sizing.clone_from(&sizing);
    scene.later(10);
    assert_eq!(scene.plan().sizing, sizing);
}

/// Number of the order for `app` in the node's book, and to how many MiB the kernel should reclaim.
fn asked(scene: &Scene) -> (&str, Option<i64>) {
    let order = &scene.orders[0];
    assert_eq!(order.action.verify.is_some(), order.action.resize.is_none());
    let to = order.action.resize.as_ref().map(|resize| {
        assert!(resize.gives_nothing());
        resize.reclaim_to.unwrap() / MI
    });
    (order.id.as_str(), to)
}

#[test]
fn the_kernel_reclaims_what_it_can_where_that_is_asked_for() {
    let mut scene = shrink("64Mi", &json!({"margin": "8Mi", "reclaim": true}));
    scene.config.resize_cri = true;
    (scene.usage, scene.droppable) = (90 * MI, 40 * MI);
    scene.daemon = Daemon::Silent;
    scene.settle();
    assert_eq!(asked(&scene), ("prs-1/app/1", None));
    scene.daemon = Daemon::Right;
    scene.answer();
    scene.act();
    assert_eq!(asked(&scene), ("prs-1/app/2", Some(56)), "only what does not fit");
    scene.settle();
    assert_eq!((scene.memory(), scene.usage), ((32, 64), 50 * MI));
    scene.done();
    scene.later(1);
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Succeeded), "{:?}", scene.resize.status);
}

#[test]
fn what_the_kernel_cannot_reclaim_is_waited_for_and_tried_again() {
    let mut scene = shrink("64Mi", &json!({"reclaim": true}));
    scene.config.resize_cri = true;
    (scene.usage, scene.droppable) = (90 * MI, 10 * MI);
    scene.settle();
    assert_eq!(asked(&scene), ("prs-1/app/2", Some(64)));
    assert_eq!(scene.memory(), (64, 128));
    let message = scene.message();
    assert!(message.ends_with("the new limit of 64Mi, and the kernel could reclaim no more"), "{message}");
    assert_eq!(scene.plan().wake_at, Some(Mono(30_000)));
    scene.later(30);
    scene.droppable = 20 * MI;
    scene.settle();
    assert_eq!(asked(&scene).0, "prs-1/app/4");
    assert_eq!(scene.memory(), (32, 64));
}

#[test]
fn a_daemon_that_may_not_reclaim_is_told_of() {
    let mut scene = shrink("64Mi", &json!({"reclaim": true}));
    scene.config.resize_cri = true;
    (scene.usage, scene.droppable) = (90 * MI, 40 * MI);
    scene.daemon = Daemon::Silent;
    scene.settle();
    scene.daemon = Daemon::Right;
    scene.answer();
    scene.daemon = Daemon::Answers(AnswerState::Refused, AnswerReason::NotEnabled);
    scene.settle();
    assert_eq!(asked(&scene), ("prs-1/app/2", Some(64)));
    assert!(scene.message().starts_with("the node's daemon does not say"), "{}", scene.message());
}

#[test]
fn what_cannot_be_done_is_refused() {
    for (how, reason, why) in [
        (json!({"reclaim": true}), "Unsupported", "spec.memoryShrink.reclaim: pitstop's daemons may not"),
        (json!({"step": "1Mi"}), "Invalid", "lowered in 120 steps; at most 100"),
        (json!({"margin": "much"}), "Invalid", "spec.memoryShrink.margin: \"much\" is no amount"),
    ] {
        let mut scene = shrink("8Mi", &how);
        scene.resize.spec.containers[0].resources.requests.clear();
        scene.container("app").resources.memory_request = Some(4 * MI);
        scene.later(10);
        scene.settle();
        assert_eq!(scene.stored(), (Some(Phase::Failed), reason));
        assert!(scene.resize.status.message.contains(why), "{:?}", scene.resize.status.message);
    }
}
