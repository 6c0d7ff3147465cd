//! `latency`: what pitstop adds to the restart of a container.
//!
//! Half of the Pods are restarted by request. In the other half the same container gets the same stop straight
//! from here, through the same socket: the floor, below which no one who stops containers through the runtime
//! can be. What comes between the stop and the new container is the kubelet's, with and without pitstop.

mod measure;
mod steps;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;

use self::measure::{Bench, ByRequest, Direct};
use self::steps::Step;
use crate::harness::cluster::Cluster;
use crate::harness::figures::{Samples, ms, table};
use crate::harness::pods::Yard;
use crate::harness::tape::Tape;
use crate::harness::{Verdict, say};

/// Most that pitstop may add, in milliseconds; what `OpenKruise` 1.9 adds.
const BOUND: f64 = 36.0;

/// The benchmark.
pub(crate) async fn run(pods: usize) -> Result<Verdict> {
    let cluster = Cluster::connect().await?;
    let yard = Yard::open(&cluster.client, "latency").await?;
    let measured = measure(&cluster, &yard, pods).await;
    let closed = yard.close().await;
    let (by_request, direct) = measured?;
    closed?;
    Ok(report(&by_request, &direct))
}

async fn measure(cluster: &Cluster, yard: &Yard, pods: usize) -> Result<(Vec<ByRequest>, Vec<Direct>)> {
    let names = |set: &str| (0..pods).map(|i| format!("{set}-{i}")).collect::<Vec<_>>();
    let (requested, stopped) = (names("request"), names("direct"));
    say(format!("starting {} Pods in namespace {}", 2 * pods, yard.namespace));
    yard.start(&[requested.as_slice(), stopped.as_slice()].concat()).await?;
    let mut bench = Bench {
        yard,
        pods: Tape::<Pod>::start(yard.api()).await?,
        requests: Tape::start(yard.api()).await?,
        audit_log: cluster.audit_log(),
        done: 0,
    };
    let mut by_request = Vec::new();
    let mut direct = Vec::new();
    for (requested, stopped) in requested.iter().zip(&stopped) {
        by_request.push(bench.by_request(requested).await.with_context(|| format!("Pod {requested}"))?);
        direct.push(bench.direct(cluster, stopped).await.with_context(|| format!("Pod {stopped}"))?);
        if by_request.len() % 5 == 0 {
            say(format!("{} of {pods} Pods of each set are done", by_request.len()));
        }
    }
    Ok((by_request, direct))
}

fn report(by_request: &[ByRequest], direct: &[Direct]) -> Verdict {
    let request = |of: fn(&ByRequest) -> f64| samples(by_request, of);
    let gone = request(|m| m.gone);
    let floor = samples(direct, |m| m.gone);
    let completed = request(|m| m.completed - m.ready);
    let row = |name: &str, samples: &Samples| {
        let [median, min, max, count] = samples.cells();
        [name.to_owned(), median, min, max, count]
    };
    let rows = [
        row("create → old process gone", &gone),
        row("the same stop straight to the runtime → old process gone (the floor)", &floor),
        row("new container Ready → Completed", &completed),
        row(
            "not ours: old process gone → new container Ready, after a request",
            &request(|m| m.ready - m.gone),
        ),
        row(
            "not ours: old process gone → new container Ready, after the floor's stop",
            &samples(direct, |m| m.ready - m.gone),
        ),
        row("the whole: create → Completed", &request(|m| m.completed)),
    ];
    println!("{}\n", table(["milliseconds", "median", "min", "max", "Pods"], &rows));
    let print_steps = |title: &str, of: fn(&ByRequest) -> &[Step]| {
        let rows = steps::rows(by_request.iter().map(of));
        println!("{}\n", table([title, "begins", "takes", "min", "max", "Pods"], &rows));
    };
    print_steps("create → old process gone, step by step", |m| &m.stop_steps);
    print_steps("new container Ready → Completed, step by step", |m| &m.end_steps);
    let before = gone.median() - floor.median();
    let after = completed.median();
    let ratio = if floor.median() > 0.0 { gone.median() / floor.median() } else { 0.0 };
    println!(
        "before the stop {} ms ({ratio:.1} times the floor), after the restart {} ms",
        ms(before),
        ms(after)
    );
    let added = before + after;
    println!("added={} ms (bound {BOUND:.0})", ms(added));
    Verdict::of(added <= BOUND)
}

fn samples<T>(measured: &[T], of: impl Fn(&T) -> f64) -> Samples {
    measured.iter().map(of).collect()
}
