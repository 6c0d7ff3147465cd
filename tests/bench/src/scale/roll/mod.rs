//! A rollout of one Deployment with many Pods: a restart, and a new image while the Deployment is parked.
//!
//! Before or after each, the benchmark does the same by its own requests, as many at a time. The difference is the cost
//! of the rollout.

mod script;
mod way;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use pitstop_api::rollout::{ARMED, InPlaceRollout, InPlaceRolloutStatus, PARKED, Phase, UpdateEnd};
use serde_json::{Value, json};

use self::way::{Way, compared};
use super::bound::Figure;
use super::bulk::ROLLOUTS;
use super::controller::{Controller, LIMIT};
use super::lease::Renewals;
use super::load;
use super::objects::{APP, running};
use super::owner::Owner;
use super::player::play_with_images;
use super::player::pod::Pod;
use super::queue::{lease_in_time, longest_step};
use super::sizes::{Sizes, mib};
use super::stage::Stage;
use super::workloads::{self, Workload, set_name};
use crate::harness::cluster::kubectl;
use crate::harness::say;
use crate::harness::tape::Tape;

const NAMESPACE: &str = "scale-roll";
const NAME: &str = "web";
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(15);
/// The images of the two updates: by the rollout, and by requests of the benchmark.
const IMAGES: [&str; 2] = ["registry.example/team/app:1.4.3", "registry.example/team/app:1.4.4"];
/// One in this many Pods is changed at a time.
const SHARE: usize = 10;

/// State of the benchmark.
struct Bench<'a> {
    stage: &'a Stage,
    client: &'a Client,
    controller: Controller,
    pods: Vec<Pod>,
    at_a_time: usize,
}

/// Runs the scenario.
pub(crate) async fn run(stage: &Stage, sizes: &Sizes) -> Result<Vec<Figure>> {
    let client = &stage.client;
    let (workload, pods) = prepare(stage, sizes).await?;
    let _played = play_with_images(client, pods.clone(), NAMESPACE);
    let _owner = Owner::play(client, &workload);
    let controller = Controller::leading(stage, "roll").await?;
    let at_a_time = pods.len().div_ceil(SHARE);
    let bench = Bench { stage, client, controller, pods, at_a_time };
    let renewals = Renewals::watch(client);
    let [by_requests, by_rollout] = bench.restarts().await.context("the restart")?;
    let restarts = compared("restart", &by_requests, &by_rollout, bench.pods.len());
    let [by_requests, by_rollout] = bench.updates().await.context("the new image")?;
    let updates = compared("image", &by_requests, &by_rollout, bench.pods.len());
    let peak = mib(bench.controller.memory()?.peak);
    let mut figures = vec![Figure::most("controller: largest resident memory", peak, LIMIT, "MiB")];
    figures.push(longest_step(&bench.controller).await?);
    figures.extend(lease_in_time(&renewals));
    Ok(restarts.into_iter().chain(updates).chain(figures).collect())
}

/// Creates a Deployment with Pods on all nodes, and allows pitstop to change it.
async fn prepare(stage: &Stage, sizes: &Sizes) -> Result<(Workload, Vec<Pod>)> {
    let client = &stage.client;
    let node = |i: usize| format!("scale-{:05}", i % sizes.nodes.max(1));
    load::nodes(client, (0..sizes.nodes).map(node).collect()).await?;
    load::namespaces(client, vec![NAMESPACE.to_owned()]).await?;
    kubectl(&["label", "namespace", NAMESPACE, "pitstop.dev/in-place=enabled"])?;
    let (namespace, account) =
        (format!("--namespace={NAMESPACE}"), "--serviceaccount=pitstop-system:pitstop-controller");
    let role = "--clusterrole=pitstop-in-place";
    kubectl(&["create", "rolebinding", "pitstop-in-place", &namespace, role, account])?;
    let workload = Workload { namespace: NAMESPACE.to_owned(), name: NAME.to_owned(), replicas: sizes.pods };
    workloads::deployments(client, vec![workload.clone()], 1).await?;
    let pod =
        |i: usize| Pod { set: set_name(NAME), ..running(NAMESPACE, &format!("{NAME}-{i:05}"), &node(i)) };
    let pods: Vec<Pod> = (0..sizes.pods).map(pod).collect();
    load::pods(client, &pods).await?;
    Ok((workload, pods))
}

