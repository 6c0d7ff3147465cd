//! Runs one test: set-up, namespace, report and repair.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{PoisonError, RwLock};

use anyhow::{Context as _, Result, bail, ensure};
use futures::FutureExt as _;
use pitstop_manifests_test::skipped;
use tokio::sync::OnceCell;

use crate::cluster::Cluster;
use crate::ns::{NODE, Ns};
use crate::system::{self, NAMESPACE};

/// Whether pitstop could be deployed; tried once.
static DEPLOYED: OnceCell<Result<(), String>> = OnceCell::const_new();
/// Every running test holds it, exclusively if it needs the cluster alone.
static CLUSTER: RwLock<()> = RwLock::new(());

/// Runs a test alone on the cluster, in its own namespace, with pitstop deployed and healthy.
///
/// Without a `KUBECONFIG` the test is skipped, but in continuous integration it fails.
pub fn on_cluster(test: impl AsyncFnOnce(&Ns) -> Result<()>) -> Result<()> {
    if !has_cluster()? {
        return Ok(());
    }
    let _alone = CLUSTER.write().unwrap_or_else(PoisonError::into_inner);
    runtime()?.block_on(run(test, true))
}

/// The same beside other tests: for a test that changes nothing outside its namespace, and that other such tests do not
/// disturb.
pub fn on_shared_cluster(test: impl AsyncFnOnce(&Ns) -> Result<()>) -> Result<()> {
    if !has_cluster()? {
        return Ok(());
    }
    let _shared = CLUSTER.read().unwrap_or_else(PoisonError::into_inner);
    runtime()?.block_on(run(test, false))
}

/// Runs a test on the cluster with the definitions of pitstop's kinds but without pitstop, which would answer requests.
/// It is skipped or fails like [`on_cluster`]. The next test that needs pitstop deploys it again.
pub fn on_bare_cluster(test: impl AsyncFnOnce(&Cluster) -> Result<()>) -> Result<()> {
    if !has_cluster()? {
        return Ok(());
    }
    let _alone = CLUSTER.write().unwrap_or_else(PoisonError::into_inner);
    runtime()?.block_on(async {
        let cluster = Cluster::connect().await?;
        cluster.install_definitions().await?;
        test(&cluster).await
    })
}

fn has_cluster() -> Result<bool> {
    if std::env::var_os("KUBECONFIG").is_none() {
        skipped("KUBECONFIG is not set; run `cargo xtask test`")?;
        return Ok(false);
    }
    Ok(true)
}

/// The Tokio runtime of one test, or of one of its threads.
pub fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

async fn run(test: impl AsyncFnOnce(&Ns) -> Result<()>, alone: bool) -> Result<()> {
    let cluster = Cluster::connect().await?;
    let deploy = async || deploy(&cluster).await.map_err(|error| format!("{error:#}"));
    if let Err(error) = DEPLOYED.get_or_init(deploy).await {
        bail!("pitstop could not be deployed: {error}");
    }
    system::healthy(&cluster).await.inspect_err(|_| report(&cluster, NAMESPACE))?;
    let ns = Ns::open(cluster).await?;
    let test = async {
        test(&ns).await?;
        assert_no_debug_output(&ns).await
    };
    let outcome = AssertUnwindSafe(test).catch_unwind().await;
    if !matches!(outcome, Ok(Ok(()))) {
        report(&ns.cluster, &ns.name);
        if alone {
            repair(&ns.cluster);
        }
    }
    let closed = ns.close().await;
    match outcome {
        Ok(result) => result.and(closed),
        Err(panic) => resume_unwind(panic),
    }
}

/// Texts that only Rust's debug output contains.
const DEBUG: [&str; 6] = ["Status {", "Some(", "Error {", "ApiError", "HyperError", "ServiceError"];

/// API paths of a namespace where a user reads pitstop's messages.
const MESSAGE_PATHS: [&str; 5] = [
    "/api/v1/namespaces/{}/events",
    "/apis/apps.kruise.io/v1beta1/namespaces/{}/containerrecreaterequests",
    "/apis/pitstop.dev/v1alpha1/namespaces/{}/podresizes",
    "/apis/pitstop.dev/v1alpha1/namespaces/{}/podimageupdates",
    "/apis/pitstop.dev/v1alpha1/namespaces/{}/inplacerollouts",
];

/// Fails when an event or a status shows debug output to a user.
async fn assert_no_debug_output(ns: &Ns) -> Result<()> {
    for path in MESSAGE_PATHS {
        let request = http::Request::get(path.replace("{}", &ns.name)).body(Vec::new())?;
        let text = ns.cluster.client.request_text(request).await?;
        let debug = text.split(',').find(|part| DEBUG.iter().any(|debug| part.contains(debug)));
        ensure!(debug.is_none(), "{path} show debug output: {}", debug.unwrap_or_default());
    }
    Ok(())
}

async fn deploy(cluster: &Cluster) -> Result<()> {
    cluster.install().with_context(|| format!("kubectl apply -k {}", cluster.folder().display()))?;
    system::healthy(cluster).await.inspect_err(|_| report(cluster, NAMESPACE))
}

/// Prints objects and logs that explain a failure.
fn report(cluster: &Cluster, namespace: &str) {
    let programs = "app.kubernetes.io/name=pitstop";
    let logs = ["logs", "-n", NAMESPACE, "-l", programs, "--prefix", "--timestamps", "--tail=60"];
    let looks: [&[&str]; 7] = [
        &["get", "pods,crr,prz,piu,ipr", "-n", namespace, "-o", "wide"],
        &["get", "crr,prz,piu,ipr", "-n", namespace, "-o", "yaml"],
        &["describe", "pods", "-n", namespace],
        &["get", "events", "-n", namespace, "--sort-by=.metadata.creationTimestamp"],
        &["get", "nodework", NODE, "-o", "yaml"],
        &["get", "pods,lease", "-n", NAMESPACE, "-o", "wide"],
        &logs,
    ];
    for look in looks {
        println!("--- kubectl {}", look.join(" "));
        match cluster.kubectl(look) {
            Ok(text) => println!("{text}"),
            Err(error) => println!("{error:#}"),
        }
    }
}

/// Restores what a test may have removed before it failed.
fn repair(cluster: &Cluster) {
    for component in ["apiserver", "containerd@node1", "kubelet@node1"] {
        // It fails only if the component runs.
        let _ = cluster.start(component);
    }
    if let Err(error) = cluster.install() {
        println!("cannot install pitstop again: {error:#}");
    }
}
