//! A new user pastes the examples of the task pages in order, and they do what the pages say.

use pitstop_e2e::images::{REPOSITORY, with_parking};
use pitstop_e2e::{LONG, Ns, Result, ensure, on_cluster, on_shared_cluster, pods, until};

use crate::updates::images;

/// Replaces the images of public registries. Its program runs until SIGTERM, as servers do.
fn image(tag: &str) -> String {
    format!("{REPOSITORY}:{tag}")
}

/// The pages' namespaces and their replacement: the test's namespace, which `kubectl` uses if a command names none.
fn here(name: &str) -> Vec<(&'static str, String)> {
    vec![
        ("kubectl ", format!("kubectl --namespace={name} ")),
        ("--namespace=shop", format!("--namespace={name}")),
        ("--namespace shop", format!("--namespace {name}")),
        ("--namespace=train", format!("--namespace={name}")),
        ("namespace shop", format!("namespace {name}")),
        ("namespace: shop", format!("namespace: {name}")),
        ("namespace: default", format!("namespace: {name}")),
    ]
}

fn borrowed<'a>(texts: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    texts.iter().map(|(from, to)| (*from, to.as_str())).collect()
}

/// Restarts, one that fails, a resize, a preStop hook, a drain and a whole workload.
#[test]
fn somebody_new_restarts_and_resizes_containers() -> Result<()> {
    on_shared_cluster(restarts_and_resizes)
}

async fn restarts_and_resizes(ns: &Ns) -> Result<()> {
    let public = ["nginx:1.28", "nginx:1.29", "redis:8"].map(|public| (public, image("1")));
    let soon = [
        ("observeSeconds: 120", "observeSeconds: 2"),
        ("unreadyGracePeriodSeconds: 10", "unreadyGracePeriodSeconds: 2"),
        // So that the log shows it.
        (r#"command: [sleep, "3"]"#, r#"command: [sh, -c, "echo the hook ran > /proc/1/fd/1"]"#),
    ];
    let texts: Vec<_> = [here(&ns.name), public.to_vec()].concat();
    let texts = [borrowed(&texts), soon.to_vec()].concat();
    let paste = |mark: &str| ns.cluster.documented(mark, &texts);
    let get = |what: &[&str], path: &str| {
        ns.kubectl(&[&["get"], what, &["--output", &format!("jsonpath={path}")]].concat())
    };

    paste("try-restart-a-container")?;
    let failed = get(&["crr", "web-0-late"], "{.status.conditions[?(@.type==\"Failed\")].reason}")?;
    ensure!(failed == "DeadlineExceeded", "the request that is late: {failed}");
    // The kubelet delays a container that ends for the second time.
    until("the container of the late request", LONG, async || {
        let pod = ns.pod("web-0").await?;
        Ok((pods::restarts(&pod, "app")? == 2 && pods::is_ready(&pod)).then_some(()))
    })
    .await?;
    ensure!(pods::restarts(&ns.pod("web-0").await?, "sidecar")? == 0, "the sidecar was restarted, too");

    // The Pod is from the previous page.
    paste("try-resize-a-pod")?;
    let memory = get(&["pod", "web-0"], "{.spec.containers[0].resources.limits.memory}")?;
    ensure!(memory == "192Mi", "the limit after the resize: {memory}");

    paste("try-prestop-hooks")?;
    let output = ns.kubectl(&["logs", "hook-0", "--previous"])?;
    ensure!(output.contains("the hook ran"), "{output}");

    paste("try-restart-through-the-kubelet")?;
    ensure!(pods::restarts(&ns.pod("job").await?, "job")? == 1, "not restarted through the kubelet");

    // Another Pod of the same name, which the pages put into another namespace.
    ns.kubectl(&["delete", "crr,pods", "--all"])?;
    paste("try-drain-before-restart")?;
    ensure!(pods::restarts(&ns.pod("web-0").await?, "app")? == 1, "not restarted after the drain");

    ns.kubectl(&["delete", "crr,pods", "--all"])?;
    paste("try-restart-a-workload")?;
    let restarts = get(&["pods"], "{.items[*].status.containerStatuses[*].restartCount}")?;
    ensure!(restarts == "1 1 1", "restarts of the workload's Pods: {restarts}");
    paste("try-look")
}

/// New images: for a Pod, for a workload, and for Pods that a selector names.
#[test]
fn somebody_new_updates_images() -> Result<()> {
    let test = async |ns: &Ns| {
        let more = [
            // `kubectl create deployment` names the container by its image.
            ("nginx=nginx:1.29", format!("busybox={}", image("2"))),
            ("nginx:1.28", image("1")),
            ("nginx:1.29", image("2")),
            ("registry.example.com/train/worker:v1", image("1")),
            ("registry.example.com/train/worker:v2", image("2")),
            ("registry.example.com/train/worker:v3", image("1")),
            ("soakSeconds: 60", "soakSeconds: 1".to_owned()),
        ];
        let texts: Vec<_> = [here(&ns.name), more.to_vec()].concat();
        let texts = borrowed(&texts);
        let paste = |mark: &str| ns.cluster.documented(mark, &texts);
        paste("try-update-an-image")?;
        paste("try-update-a-workload")?;
        images(ns, "2").await?;

        ns.kubectl(&["delete", "ipr,deployments", "--all", "--cascade=foreground"])?;
        ns.kubectl(&["delete", "pods", "--all"])?;
        paste("try-update-pods-by-labels")?;
        paste("update-by-labels")?;
        images(ns, "2").await?;
        paste("try-update-pods-by-labels-again")?;
        images(ns, "1").await
    };
    on_cluster(async |ns| with_parking(ns, test(ns)).await)
}
