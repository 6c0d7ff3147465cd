//! The controller's reaction to a request and its Pod.

use pitstop_api::id::split_reference;
use pitstop_api::recreate::{ContainerRecreateRequest, ContainerRecreateRequestSpec, validate};
use pitstop_controller_core::kind::Kind as _;
use pitstop_controller_core::pod::Pod;
use pitstop_controller_core::recreate::{Moment, Request, resolve};
use pitstop_controller_core::wire::observe;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::{read, refusals, texts};

/// Input: a `ContainerRecreateRequest` as JSON, then its Pod; empty: a Pod with every container of the request.
pub fn recreate_request(input: &[u8]) {
    let Some([text, pod]) = texts(input) else { return };
    let Some(mut object) = read::<ContainerRecreateRequest>(text) else { return };
    // A user cannot write the status.
    object.status = None;
    let stored = json!({"spec": object.spec});
    let bounded = refusals("ContainerRecreateRequest", &stored).is_empty();
    let mut request = Request::observe(object);
    let pod = if pod.is_empty() { Ok(usual(&request.spec)) } else { serde_json::from_str(pod) };
    let Ok(slim) = pod.and_then(serde_json::from_value::<observe::SlimPod>) else { return };
    let mut pod = observe::pod(slim);
    judged(&request, &pod);
    // The API server itself sets or checks these fields.
    "shop".clone_into(&mut request.key.namespace);
    "crr".clone_into(&mut request.key.name);
    "uid-1".clone_into(&mut request.uid);
    (request.deleting, request.generation) = (false, Some(1));
    (pod.key, pod.uid) = (request.pod_key(), "pod-1".to_owned());
    let named = |name: &String| name.len() <= 253 && name.bytes().all(|b| b.is_ascii_lowercase());
    if !bounded || pod.node.as_ref().is_some_and(|node| !named(node)) {
        return;
    }
    let endless = request.spec.active_deadline_seconds.is_some_and(|seconds| seconds > 3_600);
    let kept = request.spec.ttl_seconds_after_finished.is_none();
    let mut cluster = Cluster::new(pod, request);
    cluster.settle();
    assert!(endless || cluster.requests().all(Request::completed), "a request that does not end");
    assert_eq!(
        cluster.requests().next().is_none(),
        !kept,
        "a request is deleted when it asks for that, and then only"
    );
}

/// Asserts that a refusal names the field, and that an accepted request is within the bounds.
fn judged(request: &Request, pod: &Pod) {
    let refused = match validate(&request.spec) {
        Ok(()) => resolve(&request.spec, pod, Moment::Accepted),
        Err(invalid) => Err(invalid),
    };
    match refused {
        Err(invalid) => {
            assert!(invalid.field.starts_with("spec."), "{invalid} names no field");
            assert!(!invalid.message.is_empty());
        }
        Ok(target) => {
            let names = |containers: &[&str]| containers.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
            let asked: Vec<&str> = request.spec.containers.iter().map(|c| c.name.as_str()).collect();
            let found: Vec<&str> = target.containers.iter().map(|c| c.name.as_str()).collect();
            assert_eq!(names(&asked), names(&found), "other containers than those that were named");
            assert!((1..=64).contains(&found.len()));
            for container in &target.containers {
                assert!(split_reference(&container.container_id).is_ok(), "{container:?}");
            }
        }
    }
}

/// A Pod that runs every container of a request.
fn usual(spec: &ContainerRecreateRequestSpec) -> Value {
    let names = || spec.containers.iter().map(|c| c.name.as_str()).enumerate();
    let containers: Vec<Value> =
        names().map(|(_, name)| json!({"name": name, "image": "registry.example/app:1"})).collect();
    let statuses: Vec<Value> = names()
        .map(|(n, name)| {
            json!({"name": name, "containerID": format!("containerd://{n:064x}"), "ready": true,
                "imageID": format!("registry.example/app@sha256:{n:064x}"), "state": {"running": {}}})
        })
        .collect();
    json!({
        "metadata": {"name": spec.pod_name, "namespace": "shop", "uid": "pod-1"},
        "spec": {"nodeName": "node", "containers": containers, "terminationGracePeriodSeconds": 30,
            "readinessGates": [{"conditionType": "KruisePodReady"}]},
        "status": {"phase": "Running", "containerStatuses": statuses},
    })
}
