//! Cost of rollouts without updates. Deployments that no rollout names must not burden the controller, and unarmed
//! rollouts must not slow writes of workloads.

use std::future::ready;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams};
use kube::core::Request as Builder;
use kube::{Api, Client};
use pitstop_api::rollout::PARKED;
use serde_json::{Value, json};

use super::bound::Figure;
use super::bulk::{DEPLOYMENTS, SETS};
use super::controller::Controller;
use super::load::{self, sent, wall};
use super::objects::running;
use super::player::pod::Pod;
use super::sizes::{Sizes, mib};
use super::stage::Stage;
use super::workloads::{self, Workload, set_name};
use crate::harness::audit::{Entry, Mark};
use crate::harness::cluster::kubectl;
use crate::harness::figures::{Samples, counted, milliseconds, ratio};
use crate::harness::processes::Memory;
use crate::harness::programs::NAMESPACE as OWN;
use crate::harness::say;

/// Number of `ReplicaSet`s of each Deployment.
const SETS_OF_EACH: usize = 10;
/// Deployments per namespace.
const PER_NAMESPACE: usize = 100;
/// Bound: memory with the Deployments, divided by that without.
const MEMORY: f64 = 1.1;
/// Bound: additional processor time for a change of a workload, divided by that for a change of a Pod.
const CPU: f64 = 0.1;
/// Bound: time for a write of a Deployment in a namespace with unarmed rollouts, divided by that without rollouts.
const WRITE: f64 = 1.25;
/// Changes per second, and their duration.
const CHANGES: usize = 200;
const SECONDS: u64 = 30;
/// Time in which the controller reads its lists.
const REST: Duration = Duration::from_secs(10);
/// Timed writes of each Deployment, and warm-up writes.
const WRITES: usize = 200;
const FIRST: usize = 20;
/// Longest wait until the admission policies are in force.
const PATIENCE: Duration = Duration::from_mins(2);
const PERIOD: Duration = Duration::from_millis(500);
/// Namespaces for the writes: without rollouts, with unarmed rollouts, and with an armed rollout.
const NAMESPACES: [&str; 3] = ["scale-none", "scale-unarmed", "scale-armed"];
/// Resources of workloads in the audit log.
const KINDS: [&str; 5] = ["deployments", "replicasets", "statefulsets", "daemonsets", "controllerrevisions"];

/// Runs the scenario.
pub(crate) async fn run(stage: &Stage, sizes: &Sizes) -> Result<Vec<Figure>> {
    let pods = prepare(stage, sizes).await?;
    let before = Idle::of(stage, "unrolled-before").await?;
    before.controller.end().await?;

    let all = fill(stage, sizes).await?;
    let after = Idle::of(stage, "unrolled-after").await?;
    let workloads = cost(&after.controller, workload_changes(&stage.client, &all)).await?;
    let of_pods = cost(&after.controller, pod_changes(&stage.client, &pods)).await?;
    after.controller.end().await?;
    say(format!("{} changes of workloads, {} of Pods", workloads.count, of_pods.count));

    // The idle processor time is no cost of the changes.
    let beside = |cost: &Cost| (cost.cpu.as_secs_f64() - after.cpu.as_secs_f64()).max(0.0);
    let each = |cost: &Cost| ratio(beside(cost), counted(cost.count)) * 1e3;
    let memory = ratio(mib(after.memory.resident), mib(before.memory.resident));
    let mut figures = vec![
        Figure::plain("Deployments", counted(all.len()), ""),
        Figure::plain("their ReplicaSets", counted(all.len() * SETS_OF_EACH), ""),
        Figure::plain("memory of the controller without them", mib(before.memory.resident), "MiB"),
        Figure::most("memory with them, as a part of that", memory, MEMORY, ""),
        Figure::all("requests for workloads that are not parked", before.strays + after.strays, 0),
        Figure::all(
            "requests for parked workloads, with all Deployments and without",
            after.parked,
            before.parked,
        ),
        Figure::plain(format!("processor time in {SECONDS} s without changes"), after.cpu.as_secs_f64(), "s"),
        Figure::plain("processor time for a change of a Pod", each(&of_pods), "ms"),
        Figure::plain("processor time for a change of a workload", each(&workloads), "ms"),
        Figure::most(
            "change of a workload/change of a Pod",
            ratio(each(&workloads), each(&of_pods)),
            CPU,
            "",
        ),
    ];
    figures.extend(unarmed(stage, sizes).await?);
    Ok(figures)
}

