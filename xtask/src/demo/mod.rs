//! `cargo xtask demo`: starts a cluster with pitstop and a small web app, restarts a container of it in place, and
//! shows the real objects. `cargo xtask demo-down` takes it down.

mod compare;
mod follow;
mod heartbeat;
mod install;
mod kubectl;
mod objects;
mod probe;

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use self::follow::Follower;
use self::heartbeat::with_heartbeat;
use self::kubectl::Kubectl;
use self::objects::{PodView, RequestView};
use crate::cluster::Cluster;
use crate::progress::{Step, note};
use crate::workspace::shown;
use crate::{cluster, debian, image};

const FILES: &str = "deploy/demo";
const NAMESPACE: &str = "pitstop-demo";
/// The Pod of the demo, and its container that is restarted.
const POD: &str = "web";
const CONTAINER: &str = "app";
/// The request in `restart.yaml`.
const REQUEST: &str = "restart-app";

/// The command.
pub(crate) fn run(root: &Path) -> Result<()> {
    if !debian::is_root() {
        bail!("a cluster on this machine needs root: `sudo -E env PATH=\"$PATH\" make demo`");
    }
    // Report missing requirements before the long build.
    cluster::install_packages()?;
    cluster::require_go()?;
    let images = with_heartbeat("building images", || image::build(root, false))?;
    let result = show(root, &images);
    if result.is_err() {
        where_the_logs_are(root);
    }
    result.context("the demo failed")
}

/// Takes the cluster down, if there is one.
pub(crate) fn down(root: &Path) -> Result<()> {
    Cluster::of(root).down(false)?;
    note("no cluster runs; what was built is kept in target/");
    Ok(())
}

fn show(root: &Path, images: &[image::Built]) -> Result<()> {
    let step = Step::begin("starting a cluster of one node, or using the one that runs");
    let status = Cluster::of(root).up(&[])?;
    if !status.success() {
        bail!("the cluster did not start: {status}");
    }
    step.done();
    let kubectl = Kubectl::new(root);
    install::pitstop(root, &kubectl, images)?;
    start_app(&kubectl)?;
    restart(root, &kubectl)?;
    go_on(root, &kubectl);
    Ok(())
}

/// Starts a fresh web app.
fn start_app(kubectl: &Kubectl) -> Result<()> {
    let step = Step::begin("starting a web app with a sidecar");
    let file = |name: &str| format!("{FILES}/{name}");
    kubectl.quiet(["apply", "-f", &file("namespace.yaml")])?;
    // Delete the objects of an earlier demo. Requests first: they would refer to a deleted Pod.
    kubectl.quiet(["-n", NAMESPACE, "delete", "containerrecreaterequests", "--all"])?;
    kubectl.quiet(["-n", NAMESPACE, "delete", "pod", POD, "--ignore-not-found", "--grace-period=1"])?;
    kubectl.retry(&["apply", "-f", &file("app.yaml")], "serviceaccount")?;
    let wait = ["-n", NAMESPACE, "wait", "--for=condition=Ready", "--timeout=90s", "pod", POD];
    kubectl.quiet(wait).with_context(|| format!("Pod {POD} does not become ready"))?;
    step.done();
    Ok(())
}

/// Restarts a container of the web app, prints events, and compares the Pod.
fn restart(root: &Path, kubectl: &Kubectl) -> Result<()> {
    let path = root.join(FILES).join("restart.yaml");
    let yaml = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    println!("\nThe request ({}):\n", shown(root, &path));
    for line in yaml.lines() {
        println!("    {line}");
    }

    let before = PodView::read(kubectl.object(NAMESPACE, "pod", POD)?)?;
    let mut follower = Follower::start(kubectl)?;
    let starts = follower.count_starts()?;
    println!("\nWhat happens, in milliseconds since the request was there:\n");
    kubectl.quiet(["apply", "-f", &format!("{FILES}/restart.yaml")])?;
    let times = follower.follow()?;
    let starts = (starts, follower.count_starts()?);
    drop(follower);

    let after = PodView::read(kubectl.object(NAMESPACE, "pod", POD)?)?;
    let request = RequestView::read(kubectl.object(NAMESPACE, "containerrecreaterequest", REQUEST)?)?;
    let rows = compare::rows(&before, &after, starts);
    println!("\nThe Pod before and after:\n\n{}\n", compare::table(&rows));
    println!("The app was away for {}.\n", times.away());
    compare::broken_promises(&rows, &request).map_or(Ok(()), |text| bail!(text))
}

fn go_on(root: &Path, kubectl: &Kubectl) {
    let program = kubectl.program().display();
    println!("To go on by hand:\n");
    println!("    export KUBECONFIG={}", Cluster::of(root).kubeconfig().display());
    println!("    alias kubectl={program}");
    println!("    kubectl -n {NAMESPACE} get pod,crr");
    println!(
        "    kubectl create -f {}    # both containers",
        root.join(FILES).join("restart-both.yaml").display()
    );
    println!(
        "    kubectl -n {NAMESPACE} get pod,crr --watch    # the kubelet's back-off makes a second restart"
    );
    println!(
        "                                                  # within minutes wait for 10 seconds or more"
    );
    println!("    kubectl -n {NAMESPACE} describe pod {POD}");
    println!("\nmake demo-down takes it all down.");
}

fn where_the_logs_are(root: &Path) {
    let logs = Cluster::of(root).dir().join("logs");
    if !logs.exists() {
        return;
    }
    note("where to look:");
    note(format!("  logs of the cluster: {}", shown(root, &logs)));
    let kubectl = format!(
        "KUBECONFIG={} {}",
        shown(root, &Cluster::of(root).kubeconfig()),
        shown(root, Kubectl::new(root).program())
    );
    let ways = [
        format!("{kubectl} -n pitstop-system get pods"),
        format!("{kubectl} -n pitstop-system logs -l app.kubernetes.io/name=pitstop --prefix --tail=-1"),
        format!("{kubectl} -n {NAMESPACE} describe pod,crr"),
    ];
    for way in ways {
        note(format!("  {way}"));
    }
}
