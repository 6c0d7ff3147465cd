//! Ends of containers (by another image), of Pods, of the kubelet, of the node.

use super::*;

/// What happened to the containers since the last call, with times.
fn deeds(b: &mut Bench) -> Vec<(u64, DeedKind)> {
    b.node.runtime.take_deeds().into_iter().map(|d| (d.at, d.kind)).collect()
}

fn pin(p: &mut Value) {
    let image = p["status"]["containerStatuses"][0]["imageID"].as_str().unwrap().replace("app@", "app:1@");
    p["spec"]["containers"][0]["image"] = json!(image);
}

#[test]
fn another_image_string_restarts_without_waiting_for_a_look() {
    for policy in ["Always", "Never"] {
        let mut b = Bench::new();
        let mut pod = app("{}");
        pod["spec"]["restartPolicy"] = json!(policy);
        b.put(pod);
        b.until(1000, Bench::ready);
        b.pass(2500);
        let (old, image) = (b.id("app"), b.status("app").image_id);
        b.edit(pin);
        let took = b.until(600, |b| b.ready() && b.status("app").restart_count == 1);
        assert!(took < 400, "{took} ms");
        assert_ne!(b.id("app"), old);
        assert_eq!(b.status("app").image_id, image, "the same bits");
        assert_eq!(b.phase(), "Running");
    }
}

#[test]
fn the_back_off_is_kept_per_image_string() {
    let mut b = Bench::new();
    b.put(app(r#"{"runs":[[100,1],[100,1],[100,1]]}"#));
    b.until(60_000, |b| b.running("app").is_some_and(|c| c.info.attempt == 2));
    b.pass(1500);
    assert!(b.running("app").is_none(), "it waits 20 s");
    b.edit(pin);
    let took = b.until(600, |b| b.running("app").is_some());
    assert!(took < 400, "{took} ms");
}

#[test]
fn a_hook_runs_before_the_stop_and_counts_against_the_grace() {
    let mut b = Bench::new();
    let mut pod = app(r#"{"hook":[3000,0],"term":null}"#);
    pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"exec": {"command": ["/bye"]}}});
    pod["spec"]["terminationGracePeriodSeconds"] = json!(10);
    b.put(pod);
    b.until(1000, Bench::ready);
    deeds(&mut b);
    let begin = b.now;
    b.edit(pin);
    b.until(15_000, |b| b.status("app").restart_count == 1);
    let deeds = deeds(&mut b);
    let at = |wanted: &dyn Fn(&DeedKind) -> bool| deeds.iter().find(|d| wanted(&d.1)).map(|d| d.0 - begin);
    assert_eq!(at(&|w| matches!(w, DeedKind::Exec(..))), Some(0));
    assert!(at(&|w| *w == DeedKind::Term).unwrap() >= 3000);
    let killed = at(&|w| *w == DeedKind::Kill).unwrap();
    assert!((10_000..10_100).contains(&killed), "{killed}");
}

#[test]
fn a_hook_that_takes_too_long_is_left_behind() {
    let mut b = Bench::new();
    let mut pod = app(r#"{"term":null}"#);
    pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 60}}});
    pod["spec"]["terminationGracePeriodSeconds"] = json!(5);
    b.put(pod);
    b.until(1000, Bench::ready);
    let begin = b.now;
    deeds(&mut b);
    b.edit(pin);
    b.until(15_000, |b| b.status("app").restart_count == 1);
    let deeds = deeds(&mut b);
    let killed = deeds.iter().find(|d| d.1 == DeedKind::Kill).unwrap().0 - begin;
    assert!((7000..7100).contains(&killed), "never less than 2 s after the signal: {killed}");
}

