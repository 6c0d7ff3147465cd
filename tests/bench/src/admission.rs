//! `admission`: API server time that pitstop's admission policies add to other clients' writes.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use pitstop_e2e::Cluster as Lab;
use serde_json::json;

use crate::harness::cluster::{Cluster, kubectl};
use crate::harness::figures::{counted, ratio, table};
use crate::harness::pods::Ns;
use crate::harness::processes::cpu;
use crate::harness::{BoundCheck, say};

/// The measured kinds of writes.
const KINDS: [&str; 4] = ["Lease", "status of a Pod", "label of a Pod", "label of a Deployment"];
/// Bound for each kind: processor time with the policies, divided by the time without them.
const BOUNDS: [f64; 4] = [1.1, 1.25, 1.25, 1.5];
/// Measurements of each kind with and without the policies.
const ROUNDS: usize = 3;
/// Time until a change of policies takes effect.
const SETTLE: Duration = Duration::from_secs(5);
/// Time for which the idle API server is measured.
const IDLE: Duration = Duration::from_secs(10);
const NAME: &str = "web-0";

/// Processor time and wall-clock time.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    cpu: Duration,
    passed: Duration,
}

/// The benchmark, with `writes` writes of each kind per round.
pub(crate) async fn run(writes: usize) -> Result<BoundCheck> {
    let cluster = Cluster::connect().await?;
    let server = cluster.component("kube-apiserver")?;
    let lab = Lab::connect().await?;
    let measured = Ns::within(&cluster.client, "admission", async |ns| {
        prepare(ns).await?;
        measure(ns, &lab, server, writes).await
    })
    .await;
    lab.install()?;
    Ok(report(&measured?, writes))
}

/// Creates the objects that are written.
async fn prepare(ns: &Ns) -> Result<()> {
    ns.start(&[NAME.to_owned()]).await?;
    let make = PostParams::default();
    let lease = json!({"metadata": {"name": NAME}, "spec": {"holderIdentity": NAME}});
    ns.api::<Lease>().create(&make, &serde_json::from_value(lease)?).await?;
    let container = json!({"name": "app", "image": "pitstop.dev/test/busybox:1", "env": (0..8)
        .map(|i| json!({"name": format!("VARIABLE_{i}"), "value": "value"})).collect::<Vec<_>>()});
    let deployment = json!({"metadata": {"name": NAME}, "spec": {"replicas": 0, "selector": {"matchLabels": {"app": NAME}},
        "template": {"metadata": {"labels": {"app": NAME}}, "spec": {"containers": [container]}}}});
    ns.api::<Deployment>().create(&make, &serde_json::from_value(deployment)?).await?;
    Ok(())
}

/// Processor time of the API server per write of each kind, in microseconds: without the policies, with them.
async fn measure(ns: &Ns, lab: &Lab, server: u32, writes: usize) -> Result<[[f64; 2]; KINDS.len()]> {
    let idle = spent(server, async || {
        tokio::time::sleep(IDLE).await;
        Ok(())
    })
    .await?;
    let idle = ratio(idle.cpu.as_secs_f64(), idle.passed.as_secs_f64());
    say(format!("the API server takes {idle:.3} of a processor while nobody writes"));
    let mut all = [[0.0; 2]; KINDS.len()];
    for round in 0..ROUNDS {
        for (with, of) in [(true, 1), (false, 0)] {
            if with {
                lab.install_with(&["image-update", "in-place", "park"])?;
            } else {
                let bindings = "validatingadmissionpolicybindings,mutatingadmissionpolicybindings";
                kubectl(&["delete", bindings, "--selector", "app.kubernetes.io/name=pitstop"])?;
            }
            tokio::time::sleep(SETTLE).await;
            for (kind, found) in all.iter_mut().enumerate() {
                let Spent { cpu, passed } =
                    spent(server, async || write(ns, kind, writes, round).await).await?;
                let own = cpu.as_secs_f64() - idle * passed.as_secs_f64();
                if let Some(sum) = found.get_mut(of) {
                    *sum += own / counted(writes * ROUNDS) * 1e6;
                }
            }
        }
    }
    Ok(all)
}

async fn spent(server: u32, act: impl AsyncFnOnce() -> Result<()>) -> Result<Spent> {
    let (before, begin) = (cpu(server)?, Instant::now());
    act().await?;
    let after = cpu(server)?;
    Ok(Spent { cpu: after.checked_sub(before).context("a clock ran backwards")?, passed: begin.elapsed() })
}

/// Writes one after another. Every write changes the object.
async fn write(ns: &Ns, kind: usize, writes: usize, round: usize) -> Result<()> {
    let params = PatchParams::default();
    for i in 0..writes {
        let value = format!("{round}-{i}");
        let label = Patch::Merge(json!({"metadata": {"labels": {"bench": value}}}));
        match kind {
            0 => {
                let holder = Patch::Merge(json!({"spec": {"holderIdentity": value}}));
                ns.api::<Lease>().patch(NAME, &params, &holder).await.map(drop)
            }
            1 => {
                let condition = json!({"type": "pitstop.dev/bench", "status": "True", "message": value});
                let status = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
                ns.api::<Pod>().patch_status(NAME, &params, &status).await.map(drop)
            }
            2 => ns.api::<Pod>().patch(NAME, &params, &label).await.map(drop),
            _ => ns.api::<Deployment>().patch(NAME, &params, &label).await.map(drop),
        }?;
    }
    Ok(())
}

fn report(measured: &[[f64; 2]; KINDS.len()], writes: usize) -> BoundCheck {
    let parts = measured.map(|[without, with]| ratio(with, without));
    let rows: Vec<_> = KINDS
        .iter()
        .zip(measured)
        .zip(parts)
        .map(|((kind, [without, with]), part)| {
            [(*kind).to_owned(), format!("{without:.0}"), format!("{with:.0}"), format!("{part:.2}")]
        })
        .collect();
    let head = format!("microseconds of the API server, {} writes", writes * ROUNDS);
    println!("{}\n", table([&*head, "without the policies", "with them", "with/without"], &rows));
    let shown = |all: &[f64]| all.iter().map(|part| format!("{part:.2}")).collect::<Vec<_>>().join("/");
    println!("with/without={} (bounds {})", shown(&parts), shown(&BOUNDS));
    BoundCheck::of(parts.iter().zip(BOUNDS).all(|(part, bound)| *part <= bound))
}
