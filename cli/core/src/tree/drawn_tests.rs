//! Whole pictures, at 80 and at 200 columns.

use pitstop_api::rollout::UpdateEnd;
use serde_json::json;

use super::tests::{at, conditions, drawn, objects, pod, read, restart, rollout};
use super::*;
use crate::draw::{Look, draw};

const WEB: About<'static> = About::Workload(TargetKind::Deployment, "web");

fn size(width: usize, height: usize) -> Look {
    Look { size: Some((width, height)), ..Look::default() }
}

/// An image update is under way: one Pod failed, one pulls. An earlier update was rolled back.
fn updated() -> Objects {
    let digest = |digit: &str| format!("sha256:{}", digit.repeat(64));
    let rollout = read(json!({
        "metadata": {"name": "web", "uid": "rollout", "generation": 2, "resourceVersion": "12"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "templateChanges": "InPlace",
            "strategy": {"maxUnavailable": "25%", "soakSeconds": 5, "canary": {"pods": 1, "soakSeconds": 60}}},
        "status": {"phase": "Progressing", "observedGeneration": 2, "pods": 3, "current": 1, "started": 1, "failed": 1,
            "update": {"revision": "7d9f", "from": "5c4b", "generation": 4,
                "images": [{"image": "shop/web:v2", "digest": digest("b")}]},
            "podsOfInterest": [
                {"name": "web-c", "state": "Failed", "request": "web-c-1", "message": "CrashLoopBackOff: app ends with code 1"},
                {"name": "web-b", "state": "Started", "request": "web-b-1"}],
            "history": [{"revision": "6a1c", "from": "5c4b", "result": "RolledBack", "pods": 3, "current": 3,
                "completedAt": at(-3600), "serviceGap": {"measured": 4, "medianMilliseconds": 2300, "maximumMilliseconds": 4980}}],
            "conditions": conditions("False", "Updating", "1 of 3 Pods are updated")},
    }));
    let update = read(json!({
        "metadata": {"name": "web-b-1", "generation": 1, "creationTimestamp": at(10)},
        "spec": {"podRef": {"name": "web-b"}, "containers": [{"name": "app", "image": "shop/web:v2"}]},
        "status": {"phase": "Pulling", "observedGeneration": 1, "target": {"podUID": "u", "nodeName": "node1"},
            "containers": [{"name": "app", "pulled": {"imageID": digest("b"), "digest": digest("b"), "bytes": 1, "seconds": 1},
                "before": {"image": "shop/web:v1", "imageID": format!("shop/web@{}", digest("a")), "restartCount": 0}}],
            "conditions": conditions("False", "Pulling", "node1 pulls shop/web:v2: 120 of 300 MB")},
    }));
    let mut done = pod("web-a", "node1", true);
    done.metadata.annotations = Some([("pitstop.dev/revision".to_owned(), "7d9f".to_owned())].into());
    let pods = vec![done, pod("web-b", "node1", true), pod("web-c", "node2", false)];
    Objects { rollouts: vec![rollout], updates: vec![update], pods, ..Objects::default() }
}

