//! What is read of the `ReplicaSet`s of a `Deployment`, and written into them.

use chrono::DateTime;
use pitstop_api::logic::answer::Answer;
use pitstop_api::rollout::TargetKind;

use super::*;
use crate::action::{Action, Event, Object};
use crate::deed::{Deed, Done};
use crate::key::ObjectKey;
use crate::rollout;
use crate::wire::{Exchange, Step};
use crate::workload::{Workload, WorkloadQuery};

fn sent(step: Step) -> (HttpRequest, Exchange) {
    let Step::Send(request, exchange) = step else { panic!("{step:?}") };
    (*request, *exchange)
}

fn begin(deed: Deed) -> (HttpRequest, Exchange) {
    let object = Object::new(rollout::ID, ObjectKey::new("shop", "web"), "u-1");
    sent(Exchange::begin(Action::Do { object, deed }, DateTime::UNIX_EPOCH).unwrap())
}

fn answered(exchange: Exchange, object: &Value) -> Step {
    exchange.answered(Answer::Body(object.to_string()))
}

fn done(step: Step) -> Done {
    let Step::Over(over) = step else { panic!("{step:?}") };
    let Event::DeedDone { done, .. } = over.event else { panic!("{over:?}") };
    done
}

fn of(image: &str, hash: Option<&str>) -> Value {
    let labels = hash.map_or(json!({"app": "web"}), |hash| json!({"app": "web", SET_HASH: hash}));
    json!({"metadata": {"labels": labels, "creationTimestamp": null},
        "spec": {"containers": [{"name": "app", "image": image}]}})
}

fn replica_set(name: &str, replicas: i32, image: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d",
        "controller": true, "blockOwnerDeletion": true});
    json!({"metadata": {"name": format!("web-{name}"), "uid": name, "resourceVersion": "5", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web", SET_HASH: name},
            "annotations": {"deployment.kubernetes.io/revision": "3"}, "ownerReferences": [owner]},
        "spec": {"replicas": replicas, "minReadySeconds": 4, "selector": {"matchLabels": {"app": "web", SET_HASH: name}},
            "template": of(image, Some(name))},
        "status": {"replicas": replicas, "observedGeneration": 2}})
}

fn deployment() -> Value {
    json!({"metadata": {"name": "web", "uid": "d", "resourceVersion": "9", "generation": 4,
            "labels": {"pitstop.dev/parked": "Unpaused"}},
        "spec": {"replicas": 2, "paused": true, "selector": {"matchLabels": {"app": "web"}}, "template": of("web:2", None)},
        "status": {"observedGeneration": 4, "replicas": 2, "updatedReplicas": 0}})
}

fn query(back: Option<String>) -> WorkloadQuery {
    let (kind, key, restarts) = (TargetKind::Deployment, ObjectKey::new("shop", "web"), Vec::new());
    WorkloadQuery { kind: Some(kind), key, template: true, restarts, back, ..WorkloadQuery::default() }
}

fn read(sets: &[Value]) -> Workload {
    read_back(sets, None)
}

fn read_back(sets: &[Value], back: Option<String>) -> Workload {
    let (_, exchange) = begin(Deed::AskWorkload(Box::new(query(back))));
    let (mut request, mut exchange) = sent(answered(exchange, &deployment()));
    for (i, set) in sets.iter().enumerate() {
        assert!(
            request.uri().to_string().contains("/replicasets?&labelSelector=app%3Dweb&limit=20"),
            "{request:?}"
        );
        let more = if i + 1 < sets.len() { "more" } else { "" };
        let step = answered(exchange, &json!({"metadata": {"continue": more}, "items": [set]}));
        if more.is_empty() {
            let Done::Read(workload) = done(step) else { panic!() };
            return *workload;
        }
        (request, exchange) = sent(step);
    }
    panic!("no sets")
}

#[test]
fn pods_of_a_deployment_go_back_to_the_replica_set_that_has_them() {
    let sets = [replica_set("a", 2, "web:1"), replica_set("b", 0, "web:2")];
    let [old, new] = ["web:1", "web:2"].map(|image| identity(&of(image, None), &[]));
    let template = read_back(&sets, Some(old.clone())).template.unwrap();
    let is_new = template.revision.as_ref() == Some(&new);
    assert_eq!((template.previous.as_ref(), is_new, template.sets.swapped()), (Some(&old), true, true));
    assert_eq!(template.sets.wanted["app"].image, "web:1");
    let change = Change::between(&of("web:2", None), &of("web:1", None), &[]);
    let none = Change::InPlace(crate::template::Delta::default());
    let changes = [(String::new(), none.clone()), (old, none), (new.clone(), change)];
    assert_eq!(template.changes, changes.into());
    let template = read_back(&sets, Some(new)).template.unwrap();
    assert!(template.changes.is_empty(), "it is not that of the one with Pods");
}

