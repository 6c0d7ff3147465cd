//! Deployments with their `ReplicaSet`s, and rollouts.

use anyhow::Result;
use kube::Client;
use serde_json::{Value, json};

use super::bulk::{self, DEPLOYMENTS, Kind, ROLLOUTS, SETS, overlay};
use super::load::create;
use super::objects::{APP, GRACE, HASH, owner, pod_labels, spec, uid};

/// A Deployment.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Wanted number of Pods.
    pub(crate) replicas: usize,
}

/// Name of a Deployment's `ReplicaSet` with Pods.
pub(crate) fn set_name(deployment: &str) -> String {
    format!("{deployment}-{HASH}")
}

/// Creates complete Deployments, each with `sets` `ReplicaSet`s. The last has the Pods.
pub(crate) async fn deployments(client: &Client, of: Vec<Workload>, sets: usize) -> Result<()> {
    let each = |workload: &Workload| (0..sets).map(|i| (workload.clone(), sets - 1 - i)).collect::<Vec<_>>();
    let sets = of.iter().flat_map(each).collect();
    write(client, DEPLOYMENTS, of, |workload| &workload.namespace, deployment).await?;
    write(client, SETS, sets, |(workload, _)| &workload.namespace, set).await
}

/// Creates unarmed rollouts, each for its own Deployment, in these namespaces in turn.
pub(crate) async fn unarmed(
    client: &Client,
    namespaces: &[String],
    prefix: &str,
    count: usize,
) -> Result<()> {
    let named = namespaces.iter().cycle().take(count).enumerate();
    let named = named.map(|(i, namespace)| (namespace.clone(), format!("{prefix}-{i:05}"))).collect();
    let unarmed = |(namespace, name): &(String, String)| rollout(namespace, name, name, &json!({}));
    write(client, ROLLOUTS, named, |(namespace, _)| namespace, unarmed).await
}

/// Creates a rollout with the label of an armed one.
pub(crate) async fn armed(client: &Client, of: &Workload) -> Result<()> {
    let armed = |of: &Workload| {
        let labels = json!({"metadata": {"labels": {pitstop_api::rollout::ARMED: "true"}}});
        rollout(&of.namespace, &of.name, &of.name, &labels)
    };
    write(client, ROLLOUTS, vec![of.clone()], |of| &of.namespace, armed).await
}

/// Creates the first object through the API, the others in bulk.
async fn write<T: Send + 'static>(
    client: &Client,
    kind: Kind,
    of: Vec<T>,
    namespace: impl Fn(&T) -> &String,
    object: impl Fn(&T) -> Value + Send + 'static,
) -> Result<()> {
    let Some(first) = of.first() else { return Ok(()) };
    create(client, kind.path(namespace(first)), &object(first)).await?;
    bulk::write(client, kind, of, object).await
}

fn template(hash: &str) -> Value {
    json!({"metadata": {"labels": pod_labels(hash)}, "spec": spec(&[APP], GRACE)})
}

fn deployment(of: &Workload) -> Value {
    let Workload { namespace, name, replicas } = of;
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "uid": uid(&["Deployment", namespace, name])},
        "spec": {
            "replicas": replicas, "template": template(""),
            "selector": {"matchLabels": {"app.kubernetes.io/name": APP}},
        },
        "status": {
            "observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": replicas, "availableReplicas": replicas,
        },
    })
}

/// The `ReplicaSet` of `ago` revisions ago. Only the newest has Pods.
fn set((of, ago): &(Workload, usize)) -> Value {
    let Workload { namespace, name, replicas } = of;
    let newest = *ago == 0;
    let hash = if newest { HASH.to_owned() } else { format!("before{ago}") };
    let own = if newest { set_name(name) } else { format!("{name}-{hash}") };
    let replicas = if newest { *replicas } else { 0 };
    let labels = pod_labels(&hash);
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": own, "namespace": namespace, "uid": uid(&["ReplicaSet", namespace, &own]), "labels": labels,
            "ownerReferences": [owner("Deployment", namespace, name)],
        },
        "spec": {
            "replicas": replicas, "template": template(&hash),
            "selector": {"matchLabels": {"app.kubernetes.io/name": APP, "pod-template-hash": hash}},
        },
        "status": {"observedGeneration": 1, "replicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas},
    })
}

/// A rollout that changes a Deployment's Pods in place, merged with `more`.
pub(crate) fn rollout(namespace: &str, name: &str, deployment: &str, more: &Value) -> Value {
    let mut rollout = json!({
        "apiVersion": "pitstop.dev/v1alpha1", "kind": "InPlaceRollout",
        "metadata": {"name": name, "namespace": namespace, "uid": uid(&["InPlaceRollout", namespace, name])},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
            "templateChanges": "InPlace",
        },
    });
    overlay(&mut rollout, more.clone());
    rollout
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_set_of_a_deployment_has_its_pods_and_its_template() {
        let of = Workload { namespace: "shop".into(), name: "web".into(), replicas: 3 };
        let (deployment, [newest, before]) = (deployment(&of), [0, 1].map(|ago| set(&(of.clone(), ago))));
        assert_eq!(newest["metadata"]["name"], set_name("web"));
        assert_eq!(newest["metadata"]["ownerReferences"][0]["uid"], deployment["metadata"]["uid"]);
        assert_eq!((&newest["spec"]["replicas"], &before["spec"]["replicas"]), (&json!(3), &json!(0)));
        assert_ne!(newest["metadata"]["uid"], before["metadata"]["uid"]);
        let mut template = newest["spec"]["template"].clone();
        template["metadata"]["labels"].as_object_mut().unwrap().remove("pod-template-hash");
        assert_eq!(template, deployment["spec"]["template"]);
    }
}
