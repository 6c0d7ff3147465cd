//! Requests for Pods in the whole cluster.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::bound::Figure;
use super::controller::Controller;
use super::ends::Ends;
use super::ledger::Ledger;
use super::load;
use super::objects::{restart, running};
use super::player::play;
use super::player::pod::Pod;
use super::queue::{print_writes, wait_for_all};
use super::sizes::{Sizes, mib};
use super::stage::Stage;
use crate::harness::books::no_orders;
use crate::harness::figures::counted;
use crate::harness::processes;

/// Bound: writes per request.
const WRITES: f64 = 4.5;
/// Bound: the controller's processor time per request, in milliseconds: 90 s for 10,000.
const CPU: f64 = 9.0;
/// Bound: memory of the controller, in MiB.
const MEMORY: f64 = 128.0;
/// Number of namespaces. Each has fewer requests than pitstop carries out at a time.
const NAMESPACES: usize = 20;
/// Time without an end after which the benchmark gives up.
const PATIENCE: Duration = Duration::from_mins(2);
/// Pause before the first request.
const PAUSE: Duration = Duration::from_secs(5);
/// Time until the last writes are in the audit log.
const REST: Duration = Duration::from_secs(2);

/// Runs the scenario.
pub(crate) async fn run(stage: &Stage, sizes: &Sizes) -> Result<Vec<Figure>> {
    let client = &stage.client;
    let pods = prepare(stage, sizes).await?;
    let _played = play(client, pods.clone());
    let mut ends = Ends::watch(client, None);
    let controller = Controller::leading(stage, "spread").await?;
    tokio::time::sleep(PAUSE).await;

    let before = [controller.cpu()?, processes::cpu(std::process::id())?];
    let mut ledger = Ledger::open(&stage.audit_log)?;
    let begin = Instant::now();
    let named = pods.iter().cycle().take(sizes.requests).enumerate();
    let requests = named.map(|(i, pod)| restart(&format!("spread-{i:05}"), pod)).collect();
    load::requests(client, requests).await?;
    wait_for_all(&mut ends, &mut ledger, sizes.requests, PATIENCE).await?;
    let took = begin.elapsed();
    no_orders(client, PATIENCE).await?;
    tokio::time::sleep(REST).await;
    ledger.read()?;
    let after = [controller.cpu()?, processes::cpu(std::process::id())?];
    let [cpu, player] = std::array::from_fn(|i| seconds(&before, &after, i));
    print_writes(&ledger);
    let (ended, complete) = ends.counts();
    let requests = counted(sizes.requests.max(1));
    let step = controller.metric("longest_step_seconds").await? * 1e3;
    let mut figures = vec![
        Figure::all("requests that ended", ended, sizes.requests),
        Figure::all("requests that ended as Complete", complete, sizes.requests),
    ];
    figures.extend(ledger.figures(requests, WRITES));
    figures.extend([
        Figure::plain("most writes of one request itself", counted(ledger.most_of_one("spread-")), ""),
        Figure::most("controller: processor time for a request", cpu * 1e3 / requests, CPU, "ms"),
        Figure::plain("controller: processor time for all", cpu, "s"),
        Figure::most("controller: largest resident memory", mib(controller.memory()?.peak), MEMORY, "MiB"),
        Figure::plain("longest step of the core", step, "ms"),
        Figure::plain("time for all", took.as_secs_f64(), "s"),
        Figure::plain("processor time of the player", player, "s"),
    ]);
    Ok(figures)
}

/// Creates nodes, and the same number of Pods on each.
async fn prepare(stage: &Stage, sizes: &Sizes) -> Result<Vec<Pod>> {
    let client = &stage.client;
    let node = |i: usize| format!("scale-{:05}", i % sizes.nodes.max(1));
    let namespace = |i: usize| format!("scale-{:02}", i % NAMESPACES);
    load::nodes(client, (0..sizes.nodes).map(node).collect()).await?;
    load::namespaces(client, (0..NAMESPACES).map(namespace).collect()).await?;
    let pod = |i: usize| running(&namespace(i), &format!("app-{i:05}"), &node(i));
    let pods: Vec<Pod> = (0..sizes.pods).map(pod).collect();
    load::pods(client, &pods).await?;
    Ok(pods)
}

fn seconds(before: &[Duration; 2], after: &[Duration; 2], i: usize) -> f64 {
    let at = |times: &[Duration; 2]| times.get(i).copied().unwrap_or_default();
    at(after).saturating_sub(at(before)).as_secs_f64()
}
