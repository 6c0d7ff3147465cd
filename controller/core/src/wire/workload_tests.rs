//! Readings of workloads against answers as the API server gives them.

use serde_json::{Value, json};

use super::*;
use crate::workload::Budget;

fn reading(kind: TargetKind, pods: bool) -> WorkloadReading {
    WorkloadReading::new(WorkloadQuery {
        kind: Some(kind),
        key: ObjectKey::new("shop", "web"),
        pods,
        ..WorkloadQuery::default()
    })
}

fn asks(reading: &WorkloadReading) -> String {
    reading.request().unwrap().uri().to_string()
}

fn answer(reading: &mut WorkloadReading, body: &Value) -> bool {
    reading.answered(Answer::Body(body.to_string())).unwrap()
}

fn owned(name: &str, uid: &str, owner: &str, created: &str) -> Value {
    json!({"name": name, "uid": uid, "creationTimestamp": created, "ownerReferences":
        [{"apiVersion": "apps/v1", "kind": "X", "name": "x", "uid": owner, "controller": true}]})
}

const FIRST: &str = "2026-01-01T00:00:01Z";

#[test]
fn a_deployment_is_read_with_the_replica_sets_that_have_pods() {
    let mut reading = reading(TargetKind::Deployment, true);
    assert_eq!(asks(&reading), "/apis/apps/v1/namespaces/shop/deployments/web");
    assert!(answer(
        &mut reading,
        &json!({"metadata": {"name": "web", "uid": "d"}, "spec": {"replicas": 10, "minReadySeconds": 5,
            "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}}}),
    ));
    let selected = "?&labelSelector=app%3Dweb%2Ctier+in+%28a%29&limit=500";
    assert_eq!(asks(&reading), format!("/apis/apps/v1/namespaces/shop/replicasets{selected}"));
    let set = |uid: &str, owner: &str, replicas: i64| json!({"metadata": owned(uid, uid, owner, FIRST), "spec": {"replicas": replicas}});
    assert!(answer(
        &mut reading,
        &json!({"metadata": {"continue": "more"}, "items": [set("r1", "d", 0), set("r2", "d", 10), set("other", "x", 3)]}),
    ));
    assert!(asks(&reading).contains("continue=more"));
    let shrinks = json!({"metadata": owned("r3", "r3", "d", FIRST), "spec": {"replicas": 0}, "status": {"replicas": 2}});
    assert!(answer(&mut reading, &json!({"metadata": {}, "items": [shrinks]})));
    assert_eq!(asks(&reading), format!("/api/v1/namespaces/shop/pods{selected}"));
    let pod = |name: &str, owner: &str| json!({"metadata": owned(name, name, owner, FIRST)});
    assert!(!answer(&mut reading, &json!({"items": [pod("a", "r2"), pod("stray", "job"), pod("b", "r3")]})));
    let listed =
        |name: &str| Listed { name: name.into(), uid: name.into(), created: 1_767_225_601, revision: 0 };
    let expected = Workload {
        uid: "d".into(),
        controllers: vec!["r2".into(), "r3".into()],
        desired: 10,
        max_unavailable: 2,
        min_ready_seconds: 5,
        pods: Some(vec![listed("a"), listed("b")]),
        ..Workload::default()
    };
    assert_eq!(reading.workload, expected);
}

#[test]
fn other_workloads_have_their_pods_themselves() {
    let mut reading = reading(TargetKind::StatefulSet, false);
    assert_eq!(asks(&reading), "/apis/apps/v1/namespaces/shop/statefulsets/web");
    assert!(!answer(
        &mut reading,
        &json!({"metadata": {"name": "web", "uid": "s", "deletionTimestamp": FIRST}, "spec": {"selector": {"matchLabels": {"app": "web"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}}),
    ));
    let expected = Workload {
        uid: "s".into(),
        deleting: true,
        controllers: vec!["s".into()],
        desired: 1,
        max_unavailable: 1,
        partition: 2,
        ..Workload::default()
    };
    assert_eq!(reading.workload, expected);
    let mut reading = super::tests::reading(TargetKind::DaemonSet, false);
    assert_eq!(asks(&reading), "/apis/apps/v1/namespaces/shop/daemonsets/web");
    assert!(!answer(
        &mut reading,
        &json!({"metadata": {"name": "web", "uid": "ds"}, "spec": {"selector": {"matchLabels": {"app": "web"}},
            "updateStrategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}, "status": {"desiredNumberScheduled": 7}}),
    ));
    assert_eq!((reading.workload.desired, reading.workload.max_unavailable), (7, 0));
}

#[test]
fn budgets_are_those_that_select_the_labels_of_the_template() {
    let query = |kind| WorkloadQuery {
        kind: Some(kind),
        key: ObjectKey::new("shop", "web"),
        pods: true,
        budgets: true,
        ..WorkloadQuery::default()
    };
    let mut reading = WorkloadReading::new(query(TargetKind::StatefulSet));
    assert!(answer(
        &mut reading,
        &json!({"metadata": {"name": "web", "uid": "s"}, "spec": {"selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web", "tier": "front"}}}}}),
    ));
    assert_eq!(asks(&reading), "/apis/policy/v1/namespaces/shop/poddisruptionbudgets?&limit=500");
    let budget = |name: &str, selector: &Value, observed: i64| {
        json!({"metadata": {"name": name, "generation": 2}, "spec": {"selector": selector},
            "status": {"observedGeneration": observed, "desiredHealthy": 3, "currentHealthy": 5, "expectedPods": 6}})
    };
    let items = [
        budget("one", &json!({"matchLabels": {"tier": "front"}}), 2),
        budget("other", &json!({"matchLabels": {"tier": "back"}}), 2),
        budget("nobody", &Value::Null, 2),
        budget("broken", &json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}), 2),
    ];
    assert!(answer(&mut reading, &json!({"metadata": {"continue": "more"}, "items": items})));
    assert!(asks(&reading).contains("poddisruptionbudgets?&limit=500&continue=more"));
    let items = [budget("all", &json!({}), 1), json!({"metadata": {"name": "new"}, "spec": {}})];
    assert!(answer(&mut reading, &json!({"items": items})), "the Pods are left");
    assert!(asks(&reading).starts_with("/api/v1/namespaces/shop/pods?"));
    let one =
        Budget { name: "one".into(), desired_healthy: Some(3), healthy: 5, expected: 6, partial: false };
    let all = Budget { name: "all".into(), desired_healthy: None, ..one.clone() };
    assert_eq!(reading.workload.budgets, Some(vec![one, all]));
    // A list that is too long is not kept.
    let mut reading = WorkloadReading::new(query(TargetKind::DaemonSet));
    assert!(answer(
        &mut reading,
        &json!({"metadata": {"uid": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}})
    ));
    let many = vec![budget("all", &json!({}), 2); 101];
    let failed = reading.answered(Answer::Body(json!({"items": many}).to_string())).unwrap_err();
    assert_eq!(failed.message, "more than 100 PodDisruptionBudgets are for its Pods");
    let failed = reading.answered(Answer::Failed(Failure::of_code(403, "forbidden"))).unwrap_err();
    assert_eq!(failed.message, "cannot list poddisruptionbudgets: forbidden");
}

#[test]
fn what_cannot_be_read_is_named() {
    let mut reading = reading(TargetKind::Deployment, false);
    let failed = reading.answered(Answer::Failed(Failure::of_code(403, "forbidden"))).unwrap_err();
    assert_eq!(failed.message, "cannot get deployments: forbidden");
    let body = json!({"metadata": {"uid": "d"}, "spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}});
    let failed = reading.answered(Answer::Body(body.to_string())).unwrap_err();
    assert!(failed.message.contains("its spec.selector cannot be read"), "{}", failed.message);
}

/// A workload without Pods is known to have none.
#[test]
fn a_list_of_no_pods_is_one() {
    let mut reading = reading(TargetKind::StatefulSet, true);
    let web = json!({"metadata": {"name": "web", "uid": "s"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    assert!(answer(&mut reading, &web));
    assert!(!answer(&mut reading, &json!({"items": []})));
    assert_eq!(reading.workload.pods, Some(Vec::new()));
}

#[test]
fn of_selected_pods_the_budgets_are_read_first_and_then_the_pods() {
    let labels = [("app", "web"), ("tier", "front")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let key = ObjectKey::new("shop", "");
    let query = WorkloadQuery { key, labels: labels.into(), budgets: true, ..WorkloadQuery::default() };
    let mut reading = WorkloadReading::new(query.clone());
    assert_eq!(asks(&reading), "/apis/policy/v1/namespaces/shop/poddisruptionbudgets?&limit=500");
    let budget = |name: &str, label: &str| {
        json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": label}}},
            "status": {"desiredHealthy": 1, "currentHealthy": 2, "expectedPods": 2}})
    };
    let some = json!({"metadata": {"name": "some"}, "spec": {"selector": {"matchLabels": {"n": "1"}}}, "status": {}});
    assert!(answer(&mut reading, &json!({"items": [budget("all", "web"), budget("none", "db"), some]})));
    assert_eq!(
        asks(&reading),
        "/api/v1/namespaces/shop/pods?&fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed\
         &labelSelector=app%3Dweb%2Ctier%3Dfront&limit=500"
    );
    let pod = |name: &str, n: &str| {
        json!({"metadata": {"name": name, "uid": name, "labels": {"app": "web", "tier": "front", "n": n,
            "controller-revision-hash": "of-its-owner"}, "annotations": {"pitstop.dev/revision": "s-1"}}})
    };
    assert!(answer(&mut reading, &json!({"metadata": {"continue": "x"}, "items": [pod("a", "1")]})));
    assert!(!answer(&mut reading, &json!({"items": [pod("b", "2")]})));
    let Workload { labels, controllers, max_unavailable, budgets, pods, .. } = reading.workload;
    assert_eq!((labels, controllers, max_unavailable), (label_hashes(&query.labels), Vec::new(), 1));
    let found: Vec<_> =
        budgets.iter().flatten().map(|budget| (budget.name.as_str(), budget.partial)).collect();
    assert_eq!(found, [("all", false), ("some", true)]);
    let pods = pods.unwrap();
    assert_eq!(pods.len(), 2);
    assert!(pods.iter().all(|pod| pod.revision == crate::workload::revision_hash("s-1")));

    let query = WorkloadQuery { budgets: false, ..query };
    let mut reading = WorkloadReading::new(query);
    assert!(!answer(&mut reading, &json!({"items": []})), "nothing but the Pods is read");
    assert_eq!(reading.workload.pods, Some(Vec::new()));
}
