//! `burst`: many requests at once for as many Pods on one node.
//!
//! Then the benchmark sends the same stops at once for as many fresh Pods. That is the floor: no client that stops
//! containers through the runtime can be faster. Many restarts keep the node busy, so only the ratio of the two counts.

mod load;
mod measure;

use anyhow::Result;

use self::load::{Load, peak};
use self::measure::{ByRequest, Restart};
use crate::harness::cluster::Cluster;
use crate::harness::figures::{Samples, counted, mib, ratio, table};
use crate::harness::pods::Ns;
use crate::harness::programs;
use crate::harness::{BoundCheck, say};

/// Bound: API writes of pitstop per request.
const WRITES: f64 = 4.0;
/// Bound: median milliseconds from the new container's Ready to `Completed`.
const COMPLETED: f64 = 200.0;
/// Bound: peak resident memory of each program during the burst, in MiB.
const MEMORY: [(&str, u64); 2] = [("daemon", 24), ("controller", 48)];

/// The benchmark.
pub(crate) async fn run(pods: usize) -> Result<BoundCheck> {
    let cluster = Cluster::connect().await?;
    let (by_request, direct) =
        Ns::within(&cluster.client, "burst", async |ns| measure(&cluster, ns, pods).await).await?;
    let leader = programs::leader(&cluster.client).await?;
    Ok(report(&by_request, &direct, &leader))
}

async fn measure(cluster: &Cluster, ns: &Ns, pods: usize) -> Result<(ByRequest, Vec<Restart>)> {
    let names = |set: &str| (0..pods).map(|i| format!("{set}-{i}")).collect::<Vec<_>>();
    say(format!("starting {pods} Pods in namespace {}, for {pods} requests at once", ns.namespace));
    let by_request = measure::by_request(cluster, ns, &names("request")).await?;
    // A node cannot run both sets at once.
    say(format!("starting {pods} fresh Pods, for {pods} stops at once at the runtime"));
    ns.clear().await?;
    let direct = measure::direct(cluster, ns, &names("direct")).await?;
    Ok((by_request, direct))
}

fn report(by_request: &ByRequest, direct: &[Restart], leader: &str) -> BoundCheck {
    let ByRequest { restarts, writes, loads } = by_request;
    let ready: Samples = restarts.iter().map(|r| r.ready).collect();
    let completed: Samples = restarts.iter().filter_map(|r| r.completed).collect();
    let lag: Samples = restarts.iter().filter_map(|r| Some(r.completed? - r.ready)).collect();
    let floor: Samples = direct.iter().map(|r| r.ready).collect();
    let rows = [
        row("create → new container Ready", &ready),
        row("create → Completed", &completed),
        row("new container Ready → Completed", &lag),
        row("the same stops straight to the runtime → new container Ready (the floor)", &floor),
    ];
    println!("{}\n", table(["milliseconds", "median", "min", "max", "Pods"], &rows));

    let requests = restarts.len();
    let per_request = |count: usize| ratio(counted(count), counted(requests));
    let rows: Vec<_> = writes
        .counts
        .iter()
        .map(|(what, count)| {
            let per = format!("{:.2}", per_request(count.all));
            [what.clone(), count.all.to_string(), count.refused.to_string(), per]
        })
        .collect();
    println!("{}\n", table(["API writes", "number", "of them refused", "per request"], &rows));

    let rows: Vec<_> = loads
        .iter()
        .map(|Load { program, cpu, peak }| {
            [program.title(leader), format!("{:.2}", cpu.as_secs_f64()), mib(*peak)]
        })
        .collect();
    println!("{}\n", table(["programs during the burst", "CPU seconds", "peak RSS, MiB"], &rows));

    let restarted = restarts.iter().filter(|r| r.restarted).count();
    let whole = ratio(completed.max(), floor.max());
    println!(
        "all {requests} Completed after {:.1} s, {whole:.2} times the floor ({:.1} s)",
        completed.max() / 1e3,
        floor.max() / 1e3
    );
    let per_request = per_request(writes.total());
    let memory = MEMORY.map(|(component, _)| format!("{component}={} MiB", mib(peak(loads, component))));
    let bounds = MEMORY.map(|(_, bound)| bound.to_string());
    println!(
        "ended={}/{requests} restarted={restarted}/{requests} writes/request={per_request:.2} \
         ready→completed={:.1} ms whole/floor={whole:.2} {} (bounds all/all/{WRITES:.0}/{COMPLETED:.0}/none/{})",
        completed.len(),
        lag.median(),
        memory.join(" "),
        bounds.join("/")
    );
    BoundCheck::of(
        completed.len() == requests
            && restarted == requests
            && per_request <= WRITES
            && lag.median() <= COMPLETED
            && MEMORY.iter().all(|(component, bound)| peak(loads, component) <= bound * 1024),
    )
}

fn row(name: &str, samples: &Samples) -> [String; 5] {
    let [median, min, max, count] = samples.cells();
    [name.to_owned(), median, min, max, count]
}