/// Creates nodes, Pods and the namespaces of all Deployments.
async fn prepare(stage: &Stage, sizes: &Sizes) -> Result<Vec<Pod>> {
    let client = &stage.client;
    let node = |i: usize| format!("scale-{:05}", i % sizes.nodes.max(1));
    load::nodes(client, (0..sizes.nodes).map(node).collect()).await?;
    let namespaces = (0..sizes.workloads).step_by(PER_NAMESPACE).map(namespace);
    let pods = "scale-pods".to_owned();
    let all = namespaces.chain(NAMESPACES.map(str::to_owned)).chain([pods.clone()]);
    load::namespaces(client, all.collect()).await?;
    let pods: Vec<Pod> = (0..sizes.pods).map(|i| running(&pods, &format!("app-{i:05}"), &node(i))).collect();
    load::pods(client, &pods).await?;
    Ok(pods)
}

fn namespace(i: usize) -> String {
    format!("scale-{:03}", i / PER_NAMESPACE)
}

/// Creates the Deployments.
async fn fill(stage: &Stage, sizes: &Sizes) -> Result<Vec<Workload>> {
    let of = |i| Workload { namespace: namespace(i), name: format!("web-{i:05}"), replicas: 1 };
    let all: Vec<Workload> = (0..sizes.workloads).map(of).collect();
    workloads::deployments(&stage.client, all.clone(), SETS_OF_EACH).await?;
    Ok(all)
}

/// An idle controller and its measurements.
struct Idle {
    controller: Controller,
    memory: Memory,
    /// Processor time without changes.
    cpu: Duration,
    /// API requests for parked workloads since its start, and for others.
    parked: usize,
    strays: usize,
}

impl Idle {
    async fn of(stage: &Stage, log: &str) -> Result<Self> {
        let mark = Mark::end_of(&stage.audit_log)?;
        let controller = Controller::leading(stage, log).await?;
        tokio::time::sleep(REST).await;
        let memory = controller.memory()?;
        let cpu = controller.cpu()?;
        tokio::time::sleep(Duration::from_secs(SECONDS)).await;
        let cpu = controller.cpu()?.saturating_sub(cpu);
        let entries = mark.read()?;
        let of_workloads = entries.iter().filter(|entry| is_for_workloads(entry));
        let (parked, others): (Vec<_>, Vec<_>) = of_workloads.partition(|entry| entry.selects(PARKED));
        Ok(Self { controller, memory, cpu, parked: parked.len(), strays: others.len() })
    }
}

/// Whether the controller sent this request, for workloads.
fn is_for_workloads(entry: &Entry) -> bool {
    entry.account(OWN).is_some() && KINDS.contains(&entry.object_ref.resource.as_str())
}

/// Number of changes, and the controller's processor time meanwhile.
struct Cost {
    count: usize,
    cpu: Duration,
}

/// Makes changes at the wanted rate: `change` makes the change with a number.
async fn cost(controller: &Controller, change: impl AsyncFn(usize) -> Result<()>) -> Result<Cost> {
    let before = controller.cpu()?;
    let (begin, mut sent, mut count) = (Instant::now(), 0, 0);
    let change = &change;
    while begin.elapsed() < Duration::from_secs(SECONDS) {
        let round = Instant::now();
        let batch = stream::iter(sent..sent + CHANGES / 10).map(|i| change(i)).buffer_unordered(16);
        // A failed change does not count.
        count += batch.filter(|result| ready(result.is_ok())).count().await;
        sent += CHANGES / 10;
        tokio::time::sleep(Duration::from_millis(100).saturating_sub(round.elapsed())).await;
    }
    Ok(Cost { count, cpu: controller.cpu()?.saturating_sub(before) })
}

