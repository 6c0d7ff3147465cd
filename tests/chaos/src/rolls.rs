//! Workloads whose template changes again and again while parts are killed: their running Pods get it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::{join_all, try_join_all};
use k8s_openapi::api::apps::v1 as apps;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::rollout::{PARKED, UpdateEnd};
use pitstop_e2e::images::{self, REPOSITORY};
use pitstop_e2e::workloads::{all, create, get, merged, park, ready, rollout, servers};
use pitstop_e2e::{Cluster, Ns, pods};
use pitstop_sim::rng::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::calm::BOUND;
use crate::judge::Breach;

/// Those that are changed.
const KINDS: [&str; 2] = ["Deployment", "StatefulSet"];
/// Pods of each.
const PODS: u32 = 3;
/// Images that do well.
const TAGS: [&str; 4] = ["1", "2", "away", "big"];
/// Between two tries, and between two looks.
const PERIOD: Duration = Duration::from_millis(500);
/// For one call.
const ANSWER: Duration = Duration::from_secs(10);

/// All of them.
pub(crate) async fn start() -> Result<Vec<Roll>> {
    try_join_all(KINDS.map(Roll::start)).await
}

/// What is wrong with them once that was changed, each.
pub(crate) async fn judge(rolls: &[Roll], changed: &[Changes]) -> Vec<Breach> {
    let wrong = rolls.iter().zip(changed).map(|(roll, changed)| roll.judge(changed, BOUND));
    join_all(wrong).await.into_iter().flatten().collect()
}

/// One of them, in a namespace of its own.
pub(crate) struct Roll {
    ns: Ns,
    kind: &'static str,
    before: BTreeMap<String, Pod>,
}

/// What was changed: how often, and to which image at last.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    times: usize,
    last: Option<(&'static str, i64)>,
}

impl Changes {
    pub(crate) fn times(&self) -> usize {
        self.times
    }
}

impl Roll {
    /// Makes the workload and its rollout, and waits for the Pods.
    async fn start(kind: &'static str) -> Result<Self> {
        let ns = Ns::open(Cluster::connect().await?).await?;
        images::opt_in(&ns.cluster, &ns.name)?;
        let account = "--serviceaccount=pitstop-system:pitstop-controller";
        ns.kubectl(&[
            "create",
            "rolebinding",
            "pitstop-in-place",
            "--clusterrole=pitstop-in-place",
            account,
        ])?;
        create(&ns, &servers(kind, PODS))?;
        // One that was hit by a kill is put back; the others go on.
        let strategy = json!({"soakSeconds": 0, "failureThreshold": 1000});
        create(&ns, &rollout(kind, &json!({"templateChanges": "InPlace", "strategy": strategy})))?;
        let before = ready(&ns, usize::try_from(PODS)?).await?;
        Ok(Self { ns, kind, before })
    }

    fn api(&self) -> Api<DynamicObject> {
        let kind = match self.kind {
            "Deployment" => ApiResource::erase::<apps::Deployment>(&()),
            _ => ApiResource::erase::<apps::StatefulSet>(&()),
        };
        Api::namespaced_with(self.ns.cluster.client.clone(), &self.ns.name, &kind)
    }

    /// Changes the image now and then until the time is over, whether the last change is carried out or not.
    pub(crate) async fn change(&self, seed: u64, start: Instant, length: Duration) -> Changes {
        let (mut rng, mut changed, mut at) = (Rng::new(seed), Changes::default(), Duration::ZERO);
        loop {
            at += Duration::from_millis(6_000 + rng.below(12_000));
            if at >= length {
                return changed;
            }
            sleep_until(start + at).await;
            let other = rng.pick(&TAGS).filter(|tag| changed.last.is_none_or(|(last, _)| last != *tag));
            let Some(tag) = other else { continue };
            // Who asks again after an answer that was lost changes nothing.
            while start.elapsed() < length {
                if let Ok(Ok(generation)) = timeout(ANSWER, self.try_to_change(tag)).await {
                    changed = Changes { times: changed.times + 1, last: Some((tag, generation)) };
                    break;
                }
                sleep(PERIOD).await;
            }
        }
    }

