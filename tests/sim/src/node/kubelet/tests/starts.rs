//! Starts and restarts.

use super::*;

#[test]
fn a_pod_starts_and_becomes_ready() {
    let mut b = Bench::new();
    b.put(app("{}"));
    b.until(50, |b| b.phase() == "Pending");
    b.until(500, Bench::ready);
    let status = b.status("app");
    assert_eq!((status.restart_count, status.container_id), (0, format!("containerd://{}", b.id("app"))));
    assert!(status.image_id.starts_with("app@sha256:"));
    assert_eq!(b.phase(), "Running");
    let labels = &b.running("app").unwrap().info.labels;
    assert_eq!(labels["io.kubernetes.pod.uid"], "u");
    let writes = b.writes.len();
    b.pass(600_000);
    assert_eq!(b.writes.len(), writes, "then it is silent");
}

#[test]
fn an_end_is_noticed_within_a_second_and_restarted_at_once() {
    let mut b = Bench::new();
    b.put(app("{}"));
    b.until(1000, Bench::ready);
    b.pass(3333);
    let old = b.id("app");
    let ended = b.now;
    b.node.runtime.crash(ended, &old, 1);
    b.until(1100, |b| b.status("app").state.terminated.is_some());
    b.until(1200, |b| b.ready() && b.status("app").restart_count == 1);
    let status = b.status("app");
    assert_eq!(status.last_state.terminated.unwrap().container_id, format!("containerd://{old}"));
    assert_ne!(b.id("app"), old);
}

#[test]
fn the_time_to_notice_depends_on_the_second() {
    let mut took: Vec<u64> = Vec::new();
    for at in [100, 300, 500, 700, 900] {
        let mut b = Bench::new();
        b.put(app("{}"));
        b.until(1000, Bench::ready);
        b.pass(5000 + at - b.now);
        let id = b.id("app");
        b.node.runtime.crash(b.now, &id, 1);
        took.push(b.until(1200, |b| b.running("app").is_some()));
    }
    assert!(took.iter().max().unwrap() - took.iter().min().unwrap() >= 600, "{took:?}");
}

