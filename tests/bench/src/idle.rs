//! `idle`: memory of the daemon and of each controller replica when nothing happens.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::harness::cluster::Cluster;
use crate::harness::figures::table;
use crate::harness::processes::{self, Memory};
use crate::harness::{Verdict, say};

const NAMESPACE: &str = "pitstop-system";
const SELECTOR: &str = "app.kubernetes.io/name=pitstop";
const COMPONENT: &str = "app.kubernetes.io/component";
const LEASE: &str = "pitstop-controller";

/// Most memory that each program may hold, in MiB.
const BOUNDS: [(&str, u64); 2] = [("daemon", 12), ("controller", 24)];
/// How old a process must be: its start is not idling.
const SETTLED: Duration = Duration::from_secs(30);
/// The largest of so many looks counts, one a second.
const LOOKS: u32 = 10;

struct Process {
    component: String,
    pod: String,
    pid: u32,
    started: SystemTime,
}

/// The benchmark.
pub(crate) async fn run() -> Result<Verdict> {
    let cluster = Cluster::connect().await?;
    let processes = find(&cluster.client).await?;
    settle(&processes).await;
    let mut found = vec![Memory::default(); processes.len()];
    for _ in 0..LOOKS {
        for (process, memory) in processes.iter().zip(&mut found) {
            let now =
                Memory::of(process.pid).with_context(|| format!("Pod {} ended meanwhile", process.pod))?;
            *memory = memory.max(now);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(report(&processes, &found, &leader(&cluster.client).await?))
}

/// The processes of pitstop's Pods.
async fn find(client: &Client) -> Result<Vec<Process>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut processes = Vec::new();
    for pod in api.list(&ListParams::default().labels(SELECTOR)).await? {
        let name = pod.name_any();
        let component = pod.labels().get(COMPONENT).cloned().unwrap_or_default();
        let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        let [status] = statuses.as_slice() else { bail!("Pod {name} does not run one container yet") };
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        let started = running.and_then(|running| running.started_at.as_ref());
        let (Some(id), Some(started), true) = (&status.container_id, started, status.ready) else {
            bail!("Pod {name} is not ready");
        };
        let (_, id) = pitstop_cri::split_reference(id).with_context(|| format!("Pod {name}"))?;
        let since_epoch = Duration::from_secs(started.0.as_second().unsigned_abs());
        let started = SystemTime::UNIX_EPOCH + since_epoch;
        processes.push(Process { component, pid: processes::of_container(id.as_str())?, pod: name, started });
    }
    for (component, _) in BOUNDS {
        if !processes.iter().any(|process| process.component == component) {
            bail!("no Pod of the {component} in namespace {NAMESPACE}; install pitstop with `make demo`");
        }
    }
    processes.sort_by(|a, b| (&b.component, &a.pod).cmp(&(&a.component, &b.pod)));
    Ok(processes)
}

/// Waits until the youngest process has run for a while. Cluster and benchmark have one clock.
async fn settle(processes: &[Process]) {
    let Some(youngest) = processes.iter().map(|process| process.started).max() else { return };
    let age = youngest.elapsed().unwrap_or_default();
    if let Some(rest) = SETTLED.checked_sub(age) {
        say(format!("pitstop is {} s old; waiting {} s more", age.as_secs(), rest.as_secs()));
        tokio::time::sleep(rest).await;
    }
}

/// The Pod whose controller leads.
async fn leader(client: &Client) -> Result<String> {
    let api: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let lease = api.get(LEASE).await.context("cannot read the controller's Lease")?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    Ok(holder.split('_').next().unwrap_or_default().to_owned())
}

fn report(processes: &[Process], found: &[Memory], leader: &str) -> Verdict {
    let rows: Vec<_> = processes
        .iter()
        .zip(found)
        .map(|(process, memory)| {
            let leads = if process.pod == leader { " (leads)" } else { "" };
            let name = format!("{}{leads}", process.pod);
            let file = memory.resident.saturating_sub(memory.anonymous);
            [name, mib(memory.resident), mib(memory.anonymous), mib(file), mib(memory.peak)]
        })
        .collect();
    println!("{}\n", table(["MiB", "RSS", "of it anonymous", "of files", "peak RSS"], &rows));
    let most = |component: &str| {
        let of = processes.iter().zip(found).filter(|(process, _)| process.component == component);
        of.map(|(_, memory)| memory.resident).max().unwrap_or_default()
    };
    let results: Vec<String> =
        BOUNDS.iter().map(|(component, _)| format!("{component}={} MiB", mib(most(component)))).collect();
    let bounds: Vec<String> = BOUNDS.iter().map(|(_, bound)| bound.to_string()).collect();
    println!("{} (bounds {})", results.join(" "), bounds.join("/"));
    Verdict::of(BOUNDS.iter().all(|(component, bound)| most(component) <= bound * 1024))
}

/// KiB as MiB with one digit.
fn mib(kib: u64) -> String {
    let tenths = (kib * 10).div_ceil(1024);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_up() {
        assert_eq!(mib(12 * 1024), "12.0");
        assert_eq!(mib(12 * 1024 + 1), "12.1");
        assert_eq!(mib(5_300), "5.2");
    }
}
