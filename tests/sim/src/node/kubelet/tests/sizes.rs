//! New sizes.

use super::*;

/// A Pod whose container has a size.
fn sized(policy: &Value) -> Value {
    let mut pod = app(r#"{"uses":100}"#);
    pod["spec"]["containers"][0]["resources"] = amounts("100m", "128Mi");
    pod["spec"]["containers"][0]["resizePolicy"] = policy.clone();
    pod
}

fn amounts(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}})
}

fn ask(b: &mut Bench, cpu: &str, memory: &str) {
    b.edit(|pod| pod["spec"]["containers"][0]["resources"] = amounts(cpu, memory));
}

/// CPU requests in the status: admitted, and in use.
fn cpu(b: &Bench) -> (String, String) {
    let status = b.status("app");
    let text = |all: &BTreeMap<String, String>| all.get("cpu").cloned().unwrap_or_default();
    (text(&status.allocated_resources.unwrap()), text(&status.resources.unwrap().requests))
}

#[test]
fn a_new_size_is_admitted_and_then_written() {
    let mut b = Bench::new();
    b.put(sized(&json!([])));
    b.until(5_000, Bench::ready);
    let id = b.id("app");
    ask(&mut b, "200m", "128Mi");
    b.until(500, |b| b.condition("PodResizeInProgress")["status"] == "True");
    assert_eq!(cpu(&b), ("200m".into(), "100m".into()));
    b.until(2_000, |b| b.condition("PodResizeInProgress").is_null());
    assert_eq!(cpu(&b), ("200m".into(), "200m".into()));
    assert_eq!(b.pod()["status"]["observedGeneration"], b.pod()["metadata"]["generation"]);
    assert_eq!(b.id("app"), id, "in place");
}

#[test]
fn what_has_no_room_waits_for_it_and_what_never_has_is_told() {
    let mut b = Bench::with(Options { millicores: 1000, judges_capacity: true, ..Options::default() }, 1);
    b.put(sized(&json!([])));
    b.until(5_000, Bench::ready);
    b.node.kubelet.crowd(b.now, 900);
    ask(&mut b, "200m", "128Mi");
    b.until(500, |b| b.condition("PodResizePending")["reason"] == "Deferred");
    assert_eq!(cpu(&b), ("100m".into(), "100m".into()));
    b.node.kubelet.crowd(b.now, 0);
    b.until(2_000, |b| b.condition("PodResizePending").is_null() && cpu(b).1 == "200m");
    ask(&mut b, "2", "128Mi");
    b.until(500, |b| b.condition("PodResizePending")["reason"] == "Infeasible");
    ask(&mut b, "200m", "128Mi");
    b.until(500, |b| b.condition("PodResizePending").is_null());
}

#[test]
fn a_limit_is_not_lowered_below_what_is_in_use() {
    let mut b = Bench::new();
    b.put(sized(&json!([])));
    b.until(5_000, Bench::ready);
    ask(&mut b, "100m", "64Mi");
    b.until(2_000, |b| b.condition("PodResizeInProgress")["reason"] == "Error");
    let message = b.condition("PodResizeInProgress")["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("cannot decrease memory limits: "), "{message}");
}

#[test]
fn a_policy_restarts_and_too_small_an_instance_is_killed() {
    let mut b = Bench::new();
    b.put(sized(&json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}])));
    b.until(5_000, Bench::ready);
    let id = b.id("app");
    ask(&mut b, "100m", "64Mi");
    b.until(5_000, |b| b.running("app").is_some_and(|c| c.info.id != id));
    b.until(5_000, |b| {
        let status = b.status("app");
        let ends = [status.state.terminated, status.last_state.terminated];
        ends.into_iter().flatten().any(|t| t.reason == "OOMKilled")
    });
}

#[test]
fn sizes_outlive_the_kubelet() {
    let mut b = Bench::with(Options { millicores: 1000, ..Options::default() }, 1);
    b.put(sized(&json!([])));
    b.until(5_000, Bench::ready);
    b.node.kubelet.crowd(b.now, 900);
    ask(&mut b, "200m", "128Mi");
    b.until(500, |b| b.condition("PodResizePending")["reason"] == "Deferred");
    b.kubelet_dies();
    b.pass(100);
    b.kubelet_starts();
    b.pass(3_000);
    assert_eq!(b.condition("PodResizePending")["reason"], "Deferred", "it is no Pod that is admitted anew");
    assert_eq!(cpu(&b), ("100m".into(), "100m".into()));
}

/// Also while its writes are not in effect yet.
#[test]
fn a_kubelet_that_does_not_resize_makes_the_group_of_a_pod_once() {
    let mut b = Bench::with(Options { resizes: false, ..Options::default() }, 1);
    b.node.kubelet.cgroups_mut().slow(60_000, 60_000);
    b.put(sized(&json!([])));
    b.until(5_000, Bench::ready);
    let made = b.node.kubelet.cgroups().last_pod_size("u");
    assert!(made.is_some());
    ask(&mut b, "200m", "128Mi");
    let id = b.id("app");
    b.node.runtime.crash(b.now, &id, 1);
    b.until(5_000, |b| b.running("app").is_some_and(|c| c.info.id != id));
    assert_eq!(b.node.kubelet.cgroups().last_pod_size("u"), made);
}
