//! The daemon's program between a real containerd, private to the test (see `cri-proto/tests/support`), and the test's
//! own API server.
//!
//! `cargo xtask arm64` runs this with the program of another processor.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test; clippy.toml excepts only functions marked as tests, not their helpers"
)]

mod api;
mod process;
#[path = "../../../cri-proto/tests/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "what the tests share with those of the CRI client")]
mod support;

use std::{fs, path::Path};

use pitstop_cri::{ContainerId, keys, v1::ContainerState};
use serde_json::{Value, json};

use api::Api;
use process::{Process, free_port, kubeconfig};
use support::{Containerd, NewContainer, Pod, eventually};

/// Ends at SIGTERM with a code that says whether the hook ran before.
const SCRIPT: &str =
    "trap '[ -e /tmp/bye ] && exit 7; exit 8' TERM; echo >/tmp/set; while :; do sleep 0.05; done";
/// Waits for the script, so that the signal finds the trap.
const HOOK: &str =
    r#"{"exec":{"command":["/bin/sh","-c","while [ ! -e /tmp/set ]; do sleep 0.05; done; echo >/tmp/bye"]}}"#;

async fn start(containerd: &Containerd, folder: &Path, kubeconfig: &Path) -> Process {
    let (socket, state) = (containerd.socket(), folder.join("state"));
    let args = [
        "--node-name=node1",
        "--runtime-endpoint",
        socket.to_str().unwrap(),
        "--state-dir",
        state.to_str().unwrap(),
    ];
    Process::start(env!("CARGO_BIN_EXE_pitstop-daemon"), folder, kubeconfig, &args).await
}

/// An order to stop the container of the Pod `web`.
fn order(id: &str, container: &ContainerId) -> Value {
    json!({
        "id": id,
        "pod": {"namespace": "test", "name": "web", "uid": "uid-of-web"},
        "container": {"name": "app", "id": container.as_str()},
        "action": {"recreate": {"gracePeriodSeconds": 30}},
    })
}

/// The answer to an order, as stored.
fn answer(status: &Value, id: &str) -> Option<Value> {
    let answers = status["answers"].as_array()?;
    answers.iter().find(|answer| answer["orderID"] == id).cloned()
}

#[tokio::test]
async fn a_container_is_stopped_by_an_order_and_its_hook_runs_before() {
    let Some(containerd) = Containerd::start().await else { return };
    let (runtime, mut pod) = (containerd.client(), Pod::run(&containerd, "web").await);
    let annotations = [(keys::PRE_STOP_HANDLER.to_owned(), HOOK.to_owned())].into();
    let app = NewContainer { name: "app", script: SCRIPT, annotations, ..NewContainer::default() };
    let container = pod.start(app).await;

    let folder = tempfile::tempdir().unwrap();
    let api = Api::start(folder.path(), "node1", json!({"orders": [order("r/app/1", &container)]})).await;
    let mut daemon = start(&containerd, folder.path(), &api.kubeconfig).await;
    daemon.answers("/readyz", |body| body == "ok\n").await;
    let ended = eventually("the container has ended", async || {
        let status = runtime.container_status(&container).await.unwrap();
        (status.known_state() == ContainerState::ContainerExited).then_some(status)
    })
    .await;
    assert_eq!(ended.exit_code, 7, "the hook, then SIGTERM");

    // The next write reports the end of an order: here for another order of the same container.
    api.order(order("r/app/2", &container));
    let status =
        eventually("the answer", async || answer(&api.status(), "r/app/2").map(|_| api.status())).await;
    let (first, second) = (answer(&status, "r/app/1").unwrap(), answer(&status, "r/app/2").unwrap());
    assert_eq!((&first["state"], &first["reason"]), (&json!("Done"), &Value::Null), "{status}");
    assert_eq!((&second["state"], &second["reason"]), (&json!("Refused"), &json!("NotRunning")), "{status}");
    let version = runtime.version().await.unwrap();
    assert_eq!(status["runtime"], json!({"name": version.runtime_name, "version": version.runtime_version}));
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(status["boot"], json!({"id": boot.trim()}));

    let metrics = daemon.get("/metrics").await.unwrap();
    for line in [
        "pitstop_daemon_actions_total{action=\"stop\",result=\"ok\"} 1\n",
        "pitstop_daemon_hooks_total{kind=\"exec\",result=\"ok\"} 1\n",
        "pitstop_daemon_runtime_up 1\n",
    ] {
        assert!(metrics.contains(line), "{line} not in {metrics}");
    }
    assert_eq!(daemon.end().await.code(), Some(0));
}

#[tokio::test]
async fn without_an_api_server_the_runtime_is_found_and_the_rest_is_waited_for() {
    let Some(containerd) = Containerd::boxed() else { return };
    containerd.switch_on();
    containerd.wait_until_serving().await;
    let folder = tempfile::tempdir().unwrap();
    let server = format!("http://127.0.0.1:{}", free_port().await);
    let mut daemon = start(&containerd, folder.path(), &kubeconfig(folder.path(), &server, "")).await;
    daemon.answers("/readyz", |body| body == "missing: NodeWork synced\n").await;
    assert_eq!(daemon.get("/healthz").await.as_deref(), Some("ok\n"));
    assert_eq!(daemon.end().await.code(), Some(0));
}
