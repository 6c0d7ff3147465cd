//! `idle`: memory of the daemon and of each controller replica when nothing happens.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::harness::cluster::Cluster;
use crate::harness::figures::{mib, table};
use crate::harness::processes::Memory;
use crate::harness::programs::{self, Program};
use crate::harness::{BoundCheck, say};

/// Bound of each program's resident memory, in MiB.
const BOUNDS: [(&str, u64); 2] = [("daemon", 12), ("controller", 24)];
/// Minimum age of a measured process, because a starting process is not idle.
const SETTLED: Duration = Duration::from_secs(30);
/// Samples, one a second. The largest counts.
const LOOKS: u32 = 10;

/// The benchmark.
pub(crate) async fn run() -> Result<BoundCheck> {
    let cluster = Cluster::connect().await?;
    let programs = programs::find(&cluster.client).await?;
    settle(&programs).await;
    let mut found = vec![Memory::default(); programs.len()];
    for _ in 0..LOOKS {
        for (program, memory) in programs.iter().zip(&mut found) {
            let now =
                Memory::of(program.pid).with_context(|| format!("Pod {} ended meanwhile", program.pod))?;
            *memory = memory.max(now);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(report(&programs, &found, &programs::leader(&cluster.client).await?))
}

/// Waits until the youngest process is [`SETTLED`] old. Cluster and benchmark share one clock.
async fn settle(programs: &[Program]) {
    let Some(youngest) = programs.iter().map(|program| program.started).max() else { return };
    let age = youngest.elapsed().unwrap_or_default();
    if let Some(rest) = SETTLED.checked_sub(age) {
        say(format!("pitstop is {} s old; waiting {} s more", age.as_secs(), rest.as_secs()));
        tokio::time::sleep(rest).await;
    }
}

fn report(programs: &[Program], found: &[Memory], leader: &str) -> BoundCheck {
    let rows: Vec<_> = programs
        .iter()
        .zip(found)
        .map(|(program, memory)| {
            let file = memory.resident.saturating_sub(memory.anonymous);
            [program.title(leader), mib(memory.resident), mib(memory.anonymous), mib(file), mib(memory.peak)]
        })
        .collect();
    println!("{}\n", table(["MiB", "RSS", "of it anonymous", "of files", "peak RSS"], &rows));
    let most = |component: &str| {
        let of = programs.iter().zip(found).filter(|(program, _)| program.component == component);
        of.map(|(_, memory)| memory.resident).max().unwrap_or_default()
    };
    let results: Vec<String> =
        BOUNDS.iter().map(|(component, _)| format!("{component}={} MiB", mib(most(component)))).collect();
    let bounds: Vec<String> = BOUNDS.iter().map(|(_, bound)| bound.to_string()).collect();
    println!("{} (bounds {})", results.join(" "), bounds.join("/"));
    BoundCheck::of(BOUNDS.iter().all(|(component, bound)| most(component) <= bound * 1024))
}