    async fn try_to_change(&self, tag: &str) -> kube::Result<i64> {
        let (was, spec) = park(self.kind);
        let image = json!({"name": "app", "image": format!("{REPOSITORY}:{tag}")});
        let spec = merged(spec, &json!({"template": {"spec": {"containers": [image]}}}));
        let patch = json!({"metadata": {"labels": {PARKED: was}}, "spec": spec});
        let params = PatchParams::default();
        let changed = self.api().patch("web", &params, &Patch::Strategic(patch)).await?;
        Ok(changed.metadata.generation.unwrap_or_default())
    }

    /// What is wrong once that was changed and the kills are over; nothing is waited for any more after the bound.
    async fn judge(&self, changed: &Changes, bound: Duration) -> Vec<Breach> {
        let start = Instant::now();
        loop {
            let wrong = match timeout(ANSWER, self.wrong(changed)).await {
                Ok(Ok(())) => return Vec::new(),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "the cluster does not answer".to_owned(),
            };
            if start.elapsed() >= bound {
                let text = format!("{} web after {} changes: {wrong}", self.kind, changed.times);
                return vec![Breach { pod: None, request: None, text }];
            }
            sleep(PERIOD).await;
        }
    }

    /// Fails with what is not as it has to be in the end.
    async fn wrong(&self, changed: &Changes) -> Result<()> {
        let (tag, generation) = changed.last.context("it was never changed")?;
        self.try_failed_ones_again().await?;
        let status = get(&self.ns).await?.status.unwrap_or_default();
        let update = status.update.as_ref();
        let over = update.is_some_and(|u| u.ended == Some(UpdateEnd::Updated) && u.generation >= generation);
        ensure!(over, "its last change, {tag}, is not carried out: {status:?}");
        let object = self.api().get("web").await?;
        ensure!(!object.labels().contains_key(PARKED), "it is parked");
        let at = |path: &str| object.data.pointer(path).cloned().unwrap_or(Value::Null);
        ensure!(at("/spec/paused") != json!(true), "it is paused");
        ensure!(
            at("/status/updatedReplicas") == json!(PODS),
            "its own controller disagrees: {}",
            at("/status")
        );
        let after = all(&self.ns).await?;
        let uids =
            |pods: &BTreeMap<String, Pod>| pods.values().map(kube::ResourceExt::uid).collect::<Vec<_>>();
        ensure!(uids(&self.before) == uids(&after), "Pods were made anew: {:?}", after.keys());
        for (name, pod) in &after {
            let image = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.clone());
            let named = format!("{REPOSITORY}:{tag}");
            ensure!(image.as_ref().is_some_and(|image| image.starts_with(&named)), "{name}: {image:?}");
            ensure!(pods::is_ready(pod), "{name} is not ready");
            let restarts = |container| pods::restarts(pod, container);
            ensure!(restarts("other")? == 0, "{name}: container other was restarted");
            // One that was broken off by a kill is put back, and done again.
            let (most, app) = (changed.times.saturating_mul(3), restarts("app")?);
            ensure!(usize::try_from(app)? <= most, "{name}: {app} restarts for {} changes", changed.times);
        }
        Ok(())
    }

    /// As a user does with an update that was broken off.
    async fn try_failed_ones_again(&self) -> Result<()> {
        let api: Api<PodImageUpdate> = images::api(&self.ns);
        for update in api.list(&ListParams::default()).await? {
            let phase = update.status.as_ref().and_then(|status| status.phase);
            if phase.is_some_and(|phase| phase.is_end() && phase.name() != "Succeeded") {
                let name = update.metadata.name.context("an update without a name")?;
                api.delete(&name, &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }
}
