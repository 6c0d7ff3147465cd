//! The webhook's answers.

use pitstop_api::recreate::RecreateStrategy;
use serde_json::{Value, json};

use super::super::admission::{Verdict, create, precheck, update};
use super::*;

/// Applies `add` operations to a request as JSON, as the API server would.
fn patched(request: &Request, operations: &[Value]) -> Value {
    let mut object = json!({"metadata": {"labels": request.labels}, "spec": request.spec});
    for op in operations {
        assert_eq!(op["op"], "add");
        let path = op["path"].as_str().unwrap();
        let (parent, last) = path.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("no parent of {path}"));
        parent[last] = op["value"].clone();
    }
    object
}

fn denied(verdict: Verdict) -> (u16, String) {
    match verdict {
        Verdict::Deny { code, message } => (code, message),
        Verdict::Allow(patch) => panic!("allowed: {patch:?}"),
    }
}

fn allowed(verdict: Verdict) -> Vec<Value> {
    match verdict {
        Verdict::Allow(patch) => patch,
        Verdict::Deny { code, message } => panic!("{code}: {message}"),
    }
}

#[test]
fn a_new_request_gets_labels_defaults_and_its_instances() {
    let mut request = raw(&["app", "sidecar"]);
    request.labels.insert("team".into(), "a".into());
    request.labels.insert(labels::ACTIVE.into(), "false".into());
    let patch = allowed(create(&request, Some(&pod())));
    let object = patched(&request, &patch);
    assert_eq!(
        object["metadata"]["labels"],
        json!({
            "team": "a",
            "crr.apps.kruise.io/active": "true",
            "crr.apps.kruise.io/pod-uid": "pod-1",
            "crr.apps.kruise.io/node-name": "node1",
        })
    );
    assert_eq!(
        object["spec"],
        json!({
            "podName": "web",
            "containers": [
                {"name": "app", "statusContext": {"containerID": id("app", 1), "restartCount": 1}},
                {"name": "sidecar", "statusContext": {"containerID": id("sidecar", 0), "restartCount": 0}},
            ],
            "strategy": {"failurePolicy": "Fail", "terminationGracePeriodSeconds": 30},
        })
    );
    let spec: ContainerRecreateRequestSpec = serde_json::from_value(object["spec"].clone()).unwrap();
    let again = patched(&Request { spec, ..request.clone() }, &patch);
    assert_eq!(again["spec"], object["spec"], "the patch can be applied twice");
}

#[test]
fn a_given_strategy_stays() {
    let mut request = raw(&["app"]);
    request.spec.strategy =
        Some(RecreateStrategy { termination_grace_period_seconds: Some(3), ..Default::default() });
    let object = patched(&request, &allowed(create(&request, Some(&pod()))));
    assert_eq!(
        object["spec"]["strategy"],
        json!({"failurePolicy": "Fail", "terminationGracePeriodSeconds": 3})
    );
}

#[test]
fn refusals_name_the_object_and_the_field() {
    let prefix = "ContainerRecreateRequest shop/crr: ";
    let mut empty = raw(&["app"]);
    empty.spec.pod_name.clear();
    let (code, message) = denied(create(&empty, None));
    assert_eq!((code, message), (400, format!("{prefix}spec.podName: podName can not be empty")));
    let (code, message) = denied(create(&raw(&[]), Some(&pod())));
    assert_eq!((code, message), (400, format!("{prefix}spec.containers: containers list can not be null")));
    let (code, message) = denied(create(&raw(&["app"]), None));
    assert_eq!((code, message), (400, format!("{prefix}spec.podName: no found Pod named web")));
    let (code, message) = denied(create(&raw(&["app", "app"]), Some(&pod())));
    let text = "spec.containers[1].name: can not recreate app multi times";
    assert_eq!((code, message), (400, format!("{prefix}{text}")));
    let (code, message) = denied(create(&raw(&["nope"]), Some(&pod())));
    let text = "spec.containers[0].name: container nope not found in Pod: Pod shop/web";
    assert_eq!((code, message), (400, format!("{prefix}{text}")));
}

#[test]
fn what_needs_no_pod_is_refused_before_the_pod_is_read() {
    assert!(precheck(&raw(&["app"])).is_none());
    let mut request = raw(&["app"]);
    request.spec.active_deadline_seconds = Some(2);
    let (code, message) = denied(precheck(&request).unwrap());
    assert_eq!(code, 400);
    assert!(message.ends_with("activeDeadlineSeconds can not be less than 3s"), "{message}");
}

#[test]
fn the_spec_and_two_labels_never_change() {
    let old = Scene::admitted(&["app"]).request;
    assert_eq!(update(&old, &old, false), Verdict::Allow(Vec::new()));
    let mut new = old.clone();
    new.spec.ttl_seconds_after_finished = Some(1);
    for by_controller in [false, true] {
        let (code, message) = denied(update(&old, &new, by_controller));
        assert_eq!(code, 403);
        assert!(message.ends_with("spec: spec of ContainerRecreateRequest is immutable"), "{message}");
    }
    for key in [labels::POD_UID, labels::NODE_NAME] {
        for value in [None, Some("other")] {
            let mut new = old.clone();
            new.labels.remove(key);
            new.labels.extend(value.map(|v| (key.to_owned(), v.to_owned())));
            for (a, b) in [(&old, &new), (&new, &old)] {
                let (code, message) = denied(update(a, b, false));
                assert_eq!(code, 403);
                let text = format!("metadata.labels[{key}]: not allowed to update immutable label {key}");
                assert!(message.ends_with(&text), "{message}");
                assert_eq!(update(a, b, true), Verdict::Allow(Vec::new()));
            }
        }
    }
    let mut new = old.clone();
    new.labels.insert("team".into(), "b".into());
    assert_eq!(update(&old, &new, false), Verdict::Allow(Vec::new()));
}

#[test]
fn active_stays_until_the_request_is_over() {
    let mut old = Scene::admitted(&["app"]).request;
    let mut new = old.clone();
    new.labels.remove(labels::ACTIVE);
    let (code, message) = denied(update(&old, &new, false));
    assert_eq!(code, 403);
    assert!(message.contains("metadata.labels[crr.apps.kruise.io/active]"), "{message}");
    assert_eq!(update(&old, &new, true), Verdict::Allow(Vec::new()));
    old.status.completion_time = Some(wall(Mono(0)));
    assert_eq!(update(&old, &new, false), Verdict::Allow(Vec::new()));
}
