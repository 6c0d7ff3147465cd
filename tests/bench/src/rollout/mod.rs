//! `rollout`: updates of a Deployment's image, by an `InPlaceRollout`, by the Deployment's own rolling update, and by a
//! script that patches the Pods. All three update the same number of Pods at a time, and the nodes have the images.

mod measure;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use pitstop_e2e::{cluster::Cluster as Lab, images};

use self::measure::{Bench, Rolled, TAGS};
use crate::harness::cluster::Cluster;
use crate::harness::figures::{counted, ratio, table};
use crate::harness::pods::Ns;
use crate::harness::{BoundCheck, say};

/// Bound: time of the rollouts, divided by the scripts'.
const FLOOR: f64 = 1.3;
/// Bound: time of the rollouts, divided by the rolling updates'.
const NATIVE: f64 = 0.34;
/// Bound: API writes of pitstop per Pod: those of an image update plus four.
const WRITES: f64 = 12.0;

/// Parameters of the benchmark.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Pods of the Deployment.
    #[arg(long, default_value_t = 100)]
    pods: usize,
    /// Pods updated at a time.
    #[arg(long, default_value_t = 10)]
    at_a_time: usize,
    /// Seconds after which a container's first probe can succeed. 0: no probe, ready at once.
    #[arg(long, default_value_t = 0)]
    ready_after: u32,
    /// Rounds, each of one update in each way. The bounds are for their sum.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,
}

/// One round: the rolling update, the script, the rollout.
type Round = [Rolled; 3];

/// The benchmark.
pub(crate) async fn run(args: &Args) -> Result<BoundCheck> {
    let cluster = Cluster::connect().await?;
    let lab = Lab::connect().await?;
    lab.install_with(&["image-update", "in-place"])?;
    let measured = Ns::within(&cluster.client, "rollout", async |ns| {
        images::opt_in(&lab, &ns.namespace)?;
        let Args { pods, at_a_time, ready_after, .. } = *args;
        let bench = Bench { ns, lab: &lab, audit_log: cluster.audit_log(), pods, at_a_time, ready_after };
        measure(&bench, args.rounds).await
    })
    .await;
    images::remove_in_place(&lab)?;
    lab.install()?;
    Ok(report(&measured?, args.pods))
}

/// Measures rounds of the script, the rolling update and the rollout. In this order, and with a rolling update between
/// two rounds, script and rollout update Pods whose containers have never been replaced: once a minute a kubelet removes
/// the remains of replaced ones.
async fn measure(bench: &Bench<'_>, rounds: u8) -> Result<Vec<Round>> {
    bench.start().await.context("cannot start the Deployment")?;
    say(format!("{} Pods are ready", bench.pods));
    let mut tags = TAGS.into_iter().cycle().skip(1);
    let mut tag = || tags.next().unwrap_or_default();
    let mut all = Vec::new();
    for round in 1..=rounds {
        if round > 1 {
            bench.natively(tag()).await.context("the rolling update between two rounds")?;
        }
        let script = bench.by_script(tag()).await.context("the script")?;
        say(format!("round {round}: the script is done"));
        let native = bench.natively(tag()).await.context("the rolling update")?;
        say(format!("round {round}: the rolling update is done"));
        let rollout = bench.by_rollout(tag()).await.context("the rollout")?;
        say(format!(
            "round {round}: the rollout is done, rollout/script={:.2}",
            ratio(rollout.whole, script.whole)
        ));
        all.push([native, script, rollout]);
    }
    Ok(all)
}

fn report(rounds: &[Round], pods: usize) -> BoundCheck {
    let each = |name: &str, of: fn(&Round) -> &Rolled| {
        let seconds: Vec<String> = rounds.iter().map(|round| format!("{:.1}", of(round).whole)).collect();
        let gap = rounds.iter().map(|round| of(round).gap).sum::<f64>() / counted(rounds.len());
        let made: usize = rounds.iter().map(|round| of(round).made).sum();
        [name.to_owned(), seconds.join(", "), format!("{gap:.2}"), made.to_string()]
    };
    let rows = [
        each("rolling update of the Deployment", |[native, ..]| native),
        each("script that patches the Pods (the floor)", |[_, script, _]| script),
        each("InPlaceRollout", |[.., rollout]| rollout),
    ];
    println!(
        "{}\n",
        table([&*format!("{pods} Pods"), "seconds", "seconds out of service, per Pod", "Pods made"], &rows)
    );
    let updated = counted(pods * rounds.len());
    let mut counts = BTreeMap::<&str, usize>::new();
    for (what, count) in rounds.iter().flat_map(|[.., rollout]| &rollout.writes.counts) {
        *counts.entry(what).or_default() += count.all;
    }
    let rows: Vec<_> = counts
        .iter()
        .map(|(what, count)| {
            [(*what).to_owned(), count.to_string(), format!("{:.2}", counted(*count) / updated)]
        })
        .collect();
    println!("{}\n", table(["API writes", "number", "for each Pod"], &rows));
    let whole = |of: fn(&Round) -> &Rolled| rounds.iter().map(|round| of(round).whole).sum::<f64>();
    let rollouts = whole(|[.., rollout]| rollout);
    let floor = ratio(rollouts, whole(|[_, script, _]| script));
    let own = ratio(rollouts, whole(|[native, ..]| native));
    let writes = counted(counts.values().sum()) / updated;
    println!(
        "rollout/script={floor:.2} rollout/rolling update={own:.2} writes/Pod={writes:.2} (bounds {FLOOR}/{NATIVE}/{WRITES})"
    );
    let made = rounds.iter().any(|[.., rollout]| rollout.made > 0);
    BoundCheck::of(floor <= FLOOR && own <= NATIVE && writes <= WRITES && !made)
}
