//! `latency`: time that pitstop adds to the restart of a container, by each mechanism.
//!
//! Three sets of Pods take turns. Two are restarted by request: through the runtime and through the kubelet. In the
//! third the benchmark sends the same stop through the same socket. That is the floor: no client that stops containers
//! through the runtime can be faster. The time between such a stop and the new container is the kubelet's, with and
//! without pitstop. A restart through the kubelet has no such gap.

mod measure;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use pitstop_api::recreate::Mechanism;

use self::measure::{Bench, ByRequest, Direct};
use crate::harness::cluster::Cluster;
use crate::harness::figures::{Samples, ms, ratio, table};
use crate::harness::pods::Ns;
use crate::harness::steps::{self, Step};
use crate::harness::tape::Tape;
use crate::harness::{BoundCheck, say};

/// Most time that pitstop may add through the runtime, in milliseconds: the time that `OpenKruise` 1.9 adds.
const ADDED: f64 = 36.0;
/// Bound: time of a whole restart through the kubelet, divided by that by a bare runtime stop.
const KUBELET: f64 = 0.5;

/// Pods of each set that run at a time.
const ROUND: usize = 5;

/// Measurements, each with its own set of Pods.
#[derive(Default)]
struct Measured {
    runtime: Vec<ByRequest>,
    kubelet: Vec<ByRequest>,
    direct: Vec<Direct>,
}

/// The benchmark.
pub(crate) async fn run(pods: usize) -> Result<BoundCheck> {
    let cluster = Cluster::connect().await?;
    let measured =
        Ns::within(&cluster.client, "latency", async |ns| measure(&cluster, ns, pods).await).await?;
    Ok(report(&measured))
}

async fn measure(cluster: &Cluster, ns: &Ns, pods: usize) -> Result<Measured> {
    let names: Vec<[String; 3]> =
        (0..pods).map(|i| ["runtime", "kubelet", "direct"].map(|set| format!("{set}-{i}"))).collect();
    say(format!("restarting {pods} Pods of each set in namespace {}", ns.namespace));
    let mut bench = Bench {
        ns,
        pods: Tape::<Pod>::start(ns.api()).await?,
        requests: Tape::start(ns.api()).await?,
        audit_log: cluster.audit_log(),
        done: 0,
    };
    let mut measured = Measured::default();
    for (at, [runtime, kubelet, direct]) in names.iter().enumerate() {
        // Few Pods at a time keep the machine's load low.
        if at % ROUND == 0 {
            ns.clear().await?;
            ns.start(&names.iter().skip(at).take(ROUND).cloned().collect::<Vec<_>>().concat()).await?;
        }
        let of = |pod: &str| format!("Pod {pod}");
        let by_request = bench.by_request(runtime, Mechanism::Runtime).await;
        measured.runtime.push(by_request.with_context(|| of(runtime))?);
        let by_request = bench.by_request(kubelet, Mechanism::Kubelet).await;
        measured.kubelet.push(by_request.with_context(|| of(kubelet))?);
        measured.direct.push(bench.direct(cluster, direct).await.with_context(|| of(direct))?);
        if measured.direct.len() % ROUND == 0 {
            say(format!("{} of {pods} are done", measured.direct.len()));
        }
    }
    Ok(measured)
}

fn report(measured: &Measured) -> BoundCheck {
    let Measured { runtime, kubelet, direct } = measured;
    let gone = samples(runtime, |m| m.gone);
    let floor = samples(direct, |m| m.gone);
    let completed = samples(runtime, |m| m.completed - m.ready);
    let whole = samples(direct, |m| m.ready);
    let kubelet_whole = samples(kubelet, |m| m.ready);
    let row = |name: &str, samples: &Samples| {
        let [median, min, max, count] = samples.cells();
        [name.to_owned(), median, min, max, count]
    };
    let rows = [
        row("Runtime: create → old process gone", &gone),
        row("Kubelet: create → old process gone", &samples(kubelet, |m| m.gone)),
        row("the same stop straight to the runtime → old process gone (the floor)", &floor),
        row("Runtime: create → new container Ready", &samples(runtime, |m| m.ready)),
        row("Kubelet: create → new container Ready", &kubelet_whole),
        row("the same stop straight to the runtime → new container Ready", &whole),
        row("Runtime: new container Ready → Completed", &completed),
        row("Kubelet: new container Ready → Completed", &samples(kubelet, |m| m.completed - m.ready)),
        row(
            "not ours: old process gone → new container Ready, Runtime",
            &samples(runtime, |m| m.ready - m.gone),
        ),
        row(
            "not ours: old process gone → new container Ready, after the floor's stop",
            &samples(direct, |m| m.ready - m.gone),
        ),
        row("Runtime, the whole: create → Completed", &samples(runtime, |m| m.completed)),
        row("Kubelet, the whole: create → Completed", &samples(kubelet, |m| m.completed)),
    ];
    println!("{}\n", table(["milliseconds", "median", "min", "max", "Pods"], &rows));
    let print_steps = |title: &str, of: &[ByRequest], steps: fn(&ByRequest) -> &[Step]| {
        let rows = steps::rows(of.iter().map(steps));
        println!("{}\n", table([title, "begins", "takes", "min", "max", "Pods"], &rows));
    };
    print_steps("Runtime: create → old process gone, step by step", runtime, |m| &m.stop_steps);
    print_steps("Runtime: new container Ready → Completed, step by step", runtime, |m| &m.end_steps);
    print_steps("Kubelet: create → old process gone, step by step", kubelet, |m| &m.stop_steps);
    let before = gone.median() - floor.median();
    let after = completed.median();
    println!(
        "Runtime: before the stop {} ms ({:.1} times the floor), after the restart {} ms",
        ms(before),
        ratio(gone.median(), floor.median()),
        ms(after)
    );
    let added = before + after;
    let part = ratio(kubelet_whole.median(), whole.median());
    println!("added={} ms kubelet/runtime stop={part:.2} (bounds {ADDED:.0}/{KUBELET:.1})", ms(added));
    BoundCheck::of(added <= ADDED && part <= KUBELET)
}

fn samples<T>(measured: &[T], of: impl Fn(&T) -> f64) -> Samples {
    measured.iter().map(of).collect()
}
