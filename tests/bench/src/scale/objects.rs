//! The scenarios' objects, as in a real cluster.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use pitstop_api::labels::{self, hash};
use pitstop_api::recreate::{
    ContainerRecreateRequest, ContainerRecreateRequestSpec, FailurePolicy, Mechanism, RecreateContainer,
    RecreateStrategy, StatusContext,
};
use serde_json::{Value, json};

use super::bulk::overlay;
use super::load::wall;
use super::player::pod::{Container, IMAGE, Pod};

/// Name of a Pod's only container.
pub(crate) const APP: &str = "app";
/// Value of the label by which a `ReplicaSet` selects its Pods.
pub(crate) const HASH: &str = "6d4cf56db6";
/// Grace period of a Pod, in seconds.
pub(crate) const GRACE: i64 = 30;

/// A running Pod with one container that ends at SIGTERM.
pub(crate) fn running(namespace: &str, name: &str, node: &str) -> Pod {
    let uid = uid(&["Pod", namespace, name]);
    Pod {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        node: node.to_owned(),
        set: format!("{name}-{HASH}"),
        grace_seconds: GRACE,
        containers: vec![Container::new(&uid, APP, false, wall())],
        uid,
    }
}

/// The same Pod with containers that end only after their grace period.
pub(crate) fn stubborn(pod: Pod, containers: &[String], grace_seconds: i64) -> Pod {
    let container = |name: &String| Container::new(&pod.uid, name, true, wall());
    Pod { containers: containers.iter().map(container).collect(), grace_seconds, ..pod }
}

/// The object of a Deployment's Pod, without status.
pub(crate) fn object(pod: &Pod) -> Value {
    let names: Vec<&str> = pod.containers.iter().map(|container| container.name.as_str()).collect();
    let mut spec = spec(&names, pod.grace_seconds);
    overlay(&mut spec, json!({"nodeName": pod.node}));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "labels": pod_labels(HASH),
            "ownerReferences": [owner("ReplicaSet", &pod.namespace, &pod.set)],
        },
        "spec": spec,
    })
}

/// Labels of a Pod. Empty hash: labels of the Deployment's template.
pub(crate) fn pod_labels(hash: &str) -> Value {
    let mut labels = json!({"app.kubernetes.io/name": APP, "team": "scale"});
    if !hash.is_empty() {
        overlay(&mut labels, json!({"pod-template-hash": hash}));
    }
    labels
}

/// The owner reference of a controller.
pub(crate) fn owner(kind: &str, namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true, "uid": uid(&[kind, namespace, name])})
}

