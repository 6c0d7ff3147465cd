//! Pods and requests of a plan as API objects.

use http::Request;
use pitstop_controller_core::wire::HttpRequest;
use serde_json::{Map, Value, json};

use super::plan::{ContainerPlan, HookPlan, PodPlan, RequestPlan};
use crate::node::behaviour;

/// The namespace of all Pods and requests.
pub const NAMESPACE: &str = "shop";
/// Path of restart requests.
pub const REQUESTS: &str = "/apis/apps.kruise.io/v1alpha1/namespaces/shop/containerrecreaterequests";
/// Command of every exec hook.
pub const HOOK: &str = "/bye";

/// The creation of a Pod, bound to its node.
pub fn create_pod(pod: &Value) -> HttpRequest {
    let request = Request::post(format!("/api/v1/namespaces/{NAMESPACE}/pods"))
        .header(http::header::CONTENT_TYPE, "application/json");
    request.body(serde_json::to_vec(pod).unwrap()).unwrap()
}

/// A Pod of that name.
pub fn pod(plan: &PodPlan, name: &str) -> Value {
    let of = |sidecar: bool| -> Vec<Value> {
        plan.containers.iter().filter(|c| c.sidecar == sidecar).map(container).collect()
    };
    let annotations: Map<String, Value> = plan
        .containers
        .iter()
        .map(|c| (format!("{}{}", behaviour::PREFIX, c.name), c.behaviour.clone().into()))
        .collect();
    let gates: Vec<Value> = plan.gates.iter().map(|g| json!({"conditionType": g})).collect();
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "nodeName": format!("node{}", plan.node), "restartPolicy": plan.restart_policy,
            "terminationGracePeriodSeconds": plan.grace, "containers": of(false), "readinessGates": gates,
        },
    });
    let sidecars = of(true);
    if !sidecars.is_empty() {
        pod["spec"]["initContainers"] = Value::Array(sidecars);
    }
    pod
}

fn container(plan: &ContainerPlan) -> Value {
    let mut container = json!({"name": plan.name, "image": format!("registry.example/{}:1", plan.name)});
    if plan.sidecar {
        container["restartPolicy"] = json!("Always");
    }
    if let Some(restarts) = &plan.restarts {
        container["restartPolicy"] = json!(restarts.policy);
        if !restarts.codes.is_empty() {
            let codes = json!({"operator": "In", "values": restarts.codes});
            container["restartPolicyRules"] = json!([{"action": "Restart", "exitCodes": codes}]);
        }
    }
    plan.size.put(&mut container);
    if let Some(policy) = &plan.pulls {
        container["imagePullPolicy"] = json!(policy);
    }
    match plan.hook {
        Some(HookPlan::Exec) => container["lifecycle"] = json!({"preStop": {"exec": {"command": [HOOK]}}}),
        Some(HookPlan::Sleep(seconds)) => {
            container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": seconds}}});
        }
        None => {}
    }
    container
}

/// The creation of a request.
pub fn create(plan: &RequestPlan) -> HttpRequest {
    let mut strategy = Map::new();
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            strategy.insert(key.to_owned(), value);
        }
    };
    set("mechanism", plan.mechanism.as_deref().map(Into::into));
    set("failurePolicy", plan.failure_policy.as_deref().map(Into::into));
    set("orderedRecreate", plan.ordered.then_some(Value::Bool(true)));
    set("forceRecreate", plan.force.then_some(Value::Bool(true)));
    set("terminationGracePeriodSeconds", plan.grace.map(Into::into));
    set("unreadyGracePeriodSeconds", plan.unready_grace.map(Into::into));
    set("minStartedSeconds", (plan.min_started > 0).then(|| plan.min_started.into()));
    let containers: Vec<Value> = plan.containers.iter().map(|name| json!({"name": name})).collect();
    let mut spec = json!({"podName": plan.pod, "containers": containers});
    if !strategy.is_empty() {
        spec["strategy"] = Value::Object(strategy);
    }
    if let Some(deadline) = plan.deadline {
        spec["activeDeadlineSeconds"] = deadline.into();
    }
    if let Some(ttl) = plan.ttl {
        spec["ttlSecondsAfterFinished"] = ttl.into();
    }
    let mut body = json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest",
        "metadata": {"name": plan.name, "namespace": NAMESPACE}, "spec": spec});
    if plan.kept {
        body["metadata"]["finalizers"] = json!(["example.com/keep"]);
    }
    let mut request = Request::post(REQUESTS).header(http::header::CONTENT_TYPE, "application/json");
    if plan.unasked {
        request = request.header(super::webhook::UNASKED, "1");
    }
    request.body(serde_json::to_vec(&body).unwrap()).unwrap()
}

/// A deletion with `grace` seconds (None: the Pod's own grace period), of `uid` only if given.
pub fn delete(path: &str, grace: Option<i64>, uid: Option<&str>) -> HttpRequest {
    let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    if let Some(grace) = grace {
        body["gracePeriodSeconds"] = grace.into();
    }
    if let Some(uid) = uid {
        body["preconditions"] = json!({"uid": uid});
    }
    let request = Request::delete(path).header(http::header::CONTENT_TYPE, "application/json");
    request.body(serde_json::to_vec(&body).unwrap()).unwrap()
}

/// The path of a Pod.
pub fn pod_path(name: &str) -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}")
}

/// Takes a request's finalizers off.
pub fn free(name: &str) -> HttpRequest {
    let request = Request::patch(format!("{REQUESTS}/{name}"))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json");
    request.body(br#"{"metadata":{"finalizers":null}}"#.to_vec()).unwrap()
}