#[test]
fn the_back_off_doubles_and_is_told_late() {
    let mut b = Bench::new();
    b.put(app(r#"{"runs":[[100,1]],"repeat":true}"#));
    let mut starts = Vec::new();
    for count in 0..8 {
        b.until(700_000, |b| b.running("app").is_some_and(|c| c.info.attempt == count));
        starts.push(b.now);
    }
    let waits: Vec<u64> = starts.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(waits[0] < 1500, "{waits:?}");
    for (wait, expected) in waits[1..].iter().zip([10_000, 20_000, 40_000, 80_000, 160_000, 300_000]) {
        // The end is 100 ms after the start. Up to half the wait is added, above a minute in steps of a
        // minute.
        assert!((expected..expected * 3 / 2 + 61_000).contains(wait), "{waits:?}");
    }
    let backs_off = |w: &&(u64, StatusWrite)| {
        w.1.status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    };
    let first = b.writes.iter().find(backs_off).unwrap();
    assert!(first.0 > starts[1] + 5000, "not before the next pass");
    let message = first.1.status["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap();
    assert_eq!(message, "back-off 10s restarting failed container=app pod=web_default(u)");
    assert_eq!(first.1.status["phase"], "Running");
}

#[test]
fn an_older_kubelet_shows_the_back_off_while_it_lasts() {
    let options = Options { requeue: Requeue::Round, ..Options::default() };
    let mut b = Bench::with(options, 3);
    b.put(app(r#"{"runs":[[100,1]],"repeat":true}"#));
    b.until(60_000, |b| b.running("app").is_some_and(|c| c.info.attempt == 2));
    b.pass(17_000);
    let state = b.status("app").state;
    assert_eq!(state.waiting.unwrap().reason, "CrashLoopBackOff");
    assert!(b.running("app").is_none(), "20 s are not over");
}

#[test]
fn ten_minutes_without_an_end_forget_the_back_off() {
    let mut b = Bench::new();
    b.put(app(r#"{"runs":[[100,1],[100,1],[700000,1],[100,1]]}"#));
    b.until(30_000, |b| b.running("app").is_some_and(|c| c.info.attempt == 2));
    let wait = b.until(702_000, |b| b.running("app").is_some_and(|c| c.info.attempt == 3));
    assert!(wait < 702_000);
    // The next restart waits 10 s again.
    let wait = b.until(20_000, |b| b.running("app").is_some_and(|c| c.info.attempt == 4));
    assert!(wait >= 10_000, "{wait}");
}

#[test]
fn restart_policies() {
    for (policy, code, comes_back, phase) in [
        ("Always", 0, true, "Running"),
        ("OnFailure", 1, true, "Running"),
        ("OnFailure", 0, false, "Succeeded"),
        ("Never", 0, false, "Succeeded"),
        ("Never", 3, false, "Failed"),
    ] {
        let mut b = Bench::new();
        let mut pod = app(&format!(r#"{{"runs":[[500,{code}]]}}"#));
        pod["spec"]["restartPolicy"] = json!(policy);
        b.put(pod);
        b.pass(5000);
        assert_eq!((b.running("app").is_some(), b.phase()), (comes_back, phase), "{policy} {code}");
        if !comes_back {
            assert_eq!(b.condition("Ready")["status"], "False");
            assert_eq!(b.status("app").state.terminated.unwrap().exit_code, code);
        }
    }
}

/// As `ContainerShouldRestart` decides: rules, then the container's policy, then the Pod's.
#[test]
fn a_containers_own_policy_goes_before_the_pods() {
    let rule =
        |operator: &str| json!([{"action": "Restart", "exitCodes": {"operator": operator, "values": [42]}}]);
    for (pod_policy, own, rules, code, comes_back, phase) in [
        ("Always", "Never", json!([]), 1, false, "Failed"),
        ("Never", "Always", json!([]), 0, true, "Running"),
        ("Never", "Never", rule("In"), 42, true, "Running"),
        ("Always", "Never", rule("In"), 0, false, "Succeeded"),
        ("Never", "Never", rule("NotIn"), 7, true, "Running"),
        ("Never", "Never", rule("NotIn"), 42, false, "Failed"),
    ] {
        let mut b = Bench::new();
        let mut pod = app(&format!(r#"{{"runs":[[500,{code}]]}}"#));
        pod["spec"]["restartPolicy"] = json!(pod_policy);
        pod["spec"]["containers"][0]["restartPolicy"] = json!(own);
        pod["spec"]["containers"][0]["restartPolicyRules"] = rules;
        b.put(pod);
        b.pass(5000);
        let found = (b.running("app").is_some(), b.phase());
        assert_eq!(found, (comes_back, phase), "{own} in {pod_policy}, exit code {code}");
    }
}

#[test]
fn init_containers_run_first_and_sidecars_beside() {
    let mut b = Bench::new();
    let mut pod = pod(&[("app", "{}"), ("prepare", r#"{"runs":[[1000,0]]}"#), ("proxy", "{}")]);
    let mut containers = pod["spec"]["containers"].take();
    let app = containers[0].take();
    let mut proxy = containers[2].take();
    proxy["restartPolicy"] = json!("Always");
    pod["spec"]["initContainers"] = json!([containers[1].take(), proxy]);
    pod["spec"]["containers"] = json!([app]);
    b.put(pod);
    b.until(500, |b| b.running("prepare").is_some());
    assert!(b.running("proxy").is_none() && b.running("app").is_none());
    b.until(400, |b| b.status("app").state.waiting.is_some_and(|w| w.reason == "PodInitializing"));
    b.until(3000, |b| b.running("proxy").is_some());
    assert!(b.running("app").is_none());
    b.until(3000, Bench::ready);
    assert_eq!(b.status("prepare").state.terminated.unwrap().exit_code, 0);
    let (proxy, app) = (b.id("proxy"), b.id("app"));
    b.node.runtime.crash(b.now, &proxy, 1);
    b.until(3000, |b| b.status("proxy").restart_count == 1 && b.ready());
    assert_eq!((b.id("app"), b.status("prepare").restart_count), (app, 0));
}

#[test]
fn an_init_container_that_fails_holds_the_pod_up() {
    let mut b = Bench::new();
    let mut pod = pod(&[("app", "{}"), ("prepare", r#"{"runs":[[100,1],[100,0]]}"#)]);
    let mut containers = pod["spec"]["containers"].take();
    pod["spec"]["initContainers"] = json!([containers[1].take()]);
    pod["spec"]["containers"] = json!([containers[0].take()]);
    b.put(pod);
    b.until(3000, |b| b.running("prepare").is_some_and(|c| c.info.attempt == 1));
    assert_eq!(b.phase(), "Pending");
    b.until(3000, Bench::ready);
}

#[test]
fn readiness_follows_the_probe() {
    let mut b = Bench::new();
    b.put(app(r#"{"ready":5000}"#));
    b.until(1000, |b| b.phase() == "Running");
    assert!(!b.ready());
    assert_eq!(b.condition("ContainersReady")["reason"], "ContainersNotReady");
    b.pass(4000);
    assert!(!b.ready());
    b.until(1500, Bench::ready);
    let id = b.id("app");
    b.node.kubelet.probed(b.now, &id, false);
    b.until(100, |b| !b.ready());
    b.node.kubelet.probed(b.now, &id, true);
    b.until(100, Bench::ready);
}

#[test]
fn gates_hold_ready_back() {
    let mut b = Bench::new();
    let mut pod = app("{}");
    pod["spec"]["readinessGates"] = json!([{"conditionType": "KruisePodReady"}]);
    b.put(pod);
    b.until(1000, |b| b.condition("ContainersReady")["status"] == "True");
    assert_eq!(b.condition("Ready")["reason"], "ReadinessGatesNotReady");
    b.edit(|p| {
        p["status"]["conditions"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "KruisePodReady", "status": "True"}));
    });
    b.until(100, Bench::ready);
    assert_eq!(b.condition("KruisePodReady")["status"], "True", "conditions of others stay");
    b.edit(|p| {
        let conditions = p["status"]["conditions"].as_array_mut().unwrap();
        conditions.iter_mut().find(|c| c["type"] == "KruisePodReady").unwrap()["status"] = json!("False");
    });
    b.until(100, |b| !b.ready());
}

#[test]
fn a_container_that_cannot_start_is_told() {
    let mut b = Bench::new();
    b.put(app(r#"{"startFails":true}"#));
    b.until(20_000, |b| b.status("app").state.waiting.is_some_and(|w| w.reason == "RunContainerError"));
    assert!(!b.ready());
}

#[test]
fn a_quiet_pod_wakes_nobody() {
    let mut b = Bench::new();
    b.put(app("{}"));
    b.until(1000, Bench::ready);
    b.pass(15_000);
    assert_eq!(b.node.wake_at(), None);
}