/// The Pod spec of a template.
pub(crate) fn spec(containers: &[&str], grace_seconds: i64) -> Value {
    let env: Vec<Value> = (0..8)
        .map(|i| json!({"name": format!("SETTING_{i}"), "value": format!("value-of-setting-{i}")}))
        .collect();
    let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5});
    let resources = json!({
        "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}});
    let container = |name: &&str| {
        json!({
            "name": name, "image": IMAGE, "resources": resources, "env": env, "readinessProbe": probe,
            "ports": [{"containerPort": 8080}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        })
    };
    // Many containers have a smaller spec.
    let small = |name: &&str| json!({"name": name, "image": IMAGE, "resources": resources});
    let all: Vec<Value> = if containers.len() <= 2 {
        containers.iter().map(container).collect()
    } else {
        containers.iter().map(small).collect()
    };
    json!({
        "automountServiceAccountToken": false, "enableServiceLinks": false,
        "terminationGracePeriodSeconds": grace_seconds, "containers": all,
        "volumes": [{"name": "data", "emptyDir": {}}],
    })
}

/// A UID, different for each name.
pub(crate) fn uid(of: &[&str]) -> String {
    let [a, b] = ["a", "b"].map(|part| hash(&format!("{}/{part}", of.join("/"))));
    let (low, lower) = (0xffff, 0xffff_ffff_ffff);
    format!("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", a >> 32, (a >> 16) & low, a & low, b >> 48, b & lower)
}

/// A request to restart all containers of a Pod through the runtime, with the admission webhook's defaults.
pub(crate) fn restart(name: &str, pod: &Pod) -> ContainerRecreateRequest {
    let containers = pod.containers.iter().map(|container| RecreateContainer {
        name: container.name.clone(),
        status_context: Some(StatusContext {
            container_id: format!("containerd://{}", container.id),
            restart_count: i32::try_from(container.restarts).unwrap_or(i32::MAX),
        }),
        ..RecreateContainer::default()
    });
    let spec = ContainerRecreateRequestSpec {
        pod_name: pod.name.clone(),
        containers: containers.collect(),
        strategy: Some(RecreateStrategy {
            failure_policy: Some(FailurePolicy::Fail),
            mechanism: Some(Mechanism::Runtime),
            // An earlier request's restart must not satisfy this request.
            force_recreate: true,
            termination_grace_period_seconds: Some(pod.grace_seconds),
            ..RecreateStrategy::default()
        }),
        ..ContainerRecreateRequestSpec::default()
    };
    let mut request = ContainerRecreateRequest::new(name, spec);
    request.metadata.namespace = Some(pod.namespace.clone());
    request.metadata.labels = Some(
        [
            (labels::ACTIVE.to_owned(), labels::ACTIVE_TRUE.to_owned()),
            (labels::POD_UID.to_owned(), pod.uid.clone()),
            (labels::NODE_NAME.to_owned(), labels::node_label(&pod.node)),
        ]
        .into(),
    );
    request
}

/// The request with `count` more labels.
pub(crate) fn with_labels(mut request: ContainerRecreateRequest, count: usize) -> ContainerRecreateRequest {
    let mut name = String::new();
    for i in 0..count {
        name.clear();
        // Writing to a String cannot fail.
        let _ = write!(name, "l{i}");
        request.metadata.labels.get_or_insert_default().insert(name.clone(), "x".to_owned());
    }
    request
}

/// A finished request that restarted the Pod's containers.
pub(crate) fn finished(name: &str, pod: &Pod, now: DateTime<Utc>) -> Value {
    let mut request = restart(name, pod);
    request.metadata.uid = Some(uid(&["ContainerRecreateRequest", &pod.namespace, name]));
    if let Some(labels) = &mut request.metadata.labels {
        labels.remove(labels::ACTIVE);
    }
    let mut object = json!(request);
    if let Some(object) = object.as_object_mut() {
        object.insert("status".into(), finished_status(pod, now));
    }
    object
}

fn finished_status(pod: &Pod, now: DateTime<Utc>) -> Value {
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": "all containers were restarted",
            "lastTransitionTime": now, "observedGeneration": 1})
    };
    let states =
        pod.containers.iter().map(|c| json!({"name": c.name, "phase": "Succeeded", "isKilled": true}));
    let targets = pod.containers.iter().map(|c| {
        json!({"name": c.name, "containerID": format!("containerd://{}", c.id), "restartCount": c.restarts})
    });
    json!({
        "phase": "Completed", "observedGeneration": 1, "completionTime": now,
        "containerRecreateStates": states.collect::<Vec<_>>(),
        "target": {"podUID": pod.uid, "nodeName": pod.node, "containers": targets.collect::<Vec<_>>(),
            "mechanism": "Runtime"},
        "conditions": [
            condition("Complete", "True", "Complete"), condition("Accepted", "True", "Accepted"),
            condition("Reconciling", "False", "Completed"),
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_all_containers_of_its_pod() {
        let names = ["a", "b"].map(str::to_owned);
        let pod = stubborn(running("shop", "web", "n"), &names, 30);
        let request = with_labels(restart("r", &pod), 5);
        assert_eq!(request.spec.containers.len(), 2);
        assert_eq!(request.metadata.labels.as_ref().unwrap().len(), 8);
        let over = finished("r", &pod, wall());
        assert_eq!(over["metadata"]["labels"].as_object().unwrap().len(), 2);
        assert_eq!(over["status"]["target"]["podUID"], pod.uid);
    }

    #[test]
    fn each_name_has_a_uid_of_its_own() {
        let uids = [uid(&["Pod", "a", "b"]), uid(&["Pod", "a", "c"]), uid(&["ReplicaSet", "a", "b"])];
        assert!(uids[0] != uids[1] && uids[0] != uids[2]);
        let lengths: Vec<_> = uids[0].split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
    }
}