#[test]
fn a_deployment_is_compared_with_its_replica_sets() {
    let mut foreign = replica_set("x", 1, "web:0");
    foreign["metadata"]["ownerReferences"][0]["uid"] = json!("other");
    let workload = read(&[foreign, replica_set("a", 2, "web:1"), replica_set("b", 0, "web:2")]);
    assert_eq!(workload.controllers, ["a"]);
    let template = workload.template.unwrap();
    let Template { holds, seen, committed, .. } = template;
    assert_eq!((holds, seen, committed, template.sets.kept), (true, true, false, true));
    assert_eq!(template.revision.as_deref(), Some(&*identity(&of("web:2", None), &[])));
    assert_eq!(template.sets.wanted["app"].image, "web:2");
    let change = Change::between(&of("web:1", None), &of("web:2", None), &[]);
    let none = Change::InPlace(crate::template::Delta::default());
    let changes = [
        (String::new(), change.clone()),
        (identity(&of("web:1", None), &[]), change),
        (identity(&of("web:2", None), &[]), none),
    ];
    assert_eq!(template.changes, changes.into());
    let is = |sets: &[Set]| sets.iter().map(|set| (set.new, set.old, set.seen)).collect::<Vec<_>>();
    assert_eq!(
        (is(&template.sets.active), is(&template.sets.others)),
        (vec![(false, true, true)], vec![(true, false, true)])
    );
    let active = &template.sets.active[0];
    assert_eq!((&*active.hash, &*active.version.resource_version), ("a", "5"));
    // Of two with Pods, neither is compared with.
    let both = read(&[replica_set("a", 2, "web:1"), replica_set("b", 1, "web:2")]).template.unwrap();
    assert_eq!((both.changes.len(), both.sets.active.len()), (0, 2), "{:?}", both.changes);
    let many: Vec<Value> = (0..101).map(|i| replica_set(&i.to_string(), 0, "web:1")).collect();
    let mut parsed: Vec<SlimReplicaSet> =
        many.into_iter().map(|set| serde_json::from_value(set).unwrap()).collect();
    let failure = take(&query(None), &Value::Null, &mut Template::default(), &mut parsed, false).unwrap_err();
    assert_eq!(failure.message, "it has more than 100 ReplicaSets");
}

fn set(name: &str) -> Set {
    let parsed: SlimReplicaSet = serde_json::from_value(replica_set(name, 0, "web:1")).unwrap();
    Set { version: version(&parsed.metadata), hash: hash(&parsed.spec.template), ..Set::default() }
}

/// What this step reads, and what it then sends.
fn commit(step: CommitStep, source: &Value) -> (String, Step) {
    let deployment = Version { name: "web".into(), uid: "d".into(), resource_version: "9".into() };
    let commit = Commit { namespace: "shop".into(), deployment, active: set("a"), step };
    let (request, exchange) = begin(Deed::Commit(Box::new(commit)));
    (format!("{} {}", request.method(), request.uri().path()), answered(exchange, source))
}

#[test]
fn the_template_goes_into_the_set_with_pods_which_keeps_its_own_label() {
    let (read, step) = commit(CommitStep::Swap, &deployment());
    assert_eq!(read, "GET /apis/apps/v1/namespaces/shop/deployments/web");
    let (request, exchange) = sent(step);
    assert_eq!(
        (request.method().as_str(), request.uri().path()),
        ("PATCH", "/apis/apps/v1/namespaces/shop/replicasets/web-a")
    );
    assert_eq!(request.headers()["content-type"], "application/json-patch+json");
    let body: Value = serde_json::from_slice(request.body()).unwrap();
    assert_eq!(
        body,
        json!([
            {"op": "replace", "path": "/spec/template", "value": of("web:2", None)},
            {"op": "add", "path": "/spec/template/metadata/labels/pod-template-hash", "value": "a"},
            {"op": "replace", "path": "/metadata/uid", "value": "a"},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": "5"},
        ])
    );
    assert_eq!(done(answered(exchange, &json!({}))), Done::Effected);
    let mut other = deployment();
    other["metadata"]["resourceVersion"] = json!("10");
    assert_eq!(done(commit(CommitStep::Swap, &other).1), Done::Conflict);
}

#[test]
fn the_old_template_is_kept_with_what_the_history_says_of_it() {
    let (read, step) = commit(CommitStep::Keep(set("b")), &replica_set("a", 2, "web:1"));
    assert_eq!(read, "GET /apis/apps/v1/namespaces/shop/replicasets/web-a");
    let (request, _) = sent(step);
    let body: Value = serde_json::from_slice(request.body()).unwrap();
    assert_eq!(request.uri().path(), "/apis/apps/v1/namespaces/shop/replicasets/web-b");
    assert_eq!((&body[0]["value"], &body[1]["value"]), (&of("web:1", Some("a")), &json!("b")));
    assert_eq!(body[2]["value"], json!({"deployment.kubernetes.io/revision": "3"}));

    let (_, step) = commit(CommitStep::Make, &replica_set("a", 2, "web:1"));
    let (request, _) = sent(step);
    assert_eq!(
        (request.method().as_str(), request.uri().path()),
        ("POST", "/apis/apps/v1/namespaces/shop/replicasets")
    );
    let made: Value = serde_json::from_slice(request.body()).unwrap();
    let hash = made["metadata"]["labels"][SET_HASH].as_str().unwrap();
    assert!(hash.starts_with("pitstop-") && hash.len() == 18, "{hash}");
    assert_eq!(made["metadata"]["name"], format!("web-{hash}"));
    assert_eq!(made["spec"]["selector"]["matchLabels"], json!({"app": "web", SET_HASH: hash}));
    assert_eq!((&made["spec"]["template"], &made["spec"]["replicas"]), (&of("web:1", Some(hash)), &json!(0)));
    assert_eq!((&made["spec"]["minReadySeconds"], made["status"].is_null()), (&json!(4), true));
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], owner["blockOwnerDeletion"].is_null()), (&json!("d"), true));

    let (_, step) = commit(CommitStep::Void(set("b")), &replica_set("a", 2, "web:1"));
    let body: Value = serde_json::from_slice(sent(step).0.body()).unwrap();
    assert_eq!(
        body[0],
        json!({"op": "add", "path": "/spec/template/metadata/annotations", "value": {"pitstop.dev/void": "true"}})
    );
}
