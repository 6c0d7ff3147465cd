//! The instances of a request, and every refusal.

use pitstop_api::recreate::PreStopHandler;

use super::super::{Moment, resolve};
use super::*;
use crate::pod::{ContainerKind, RestartPolicy};

/// Refused at admission: field and text.
fn refusal(containers: &[&str], change: impl FnOnce(&mut Request, &mut Pod)) -> (String, String) {
    let (mut request, mut pod) = (raw(containers), pod());
    change(&mut request, &mut pod);
    let refusal = resolve(&request.spec, &pod, Moment::Admission).unwrap_err();
    (refusal.field, refusal.message)
}

#[track_caller]
fn assert_refusal((found_field, found_text): (String, String), field: &str, text: &str) {
    assert_eq!(found_field, field);
    assert!(found_text.starts_with(text), "{found_text:?} does not start with {text:?}");
}

fn set_status(pod: &mut Pod, name: &str, status: Option<ContainerStatus>) {
    pod.containers.iter_mut().find(|c| c.name == name).unwrap().status = status;
}

#[test]
fn the_running_instances_are_found_in_the_order_of_the_request() {
    let target = resolve(&raw(&["sidecar", "app"]).spec, &pod(), Moment::Admission).unwrap();
    assert_eq!((target.pod_uid.as_str(), target.node_name.as_str()), ("pod-1", "node1"));
    let found: Vec<_> = target
        .containers
        .iter()
        .map(|c| (c.name.as_str(), c.container_id.clone(), c.restart_count))
        .collect();
    assert_eq!(found, [("sidecar", id("sidecar", 0), 0), ("app", id("app", 1), 1)]);
}

/// With a longer ID, the status could not be written, and the request would hang.
#[test]
fn an_id_that_does_not_fit_the_status_is_refused() {
    let runtime = |length| format!("{}://{}", "r".repeat(length), "a".repeat(64));
    let with = |id: String, pod: &mut Pod| {
        set_status(pod, "app", Some(ContainerStatus { container_id: id, ..ContainerStatus::default() }));
    };
    let found = refusal(&["app"], |_, pod| with(runtime(62), pod));
    assert_refusal(found, "spec.containers[0].name", "containerID of app is longer than 128 bytes");
    let mut pod = pod();
    with(runtime(61), &mut pod);
    assert!(resolve(&raw(&["app"]).spec, &pod, Moment::Admission).is_ok());
}

#[test]
fn pods_that_cannot_be_served_are_refused() {
    type Change = fn(&mut Pod);
    let cases: [(Change, &str); 4] = [
        (|p| p.deleting = true, "not allowed to recreate containers in an inactive Pod"),
        (|p| p.finished = true, "not allowed to recreate containers in an inactive Pod"),
        (|p| p.node = None, "not allowed to recreate containers in a pending Pod"),
        (|p| p.mirror = true, "not allowed to recreate containers in a static Pod"),
    ];
    for (change, text) in cases {
        let found = refusal(&["app"], |_, pod| change(pod));
        assert!(found.1.ends_with("Pod shop/web"), "{} does not name the Pod", found.1);
        assert_refusal(found, "spec.podName", text);
    }
    let found = refusal(&["app"], |_, pod| pod.restart_policy = RestartPolicy::Never);
    assert_refusal(found, "spec.strategy.mechanism", "container app: restartPolicy is Never");
}

#[test]
fn containers_that_cannot_be_served_are_refused() {
    let kind = |kind| {
        move |_: &mut Request, pod: &mut Pod| {
            pod.containers.iter_mut().find(|c| c.name == "sidecar").unwrap().kind = kind;
        }
    };
    let field = "spec.containers[1].name";
    let names = ["app", "sidecar"];
    let text = "sidecar is an init container";
    assert_refusal(refusal(&names, kind(ContainerKind::Init)), field, text);
    let text = "sidecar is an ephemeral container";
    assert_refusal(refusal(&names, kind(ContainerKind::Ephemeral)), field, text);
    let found = refusal(&["app", "other"], |_, _| ());
    assert_refusal(found, field, "container other not found in Pod");
    let found = refusal(&names, |_, pod| set_status(pod, "sidecar", None));
    assert_refusal(found, field, "not found sidecar containerStatus in Pod Status");
    let found = refusal(&names, |_, pod| set_status(pod, "sidecar", Some(ContainerStatus::default())));
    assert_refusal(
        found,
        field,
        "no containerID in sidecar containerStatus, maybe the container has not been initialized",
    );
    let short = ContainerStatus { container_id: "containerd://0123".into(), ..Default::default() };
    let found = refusal(&names, |_, pod| set_status(pod, "sidecar", Some(short)));
    assert_refusal(found, field, "containerID \"containerd://0123\" of sidecar is not of the form");
}

#[test]
fn what_admission_fills_in_must_be_empty() {
    let text = "preStop, ports and statusContext are read-only fields";
    let found = refusal(&["app"], |r, _| r.spec.containers[0].pre_stop = Some(PreStopHandler::default()));
    assert_refusal(found, "spec.containers[0].preStop", text);
    let found = refusal(&["app"], |r, _| {
        r.spec.containers[0].ports = serde_json::from_str(r#"[{"containerPort":80}]"#).unwrap();
    });
    assert_refusal(found, "spec.containers[0].ports", text);
    let found =
        refusal(&["app"], |r, _| r.spec.containers[0].status_context = Some(StatusContext::default()));
    assert_refusal(found, "spec.containers[0].statusContext", text);
}

#[test]
fn the_first_reason_counts() {
    let found = refusal(&["nope"], |_, pod| {
        pod.node = None;
        pod.finished = true;
    });
    assert!(found.1.contains("an inactive Pod"), "{found:?}");
    let found = refusal(&["nope"], |_, pod| pod.node = None);
    assert!(found.1.contains("a pending Pod"), "{found:?}");
    let found = refusal(&["nope", "app"], |r, _| {
        r.spec.containers[0].status_context = Some(StatusContext::default());
        r.spec.containers[1].status_context = Some(StatusContext::default());
    });
    assert_eq!(found.0, "spec.containers[0].statusContext", "read-only fields come before the lookup");
    let found = refusal(&["nope", "app"], |r, _| {
        r.spec.containers[1].status_context = Some(StatusContext::default());
    });
    assert_eq!(found.0, "spec.containers[0].name", "one container after another");
}

#[test]
fn later_the_admitted_instance_counts_and_not_what_an_old_status_shows() {
    let mut scene = Scene::admitted(&["app"]);
    scene.status("app", |s| {
        s.container_id = id("app", 0);
        s.restart_count = 0;
    });
    let pod = scene.pod.unwrap();
    let target = resolve(&scene.request.spec, &pod, Moment::Accepted).unwrap();
    assert_eq!(target.containers[0].container_id, id("app", 1));
    assert_eq!(target.containers[0].restart_count, 1);
}

#[test]
fn without_a_webhook_the_pods_status_counts() {
    let target = resolve(&raw(&["app"]).spec, &pod(), Moment::Accepted).unwrap();
    assert_eq!(target.containers[0].container_id, id("app", 1));
}