/// Changes the status of Deployments and of their `ReplicaSet`s in turn.
fn workload_changes(client: &Client, all: &[Workload]) -> impl AsyncFn(usize) -> Result<()> {
    async move |i| {
        let of = all.get(i / 2 % all.len().max(1)).context("there is no Deployment")?;
        let (kind, name) =
            if i % 2 == 0 { (DEPLOYMENTS, of.name.clone()) } else { (SETS, set_name(&of.name)) };
        let patch = Patch::Merge(json!({"status": {"observedGeneration": i + 2}}));
        let builder = Builder::new(kind.path(&of.namespace));
        let request = builder.patch_subresource("status", &name, &PatchParams::default(), &patch)?;
        sent(client, request).await.map(drop)
    }
}

fn pod_changes(client: &Client, pods: &[Pod]) -> impl AsyncFn(usize) -> Result<()> {
    async move |i| {
        let pod = pods.get(i % pods.len().max(1)).context("there is no Pod")?;
        load::pod_status(client, pod, &pod.status(wall(), &format!("change {i}"))).await
    }
}

/// Times of a write of a Deployment, without unarmed rollouts and with them.
async fn unarmed(stage: &Stage, sizes: &Sizes) -> Result<Vec<Figure>> {
    let client = &stage.client;
    let all = NAMESPACES.map(|namespace| Workload {
        namespace: namespace.to_owned(),
        name: "web".to_owned(),
        replicas: 1,
    });
    workloads::deployments(client, all.to_vec(), 1).await?;
    for namespace in NAMESPACES {
        kubectl(&["label", "namespace", namespace, "pitstop.dev/in-place=enabled"])?;
    }
    let [none, unarmed, armed] = &all;
    workloads::armed(client, armed).await?;
    until_parked(client, armed).await?;
    let [_, alone] = timed(client, [none, unarmed]).await?;
    let mut spread: Vec<String> = (0..sizes.workloads).step_by(PER_NAMESPACE).map(namespace).collect();
    spread.push(unarmed.namespace.clone());
    workloads::unarmed(client, &spread, "spread", sizes.rollouts).await?;
    let some = timed(client, [none, unarmed]).await?;
    workloads::unarmed(client, std::slice::from_ref(&unarmed.namespace), "more", sizes.rollouts).await?;
    let all = timed(client, [none, unarmed]).await?;
    let plain = |what: &str, samples: &Samples| {
        let name = format!("write of a Deployment {what} (median of {})", samples.len());
        Figure::plain(name, samples.median(), "ms")
    };
    let part = |[without, with]: &[Samples; 2]| ratio(with.median(), without.median());
    let [[_, with_some], [_, with_all]] = [&some, &all];
    Ok(vec![
        Figure::plain("rollouts that are not armed", counted(sizes.rollouts), ""),
        Figure::plain("namespaces that they are in", counted(spread.len()), ""),
        plain("before they are there", &alone),
        plain("in one of the namespaces", with_some),
        Figure::most("in one of the namespaces/in another without rollouts", part(&some), WRITE, ""),
        plain("in a namespace that has as many more", with_all),
        // The API server evaluates each rollout of the namespace.
        Figure::plain("in that namespace/in another without rollouts", part(&all), ""),
    ])
}

/// Times writes of the two in turn.
async fn timed(client: &Client, of: [&Workload; 2]) -> Result<[Samples; 2]> {
    let mut took = [Vec::new(), Vec::new()];
    for i in 0..FIRST + WRITES {
        for (of, took) in of.iter().zip(&mut took) {
            let begin = Instant::now();
            change_template(client, of).await?;
            if i >= FIRST {
                took.push(milliseconds(begin.elapsed()));
            }
        }
    }
    Ok(took.map(|took| took.into_iter().collect()))
}

/// Sets a new image: a change that pitstop would make in place.
async fn change_template(client: &Client, of: &Workload) -> Result<Deployment> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), &of.namespace);
    let at = pitstop_kit::now().mono.0;
    let container = json!({"name": "app", "image": format!("registry.example/team/app:at-{at}")});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    Ok(api.patch(&of.name, &PatchParams::default(), &Patch::<Value>::Strategic(patch)).await?)
}

/// Waits until a write of a Deployment with an armed rollout parks it. From then on the policies judge every write.
async fn until_parked(client: &Client, of: &Workload) -> Result<()> {
    let begin = Instant::now();
    loop {
        let labels = change_template(client, of).await?.metadata.labels.unwrap_or_default();
        if labels.contains_key(PARKED) {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            bail!("the policies of the component park are not in force after {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(PERIOD).await;
    }
}
