//! Updates of all Pods to one new image, in three ways.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use pitstop_api::rollout::{InPlaceRollout, UpdateEnd};
use pitstop_cri::{ContainerId, split_reference};
use pitstop_e2e::images::REPOSITORY;
use pitstop_e2e::{Cluster as Lab, workloads};
use serde_json::{Value, json};

use crate::harness::audit::Mark;
use crate::harness::figures::counted;
use crate::harness::pods::{CONTAINER, Ns, ready_container, replaced};
use crate::harness::programs::NAMESPACE;
use crate::harness::tape::Tape;
use crate::harness::writes::Writes;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(15);
/// Pause between two ways, so that the clean-up of one does not disturb the next. Once a minute a kubelet removes
/// containers and sandboxes of deleted Pods (`ContainerGCPeriod` of `pkg/kubelet`, Kubernetes 1.36). For 100 Pods this
/// takes some 3 s of processor time.
const PAUSE: Duration = Duration::from_secs(75);
/// Tags of the images, in turns. No Pod gets an image that it had before: the kubelet would wait.
pub(super) const TAGS: [&str; 4] = ["1", "2", "big", "away"];
const SCRIPT: &str = "trap 'exit 0' TERM; sleep 86400 & wait";
/// The same script with an open port.
const SERVES: &str = "trap 'exit 0' TERM; httpd -f -p 8080 & wait";

/// Parameters of the benchmark.
pub(super) struct Bench<'a> {
    pub(super) ns: &'a Ns,
    pub(super) lab: &'a Lab,
    pub(super) audit_log: PathBuf,
    pub(super) pods: usize,
    pub(super) at_a_time: usize,
    /// Seconds after which the first probe can succeed; 0: no probe.
    pub(super) ready_after: u32,
}

/// Measurement of one way.
pub(super) struct Rolled {
    /// Seconds from just before the change was sent to its end.
    pub(super) whole: f64,
    /// Average seconds for which a Pod was out of service.
    pub(super) gap: f64,
    /// Number of created Pods.
    pub(super) made: usize,
    /// pitstop's writes.
    pub(super) writes: Writes,
}

fn image(tag: &str) -> String {
    format!("{REPOSITORY}:{tag}")
}

/// Fields of the workload's container, without name and image.
fn container(ready_after: u32) -> Value {
    if ready_after == 0 {
        return json!({"command": ["sh", "-c", SCRIPT]});
    }
    json!({"command": ["sh", "-c", SERVES],
        "readinessProbe": {"tcpSocket": {"port": 8080}, "initialDelaySeconds": ready_after, "periodSeconds": 1}})
}

/// A workload whose Pods have one such container per tag.
fn workload<K: serde::de::DeserializeOwned>(
    name: &str,
    spec: &Value,
    tags: &[&str],
    container: &Value,
) -> Result<K> {
    let containers = tags.iter().enumerate().map(|(i, tag)| {
        let name = if i == 0 { CONTAINER.to_owned() } else { format!("{CONTAINER}-{i}") };
        workloads::merged(json!({"name": name, "image": image(tag)}), container)
    });
    let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": containers.collect::<Vec<_>>(),
        "terminationGracePeriodSeconds": 5, "enableServiceLinks": false, "automountServiceAccountToken": false}});
    let own = json!({"selector": {"matchLabels": {"app": name}}, "template": template});
    Ok(serde_json::from_value(json!({"metadata": {"name": name}, "spec": workloads::merged(own, spec)}))?)
}

