//! `resize`: time that pitstop adds to a resize of a Pod through the API server.
//!
//! Two sets of Pods take turns. One is resized by request. The benchmark patches `pods/resize` of the other directly.
//! In both the kubelet does the work. The measurement ends when the container's control group has the new limits.

mod measure;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use self::measure::{Bench, ByRequest, Patched, before};
use crate::harness::cluster::Cluster;
use crate::harness::figures::{Samples, ratio, table};
use crate::harness::pods::Ns;
use crate::harness::tape::Tape;
use crate::harness::{BoundCheck, say, steps};

/// Bound: time from the patch to the limits in the control group, divided by that of a bare patch.
const HELD: f64 = 1.1;
/// Bound: API writes of pitstop for a request.
const WRITES: usize = 6;

/// Pods of each set that run at a time.
const ROUND: usize = 5;

/// Measurements, each with its own set of Pods.
#[derive(Default)]
struct Measured {
    by_request: Vec<ByRequest>,
    bare: Vec<Patched>,
}

/// The benchmark.
pub(crate) async fn run(pods: usize) -> Result<BoundCheck> {
    let cluster = Cluster::connect().await?;
    let measured =
        Ns::within(&cluster.client, "resize", async |ns| measure(&cluster, ns, pods).await).await?;
    Ok(report(&measured))
}

async fn measure(cluster: &Cluster, ns: &Ns, pods: usize) -> Result<Measured> {
    let names: Vec<[String; 2]> =
        (0..pods).map(|i| ["request", "bare"].map(|set| format!("{set}-{i}"))).collect();
    say(format!("resizing {pods} Pods of each set in namespace {}", ns.namespace));
    let requests = Tape::start(ns.api()).await?;
    let mut bench = Bench { ns, requests, audit_log: cluster.audit_log(), done: 0 };
    let mut measured = Measured::default();
    for (at, [request, bare]) in names.iter().enumerate() {
        // Few Pods at a time keep the machine's load low.
        if at % ROUND == 0 {
            ns.clear().await?;
            let round = names.iter().skip(at).take(ROUND).cloned().collect::<Vec<_>>().concat();
            ns.start_sized(&round, &before()).await?;
        }
        let of = |pod: &str| format!("Pod {pod}");
        let mut by_request = async |bench: &mut Bench<'_>| -> Result<()> {
            measured.by_request.push(bench.by_request(request).await.with_context(|| of(request))?);
            Ok(())
        };
        // Alternate which way is first.
        if at % 2 == 0 {
            by_request(&mut bench).await?;
        }
        measured.bare.push(bench.bare(bare).await.with_context(|| of(bare))?);
        if at % 2 == 1 {
            by_request(&mut bench).await?;
        }
        if measured.bare.len() % ROUND == 0 {
            say(format!("{} of {pods} are done", measured.bare.len()));
        }
    }
    Ok(measured)
}

fn report(measured: &Measured) -> BoundCheck {
    let Measured { by_request, bare } = measured;
    let samples = |of: fn(&ByRequest) -> f64| by_request.iter().map(of).collect::<Samples>();
    let held = samples(|m| m.patched.held);
    let whole = samples(|m| m.before + m.patched.held);
    let floor: Samples = bare.iter().map(|m| m.held).collect();
    let row = |name: &str, samples: &Samples| {
        let [median, min, max, count] = samples.cells();
        [name.to_owned(), median, min, max, count]
    };
    let rows = [
        row("PodResize: its patch → values in the control group", &held),
        row("the same change by a bare patch → values in the control group", &floor),
        row("PodResize: its patch → its answer", &samples(|m| m.patched.answered)),
        row("the bare patch → its answer", &bare.iter().map(|m| m.answered).collect()),
        row("PodResize: create → its patch", &samples(|m| m.before)),
        row("PodResize: create → values in the control group", &whole),
        row("PodResize, the whole: create → Succeeded", &samples(|m| m.over)),
    ];
    println!("{}\n", table(["milliseconds", "median", "min", "max", "Pods"], &rows));
    let rows = steps::rows(by_request.iter().map(|m| m.steps.as_slice()));
    let title = "PodResize: create → values in the control group, step by step";
    println!("{}\n", table([title, "begins", "takes", "min", "max", "Pods"], &rows));
    let mut kinds: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (what, count) in by_request.iter().flat_map(|m| &m.writes.counts) {
        kinds.entry(what).or_default().push(count.all);
    }
    let rows: Vec<_> = kinds
        .into_iter()
        .map(|(what, counts)| {
            let most = counts.iter().max().copied().unwrap_or_default();
            [what.to_owned(), counts.iter().sum::<usize>().to_string(), most.to_string()]
        })
        .collect();
    println!("{}\n", table(["API writes", "number", "most for one PodResize"], &rows));

    let most = by_request.iter().map(|m| m.writes.total()).max().unwrap_or_default();
    let (held, whole) = (ratio(held.median(), floor.median()), ratio(whole.median(), floor.median()));
    println!(
        "patch→value={held:.2} create→value={whole:.2} writes/PodResize={most} (bounds {HELD}/none/{WRITES})"
    );
    let measured_all = !by_request.is_empty() && by_request.len() == bare.len();
    BoundCheck::of(measured_all && held <= HELD && most <= WRITES)
}