#[test]
fn an_update_is_shown_with_its_steps_its_images_and_what_was_before() {
    let tree = tree(WEB, &updated());
    let expected = "\
● deployment/web
├─ ● inplacerollout/web     60s  Updating: 1 of 3 Pods are updated
│  ├─ ✗ Pods                     1 of 3 done, 1 at work, 1 failed, 0 waiting
│  ├─ · update                   5c4b -> 7d9f
│  ├─ · image                    shop/web:v2 is bbbbbbbbbbbb
│  ├─ · steps                    at most 25% unavailable, canary 1 (soak 60 s), soak 5 s
│  └─ · last                61m  RolledBack: 3 of 3 Pods, 5c4b -> 6a1c
├─ · node1
│  ├─ ● web-b               70s  Pulling: node1 pulls shop/web:v2: 120 of 300 MB
│  │  └─ ● app                   shop/web:v1 (aaaaaaaaaaaa) -> shop/web:v2 (bbbbbbbbbbbb)
│  └─ ✔ web-a
└─ · node2
   └─ ✗ web-c                    Failed: web-c-1: CrashLoopBackOff: app ends with code 1";
    assert_eq!(drawn(&tree, size(200, 50)), expected);
    let narrow = "\
● deployment/web
├─ ● inplacerollout/web     60s  Updating: 1 of 3 Pods are updated
│  ├─ ✗ Pods                     1 of 3 done, 1 at work, 1 failed, 0 waiting
│  ├─ · update                   5c4b -> 7d9f
│  ├─ · image                    shop/web:v2 is bbbbbbbbbbbb
│  ├─ · steps                    at most 25% unavailable, canary 1 (soak 60 s),~
│  └─ · last                61m  RolledBack: 3 of 3 Pods, 5c4b -> 6a1c
├─ · node1
│  ├─ ● web-b               70s  Pulling: node1 pulls shop/web:v2: 120 of 300 MB
│  │  └─ ● app                   shop/web:v1 (aaaaaaaaaaaa) -> shop/web:v2 (bbb~
│  └─ ✔ web-a
└─ · node2
   └─ ✗ web-c                    Failed: web-c-1: CrashLoopBackOff: app ends wi~";
    assert_eq!(drawn(&tree, size(80, 50)), narrow);
}

#[test]
fn a_finished_rollout_says_how_the_last_one_ended_and_for_how_long_pods_were_not_ready() {
    let mut objects = Objects { rollouts: updated().rollouts, ..Objects::default() };
    let status = objects.rollouts[0].status.as_mut().unwrap();
    status.conditions = read(conditions("True", "Updated", "all Pods are updated"));
    (status.current, status.failed, status.started) = (3, 0, 0);
    let text = drawn(&tree(About::Namespace, &objects), size(80, 50));
    assert_eq!(
        text,
        "\
✔ inplacerollout/web     60s  Updated: all Pods are updated
├─ ✔ Pods                     3 of 3 done, 0 at work, 0 failed, 0 waiting
├─ · update                   5c4b -> 7d9f
├─ · image                    shop/web:v2 is bbbbbbbbbbbb
├─ · last                61m  RolledBack: 3 of 3 Pods, 5c4b -> 6a1c
└─ · gap                      2.3 s (median of 4), 4.9 s (longest)"
    );
}

#[test]
fn a_pod_without_a_mark_is_done_once_the_update_is() {
    let mut objects = updated();
    let update = objects.rollouts[0].status.as_mut().unwrap().update.as_mut().unwrap();
    update.ended = Some(UpdateEnd::Updated);
    objects.updates.clear();
    objects.pods[0].metadata.annotations = None;
    let drawn = drawn(&tree(WEB, &objects), size(200, 50));
    assert!(drawn.contains("✔ web-a") && drawn.contains("✔ web-b"), "{drawn}");
}

#[test]
fn a_rollout_alone_names_the_pods_that_it_is_at_work_with() {
    let objects = Objects { rollouts: updated().rollouts, ..Objects::default() };
    let text = drawn(&tree(About::Requests, &objects), size(80, 50));
    assert!(text.contains("pod/web-c") && text.contains("Failed: web-c-1: CrashLoopBackOff"), "{text}");
    assert!(text.contains("Started: web-b-1"), "{text}");
    let mut paused = objects;
    let status = paused.rollouts[0].status.as_mut().unwrap();
    status.phase = Some(pitstop_api::rollout::Phase::Paused);
    assert_eq!(tree(About::Requests, &paused).items[0].mark, Mark::Waiting);
}

#[test]
fn a_resize_says_what_was_and_what_is_asked_for() {
    let resize = read(json!({
        "metadata": {"name": "grow", "generation": 1, "creationTimestamp": at(20)},
        "spec": {"podRef": {"name": "web-a"}, "containers": []},
        "status": {"phase": "Deferred", "observedGeneration": 1, "containers": [{"name": "app", "restartCount": 0,
            "original": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            "desired": {"requests": {"cpu": "200m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}}}],
            "conditions": conditions("False", "NodeBusy", "node1 has no room now")},
    }));
    let text =
        drawn(&tree(About::Requests, &Objects { resizes: vec![resize], ..Objects::default() }), size(200, 9));
    assert_eq!(
        text,
        "\
● podresize/grow     60s  NodeBusy: Pod web-a: node1 has no room now
└─ ● app                  requests cpu=100m,memory=64Mi limits memory=128Mi -> requests cpu=200m,memory=64Mi limits memory=256Mi"
    );
}

#[test]
fn a_set_of_the_same_name_and_requests_for_other_pods_are_no_part_of_a_workload() {
    let mut objects = objects();
    let mut set = rollout(9, 0, 0);
    set.metadata.name = Some("set".to_owned());
    set.spec.target_ref.as_mut().unwrap().kind = TargetKind::StatefulSet;
    objects.rollouts.insert(0, set);
    let mut stranger = restart("stranger", "db-0", None, ("False", "Queued", "waits"));
    stranger.metadata.resource_version = Some("99".to_owned());
    objects.restarts.push(stranger);
    let of = |kind| tree(About::Workload(kind, "web"), &objects);
    let (deployment, set) = (of(TargetKind::Deployment), of(TargetKind::StatefulSet));
    let text = drawn(&deployment, Look::default());
    assert!(text.contains("1 of 6 done") && !text.contains("of 9"), "{text}");
    assert!(drawn(&set, Look::default()).contains("of 9"));
    assert!(!deployment.resource_versions.contains_key("containerrecreaterequest/stranger"));
    assert_eq!(deployment.resource_versions["inplacerollout/web"], "12");
}

#[test]
fn of_two_rollouts_the_older_one_acts() {
    let mut objects = objects();
    let mut young = rollout(6, 0, 0);
    young.metadata.name = Some("a-younger".to_owned());
    young.metadata.creation_timestamp = read(json!(at(9)));
    young.status.as_mut().unwrap().restart = None;
    objects.rollouts[0].metadata.creation_timestamp = read(json!(at(1)));
    objects.rollouts.insert(0, young);
    let text = drawn(&tree(WEB, &objects), Look::default());
    let at = |name: &str| text.find(name).unwrap();
    assert!(at("inplacerollout/web") < at("inplacerollout/a-younger"), "{text}");
    assert!(text.contains("○ web-d"), "by the older one it waits: {text}");
}

#[test]
fn pods_that_a_restart_leaves_alone_do_not_wait_for_it() {
    let mut objects = objects();
    objects.pods.iter_mut().for_each(|pod| pod.metadata.creation_timestamp = read(json!(at(30))));
    objects.rollouts[0].status.as_mut().unwrap().restart.as_mut().unwrap().newest_pod = Some(at(25));
    let mut leaving = pod("web-f", "node2", false);
    leaving.metadata.deletion_timestamp = read(json!(at(70)));
    objects.pods[5] = leaving;
    let text = drawn(&tree(WEB, &objects), Look::default());
    assert!(text.contains("· web-d") && !text.contains('○'), "{text}");
    assert!(text.contains("! web-f") && text.contains("is being deleted"), "{text}");
}

/// 200 Pods on 40 nodes. One failed, on the last node; three others are at work.
fn crowd() -> Objects {
    let pods = (0..200).map(|n| pod(&format!("web-{n:03}"), &format!("node{:02}", n / 5), true));
    let at_work = [7, 77, 107].map(|n| {
        restart(
            &format!("r-{n}"),
            &format!("web-{n:03}"),
            Some("rollout"),
            ("False", "Stopping", "stops app"),
        )
    });
    let mut rollout = rollout(200, 90, 3);
    let status = rollout.status.as_mut().unwrap();
    status.failed = 1;
    status.pods_of_interest = read(json!([
        {"name": "web-199", "state": "Failed", "request": "r-199", "message": "app does not become ready"}]));
    Objects {
        rollouts: vec![rollout],
        restarts: at_work.to_vec(),
        pods: pods.collect(),
        ..Objects::default()
    }
}

#[test]
fn two_hundred_pods_on_forty_nodes_fit_with_all_that_needs_attention() {
    let tree = tree(WEB, &crowd());
    let expected = "\
● deployment/web
├─ ● inplacerollout/web     60s  Restarting: some Pods are restarted
│  ├─ ✗ Pods                     90 of 200 done, 3 at work, 1 failed, 106 waiti~
│  ├─ · restart                  two
│  └─ · steps                    soak 10 s
├─ · node01
│  ├─ ● web-007             70s  Stopping: stops app
│  │  └─ ● app                   Recreating: 0123456789ab
│  └─ · 4 other Pods             4 waiting
├─ · node15
│  ├─ ● web-077             70s  Stopping: stops app
│  │  └─ ● app                   Recreating: 0123456789ab
│  └─ · 4 other Pods             4 waiting
├─ · node21
│  ├─ ● web-107             70s  Stopping: stops app
│  │  └─ ● app                   Recreating: 0123456789ab
│  └─ · 4 other Pods             4 waiting
├─ · node39
│  ├─ ✗ web-199                  Failed: r-199: app does not become ready
│  └─ · 4 other Pods             4 waiting
└─ · 36 other nodes              180 Pods: 180 waiting";
    assert_eq!(drawn(&tree, size(80, 24)), expected);
    let low = drawn(&tree, size(80, 12));
    assert_eq!(low.lines().count(), 12, "{low}");
    assert!(low.contains("web-199") && low.contains("more lines"), "the failed one comes first:\n{low}");
}

#[test]
fn where_there_is_room_a_node_of_many_has_a_line_and_long_texts_move_no_columns() {
    let why =
        "podresizes cannot be read: podresizes.pitstop.dev is forbidden: User \"ann\" cannot list resource";
    let tree = tree(WEB, &Objects { unread: vec![why.to_owned()], ..crowd() });
    let text = drawn(&tree, Look::default());
    assert!(text.ends_with(&format!("\n! {why}")), "{text}");
    let line = |name: &str| text.lines().find(|line| line.contains(name)).unwrap();
    assert_eq!(line("node00"), "├─ · node00                      5 Pods: 5 waiting");
    assert_eq!(line("web-199"), "   ├─ ✗ web-199                  Failed: r-199: app does not become ready");
    assert!(text.lines().count() < 64, "{text}");
}

#[test]
fn what_could_not_be_read_is_told_however_low_the_terminal_is() {
    let unread = vec!["pods are 9 s old: connection refused".to_owned()];
    let tree = tree(WEB, &Objects { unread, ..crowd() });
    for height in 1..30 {
        let lines = draw(&tree, at(80), size(80, height));
        assert!(lines.len() <= height, "{height}: {lines:?}");
        assert!(lines.last().is_some_and(|line| line.contains("are 9 s old")), "{height}: {lines:?}");
    }
}

#[test]
fn a_pod_says_what_failed_last() {
    let mut objects = objects();
    objects.pods.retain(|pod| pod.metadata.name.as_deref() == Some("web-a"));
    let mut failed = restart("bad", "web-a", None, ("False", "PodGone", "it is gone"));
    let status = failed.status.as_mut().unwrap();
    status.completion_time = Some(at(60));
    status.conditions.push(read(json!({"type": "Failed", "status": "True", "reason": "PodGone",
        "message": "it is gone", "lastTransitionTime": at(60)})));
    objects.restarts = vec![failed];
    let text = drawn(&tree(About::Pod("web-a"), &objects), Look::default());
    assert!(
        text.contains("✗ containerrecreaterequest/bad") && text.contains("PodGone: it is gone"),
        "{text}"
    );
    let mut later = restart("good", "web-a", None, ("True", "Complete", ""));
    later.status.as_mut().unwrap().completion_time = Some(at(70));
    objects.restarts.push(later);
    let text = drawn(&tree(About::Pod("web-a"), &objects), Look::default());
    assert!(!text.contains("crr") && !text.contains('✗'), "a later one succeeded: {text}");
}
