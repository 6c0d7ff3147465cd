//! `rollout`: updates of a Deployment's image, by an `InPlaceRollout`, by the Deployment's own rolling update, and by a
//! script that patches the Pods. All three update the same number of Pods at a time, and the nodes have the images.

mod measure;

use anyhow::{Context as _, Result};
use pitstop_e2e::{cluster::Cluster as Lab, images};

use self::measure::{Bench, Rolled};
use crate::harness::cluster::Cluster;
use crate::harness::figures::{counted, ratio, table};
use crate::harness::pods::Ns;
use crate::harness::{BoundCheck, say};

/// Bound: time of the rollout, divided by the script's.
const FLOOR: f64 = 1.3;
/// Bound: time of the rollout, divided by the rolling update's.
const NATIVE: f64 = 0.34;
/// Bound: API writes of pitstop per Pod: those of an image update plus four.
const WRITES: f64 = 12.0;

/// The benchmark, with `at_a_time` of `pods` Pods at a time. Containers are ready after `ready_after` seconds.
pub(crate) async fn run(pods: usize, at_a_time: usize, ready_after: u32) -> Result<BoundCheck> {
    let cluster = Cluster::connect().await?;
    let lab = Lab::connect().await?;
    lab.install_with(&["image-update", "in-place"])?;
    let measured = Ns::within(&cluster.client, "rollout", async |ns| {
        images::opt_in(&lab, &ns.namespace)?;
        let bench = Bench { ns, lab: &lab, audit_log: cluster.audit_log(), pods, at_a_time, ready_after };
        measure(&bench).await
    })
    .await;
    images::remove_in_place(&lab)?;
    lab.install()?;
    Ok(report(&measured?, pods))
}

/// Measures the script, the rolling update and the rollout. In this order, script and rollout update Pods whose
/// containers have never been replaced: once a minute a kubelet removes the remains of replaced ones.
async fn measure(bench: &Bench<'_>) -> Result<[Rolled; 3]> {
    bench.start().await.context("cannot start the Deployment")?;
    say(format!("{} Pods are ready", bench.pods));
    let script = bench.by_script().await.context("the script")?;
    say("the script is done");
    let native = bench.natively().await.context("the rolling update")?;
    say("the rolling update is done");
    let rollout = bench.by_rollout().await.context("the rollout")?;
    Ok([native, script, rollout])
}

fn report([native, script, rollout]: &[Rolled; 3], pods: usize) -> BoundCheck {
    let row = |name: &str, rolled: &Rolled| {
        let Rolled { whole, gap, made, .. } = rolled;
        [name.to_owned(), format!("{whole:.2}"), format!("{gap:.2}"), made.to_string()]
    };
    let rows = [
        row("rolling update of the Deployment", native),
        row("script that patches the Pods (the floor)", script),
        row("InPlaceRollout", rollout),
    ];
    println!(
        "{}\n",
        table([&*format!("{pods} Pods"), "seconds", "seconds out of service, per Pod", "Pods made"], &rows)
    );
    let each = |count: usize| counted(count) / counted(pods);
    let rows: Vec<_> = rollout
        .writes
        .counts
        .iter()
        .map(|(what, count)| [what.clone(), count.all.to_string(), format!("{:.2}", each(count.all))])
        .collect();
    println!("{}\n", table(["API writes", "number", "for each Pod"], &rows));
    let (floor, own) = (ratio(rollout.whole, script.whole), ratio(rollout.whole, native.whole));
    let writes = each(rollout.writes.total());
    println!(
        "rollout/script={floor:.2} rollout/rolling update={own:.2} writes/Pod={writes:.2} (bounds {FLOOR}/{NATIVE}/{WRITES})"
    );
    BoundCheck::of(floor <= FLOOR && own <= NATIVE && writes <= WRITES && rollout.made == 0)
}
