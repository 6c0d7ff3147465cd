//! `start`: time until the first output of `kubectl pitstop status`, compared with `kubectl get`.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::PostParams;
use pitstop_api::rollout::InPlaceRollout;
use serde_json::json;

use crate::harness::cluster::kubectl_command;
use crate::harness::figures::{Samples, milliseconds, table};
use crate::harness::pods::Ns;
use crate::harness::{BoundCheck, say};

/// Bound, in milliseconds: delay of the plugin's first output after kubectl's.
const LATER: f64 = 150.0;
/// Pods in the namespace.
const PODS: usize = 5;

/// The benchmark.
pub(crate) async fn run(times: usize) -> Result<BoundCheck> {
    let client = pitstop_kit::client::connect("pitstop-bench", env!("CARGO_PKG_VERSION")).await?;
    let path = path()?;
    let (status, get) = Ns::within(&client, "start", async |ns| measure(ns, &path, times).await).await?;
    Ok(report(&status, &get))
}

/// `PATH` with the plugin's folder first: that of the file in `PITSTOP_CLI`, by default of cargo's release build.
fn path() -> Result<OsString> {
    let program = std::env::var_os("PITSTOP_CLI")
        .map_or_else(|| pitstop_e2e::cluster::root().join("target/release/kubectl-pitstop"), PathBuf::from);
    ensure!(
        program.is_file(),
        "there is no {}: run `cargo build --release -p kubectl-pitstop`",
        program.display()
    );
    let folder = program.parent().context("the program is in no folder")?.to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(std::iter::once(folder).chain(std::env::split_paths(&path)))?)
}

/// Milliseconds to the first byte of the plugin and of kubectl, which take turns.
async fn measure(ns: &Ns, path: &OsString, times: usize) -> Result<(Samples, Samples)> {
    let names: Vec<String> = (0..PODS).map(|i| format!("web-{i}")).collect();
    ns.start(&names).await?;
    // The rollout stays open, so both programs have an object to show.
    let rollout = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "InPlaceRollout", "metadata": {"name": "web"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}});
    let rollouts: Api<InPlaceRollout> = ns.api();
    rollouts.create(&PostParams::default(), &serde_json::from_value(rollout)?).await?;
    let first = |args: &[&str]| -> Result<f64> {
        let mut command = kubectl_command()?;
        command.env("PATH", path).args(args).args(["--namespace", &ns.namespace]);
        first_byte(&mut command)
    };
    say(format!("asking {times} times each"));
    let (mut status, mut get) = (Vec::new(), Vec::new());
    for _ in 0..times {
        get.push(first(&["get", "inplacerollouts"])?);
        status.push(first(&["pitstop", "status"])?);
    }
    Ok((status.into_iter().collect(), get.into_iter().collect()))
}

/// Milliseconds from the start of a program to its first byte of output. Fails unless the program succeeds.
fn first_byte(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
    let mut output = child.stdout.take().context("no pipe")?;
    let read = output.read(&mut [0])?;
    let took = milliseconds(start.elapsed());
    output.read_to_end(&mut Vec::new())?;
    let status = child.wait()?;
    ensure!(status.success() && read == 1, "{command:?} ended with {status} and {read} bytes");
    Ok(took)
}

fn report(status: &Samples, get: &Samples) -> BoundCheck {
    let row = |name: &str, samples: &Samples| {
        let [median, min, max, count] = samples.cells();
        [name.to_owned(), median, min, max, count]
    };
    let rows = [row("kubectl pitstop status", status), row("kubectl get inplacerollouts", get)];
    println!("{}\n", table(["milliseconds to the first byte", "median", "min", "max", "times"], &rows));
    let later = status.median() - get.median();
    println!("later={later:.1} ms (bound {LATER})");
    BoundCheck::of(status.len() > 0 && later <= LATER)
}
