//! The Pod's cgroup is low though its containers run, and no daemon may write it (kubernetes#138760).

use super::super::nudge::{Nudge, choose, stepped};
use super::super::verify::Low;
use super::*;

/// `app` runs and the kubelet reports the resize as done, but the Pod's cgroup is unchanged; the status says so.
fn low(more: &Value) -> Scene {
    let mut scene = Scene::new(grow(more));
    scene.settle();
    scene.done();
    scene.low = 1;
    scene.settle();
    scene.later(3);
    scene.settle();
    scene.store_wait();
    scene
}

/// The same, with the nudge in the Pod's spec.
fn nudged(more: &Value) -> Scene {
    let mut scene = low(more);
    scene.later(2);
    scene.settle();
    assert_eq!(cpu(&mut scene), (Some(101), Some(300)), "the smallest step");
    scene
}

fn cpu(scene: &mut Scene) -> (Option<i64>, Option<i64>) {
    let resources = scene.container("app").resources;
    (resources.cpu_request, resources.cpu_limit)
}

/// The kubelet applies the spec, and writes the Pod's cgroup.
fn apply(scene: &mut Scene) {
    scene.done();
    scene.low = 0;
    scene.settle();
}

/// Only memory is missing, so a CPU nudge would not help.
#[test]
fn where_the_kubelet_sets_no_quota_only_memory_is_stepped() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.daemon = Daemon::NoQuota;
    let before = scene.container("app").resources;
    scene.settle();
    scene.done();
    scene.low = 1;
    scene.settle();
    scene.later(3);
    scene.settle();
    scene.store_wait();
    scene.later(2);
    scene.settle();
    let after = scene.container("app").resources;
    assert_eq!(after.cpu_request, before.cpu_request);
    assert_eq!(after.memory_request, before.memory_request.map(|memory| memory + 1));
}

#[test]
fn a_pod_that_is_low_is_written_by_the_smallest_step_there_and_back() {
    let mut scene = low(&json!({}));
    assert_eq!(cpu(&mut scene), (Some(100), Some(300)));
    assert_eq!(scene.plan().wake_at, Some(Mono(5_000)));
    scene.later(2);
    scene.settle();
    assert_eq!(cpu(&mut scene), (Some(101), Some(300)));
    assert!(!scene.orders.iter().any(is_repair), "no daemon is asked to");
    let before = scene.resize.status.clone();
    scene.settle();
    assert_eq!(scene.resize.status, before, "it waits for the kubelet");
    apply(&mut scene);
    assert_eq!(cpu(&mut scene), (Some(100), Some(300)));
    apply(&mut scene);
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
    assert_eq!(scene.verified(), (ConditionStatus::True, "CgroupsMatch"));
}

#[test]
fn nothing_is_stepped_before_the_difference_is_stored() {
    let mut scene = low(&json!({}));
    let conditions = std::mem::take(&mut scene.resize.status.conditions);
    scene.later(2);
    assert_eq!(scene.plan().sizing, None);
    scene.resize.status.conditions = conditions;
    assert!(scene.plan().sizing.is_some());
}

#[test]
fn whoever_leads_next_takes_the_step_back() {
    let mut scene = nudged(&json!({}));
    scene.memory = Memory::new(scene.now);
    scene.settle();
    assert_eq!(cpu(&mut scene), (Some(101), Some(300)));
    scene.later(15);
    scene.settle();
    assert_eq!(cpu(&mut scene), (Some(100), Some(300)), "though the kubelet says nothing");
    apply(&mut scene);
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
}

#[test]
fn what_ends_the_request_takes_the_step_along() {
    let mut scene = nudged(&json!({}));
    scene.resize.spec.cancel = true;
    scene.settle();
    assert_eq!(cpu(&mut scene), (Some(100), Some(200)), "back in one change");
    scene.done();
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Cancelled));

    let mut scene = nudged(&json!({"activeDeadlineSeconds": 6}));
    scene.later(1);
    scene.settle();
    assert_eq!(cpu(&mut scene), (Some(100), Some(300)));
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"), "the kubelet had reported it as done");
    assert_eq!(cpu(&mut scene), (Some(100), Some(300)));
}

