//! Resolution of a request, and refusals.

use super::*;

/// The end of a request that is refused before anything is changed.
fn refused(spec: Value, change: impl FnOnce(&mut Pod)) -> (Option<Phase>, String, String) {
    let mut scene = Scene::new(spec);
    change(scene.pod.as_mut().unwrap());
    let before = scene.pod.clone();
    scene.later(10);
    scene.settle();
    assert_eq!(scene.pod, before);
    let accepted = condition::find(&scene.resize.status.conditions, conditions::ACCEPTED).unwrap();
    assert_eq!(accepted.status, ConditionStatus::False);
    let (phase, reason) = scene.stored();
    (phase, reason.to_owned(), scene.resize.status.message.clone())
}

#[test]
fn each_refusal_says_why_and_what_would_be_right() {
    let of = |container: Value| json!({"podRef": {"name": "web"}, "containers": [container]});
    let never = grow(&json!({"restart": "Never"}));
    let nothing: Change = |_| {};
    let cases: [(Value, Change, &str, &str); 12] = [
        (
            of(json!({"name": "ap", "resources": {"limits": {"cpu": 1}}})),
            nothing,
            "Invalid",
            "spec.containers[0].name: Pod shop/web has no container \"ap\"; it has app, proxy",
        ),
        (
            of(json!({"name": "app", "resources": {"limits": {"cpu": "50m"}}})),
            nothing,
            "Invalid",
            "container app would request 100m of cpu, more than its limit of 50m",
        ),
        (
            of(json!({"name": "app", "resources": {"limits": {"cpu": 0}}})),
            nothing,
            "Invalid",
            "limits.cpu: a limit cannot be 0",
        ),
        (
            of(json!({"name": "app", "resources": {"limits": {"cpu": "much"}}})),
            nothing,
            "Invalid",
            "spec.containers[0].resources.limits.cpu: \"much\" is no amount",
        ),
        (grow(&json!({})), |pod| pod.mirror = true, "UnsupportedContainer", "mirrors a static Pod"),
        (
            grow(&json!({})),
            |pod| pod.containers[0].kind = ContainerKind::Init,
            "UnsupportedContainer",
            "init container app ends",
        ),
        (
            grow(&json!({})),
            |pod| pod.containers[0].kind = ContainerKind::Ephemeral,
            "UnsupportedContainer",
            "ephemeral",
        ),
        (
            grow(&json!({})),
            |pod| pod.containers[1].status.as_mut().unwrap().actual = None,
            "Unsupported",
            "no resources of container proxy",
        ),
        (
            never,
            |pod| pod.containers[0].restart_for.cpu = true,
            "PolicyWouldRestart",
            "take IfPolicyRequires",
        ),
        (grow(&json!({})), |pod| pod.node = None, "Invalid", "not scheduled yet"),
        (grow(&json!({})), |pod| pod.finished = true, "PodGone", "no running Pod web"),
        (grow(&json!({"podRef": {"name": "web", "uid": "pod-0"}})), nothing, "PodGone", "with UID pod-0"),
    ];
    for (spec, change, reason, text) in cases {
        let (phase, found, message) = refused(spec, change);
        assert_eq!((phase, found.as_str()), (Some(Phase::Failed), reason), "{message}");
        assert!(message.contains(text), "{message}");
    }
}

#[test]
fn the_watch_of_pods_may_be_a_little_behind() {
    let mut scene = Scene::new(grow(&json!({})));
    let pod = scene.pod.take();
    scene.later(1);
    scene.settle();
    assert_eq!(scene.writes, 0);
    scene.pod = pod;
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Proposed));
}

#[test]
fn a_policy_for_what_does_not_change_restarts_nothing() {
    let mut scene = Scene::new(grow(&json!({"restart": "Never"})));
    scene.container("app").restart_for.memory = true;
    scene.settle();
    assert_eq!(scene.stored().0, Some(Phase::Proposed));
    assert!(!scene.resize.status.containers[0].restarts);
}

#[test]
fn a_bad_spec_that_slipped_past_the_schema_is_refused() {
    let (phase, reason, message) = refused(json!({"podRef": {"name": "web"}, "containers": []}), |_| {});
    assert_eq!((phase, reason.as_str()), (Some(Phase::Failed), "Invalid"));
    assert!(message.starts_with("spec.containers: must name 1 to 64"), "{message}");
}

/// As the API server's defaults do, which would otherwise store other resources than resolved.
#[test]
fn a_limit_alone_is_a_request_too() {
    let mut scene = Scene::new(grow(&json!({})));
    let app = scene.container("app");
    (app.resources.cpu_limit, app.resources.cpu_request) = (None, None);
    scene.done();
    scene.settle();
    let resources = scene.container("app").resources;
    assert_eq!((resources.cpu_request, resources.cpu_limit), (Some(300), Some(300)));
    assert_eq!(scene.stored().0, Some(Phase::Proposed));
}

#[test]
fn a_container_that_has_ended_for_good_is_refused() {
    let (phase, reason, message) = refused(grow(&json!({})), |pod| {
        pod.restart_policy = crate::pod::RestartPolicy::Never;
        pod.containers[0].status.as_mut().unwrap().state = ContainerState::Terminated { exit_code: 1 };
    });
    assert_eq!((phase, reason.as_str()), (Some(Phase::Failed), "UnsupportedContainer"));
    assert!(message.contains("will not run again"), "{message}");
}
