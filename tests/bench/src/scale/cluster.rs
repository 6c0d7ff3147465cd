//! Many nodes, Pods and finished requests: their cost for the controller, and the time until a new leader knows them.

use std::future::ready;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, stream};

use super::bound::Figure;
use super::controller::Controller;
use super::load::{self, wall};
use super::objects::running;
use super::player::play;
use super::player::pod::Pod;
use super::probe::{self, Probe};
use super::sizes::{Sizes, mib};
use super::stage::Stage;
use crate::harness::figures::counted;
use crate::harness::processes::Memory;
use crate::harness::say;

/// Bound: memory of the controller, in MiB.
const MEMORY: f64 = 128.0;
/// Bound: memory per Pod, in KiB.
const POD: f64 = 0.8;
/// Pod changes per second, duration of the changes, and bound of their processor time, in cores.
const CHANGES: usize = 500;
const SECONDS: u64 = 30;
const CORES: f64 = 0.1;
/// Bound: seconds from `kill -9` until the next process leads and knows all objects.
const BACK: f64 = 45.0;
/// Pods per namespace.
const PER_NAMESPACE: usize = 1_000;
/// Time in which the controller reads its lists and its allocator frees the memory used for that.
const REST: Duration = Duration::from_secs(10);
/// Longest wait until a controller accepts a request.
const PATIENCE: Duration = Duration::from_mins(5);

/// Runs the scenario.
pub(crate) async fn run(stage: &Stage, sizes: &Sizes) -> Result<Vec<Figure>> {
    let empty = Controller::leading(stage, "cluster-empty").await?;
    tokio::time::sleep(REST).await;
    let base = empty.memory()?;
    empty.end().await?;

    let (pods, mut probe) = fill(stage, sizes).await?;
    // Only the probe's Pods are restarted.
    let _played = play(&stage.client, probe.pods());
    let (controller, _) = known(stage, &mut probe, "cluster-pods").await?;
    let with_pods = controller.memory()?;
    controller.end().await?;

    load::finished_requests(&stage.client, &pods, sizes.finished).await?;
    let (controller, _) = known(stage, &mut probe, "cluster-all").await?;
    let with_all = controller.memory()?;
    let changes = change(stage, &controller, &pods).await?;
    let after = controller.memory()?;

    let killed = Instant::now();
    controller.kill()?;
    let (next, accepted) = known(stage, &mut probe, "cluster-next").await?;
    let step = next.metric("longest_step_seconds").await?;
    let peak = next.memory()?.peak.max(with_all.peak).max(after.peak);
    let mut figures = vec![
        Figure::plain("memory of the controller without any Pod", mib(base.resident), "MiB"),
        Figure::plain("memory with the Pods", mib(with_pods.resident), "MiB"),
        Figure::most("memory for a Pod", per_pod(&base, &with_pods, sizes.pods), POD, "KiB"),
        Figure::plain("memory with the finished requests, too", mib(with_all.resident), "MiB"),
        Figure::plain("memory after the changes of Pods", mib(after.resident), "MiB"),
        Figure::most("largest resident memory, lists being read included", mib(peak), MEMORY, "MiB"),
    ];
    figures.extend(changes.figures());
    figures.extend([
        Figure::most("kill -9 → leads and accepts", (accepted - killed).as_secs_f64(), BACK, "s"),
        Figure::plain("longest step of the core (a list)", step * 1e3, "ms"),
    ]);
    Ok(figures)
}

/// Creates all objects except the finished requests.
async fn fill(stage: &Stage, sizes: &Sizes) -> Result<(Vec<Pod>, Probe)> {
    let client = &stage.client;
    let node = |i: usize| format!("scale-{:05}", i % sizes.nodes.max(1));
    load::nodes(client, (0..sizes.nodes).map(node).collect()).await?;
    let namespace = |i: usize| format!("scale-{:03}", i / PER_NAMESPACE);
    let mut namespaces: Vec<String> = (0..sizes.pods).step_by(PER_NAMESPACE).map(namespace).collect();
    namespaces.push(probe::NAMESPACE.to_owned());
    load::namespaces(client, namespaces).await?;
    let pods: Vec<Pod> =
        (0..sizes.pods).map(|i| running(&namespace(i), &format!("app-{i:06}"), &node(i))).collect();
    load::pods(client, &pods).await?;
    let probed = vec![running(probe::NAMESPACE, "probe", &node(0))];
    load::pods(client, &probed).await?;
    Ok((pods, Probe::new(client, probed)))
}

/// Starts a controller and waits until it accepts a request: then it leads and knows all objects. Returns that time
/// after a rest.
async fn known(stage: &Stage, probe: &mut Probe, log: &str) -> Result<(Controller, Instant)> {
    let begin = Instant::now();
    let controller = Controller::start(stage, log).await?;
    let accepted = probe.accepted(PATIENCE).await?;
    let accepted = accepted.with_context(|| format!("the controller accepts nothing; see {log}.log"))?;
    say(format!(
        "the controller accepted a request {:.1} s after its start",
        (accepted - begin).as_secs_f64()
    ));
    tokio::time::sleep(REST).await;
    probe.settle(PATIENCE).await;
    Ok((controller, accepted))
}

/// Pod changes, and the controller's processor time for them.
struct Changes {
    count: usize,
    within: Duration,
    cpu: Duration,
}

impl Changes {
    fn figures(&self) -> [Figure; 2] {
        let count = counted(self.count);
        let cores = self.cpu.as_secs_f64() / count * counted(CHANGES);
        [
            Figure::plain("changes of Pods a second", count / self.within.as_secs_f64(), ""),
            Figure::most(format!("processor for {CHANGES} changes a second"), cores, CORES, "cores"),
        ]
    }
}

/// Changes Pods at the wanted rate, or as fast as the machine allows.
async fn change(stage: &Stage, controller: &Controller, pods: &[Pod]) -> Result<Changes> {
    let before = controller.cpu()?;
    let begin = Instant::now();
    let (mut sent, mut count) = (0, 0);
    while begin.elapsed() < Duration::from_secs(SECONDS) && !pods.is_empty() {
        let round = Instant::now();
        let batch = pods.iter().cycle().skip(sent % pods.len()).take(CHANGES / 10);
        let note = format!("change {sent}");
        let changes = stream::iter(batch)
            .map(async |pod| load::pod_status(&stage.client, pod, &pod.status(wall(), &note)).await)
            .buffer_unordered(16);
        // A failed change causes no event.
        count += changes.filter(|result| ready(result.is_ok())).count().await;
        sent += CHANGES / 10;
        tokio::time::sleep(Duration::from_millis(100).saturating_sub(round.elapsed())).await;
    }
    let within = begin.elapsed();
    // The last events may still arrive.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(Changes { count, within, cpu: controller.cpu()?.saturating_sub(before) })
}

fn per_pod(base: &Memory, with_pods: &Memory, pods: usize) -> f64 {
    mib(with_pods.resident.saturating_sub(base.resident)) * 1024.0 / counted(pods.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_for_a_pod_is_what_came_with_them() {
        let memory = |resident| Memory { resident, ..Memory::default() };
        assert!((per_pod(&memory(8_000), &memory(88_000), 100_000) - 0.8).abs() < 1e-9);
    }

    #[test]
    fn the_cost_of_a_change_does_not_depend_on_the_rate() {
        let slow = Changes { count: 100, within: Duration::from_secs(9), cpu: Duration::from_millis(20) };
        assert_eq!(
            slow.figures()[1],
            Figure::most("processor for 500 changes a second", 0.1, CORES, "cores")
        );
    }
}
