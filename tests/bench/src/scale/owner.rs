//! Simulates the controllers of a Deployment and of its `ReplicaSet`s. They update statuses, and create and delete no
//! Pods.

use std::time::Duration;

use anyhow::{Context as _, Result};
use http::Request;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Request as Builder;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::bulk::{DEPLOYMENTS, Kind, SETS, get};
use super::load::sent;
use super::workloads::Workload;

const PERIOD: Duration = Duration::from_millis(100);
const HASH: &str = "pod-template-hash";

/// The running simulation. Drop stops it.
pub(crate) struct Owner {
    _tasks: JoinSet<()>,
}

impl Owner {
    /// Starts the simulation.
    pub(crate) fn play(client: &Client, workload: &Workload) -> Self {
        let (client, workload) = (client.clone(), workload.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                // The next round repeats a failed write.
                let _ = sync(&client, &workload).await;
                tokio::time::sleep(PERIOD).await;
            }
        });
        Self { _tasks: tasks }
    }
}

async fn sync(client: &Client, workload: &Workload) -> Result<()> {
    let Workload { namespace, name, .. } = workload;
    let deployment: Value = get(client, &format!("{}/{name}", DEPLOYMENTS.path(namespace))).await?;
    let sets: Value = get(client, &SETS.path(namespace)).await?;
    let sets = sets.get("items").and_then(Value::as_array).context("no list")?;
    for set in sets {
        write_status(client, SETS, set, &[("replicas", number(set, "/spec/replicas"))]).await?;
    }
    let pods = number(&deployment, "/spec/replicas");
    let updated = if sets.iter().any(|set| has_new_template(&deployment, set)) { pods } else { 0 };
    let counts = [("replicas", pods), ("updatedReplicas", updated), ("availableReplicas", pods)];
    write_status(client, DEPLOYMENTS, &deployment, &counts).await
}

/// Whether a `ReplicaSet` with Pods has the Deployment's template, apart from its hash label.
fn has_new_template(deployment: &Value, set: &Value) -> bool {
    let (wanted, has) = (deployment.pointer("/spec/template"), set.pointer("/spec/template"));
    let (Some(wanted), Some(has)) = (wanted, has) else { return false };
    let mut has = has.clone();
    if let Some(labels) = has.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH);
    }
    number(set, "/spec/replicas") > 0 && has == *wanted
}

/// Writes a status if it differs. A missing field counts as zero, because the API server omits zeros.
async fn write_status(client: &Client, kind: Kind, object: &Value, counts: &[(&str, i64)]) -> Result<()> {
    let seen = number(object, "/metadata/generation");
    let is_written = |(field, count): &(&str, i64)| number(object, &format!("/status/{field}")) == *count;
    let all = [&[("observedGeneration", seen)], counts].concat();
    if all.iter().all(is_written) {
        return Ok(());
    }
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let status: Value = all.iter().map(|(field, count)| ((*field).to_owned(), json!(count))).collect();
    let patch = Patch::Merge(json!({"status": status}));
    let builder = Builder::new(kind.path(text("/metadata/namespace")));
    let request: Request<Vec<u8>> =
        builder.patch_subresource("status", text("/metadata/name"), &PatchParams::default(), &patch)?;
    sent(client, request).await.map(drop)
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_new_template_whatever_its_own_label_says() {
        let of = |image: &str, labels: Value, replicas: i64| {
            let template =
                json!({"metadata": {"labels": labels}, "spec": {"containers": [{"image": image}]}});
            json!({"spec": {"replicas": replicas, "template": template}})
        };
        let deployment = of("a:2", json!({"app": "web"}), 3);
        let labels = || json!({"app": "web", HASH: "x"});
        assert!(has_new_template(&deployment, &of("a:2", labels(), 3)));
        assert!(!has_new_template(&deployment, &of("a:1", labels(), 3)));
        assert!(!has_new_template(&deployment, &of("a:2", labels(), 0)), "it has no Pods");
    }
}
