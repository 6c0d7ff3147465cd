//! Whichever component dies at whichever point, the request completes, and the container is restarted exactly once.

use k8s_openapi::api::core::v1::Pod;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_e2e::system::{self, CONTROLLER};
use pitstop_e2e::{LONG, Ns, Result, SHORT, on_cluster, pods, requests, until};
use serde_json::json;

const CONTAINERD: &str = "containerd@node1";

/// How far a request is when a component dies.
#[derive(Clone, Copy)]
enum Point {
    /// The order is placed, but the daemon cannot act on it: the runtime is stopped.
    BeforeStop,
    /// The container has got SIGTERM, and takes four seconds to end.
    BeforeAnswer,
}

/// A request at that point.
struct Scene {
    before: Pod,
    request: ContainerRecreateRequest,
}

async fn arrive(ns: &Ns, point: Point) -> Result<Scene> {
    let before = ns.start_pod(pods::pod("web", &[pods::slow("app", 4), pods::idle("sidecar")])).await?;
    let mut spec = requests::plain("web", &["app"]);
    spec["strategy"] = json!({"terminationGracePeriodSeconds": 10});
    let request = requests::with_spec("again", &spec);
    let request = match point {
        Point::BeforeStop => {
            ns.cluster.stop(CONTAINERD)?;
            let request = ns.create(request).await?;
            ns.ordered(&request).await?;
            request
        }
        Point::BeforeAnswer => {
            let request = ns.create(request).await?;
            ns.stopping(&request, "app").await?;
            request
        }
    };
    Ok(Scene { before, request })
}

impl Scene {
    /// Starts a stopped runtime, and checks how the request ends.
    async fn go_on(self, ns: &Ns, point: Point) -> Result<()> {
        if matches!(point, Point::BeforeStop) {
            ns.cluster.start(CONTAINERD)?;
        }
        let over = ns.over_within("again", LONG).await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        assert_eq!(requests::conditions(&over)["Complete"], "True/Complete");
        ns.settled(&self.request).await?;
        // No order is left, so the daemon stops nothing more.
        let after = ns.ready("web").await?;
        pods::assert_restarted_once(&self.before, &after, "app")?;
        pods::assert_untouched(&self.before, &after, "sidecar")
    }
}

async fn daemon_dies(ns: &Ns, point: Point) -> Result<()> {
    let daemon = system::daemon(&ns.cluster).await?;
    let scene = arrive(ns, point).await?;
    system::kill_9(&[daemon])?;
    scene.go_on(ns, point).await
}

async fn controllers_die(ns: &Ns, point: Point) -> Result<()> {
    let all = system::pods_of(&ns.cluster, CONTROLLER).await?;
    let scene = arrive(ns, point).await?;
    system::kill_9(&all)?;
    scene.go_on(ns, point).await
}

async fn leader_dies(ns: &Ns, point: Point) -> Result<()> {
    let scene = arrive(ns, point).await?;
    let leader = system::leader(&ns.cluster).await?;
    system::kill_9(&[leader])?;
    scene.go_on(ns, point).await
}

async fn api_server_dies(ns: &Ns, point: Point) -> Result<()> {
    let scene = arrive(ns, point).await?;
    ns.cluster.kill("apiserver")?;
    scene.go_on(ns, point).await
}

#[test]
fn the_daemon_between_order_and_stop() -> Result<()> {
    on_cluster(async |ns| daemon_dies(ns, Point::BeforeStop).await)
}

#[test]
fn the_daemon_between_stop_and_answer() -> Result<()> {
    on_cluster(async |ns| daemon_dies(ns, Point::BeforeAnswer).await)
}

#[test]
fn both_controllers_between_order_and_stop() -> Result<()> {
    on_cluster(async |ns| controllers_die(ns, Point::BeforeStop).await)
}

#[test]
fn both_controllers_between_stop_and_answer() -> Result<()> {
    on_cluster(async |ns| controllers_die(ns, Point::BeforeAnswer).await)
}

#[test]
fn the_leader_between_order_and_stop() -> Result<()> {
    on_cluster(async |ns| leader_dies(ns, Point::BeforeStop).await)
}

#[test]
fn the_leader_between_stop_and_answer() -> Result<()> {
    on_cluster(async |ns| leader_dies(ns, Point::BeforeAnswer).await)
}

#[test]
fn the_api_server_between_order_and_stop() -> Result<()> {
    on_cluster(async |ns| api_server_dies(ns, Point::BeforeStop).await)
}

#[test]
fn the_api_server_between_stop_and_answer() -> Result<()> {
    on_cluster(async |ns| api_server_dies(ns, Point::BeforeAnswer).await)
}

#[test]
fn the_runtime_between_stop_and_answer() -> Result<()> {
    on_cluster(async |ns| {
        let scene = arrive(ns, Point::BeforeAnswer).await?;
        ns.cluster.kill(CONTAINERD)?;
        scene.go_on(ns, Point::BeforeAnswer).await
    })
}

/// The daemon is killed, and the container ends before the next daemon looks.
#[test]
fn the_daemon_while_the_container_ends() -> Result<()> {
    on_cluster(async |ns| {
        let daemon = system::daemon(&ns.cluster).await?;
        let scene = arrive(ns, Point::BeforeAnswer).await?;
        ns.cluster.stop("kubelet@node1")?;
        system::kill_9(&[daemon])?;
        // The stopped kubelet starts neither the daemon nor the container.
        let id = pods::id(&scene.before, "app")?;
        until("the container to end", SHORT, async || {
            Ok(pitstop_e2e::process::of_container(&id).is_err().then_some(()))
        })
        .await?;
        ns.cluster.start("kubelet@node1")?;
        scene.go_on(ns, Point::BeforeAnswer).await
    })
}
