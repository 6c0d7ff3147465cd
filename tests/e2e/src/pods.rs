//! Pods whose containers tests restart, and functions that check Pods.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition,
};
use serde_json::{Value, json};

const IMAGE: &str = "pitstop.dev/test/busybox:1";
/// What [`slow`] and [`stubborn`] log on SIGTERM.
pub const ASKED: &str = "asked to end";

/// A web server with a readiness probe; ends at once on SIGTERM.
pub fn web(name: &str) -> Value {
    let script = "trap 'exit 0' TERM; mkdir -p /tmp/www; echo hello > /tmp/www/index.html; \
                  httpd -f -p 8080 -h /tmp/www & wait";
    let probe = json!({"httpGet": {"path": "/index.html", "port": 8080}, "periodSeconds": 1});
    json!({"name": name, "image": IMAGE, "command": ["sh", "-c", script], "readinessProbe": probe})
}

/// Does nothing; ends at once on SIGTERM.
pub fn idle(name: &str) -> Value {
    shell(name, "trap 'exit 0' TERM; sleep 100000 & wait")
}

/// Takes `seconds` to end after SIGTERM.
pub fn slow(name: &str, seconds: u32) -> Value {
    shell(name, &format!("trap 'echo {ASKED}; sleep {seconds}; exit 0' TERM; sleep 100000 & wait"))
}

/// Does not end on SIGTERM.
pub fn stubborn(name: &str) -> Value {
    shell(name, &format!("trap 'echo {ASKED}' TERM; while :; do sleep 1; done"))
}

/// Runs a script.
pub fn shell(name: &str, script: &str) -> Value {
    json!({"name": name, "image": IMAGE, "command": ["sh", "-c", script]})
}

/// A Pod of these containers.
pub fn pod(name: &str, containers: &[Value]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": containers, "enableServiceLinks": false},
    })
}

/// The usual Pod: a web server `app` with a `sidecar`.
pub fn app(name: &str) -> Value {
    pod(name, &[web("app"), idle("sidecar")])
}

/// The Pod with readiness gates of these types.
pub fn gated(mut pod: Value, gates: &[&str]) -> Value {
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        let gates = gates.iter().map(|gate| json!({"conditionType": gate})).collect();
        spec.insert("readinessGates".to_owned(), gates);
    }
    pod
}

/// A condition of the Pod.
pub fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|c| c.type_ == type_)
}

/// Whether the Pod has the condition `Ready`.
pub fn is_ready(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && condition(pod, "Ready").is_some_and(|c| c.status == "True")
}

/// The status of a container.
pub fn status<'a>(pod: &'a Pod, container: &str) -> Result<&'a ContainerStatus> {
    let lists = pod.status.iter().flat_map(|s| [&s.container_statuses, &s.init_container_statuses]);
    let found = lists.flatten().flatten().find(|s| s.name == container);
    found.with_context(|| format!("the Pod has no status of container {container}"))
}

/// ID of a container: `containerd://...`.
pub fn id(pod: &Pod, container: &str) -> Result<String> {
    status(pod, container)?.container_id.clone().with_context(|| format!("{container} has no ID"))
}

/// How the previous instance of the container ended.
pub fn last_end(pod: &Pod, container: &str) -> Result<ContainerStateTerminated> {
    let last: Option<&ContainerState> = status(pod, container)?.last_state.as_ref();
    last.and_then(|s| s.terminated.clone()).with_context(|| format!("{container} has not ended before"))
}

/// The container's definition.
pub fn container<'a>(pod: &'a Pod, name: &str) -> Result<&'a Container> {
    let found = pod.spec.iter().flat_map(|s| &s.containers).find(|c| c.name == name);
    found.with_context(|| format!("the Pod has no container {name}"))
}

/// Fails unless the container was restarted exactly once, in the same Pod.
pub fn assert_restarted_once(before: &Pod, after: &Pod, container: &str) -> Result<()> {
    assert_same_identity(before, after)?;
    let (old, new) = (id(before, container)?, id(after, container)?);
    ensure!(old != new, "{container} has not been restarted");
    let count = restarts(after, container)? - restarts(before, container)?;
    ensure!(count == 1, "{container} has been restarted {count} times");
    // Once a minute, the kubelet removes all instances that do not run except the last. An instance that is created but
    // not yet started counts as the last (`evictableContainers` in pkg/kubelet/kuberuntime/kuberuntime_gc.go). Then the
    // status has no last end.
    let last_end = status(after, container)?.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    ensure!(
        last_end.is_none_or(|end| end.container_id.as_ref() == Some(&old)),
        "{container} was {old}, and then another one was stopped"
    );
    Ok(())
}

/// Fails unless the Pod has the same UID, IP and node.
pub fn assert_same_identity(before: &Pod, after: &Pod) -> Result<()> {
    let (before, after) = (identity(before), identity(after));
    ensure!(before == after, "UID, IP and node: {before:?}, then {after:?}");
    Ok(())
}

/// Fails if the container was restarted.
pub fn assert_untouched(before: &Pod, after: &Pod, container: &str) -> Result<()> {
    ensure!(id(before, container)? == id(after, container)?, "{container} has been restarted");
    let counts = (restarts(before, container)?, restarts(after, container)?);
    ensure!(counts.0 == counts.1, "{container} has been restarted: {counts:?}");
    Ok(())
}

/// How often a container has been restarted.
pub fn restarts(pod: &Pod, container: &str) -> Result<i32> {
    Ok(status(pod, container)?.restart_count)
}

/// UID, IP and node, which a restart in place must not change.
fn identity(pod: &Pod) -> [Option<&str>; 3] {
    [
        pod.metadata.uid.as_deref(),
        pod.status.as_ref().and_then(|s| s.pod_ip.as_deref()),
        pod.spec.as_ref().and_then(|s| s.node_name.as_deref()),
    ]
}
