//! `scale`: the production controller with the API server of a large cluster.
//!
//! Nodes and Pods are simulated: the production core of the daemon for each node, and a model of runtime and kubelet.
//! The API server, etcd and the controller are real. Each scenario needs its own cluster.

mod bound;
mod bulk;
mod cluster;
mod controller;
mod ends;
mod hostile;
mod lease;
mod ledger;
mod load;
mod objects;
mod owner;
mod player;
mod probe;
mod purpose;
mod queue;
mod roll;
mod sizes;
mod spread;
mod stage;
mod unrolled;
mod workloads;

use std::time::Instant;

use anyhow::Result;

use self::bound::report;
pub(crate) use self::sizes::{Args, Scenario};
use self::stage::Stage;
use crate::harness::{BoundCheck, say};

/// The benchmark.
pub(crate) async fn run(args: &Args) -> Result<BoundCheck> {
    let begin = Instant::now();
    let sizes = args.sizes();
    say(format!("scenario {}: {sizes}", args.scenario.name()));
    let stage = Stage::prepare(args.scenario.components()).await?;
    let figures = match args.scenario {
        Scenario::Cluster => cluster::run(&stage, &sizes).await?,
        Scenario::Queue => queue::run(&stage, &sizes).await?,
        Scenario::Spread => spread::run(&stage, &sizes).await?,
        Scenario::Hostile => hostile::run(&stage, &sizes).await?,
        Scenario::Roll => roll::run(&stage, &sizes).await?,
        Scenario::Unrolled => unrolled::run(&stage, &sizes).await?,
    };
    let result = report(args.scenario.name(), &figures);
    say(format!("scenario {} took {} s", args.scenario.name(), begin.elapsed().as_secs()));
    Ok(result)
}
