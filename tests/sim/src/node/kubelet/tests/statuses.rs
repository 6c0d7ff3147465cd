//! What the kubelet writes, and when.

use super::*;

#[test]
fn times_are_the_nodes_own() {
    let mut b = Bench::new();
    b.skew = 12 * 3_600_000;
    b.put(app("{}"));
    b.until(1000, Bench::ready);
    assert_eq!(b.condition("Ready")["lastTransitionTime"], "2023-11-15T10:13:20Z");
    assert_eq!(b.status("app").state.running.unwrap().started_at, "2023-11-15T10:13:20Z");
    let before = b.condition("ContainersReady");
    b.skew = -12 * 3_600_000;
    b.pass(5000);
    b.edit(|p| p["spec"]["terminationGracePeriodSeconds"] = json!(7));
    b.pass(100);
    assert_eq!(
        b.condition("ContainersReady")["lastTransitionTime"],
        before["lastTransitionTime"],
        "nothing changed"
    );
    assert_eq!(b.pod()["status"]["observedGeneration"], 2);
}

#[test]
fn skew_changes_nothing_but_times() {
    let run = |skew: i64| {
        let mut b = Bench::new();
        b.skew = skew;
        b.put(app(r#"{"runs":[[100,1]],"repeat":true}"#));
        b.pass(400_000);
        b.writes.iter().map(|w| w.0).collect::<Vec<_>>()
    };
    assert_eq!(run(0), run(43_200_000));
    assert_eq!(run(0), run(-43_200_000));
}

#[test]
fn a_write_that_fails_is_repeated() {
    let mut b = Bench::new();
    b.up = false;
    b.put(app("{}"));
    b.pass(30_000);
    assert_eq!(b.writes.len(), 0);
    b.up = true;
    b.until(11_000, Bench::ready);
}

#[test]
fn what_others_overwrote_is_repaired() {
    let mut b = Bench::new();
    b.put(app("{}"));
    b.until(1000, Bench::ready);
    b.pass(5000);
    let writes = b.writes.len();
    b.edit(|p| {
        let conditions = p["status"]["conditions"].as_array_mut().unwrap();
        conditions.iter_mut().find(|c| c["type"] == "Ready").unwrap()["status"] = json!("False");
        p["metadata"]["generation"] = json!(0);
    });
    assert!(!b.ready());
    b.until(11_000, Bench::ready);
    b.pass(60_000);
    assert_eq!(b.writes.len(), writes + 1);
}

#[test]
fn a_static_pod_has_a_mirror() {
    let mut b = Bench::new();
    let mut file = app("{}");
    file["metadata"] = json!({"name": "etcd", "namespace": "kube-system"});
    b.node.kubelet.add_static(file);
    b.node.kubelet.start(b.now, &[]);
    b.until(3000, |b| b.pods.values().any(|p| p["status"]["phase"] == "Running"));
    let mirror = b.pods.values().next().unwrap();
    assert_eq!(mirror["metadata"]["name"], "etcd-node1");
    let hash = mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"].clone();
    let running = b.running("app").unwrap();
    assert_eq!(json!(running.info.labels["io.kubernetes.pod.uid"]), hash, "not the mirror's UID");
    let id = running.info.id.clone();
    b.pods.clear();
    b.node.kubelet.pod_gone(b.now, "mirror-1");
    b.until(1000, |b| b.pods.get("mirror-2").is_some_and(|p| p["status"]["phase"] == "Running"));
    assert_eq!(b.id("app"), id, "only the mirror was deleted");
}

#[test]
fn the_same_seed_writes_the_same_at_the_same_times() {
    let run = |seed| {
        let mut b = Bench::with(Options::default(), seed);
        b.put(app(r#"{"runs":[[3000,1]],"repeat":true}"#));
        b.pass(200_000);
        b.writes
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

#[test]
fn a_merged_status_keeps_what_others_wrote() {
    let write = StatusWrite {
        namespace: "n".into(),
        name: "p".into(),
        uid: "u".into(),
        status: json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
    };
    let stored = json!({"phase": "Pending", "resize": "x", "conditions": [
        {"type": "KruisePodReady", "status": "False"}, {"type": "Ready", "status": "False"}]});
    let merged = write.merged(&stored);
    assert_eq!(
        merged["conditions"],
        json!([
        {"type": "KruisePodReady", "status": "False"}, {"type": "Ready", "status": "True"}])
    );
    assert_eq!((&merged["phase"], &merged["resize"]), (&json!("Running"), &json!("x")));
}