#[test]
fn a_deleted_pod_ends_and_its_object_goes() {
    let mut b = Bench::new();
    b.put(pod(&[("app", r#"{"term":[2000,0]}"#), ("log", r#"{"term":null}"#)]));
    b.until(1000, Bench::ready);
    let begin = b.now;
    b.edit(|p| {
        p["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:13:50Z");
        p["metadata"]["deletionGracePeriodSeconds"] = json!(5);
    });
    b.until(6000, |b| b.running("app").is_none());
    assert_eq!(b.now - begin, 2000, "side by side");
    b.until(10_000, |b| b.pods.is_empty());
    assert!((5000..5300).contains(&(b.now - begin)), "{}", b.now - begin);
    let last = &b.writes.last().unwrap().1.status;
    assert_eq!(last["phase"], "Failed");
    assert_eq!(last["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    b.pass(5000);
    assert!(b.node.runtime.containers().is_empty() && b.node.runtime.sandboxes().is_empty());
    assert_eq!(b.node.wake_at(), None);
}

#[test]
fn a_shorter_grace_counts_at_once() {
    let mut b = Bench::new();
    b.put(app(r#"{"term":null}"#));
    b.until(1000, Bench::ready);
    let delete = |grace: i64| {
        move |p: &mut Value| {
            p["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:13:50Z");
            p["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        }
    };
    b.edit(delete(300));
    b.pass(10_000);
    b.edit(delete(3));
    let took = b.until(20_000, |b| b.pods.is_empty());
    assert!(took < 4000, "{took}");
}

#[test]
fn a_pod_that_is_gone_from_the_api_is_ended() {
    let mut b = Bench::new();
    b.put(app("{}"));
    b.until(1000, Bench::ready);
    b.pods.clear();
    b.node.kubelet.pods_listed(b.now, &[], &mut b.node.runtime);
    b.pass(3000);
    assert!(b.node.runtime.containers().is_empty());
}

#[test]
fn sidecars_end_after_the_others() {
    let mut b = Bench::new();
    let mut pod = pod(&[("app", r#"{"term":[4000,0]}"#), ("proxy", r#"{"term":[10,0]}"#)]);
    let mut containers = pod["spec"]["containers"].take();
    let mut proxy = containers[1].take();
    proxy["restartPolicy"] = json!("Always");
    pod["spec"]["initContainers"] = json!([proxy]);
    pod["spec"]["containers"] = json!([containers[0].take()]);
    b.put(pod);
    b.until(2000, Bench::ready);
    b.edit(|p| {
        p["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:13:50Z");
        p["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    });
    b.pass(3500);
    assert!(b.running("proxy").is_some());
    b.until(3000, |b| b.pods.is_empty());
}

#[test]
fn the_deletion_is_repeated_until_it_works() {
    let mut b = Bench::new();
    b.put(app("{}"));
    b.until(1000, Bench::ready);
    b.edit(|p| {
        p["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:13:50Z");
        p["metadata"]["deletionGracePeriodSeconds"] = json!(5);
    });
    b.up = false;
    b.pass(60_000);
    assert!(b.running("app").is_none());
    b.up = true;
    b.until(21_000, |b| b.pods.is_empty());
}

#[test]
fn a_killed_kubelet_leaves_containers_and_forgets_the_back_off() {
    let mut b = Bench::new();
    b.put(app(r#"{"runs":[[100,1],[100,1],[100,1]]}"#));
    b.until(60_000, |b| b.running("app").is_some_and(|c| c.info.attempt == 2));
    b.pass(1500);
    b.kubelet_dies();
    b.kubelet_starts();
    let took = b.until(1000, |b| b.running("app").is_some());
    assert!(took < 200, "no back-off: {took}");
    b.until(1000, Bench::ready);
    let (id, writes) = (b.id("app"), b.writes.len());
    b.kubelet_dies();
    b.kubelet_starts();
    b.pass(10_000);
    assert_eq!((b.id("app"), b.ready()), (id, true));
    let ready: Vec<_> =
        b.writes[writes..].iter().map(|w| w.1.status["containerStatuses"][0]["ready"].clone()).collect();
    assert!(ready.iter().all(|r| *r == json!(true)), "it was ready all the time: {ready:?}");
}

#[test]
fn a_stop_that_the_kubelets_death_cut_is_begun_anew() {
    let mut b = Bench::new();
    b.put(app(r#"{"term":null}"#));
    b.until(1000, Bench::ready);
    b.edit(pin);
    b.pass(10_000);
    b.kubelet_dies();
    b.pass(60_000);
    assert!(b.running("app").is_some(), "nobody kills");
    b.kubelet_starts();
    let took = b.until(40_000, |b| b.status("app").restart_count == 1);
    assert!(took >= 30_000, "the whole grace once more: {took}");
}

#[test]
fn a_reboot_starts_everything_anew() {
    for wiped in [false, true] {
        let mut b = Bench::new();
        b.put(app("{}"));
        b.until(1000, Bench::ready);
        b.pass(20_000);
        let old = b.id("app");
        b.node.crash(b.now, wiped);
        b.pass(30_000);
        let pods: Vec<_> = b.pods.values().cloned().map(Arc::new).collect();
        b.node.boot(b.now, &pods);
        b.until(3000, |b| b.ready() && b.status("app").restart_count == 1);
        assert_ne!(b.id("app"), old);
        let last = b.status("app").last_state.terminated.unwrap();
        assert_eq!(last.exit_code, if wiped { 137 } else { 255 });
    }
}

#[test]
fn a_broken_sandbox_is_made_anew_and_the_pod_with_it() {
    let mut b = Bench::new();
    b.put(pod(&[("app", "{}"), ("log", "{}")]));
    b.until(1000, Bench::ready);
    let sandbox = b.node.runtime.sandboxes().keys().next().unwrap().clone();
    b.node.runtime.break_sandbox(b.now, &sandbox);
    b.until(3000, |b| b.ready() && b.status("log").restart_count == 1);
    assert_eq!(b.status("app").restart_count, 1);
    assert_eq!(b.node.runtime.sandboxes().len(), 2);
}

#[test]
fn a_runtime_that_is_away_delays_and_nothing_else() {
    let mut b = Bench::new();
    b.put(app("{}"));
    b.until(1000, Bench::ready);
    let id = b.id("app");
    b.node.runtime.down(b.now);
    b.node.runtime.crash(b.now, &id, 1);
    b.pass(60_000);
    assert!(b.ready(), "nobody noticed");
    b.node.runtime.up(b.now, 100);
    b.until(2500, |b| b.ready() && b.status("app").restart_count == 1);
    b.node.runtime.hang(b.now + 30_000);
    b.edit(pin);
    b.pass(29_000);
    assert_eq!(b.status("app").restart_count, 1);
    b.until(3000, |b| b.status("app").restart_count == 2);
}

/// Whenever the runtime answers again: before its first look the kubelet knows no container.
#[test]
fn a_kubelet_that_starts_without_an_answer_takes_nothing_for_over() {
    for hangs_ms in (500..3500).step_by(100) {
        let mut b = Bench::new();
        b.put(app("{}"));
        b.until(1000, Bench::ready);
        let known = b.status("app").container_id;
        b.kubelet_dies();
        b.node.runtime.hang(b.now + hangs_ms);
        b.kubelet_starts();
        let forgotten = b.until_time(b.now + 10_000, |b| b.status("app").container_id != known);
        assert!(!forgotten, "{hangs_ms}");
    }
}
