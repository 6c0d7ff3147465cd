//! The objects that the scenarios are made of, as a cluster has them.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use pitstop_api::labels;
use pitstop_api::recreate::{
    ContainerRecreateRequest, ContainerRecreateRequestSpec, FailurePolicy, Mechanism, RecreateContainer,
    RecreateStrategy, StatusContext,
};
use serde_json::{Value, json};

use super::player::pod::{IMAGE, Pod};

/// The container of a Pod that has one.
pub(crate) const APP: &str = "app";

/// A Pod before it is made.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) node: String,
    /// Names of its containers.
    pub(crate) containers: Vec<String>,
    /// They end only when their grace is over.
    pub(crate) ignores_term: bool,
    pub(crate) grace_seconds: i64,
}

impl Plan {
    /// With one container that ends at SIGTERM.
    pub(crate) fn one(namespace: &str, name: &str, node: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            node: node.to_owned(),
            containers: vec![APP.to_owned()],
            ignores_term: false,
            grace_seconds: 30,
        }
    }

    /// The Pod as a Deployment's would look.
    pub(crate) fn object(&self) -> Value {
        let env: Vec<Value> = (0..8)
            .map(|i| json!({"name": format!("SETTING_{i}"), "value": format!("value-of-setting-{i}")}))
            .collect();
        let probe = json!({"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5});
        let resources = json!({
            "requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}});
        let container = |name: &String| {
            json!({
                "name": name, "image": IMAGE, "resources": resources, "env": env, "readinessProbe": probe,
                "ports": [{"containerPort": 8080}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            })
        };
        // Of many containers a smaller text will do.
        let small = |name: &String| json!({"name": name, "image": IMAGE, "resources": resources});
        let few = self.containers.len() <= 2;
        let containers: Vec<Value> =
            self.containers.iter().map(|name| if few { container(name) } else { small(name) }).collect();
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": self.name, "namespace": self.namespace,
                "labels": {"app.kubernetes.io/name": "app", "pod-template-hash": "6d4cf56db6", "team": "scale"},
                "ownerReferences": [{
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-6d4cf56db6", "controller": true,
                    "uid": "0b8fd7c5-6c53-4f4e-9d1d-6b9d7b1c2a10",
                }],
            },
            "spec": {
                "nodeName": self.node, "automountServiceAccountToken": false, "enableServiceLinks": false,
                "terminationGracePeriodSeconds": self.grace_seconds, "containers": containers,
                "volumes": [{"name": "data", "emptyDir": {}}],
            },
        })
    }
}

/// A request to restart all containers of a Pod through the runtime, with what the admission webhook fills in.
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
            // A container that was restarted for the request before is restarted for this one, too.
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

/// The same with so many labels more.
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

/// The same as it is long after its end.
pub(crate) fn finished(mut request: ContainerRecreateRequest) -> ContainerRecreateRequest {
    if let Some(labels) = &mut request.metadata.labels {
        labels.remove(labels::ACTIVE);
    }
    request
}

/// The status of a request that restarted the Pod's containers.
pub(crate) fn finished_status(pod: &Pod, now: DateTime<Utc>) -> Value {
    let condition = |type_: &str, status: &str, reason: &str| {
        json!({"type": type_, "status": status, "reason": reason, "message": "all containers were restarted",
            "lastTransitionTime": now, "observedGeneration": 1})
    };
    let states =
        pod.containers.iter().map(|c| json!({"name": c.name, "phase": "Succeeded", "isKilled": true}));
    let targets = pod.containers.iter().map(|c| {
        json!({"name": c.name, "containerID": format!("containerd://{}", c.id), "restartCount": c.restarts})
    });
    json!({"status": {
        "phase": "Completed", "observedGeneration": 1, "completionTime": now,
        "containerRecreateStates": states.collect::<Vec<_>>(),
        "target": {"podUID": pod.uid, "nodeName": pod.node, "containers": targets.collect::<Vec<_>>(),
            "mechanism": "Runtime"},
        "conditions": [
            condition("Complete", "True", "Complete"), condition("Accepted", "True", "Accepted"),
            condition("Reconciling", "False", "Completed"),
        ],
    }})
}

#[cfg(test)]
mod tests {
    use super::super::player::pod::Container;
    use super::*;

    #[test]
    fn a_request_names_all_containers_of_its_pod() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let pod = Pod {
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u".into(),
            node: "n".into(),
            grace_seconds: 30,
            containers: ["a", "b"].map(|name| Container::new("u", name, false, now)).into(),
        };
        let request = with_labels(restart("r", &pod), 5);
        assert_eq!(request.spec.containers.len(), 2);
        assert_eq!(request.metadata.labels.as_ref().unwrap().len(), 8);
        assert!(!finished(request).metadata.labels.unwrap().contains_key(labels::ACTIVE));
        assert_eq!(finished_status(&pod, now)["status"]["target"]["podUID"], "u");
    }
}