impl Bench<'_> {
    fn rollouts(&self) -> Api<InPlaceRollout> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Creates the rollout, and waits until the controller arms it.
    async fn stand_by(&self) -> Result<()> {
        let strategy = json!({"maxUnavailable": format!("{}%", 100 / SHARE), "soakSeconds": 0});
        let rollout = workloads::rollout(NAMESPACE, NAME, NAME, &json!({"spec": {"strategy": strategy}}));
        let mut tape = Tape::start(self.rollouts()).await?;
        let begin = Instant::now();
        load::create(self.client, ROLLOUTS.path(NAMESPACE), &rollout).await?;
        let armed = |rollout: &InPlaceRollout| {
            let labels = rollout.metadata.labels.as_ref()?;
            labels.contains_key(ARMED).then_some(())
        };
        tape.find(begin, PATIENCE, "the rollout to be armed", armed).await?;
        Ok(())
    }

    /// Restarts all Pods: by requests, and by the rollout. The first round is not compared, because a new process's
    /// memory grows in it.
    async fn restarts(&self) -> Result<[Way; 2]> {
        self.way(async || self.restarted_by_requests().await).await?;
        say("all Pods were restarted by requests, by a new process");
        let by_requests = self.way(async || self.restarted_by_requests().await).await?;
        say("all Pods were restarted by requests");
        self.stand_by().await?;
        let by_rollout = self.way(async || self.restarted_by_rollout().await).await?;
        say("all Pods were restarted by the rollout");
        Ok([by_requests, by_rollout])
    }

    async fn restarted_by_rollout(&self) -> Result<f64> {
        let patch = json!({"spec": {"restartedAt": "2026-11-22T10:00:00Z"}});
        let over = |status: &InPlaceRolloutStatus| status.restarted_at.is_some() && status.restart.is_none();
        self.rolled(
            async || {
                self.rollouts().patch(NAME, &PatchParams::default(), &Patch::Merge(patch)).await?;
                Ok(())
            },
            over,
        )
        .await
    }

    /// Updates the image of all Pods: by the rollout, and then again by requests.
    async fn updates(&self) -> Result<[Way; 2]> {
        let [first, second] = IMAGES;
        let by_rollout = self.way(async || self.updated_by_rollout(first).await).await?;
        say("all Pods got an image by the rollout");
        let by_requests = self.way(async || self.updated_by_requests(second).await).await?;
        say("all Pods got an image by requests");
        Ok([by_requests, by_rollout])
    }

    /// Updates by the rollout. One write parks and changes the Deployment.
    async fn updated_by_rollout(&self, image: &str) -> Result<f64> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        let container: Value = json!({"name": APP, "image": image});
        let spec = json!({"paused": true, "template": {"spec": {"containers": [container]}}});
        let patch = json!({"metadata": {"labels": {PARKED: "Unpaused"}}, "spec": spec});
        let over = |status: &InPlaceRolloutStatus| {
            status.update.as_ref().is_some_and(|update| update.ended == Some(UpdateEnd::Updated))
        };
        self.rolled(
            async || {
                deployments.patch(NAME, &PatchParams::default(), &Patch::Strategic(patch)).await?;
                Ok(())
            },
            over,
        )
        .await
    }

    /// Returns the seconds from just before a change is sent until the rollout is complete.
    async fn rolled(
        &self,
        change: impl AsyncFnOnce() -> Result<()>,
        over: impl Fn(&InPlaceRolloutStatus) -> bool,
    ) -> Result<f64> {
        let mut tape = Tape::start(self.rollouts()).await?;
        let begin = Instant::now();
        change().await?;
        let over = |rollout: &InPlaceRollout| {
            let status = rollout.status.as_ref()?;
            (status.phase == Some(Phase::Complete) && over(status)).then_some(())
        };
        let ended = tape.find(begin, PATIENCE, "the rollout to be complete", over).await;
        if ended.is_err() {
            let last = self.rollouts().get(NAME).await?.status.unwrap_or_default();
            return ended.map(|_| 0.0).with_context(|| format!("its status: {}", json!(last)));
        }
        Ok((ended?.0 - begin).as_secs_f64())
    }
}