impl Bench<'_> {
    /// Makes all nodes pull the images, and starts the Deployment with its rollout.
    pub(super) async fn start(&self) -> Result<()> {
        let sets: Api<DaemonSet> = self.ns.api();
        sets.create(&PostParams::default(), &workload("pull", &json!({}), &TAGS, &container(0))?).await?;
        let mut tape = Tape::start(sets.clone()).await?;
        let pulled = |set: &DaemonSet| {
            let status = set.status.as_ref()?;
            let all =
                status.desired_number_scheduled > 0 && status.number_ready == status.desired_number_scheduled;
            all.then_some(())
        };
        tape.find(Instant::now(), PATIENCE, "all nodes to have the images", pulled).await?;
        sets.delete("pull", &DeleteParams::default()).await?;

        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": self.at_a_time}});
        let spec = json!({"replicas": self.pods, "strategy": strategy});
        let deployments: Api<Deployment> = self.ns.api();
        let mut tape = Tape::start(deployments.clone()).await?;
        let begin = Instant::now();
        let (first, _) = TAGS.split_at(1);
        deployments
            .create(&PostParams::default(), &workload("web", &spec, first, &container(self.ready_after))?)
            .await?;
        self.complete(&mut tape, begin, 1).await?;
        let account = "--serviceaccount=pitstop-system:pitstop-controller";
        let role = "--clusterrole=pitstop-in-place";
        let namespace = format!("--namespace={}", self.ns.namespace);
        self.lab.kubectl(&["create", "rolebinding", "pitstop-in-place", &namespace, role, account])?;
        let more = json!({"templateChanges": "InPlace", "strategy": {"soakSeconds": 0}});
        let rollouts: Api<InPlaceRollout> = self.ns.api();
        let rollout = serde_json::from_value(workloads::rollout("Deployment", &more))?;
        rollouts.create(&PostParams::default(), &rollout).await?;
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    /// Time when the Deployment's status showed all Pods updated and available.
    async fn complete(
        &self,
        tape: &mut Tape<Deployment>,
        since: Instant,
        generation: i64,
    ) -> Result<Instant> {
        let pods = i32::try_from(self.pods)?;
        let complete = |deployment: &Deployment| {
            let status = deployment.status.as_ref()?;
            let all = [status.replicas, status.updated_replicas, status.available_replicas];
            let seen = status.observed_generation.is_some_and(|seen| seen >= generation);
            (seen && all.iter().all(|count| *count == Some(pods))).then_some(())
        };
        Ok(tape.find(since, PATIENCE, "all Pods to be available", complete).await?.0)
    }

    /// Updates to the image with that tag by the rolling update.
    pub(super) async fn natively(&self, tag: &str) -> Result<Rolled> {
        let deployments: Api<Deployment> = self.ns.api();
        let mut tape = Tape::start(deployments.clone()).await?;
        self.rolled(async |start, _| {
            let container = json!({"name": CONTAINER, "image": image(tag)});
            let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
            let changed = deployments.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await?;
            self.complete(&mut tape, start, changed.metadata.generation.unwrap_or_default()).await
        })
        .await
    }

    /// Updates to the image with that tag by a script, which patches the next Pod when one is ready again.
    pub(super) async fn by_script(&self, tag: &str) -> Result<Rolled> {
        let api: Api<Pod> = self.ns.api();
        let mut left = Vec::new();
        for pod in api.list(&ListParams::default().labels("app=web")).await? {
            let status = ready_container(&pod).context("the container is not ready")?;
            let (_, container) = split_reference(status.container_id.as_deref().unwrap_or_default())?;
            left.push((pod.name_any(), container));
        }
        let container = json!({"name": CONTAINER, "image": image(tag)});
        let patch = json!({"spec": {"containers": [container]}});
        self.rolled(async |start, tape| {
            let (mut open, mut last): (BTreeMap<String, ContainerId>, _) = (BTreeMap::new(), start);
            loop {
                while open.len() < self.at_a_time
                    && let Some((pod, container)) = left.pop()
                {
                    api.patch(&pod, &PatchParams::default(), &Patch::Strategic(&patch)).await?;
                    open.insert(pod, container);
                }
                if open.is_empty() {
                    return Ok(last);
                }
                let ready = |seen: &Pod| {
                    let name = seen.name_any();
                    open.get(&name).is_some_and(|old| replaced(seen, &name, old)).then_some(name)
                };
                let (at, name) = tape.find(last, PATIENCE, "a new container to be ready", ready).await?;
                open.remove(&name);
                last = at;
            }
        })
        .await
    }

    /// Updates to the image with that tag by the rollout. One write parks and changes the workload.
    pub(super) async fn by_rollout(&self, tag: &str) -> Result<Rolled> {
        let (deployments, rollouts): (Api<Deployment>, Api<InPlaceRollout>) = (self.ns.api(), self.ns.api());
        let before =
            rollouts.get("web").await?.status.and_then(|status| status.update).map(|it| it.generation);
        let mut tape = Tape::start(rollouts).await?;
        self.rolled(async |start, _| {
            let (was, spec) = workloads::park("Deployment");
            let container = json!({"name": CONTAINER, "image": image(tag)});
            let spec = workloads::merged(spec, &json!({"template": {"spec": {"containers": [container]}}}));
            let patch = json!({"metadata": {"labels": {pitstop_api::rollout::PARKED: was}}, "spec": spec});
            deployments.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await?;
            let over = |rollout: &InPlaceRollout| {
                let update = rollout.status.as_ref()?.update.as_ref()?;
                (update.ended == Some(UpdateEnd::Updated) && Some(update.generation) > before).then_some(())
            };
            Ok(tape.find(start, PATIENCE, "the rollout to end", over).await?.0)
        })
        .await
    }

    /// Measures an update: `change` starts it and returns its end time.
    async fn rolled(
        &self,
        change: impl AsyncFnOnce(Instant, &mut Tape<Pod>) -> Result<Instant>,
    ) -> Result<Rolled> {
        let api: Api<Pod> = self.ns.api();
        let before = api.list_metadata(&ListParams::default().labels("app=web")).await?;
        let before: BTreeSet<_> = before.iter().filter_map(ResourceExt::uid).collect();
        let mut tape = Tape::start(api).await?;
        let mark = Mark::end_of(&self.audit_log)?;
        let start = Instant::now();
        let end = change(start, &mut tape).await?;
        tokio::time::sleep(PAUSE).await;
        let entries = mark.read()?;
        // Renewals of the lease do not depend on rollouts.
        let of_roll = entries.iter().filter(|e| !e.dry_run() && e.object_ref.resource != "leases");
        let (mut service, mut made, mut out) = (BTreeMap::new(), BTreeSet::new(), 0.0);
        let mut last = start;
        for seen in tape.seen()? {
            let pod = &seen.object;
            let lacks = self.pods.saturating_sub(service.values().filter(|serves| **serves).count());
            if seen.time > start {
                out += counted(lacks) * seen.time.min(end).saturating_duration_since(last).as_secs_f64();
                last = seen.time;
            }
            made.extend(pod.uid().filter(|uid| !before.contains(uid)));
            let serves = ready_container(pod).is_some() && pod.metadata.deletion_timestamp.is_none();
            service.insert(pod.name_any(), serves && pod.labels().get("app").is_some_and(|app| app == "web"));
        }
        let writes = Writes::count(of_roll, NAMESPACE);
        let whole = (end - start).as_secs_f64();
        Ok(Rolled { whole, gap: out / counted(self.pods), made: made.len(), writes })
    }
}