#[test]
fn a_node_without_room_for_the_step_is_no_failure() {
    let mut scene = nudged(&json!({}));
    scene.pending("Deferred", "no room");
    scene.settle();
    assert_eq!(cpu(&mut scene), (Some(100), Some(300)));
    apply(&mut scene);
    assert_eq!(scene.stored().0, Some(Phase::Succeeded));
}

#[test]
fn it_is_tried_three_times_and_told() {
    let mut scene = low(&json!({}));
    let mut steps = Vec::new();
    for _ in 0..130 {
        scene.later(1);
        scene.store_wait();
        scene.settle();
        if cpu(&mut scene) == (Some(101), Some(300)) {
            steps.push(scene.now.0 / 1000);
        }
        if !scene.resize.completed() {
            scene.done();
            scene.settle();
            scene.done();
        }
    }
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert_eq!(cpu(&mut scene), (Some(100), Some(300)));
    assert_eq!(scene.stored(), (Some(Phase::Succeeded), "Resized"));
    assert_eq!(scene.verified(), (ConditionStatus::False, "KernelDiffers"));
}

#[test]
fn what_is_refused_is_not_tried_again() {
    let mut scene = low(&json!({}));
    scene.later(2);
    assert!(scene.plan().sizing.is_some());
    scene.refuse("exceeded quota");
    for _ in 0..60 {
        scene.later(2);
        scene.settle();
    }
    assert_eq!(cpu(&mut scene), (Some(100), Some(300)));
    assert_eq!(scene.verified(), (ConditionStatus::False, "KernelDiffers"));
}

#[test]
fn where_it_is_not_pitstops_to_do_or_would_restart_nothing_is_stepped() {
    let cases: [fn(&mut Scene); 4] = [
        |scene| scene.recorded = true,
        |scene| scene.pod.as_mut().unwrap().pod_level = Some(Box::default()),
        |scene| scene.container("app").restart_for.cpu = true,
        |scene| scene.guarded = false,
    ];
    for event in cases {
        let mut scene = low(&json!({}));
        event(&mut scene);
        if !scene.guarded {
            scene.orders.clear();
        }
        for _ in 0..20 {
            scene.later(2);
            assert_eq!(scene.plan().sizing, None);
            scene.settle();
        }
    }
}

/// pitstop yields to other clients: a change is a nudge only after a reported difference.
#[test]
fn somebody_elses_millicore_is_left_alone() {
    let mut scene = Scene::new(grow(&json!({})));
    scene.settle();
    scene.done();
    scene.daemon = Daemon::Silent;
    scene.settle();
    scene.container("app").resources.cpu_request = Some(101);
    scene.settle();
    assert_eq!(scene.stored(), (Some(Phase::Failed), "Superseded"));
    assert_eq!(cpu(&mut scene), (Some(101), Some(300)));
}

#[test]
fn a_step_changes_no_class_and_restarts_nothing() {
    let spec = json!({"podRef": {"name": "web"}, "containers": [
        {"name": "app", "resources": {"requests": {"cpu": "300m", "memory": "256Mi"}, "limits": {"cpu": "300m", "memory": "256Mi"}}}]});
    let mut scene = Scene::new(spec);
    scene.settle();
    scene.done();
    let low = Low { container: "app".into(), cpu: true, memory: true };
    let step = |scene: &Scene| choose(&scene.resize, scene.pod.as_ref().unwrap(), &low);
    let nudge = step(&scene).unwrap();
    assert_eq!(nudge, Nudge { container: "app".into(), cpu: true, memory: true });
    let to = stepped(&scene.resize.status.containers[0], &nudge).unwrap();
    assert_eq!((to.cpu_request, to.cpu_limit), (Some(301), Some(301)), "they stay equal");
    assert_eq!((to.memory_request, to.memory_limit), (Some(256 * MI + 1), Some(256 * MI + 1)));
    scene.pod.as_mut().unwrap().observed_generation = None;
    assert_eq!(step(&scene), None, "Kubernetes 1.33 would not take the limit back");
    scene.observe_spec();
    scene.container("app").restart_for.memory = true;
    assert_eq!(step(&scene), None);
}
