//! A namespace with as many requests as possible, some very large, and one that keeps a node busy.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use pitstop_api::recreate::ContainerRecreateRequest;

use super::bound::Figure;
use super::controller::{Controller, LIMIT};
use super::lease::Renewals;
use super::load;
use super::objects::{restart, running, stubborn, with_labels};
use super::player::play;
use super::player::pod::Pod;
use super::probe::{self, Probe};
use super::queue::{beside_alone, lease_in_time, longest_step};
use super::sizes::{Sizes, mib};
use super::stage::Stage;
use crate::harness::figures::counted;
use crate::harness::say;

const NAMESPACE: &str = "scale-hostile";
/// Node of its Pod with many containers, and of a Pod of another namespace.
const NODE: &str = "scale-00000";
/// One request of this many has the largest possible size.
const LARGE: usize = 100;
/// Numbers of labels that the policy `pitstop-bounds` allows, besides a request's usual ones, and that it refuses.
const LABELS: usize = 60;
const TOO_MANY: usize = 20_000;
/// Number of containers that end only after their grace period, and that period in seconds.
const CONTAINERS: usize = 64;
const GRACE: i64 = 600;
/// Time for which other namespaces are measured after the attack.
const WINDOW: Duration = Duration::from_mins(1);

/// Runs the scenario.
pub(crate) async fn run(stage: &Stage, sizes: &Sizes) -> Result<Vec<Figure>> {
    let client = &stage.client;
    let mut pods = prepare(stage, sizes).await?;
    let _played = play(client, pods.clone());
    let mut elsewhere = Probe::new(client, vec![pods.pop().context("there is no Pod")?]);
    let mut neighbour = Probe::named(client, "neighbour", vec![pods.pop().context("there is no Pod")?]);
    let mut controller = Controller::leading(stage, "hostile").await?;
    let alone = [elsewhere.alone().await?, neighbour.alone().await?];

    let renewals = Renewals::watch(client);
    let begin = Instant::now();
    let refused = attack(stage, &pods, sizes.requests).await?;
    say(format!("the hostile requests are there; looking at other namespaces for {} s", WINDOW.as_secs()));
    tokio::select! {
        () = tokio::time::sleep(WINDOW) => {}
        failed = elsewhere.on_and_on() => failed?,
        failed = neighbour.on_and_on() => failed?,
    }
    let took = begin.elapsed();
    if !controller.alive()? {
        return Ok(vec![Figure::all("restarts of the controller", 1, 0)]);
    }
    let mut figures = vec![
        Figure::all("restarts of the controller", 0, 0),
        Figure::most("controller: largest resident memory", mib(controller.memory()?.peak), LIMIT, "MiB"),
        longest_step(&controller).await?,
    ];
    figures.extend(lease_in_time(&renewals));
    let probes = [("on another node", &mut elsewhere), ("on the same node", &mut neighbour)];
    for ((node, probe), alone) in probes.into_iter().zip(&alone) {
        let what = format!("a request of another namespace {node}");
        figures.extend(beside_alone(&what, alone, &probe.taken_and_open()));
    }
    figures.extend([
        Figure::all("requests with 20,000 labels that were refused", refused, 1),
        Figure::plain("requests of the hostile namespace", counted(sizes.requests + 1), ""),
        Figure::plain("of them open at the end", controller.metric("requests_open").await?, ""),
        Figure::plain("time from the first of them on", took.as_secs_f64(), "s"),
    ]);
    Ok(figures)
}

/// Creates the hostile namespace's Pods, the last with many containers. Then creates two Pods of another namespace: one
/// on the node of that last Pod, one on its own node.
async fn prepare(stage: &Stage, sizes: &Sizes) -> Result<Vec<Pod>> {
    let client = &stage.client;
    let node = |i: usize| format!("scale-{:05}", i % sizes.nodes.max(1));
    load::nodes(client, (0..sizes.nodes).map(node).chain(["scale-probe".to_owned()]).collect()).await?;
    load::namespaces(client, [NAMESPACE, probe::NAMESPACE].map(str::to_owned).into()).await?;
    let mut pods: Vec<Pod> =
        (0..sizes.pods).map(|i| running(NAMESPACE, &format!("app-{i:04}"), &node(i))).collect();
    let containers: Vec<String> = (0..CONTAINERS).map(|i| format!("c{i}")).collect();
    pods.push(stubborn(running(NAMESPACE, "stubborn", NODE), &containers, GRACE));
    pods.push(running(probe::NAMESPACE, "neighbour", NODE));
    pods.push(running(probe::NAMESPACE, "elsewhere", "scale-probe"));
    load::pods(client, &pods).await?;
    Ok(pods)
}

/// Creates all requests; returns how many of the too large ones were refused. API priority and fairness does not limit
/// an administrator, so the requests flood the API server. Until all are created, other clients wait for it, not for
/// the controller.
async fn attack(stage: &Stage, pods: &[Pod], count: usize) -> Result<usize> {
    let (stubborn, others) = pods.split_last().context("there are no Pods")?;
    load::request(&stage.client, &restart("stubborn", stubborn)).await?;
    let too_large = with_labels(restart("too-large", stubborn), TOO_MANY);
    let refused = load::request(&stage.client, &too_large).await.is_err();
    let named: Vec<(usize, &Pod)> = others.iter().cycle().take(count).enumerate().collect();
    // In chunks, because each large request has a quarter of a megabyte.
    for chunk in named.chunks(1_000) {
        let requests = chunk.iter().map(|(i, pod)| {
            let request = restart(&format!("hostile-{i:05}"), pod);
            if i % LARGE == 0 { large(request) } else { request }
        });
        load::requests(&stage.client, requests.collect()).await?;
    }
    Ok(usize::from(refused))
}

/// The request with the largest possible size: the API server allows 256 KiB of annotations.
fn large(request: ContainerRecreateRequest) -> ContainerRecreateRequest {
    let mut request = with_labels(request, LABELS);
    request.metadata.annotations.get_or_insert_default().insert("large".to_owned(), "x".repeat(200 << 10));
    request
}
