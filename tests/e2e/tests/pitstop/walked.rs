//! What somebody new does who reads the task pages: their examples, pasted one after the other, do what the pages say.

use pitstop_e2e::images::{REPOSITORY, with_parking};
use pitstop_e2e::{Cluster, Ns, Result, ensure, on_cluster, on_shared_cluster};

use crate::updates::images;

/// What the examples of restarts and resizes make.
const MADE: [&str; 11] = [
    "crr/hook-0-restart",
    "crr/job-restart",
    "crr/web-0-late",
    "crr/web-0-restart",
    "deployment/web",
    "ipr/web",
    "namespace/shop",
    "pod/hook-0",
    "pod/job",
    "pod/web-0",
    "prz/web-0-grow",
];

/// In place of the images of public registries: what this one runs goes on until it is asked to end, as servers do.
fn image(tag: &str) -> String {
    format!("{REPOSITORY}:{tag}")
}

/// Restarts, one that fails, a resize, a drain and a whole workload, in the namespaces of the pages.
#[test]
fn somebody_new_restarts_and_resizes_containers() -> Result<()> {
    on_shared_cluster(async |ns| {
        let outcome = restarts_and_resizes(&ns.cluster);
        ns.cluster.kubectl(&[&["delete", "--ignore-not-found"], &MADE[..]].concat())?;
        outcome
    })
}

fn restarts_and_resizes(cluster: &Cluster) -> Result<()> {
    let get = |what: &[&str], path: &str| {
        cluster.kubectl(&[&["get"], what, &["--output", &format!("jsonpath={path}")]].concat())
    };
    let one = image("1");
    let images = ["nginx:1.28", "nginx:1.29", "redis:8"].map(|public| (public, &*one));
    cluster.documented("try-restart-a-container", &images)?;
    let restarts = "{range .status.containerStatuses[*]}{.name}={.restartCount} {end}";
    let restarts = get(&["pod", "web-0"], restarts)?;
    ensure!(restarts == "app=2 sidecar=0 ", "restarted: {restarts}");
    let failed = get(&["crr", "web-0-late"], "{.status.conditions[?(@.type==\"Failed\")].reason}")?;
    ensure!(failed == "DeadlineExceeded", "the request that is late: {failed}");

    // The Pod is that of the page before.
    let soon = [&images[..], &[("observeSeconds: 120", "observeSeconds: 2")]].concat();
    cluster.documented("try-resize-a-pod", &soon)?;
    let memory = get(&["pod", "web-0"], "{.spec.containers[0].resources.limits.memory}")?;
    ensure!(memory == "192Mi", "the limit after the resize: {memory}");

    cluster.documented("try-prestop-hooks", &images)?;
    let hook = "{.status.conditions[?(@.type==\"PreStopHookFailed\")].status}";
    let hook = get(&["crr", "hook-0-restart"], hook)?;
    ensure!(hook.is_empty(), "the hook failed: {hook}");

    cluster.documented("try-restart-through-the-kubelet", &images)?;
    let restarts = get(&["pod", "job"], "{.status.containerStatuses[0].restartCount}")?;
    ensure!(restarts == "1", "restarted through the kubelet: {restarts}");

    let soon = [&images[..], &[("unreadyGracePeriodSeconds: 10", "unreadyGracePeriodSeconds: 2")]].concat();
    cluster.documented("try-drain-before-restart", &soon)?;
    cluster.documented("try-restart-a-workload", &images)?;
    let result = get(&["ipr", "web"], "{.status.history[0].result}")?;
    ensure!(result == "Restarted", "the workload: {result}");
    cluster.documented("try-look", &[])
}

/// New images: for a Pod, for a workload, and for Pods that a selector names.
#[test]
fn somebody_new_updates_images() -> Result<()> {
    let test = async |ns: &Ns| {
        let (one, two) = (image("1"), image("2"));
        // `kubectl create deployment` names the container by its image.
        let container = format!("busybox={two}");
        let (flag, field) = (format!("--namespace={}", ns.name), format!("namespace: {}", ns.name));
        let texts = [
            ("--namespace=shop", &*flag),
            ("namespace: shop", &field),
            ("--namespace=train", &flag),
            ("nginx=nginx:1.29", &container),
            ("nginx:1.28", &one),
            ("nginx:1.29", &two),
            ("registry.example.com/train/worker:v1", &one),
            ("registry.example.com/train/worker:v2", &two),
            ("registry.example.com/train/worker:v3", &one),
            ("soakSeconds: 60", "soakSeconds: 1"),
        ];
        let cluster = &ns.cluster;
        cluster.documented("try-update-an-image", &texts)?;
        cluster.documented("try-update-a-workload", &texts)?;
        images(ns, "2").await?;

        ns.kubectl(&["delete", "deployments,ipr,pods", "--all"])?;
        cluster.documented("try-update-pods-by-labels", &texts)?;
        cluster.documented("update-by-labels", &texts)?;
        images(ns, "2").await?;
        cluster.documented("try-update-pods-by-labels-again", &texts)?;
        let changed = format!("--for=jsonpath={{.spec.containers[0].image}}={one}");
        ns.kubectl(&["wait", "pod/worker", &changed, "--timeout=2m"]).map(drop)
    };
    on_cluster(async |ns| with_parking(ns, test(ns)).await)
}
