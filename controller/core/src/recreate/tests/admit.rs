//! The webhook's answers.

use k8s_openapi::api::core::v1::ExecAction;
use pitstop_api::recreate::{ContainerPort, Mechanism, PreStopHandler, RecreateStrategy};
use serde_json::{Value, json};

use super::super::admission::{create, precheck, update};
use super::super::restore::keep;
use super::*;
use crate::review::{ContainerHook, Hooks, Response};

/// Applies `add` operations to a request as JSON, as the API server would.
fn patched(request: &Request, operations: &[Value]) -> Value {
    let mut object = json!({"metadata": {"labels": request.more.labels}, "spec": request.spec});
    for op in operations {
        assert_eq!(op["op"], "add");
        let path = op["path"].as_str().unwrap();
        let (parent, last) = path.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("no parent of {path}"));
        parent[last] = op["value"].clone();
    }
    object
}

fn denied(response: Response) -> (u16, String) {
    match response {
        Response::Deny { code, message } => (code, message),
        Response::Allow(patch) => panic!("allowed: {patch:?}"),
    }
}

fn allowed(response: Response) -> Vec<Value> {
    match response {
        Response::Allow(patch) => patch,
        Response::Deny { code, message } => panic!("{code}: {message}"),
    }
}

#[test]
fn a_new_request_gets_labels_defaults_and_its_instances() {
    let mut request = raw(&["app", "sidecar"]);
    request.more.labels.insert("team".into(), "a".into());
    request.more.labels.insert(labels::ACTIVE.into(), "false".into());
    let patch = allowed(create(&request, Some(&pod()), &Hooks::new(), false));
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
fn a_new_request_shows_the_hooks_of_its_containers() {
    let hook = |handler: Value, ports: Value| ContainerHook {
        pre_stop: serde_json::from_value(handler).unwrap(),
        ports: serde_json::from_value(ports).unwrap(),
    };
    let ports = json!([{"name": "web", "containerPort": 8080, "protocol": "TCP"}]);
    let http = json!({"httpGet": {"path": "/bye", "port": "web", "scheme": "HTTP"}});
    let many: Vec<Value> = (1..=300).map(|port| json!({"containerPort": port})).collect();
    for (handler, given, shown) in [
        (json!({"exec": {"command": ["/bye"]}}), ports.clone(), Value::Null),
        (json!({"sleep": {"seconds": 3}}), ports.clone(), Value::Null),
        (json!({"tcpSocket": {"port": 1}}), ports.clone(), Value::Null),
        (http.clone(), ports.clone(), ports),
        (http.clone(), json!([]), Value::Null),
        (http, json!(many), json!(many[..256])),
    ] {
        let hooks = Hooks::from([("app".to_owned(), hook(handler.clone(), given))]);
        let request = raw(&["sidecar", "app"]);
        let object = patched(&request, &allowed(create(&request, Some(&pod()), &hooks, false)));
        assert_eq!(object["spec"]["containers"][1]["preStop"], handler);
        assert_eq!(object["spec"]["containers"][1]["ports"], shown);
        assert_eq!(object["spec"]["containers"][0].get("preStop"), None);
    }
}

/// `kubectl apply` of the same file, which lacks the fields that admission filled in.
#[test]
fn a_spec_that_is_said_again_is_kept_as_it_is() {
    let written = raw(&["app", "sidecar"]);
    let http = json!({"httpGet": {"port": 80}});
    let pre_stop = serde_json::from_value(http).unwrap();
    let hooked = ContainerHook { pre_stop, ports: vec![ContainerPort::default()] };
    let hooks = Hooks::from([("app".to_owned(), hooked)]);
    let stored = patched(&written, &allowed(create(&written, Some(&pod()), &hooks, false)))["spec"].clone();
    let old = Request { spec: serde_json::from_value(stored.clone()).unwrap(), ..written.clone() };
    let mut forms = vec![json!(written.spec), stored.clone()];
    let mut half = stored.clone();
    half["strategy"].as_object_mut().unwrap().remove("failurePolicy");
    half["strategy"]["orderedRecreate"] = json!(false);
    forms.push(half);
    for form in forms {
        let new = Request { spec: serde_json::from_value(form.clone()).unwrap(), ..old.clone() };
        assert_eq!(update(&old, &new, false), Response::Allow(Vec::new()));
        let patch = keep(Some(&stored), Some(&form));
        assert_eq!(patch.is_empty(), form == stored, "nothing is patched that is the same");
        let kept = patched(&new, &patch);
        if !patch.is_empty() {
            assert_eq!(kept["spec"], stored);
        }
    }
    assert_eq!(keep(None, Some(&stored)), [Value::Null; 0]);
}

type Change = fn(&mut ContainerRecreateRequestSpec);

#[test]
fn d21_what_admission_filled_in_never_changes() {
    let old = {
        let mut request = Scene::admitted(&["app"]).request;
        pitstop_api::recreate::apply_defaults(&mut request.spec, Some(30));
        request.spec.containers[0].pre_stop =
            Some(serde_json::from_value(json!({"sleep": {"seconds": 3}})).unwrap());
        request
    };
    let changes: [(Change, &str); 8] = [
        (
            |s| s.containers[0].pre_stop.as_mut().unwrap().sleep.as_mut().unwrap().seconds = 4,
            "spec.containers[0].preStop.sleep.seconds",
        ),
        (
            |s| s.containers[0].pre_stop.as_mut().unwrap().exec = Some(ExecAction::default()),
            "spec.containers[0].preStop.exec",
        ),
        (
            |s| s.containers[0].status_context.as_mut().unwrap().restart_count += 1,
            "spec.containers[0].statusContext.restartCount",
        ),
        (|s| s.containers[0].ports = vec![ContainerPort::default()], "spec.containers[0].ports"),
        (
            |s| s.strategy.as_mut().unwrap().termination_grace_period_seconds = Some(1),
            "spec.strategy.terminationGracePeriodSeconds",
        ),
        (
            |s| s.strategy = Some(RecreateStrategy { ordered_recreate: true, ..Default::default() }),
            "spec.strategy.orderedRecreate",
        ),
        (|s| s.containers[0].name = "sidecar".into(), "spec.containers[0].name"),
        (|s| s.containers.push(s.containers[0].clone()), "spec.containers"),
    ];
    for (change, field) in changes {
        let mut new = old.clone();
        change(&mut new.spec);
        let (code, message) = denied(update(&old, &new, false));
        assert_eq!(code, 403);
        let text = format!("{field}: spec of ContainerRecreateRequest is immutable");
        assert!(message.ends_with(&format!(" {text}")), "{message}");
    }
}

/// `OpenKruise`'s Go types know neither `preStop.sleep` nor `strategy.mechanism`: a client reads and writes without
/// them.
#[test]
fn what_a_typed_kruise_client_cannot_carry_stays() {
    let mut old = Scene::admitted(&["app"]).request;
    pitstop_api::recreate::apply_defaults(&mut old.spec, Some(30));
    old.spec.strategy.as_mut().unwrap().mechanism = Some(Mechanism::Kubelet);
    old.spec.containers[0].pre_stop = Some(serde_json::from_value(json!({"sleep": {"seconds": 3}})).unwrap());
    let mut new = old.clone();
    new.spec.strategy.as_mut().unwrap().mechanism = None;
    new.spec.containers[0].pre_stop = Some(PreStopHandler::default());
    assert_eq!(update(&old, &new, false), Response::Allow(Vec::new()));
    let (stored, sent) = (json!(old.spec), json!(new.spec));
    let put_back = json!({"op": "add", "path": "/spec", "value": stored});
    assert_eq!(keep(Some(&stored), Some(&sent)), [put_back]);
    new.spec.strategy.as_mut().unwrap().mechanism = Some(Mechanism::Runtime);
    let (_, message) = denied(update(&old, &new, false));
    assert!(message.contains(" spec.strategy.mechanism: "), "{message}");
}

#[test]
fn a_given_strategy_stays() {
    let mut request = raw(&["app"]);
    request.spec.strategy =
        Some(RecreateStrategy { termination_grace_period_seconds: Some(3), ..Default::default() });
    let object = patched(&request, &allowed(create(&request, Some(&pod()), &Hooks::new(), false)));
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
    let (code, message) = denied(create(&empty, None, &Hooks::new(), false));
    assert_eq!((code, message), (400, format!("{prefix}spec.podName: podName can not be empty")));
    let (code, message) = denied(create(&raw(&[]), Some(&pod()), &Hooks::new(), false));
    assert_eq!((code, message), (400, format!("{prefix}spec.containers: containers list can not be null")));
    let (code, message) = denied(create(&raw(&["app"]), None, &Hooks::new(), false));
    assert_eq!((code, message), (400, format!("{prefix}spec.podName: no found Pod named web")));
    let (code, message) = denied(create(&raw(&["app", "app"]), Some(&pod()), &Hooks::new(), false));
    let text = "spec.containers[1].name: can not recreate app multi times";
    assert_eq!((code, message), (400, format!("{prefix}{text}")));
    let (code, message) = denied(create(&raw(&["nope"]), Some(&pod()), &Hooks::new(), false));
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
    assert_eq!(update(&old, &old, false), Response::Allow(Vec::new()));
    let mut new = old.clone();
    new.spec.ttl_seconds_after_finished = Some(1);
    for by_controller in [false, true] {
        let (code, message) = denied(update(&old, &new, by_controller));
        assert_eq!(code, 403);
        let text = " spec.ttlSecondsAfterFinished: spec of ContainerRecreateRequest is immutable";
        assert!(message.ends_with(text), "{message}");
    }
    for key in [labels::POD_UID, labels::NODE_NAME] {
        for value in [None, Some("other")] {
            let mut new = old.clone();
            new.more.labels.remove(key);
            new.more.labels.extend(value.map(|v| (key.to_owned(), v.to_owned())));
            for (a, b) in [(&old, &new), (&new, &old)] {
                let (code, message) = denied(update(a, b, false));
                assert_eq!(code, 403);
                let text = format!("metadata.labels[{key}]: not allowed to update immutable label {key}");
                assert!(message.ends_with(&text), "{message}");
                assert_eq!(update(a, b, true), Response::Allow(Vec::new()));
            }
        }
    }
    let mut new = old.clone();
    new.more.labels.insert("team".into(), "b".into());
    assert_eq!(update(&old, &new, false), Response::Allow(Vec::new()));
}

#[test]
fn active_stays_until_the_request_is_over() {
    let mut old = Scene::admitted(&["app"]).request;
    let mut new = old.clone();
    new.more.labels.remove(labels::ACTIVE);
    let (code, message) = denied(update(&old, &new, false));
    assert_eq!(code, 403);
    assert!(message.contains("metadata.labels[crr.apps.kruise.io/active]"), "{message}");
    assert_eq!(update(&old, &new, true), Response::Allow(Vec::new()));
    old.status.completion_time = Some(wall(Mono(0)));
    assert_eq!(update(&old, &new, false), Response::Allow(Vec::new()));
}

/// D29: the label is copied from the node, as `OpenKruise` does.
#[test]
fn d29_a_virtual_node_is_told_by_its_label() {
    let request = raw(&["app"]);
    let label = |patch: &[Value]| patched(&request, patch)["metadata"]["labels"]["type"].clone();
    let virtual_ = allowed(create(&request, Some(&pod()), &Hooks::new(), true));
    assert_eq!(label(&virtual_), "virtual-kubelet");
    let real = allowed(create(&request, Some(&pod()), &Hooks::new(), false));
    assert_eq!(label(&real), Value::Null);
}

#[test]
fn a_request_of_a_resize_is_for_that_very_pod() {
    let mut request = raw(&["app"]);
    request.more.labels.insert(labels::POD_UID.into(), "pod-0".into());
    allowed(create(&request, Some(&pod()), &Hooks::new(), false));
    request.owner = Some(Owner { kind: "PodResize".into(), name: "grow".into(), uid: "prs-1".into() });
    let (code, why) = denied(create(&request, Some(&pod()), &Hooks::new(), false));
    assert!(code == 400 && why.contains("made for the Pod with UID pod-0"), "{why}");
    request.more.labels.insert(labels::POD_UID.into(), "pod-1".into());
    allowed(create(&request, Some(&pod()), &Hooks::new(), false));
}
