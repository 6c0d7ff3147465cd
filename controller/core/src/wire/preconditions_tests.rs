//! Requests and answers: each write names its precondition, and each answer has one meaning.

use std::collections::BTreeMap;

use pitstop_api::nodework::{Order, OrderPod};
use serde_json::{Value, json};

use super::*;
use pitstop_api::quantity::Resources;

use crate::action::Basis;
use crate::change::{ResourceChange, Sizing};
use crate::deed::{Child, Deed};
use crate::kind::Kind as _;
use crate::readiness::GateChange;
use crate::{recreate, resize};

const CRR: &str = "/apis/apps.kruise.io/v1alpha1/namespaces/shop/containerrecreaterequests/crr";

fn crr() -> (ObjectKey, String) {
    (ObjectKey::new("shop", "crr"), "u-crr".to_owned())
}

/// Method, path, and body of what an action sends first.
fn wire(action: Action) -> (String, String, Value) {
    let (request, _) = begin(action);
    let body = serde_json::from_slice(request.body()).unwrap();
    (request.method().to_string(), request.uri().path().to_owned(), body)
}

fn order() -> Order {
    let pod = OrderPod { namespace: "shop".into(), name: "web".into(), uid: "u-web".into() };
    Order { id: "u-crr/app/1".into(), pod, ..Order::default() }
}

fn write_status() -> Action {
    let ((key, uid), status) = (crr(), Box::default());
    Action::Write {
        object: Object::new(recreate::ID, key, uid),
        write: Write::Status { resource_version: "7".into(), status: Status::Recreate(status) },
    }
}

fn write_orders() -> Action {
    Action::WriteOrders {
        node: "n1".into(),
        basis: Basis::Version("7".into()),
        orders: vec![order()],
        closed: Vec::new(),
        adopt: false,
    }
}

fn doing(deed: Deed) -> Action {
    Action::Do { object: Object::new(resize::ID, ObjectKey::new("shop", "grow"), "u-grow"), deed }
}

#[test]
fn a_restart_belongs_to_its_resize_and_says_which_pod_is_meant() {
    let spec = json!({"podName": "web", "containers": [{"name": "proxy"}, {"name": "app"}],
        "activeDeadlineSeconds": 30});
    let (method, path, body) = wire(doing(Deed::Create(Box::new(Child {
        kind: recreate::ID,
        key: ObjectKey::new("shop", "grow-restart"),
        labels: [("crr.apps.kruise.io/pod-uid".to_owned(), "u-web".to_owned())].into(),
        spec: spec.clone(),
    }))));
    assert_eq!((method.as_str(), path.as_str()), ("POST", CRR.trim_end_matches("/crr")));
    let owner = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodResize", "name": "grow", "uid": "u-grow",
        "controller": true, "blockOwnerDeletion": false});
    let metadata = json!({"name": "grow-restart", "namespace": "shop", "ownerReferences": [owner],
        "labels": {"crr.apps.kruise.io/pod-uid": "u-web"}});
    assert_eq!(body["metadata"], metadata);
    assert_eq!(body["spec"], spec);
    // Read back, it belongs to the resize.
    let request = recreate::Request::observe(serde_json::from_value(body).unwrap());
    assert_eq!(request.owner.unwrap().uid, "u-grow");
}

#[test]
fn an_owner_is_one_only_where_all_of_it_says_so() {
    let belongs = |change: Value| {
        let mut owner = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodResize", "name": "grow",
            "uid": "u", "controller": true});
        owner.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let object = json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest",
            "metadata": {"name": "a", "ownerReferences": [owner]}, "spec": {"podName": "web", "containers": []}});
        recreate::Request::observe(serde_json::from_value(object).unwrap()).owner.is_some()
    };
    assert!(belongs(json!({})) && belongs(json!({"apiVersion": "pitstop.dev/v1"})));
    for other in
        [json!({"apiVersion": "example.com/v1"}), json!({"apiVersion": "v1"}), json!({"controller": false})]
    {
        assert!(!belongs(other.clone()), "{other}");
    }
}

#[test]
fn what_a_resize_has_done_goes_by_uid() {
    let key = || ObjectKey::new("shop", "web");
    let (method, path, body) = wire(doing(Deed::Evict { key: key(), uid: "u-web".into() }));
    assert_eq!((method.as_str(), path.as_str()), ("POST", "/api/v1/namespaces/shop/pods/web/eviction"));
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "web", "namespace": "shop"}, "deleteOptions": {"preconditions": {"uid": "u-web"}}});
    assert_eq!(body, eviction);
    let (kind, pod) = (crate::image::ID, key());
    let resume = Deed::Resume { kind, key: ObjectKey::new("shop", "web-1"), uid: "u-web-1".into(), pod };
    let (method, path, body) = wire(doing(resume));
    let updates = "/apis/pitstop.dev/v1alpha1/namespaces/shop/podimageupdates/web-1";
    assert_eq!((method.as_str(), path.as_str()), ("PATCH", updates));
    assert_eq!(body, json!({"metadata": {"uid": "u-web-1"}, "spec": {"suspend": false}}));
    let ((key, uid), withdraw) = (crr(), |key, uid| doing(Deed::Delete { kind: recreate::ID, key, uid }));
    let (method, path, body) = wire(withdraw(key, uid));
    assert_eq!((method.as_str(), path.as_str()), ("DELETE", CRR));
    assert_eq!(body["preconditions"], json!({"uid": "u-crr"}));
}

#[test]
fn each_answer_to_what_a_resize_has_done_has_one_meaning() {
    let done = |answer| {
        let (_, exchange) = begin(doing(Deed::Evict { key: ObjectKey::new("shop", "web"), uid: "u".into() }));
        let over = over(exchange.answered(answer));
        assert_eq!(over.name, "evict_pod");
        let Event::DeedDone { object: Object { key, uid, .. }, done, .. } = over.event else {
            panic!("{over:?}")
        };
        assert_eq!((key.name.as_str(), uid.as_str()), ("grow", "u-grow"));
        done
    };
    let failed = |code| Answer::Failed(Failure::of_code(code, "no"));
    assert_eq!(done(Answer::Body("{}".into())), Done::Effected);
    assert_eq!(done(failed(404)), Done::Gone);
    assert_eq!(done(failed(409)), Done::Conflict);
    assert_eq!(done(failed(429)), Done::Retry("no".into()), "a disruption budget");
    assert_eq!(done(failed(503)), Done::Retry("no".into()));
    assert_eq!(done(failed(403)), Done::Refused("no".into()));
}

#[test]
fn a_status_replaces_only_the_version_that_it_was_computed_from() {
    let (method, path, body) = wire(write_status());
    assert_eq!((method.as_str(), path), ("PUT", format!("{CRR}/status")));
    let named = json!({"name": "crr", "namespace": "shop", "uid": "u-crr", "resourceVersion": "7"});
    assert_eq!(body["metadata"], named);
}

#[test]
fn labels_and_annotations_change_only_the_version_that_was_looked_at() {
    let ((key, uid), resource_version) = (crr(), "7".to_owned());
    let labels = BTreeMap::from([("active".to_owned(), None)]);
    let annotations = BTreeMap::from([("since".to_owned(), Some("now".to_owned()))]);
    let action = Action::Write {
        object: Object::new(recreate::ID, key, uid),
        write: Write::Metadata { resource_version, labels, annotations },
    };
    let merged = json!({"metadata":
        {"resourceVersion": "7", "labels": {"active": null}, "annotations": {"since": "now"}}});
    assert_eq!(wire(action), ("PATCH".to_owned(), CRR.to_owned(), merged));
}

/// Another request with this name may exist by now.
#[test]
fn a_request_is_deleted_only_by_its_uid() {
    let (key, uid) = crr();
    let (method, path, body) =
        wire(Action::Write { object: Object::new(recreate::ID, key, uid), write: Write::Delete });
    assert_eq!((method.as_str(), path.as_str()), ("DELETE", CRR));
    assert_eq!(body["preconditions"], json!({"uid": "u-crr"}));
}

#[test]
fn conditions_of_a_pod_are_set_in_the_status_of_that_very_version() {
    let gate = GateChange { type_: "g".into(), open: true, message: "[]".into(), transition: false };
    let action = Action::PatchPod {
        key: ObjectKey::new("shop", "web"),
        uid: "u-web".into(),
        resource_version: "7".into(),
        change: PodChange::Gates(vec![gate]),
    };
    let merged = json!({"metadata": {"uid": "u-web", "resourceVersion": "7"},
        "status": {"conditions": [{"type": "g", "status": "True", "message": "[]"}]}});
    let path = "/api/v1/namespaces/shop/pods/web/status";
    assert_eq!(wire(action), ("PATCH".to_owned(), path.to_owned(), merged));
}

#[test]
fn orders_go_into_the_version_of_the_book_that_was_looked_at() {
    let (method, path, body) = wire(write_orders());
    assert_eq!((method.as_str(), path.as_str()), ("PATCH", "/apis/pitstop.dev/v1alpha1/nodeworks/n1"));
    assert_eq!(
        body,
        json!({"metadata": {"resourceVersion": "7"}, "spec": {"orders": [order()], "closed": null}})
    );
}

/// Answers of the daemon do not prevent new orders.
#[test]
fn orders_are_added_to_the_orders_that_were_looked_at() {
    let action = || Action::WriteOrders {
        node: "n1".into(),
        basis: Basis::Orders { uid: "u-book".into(), generation: 4 },
        orders: vec![order()],
        closed: Vec::new(),
        adopt: false,
    };
    let (method, path, body) = wire(action());
    assert_eq!((method.as_str(), path.as_str()), ("PATCH", "/apis/pitstop.dev/v1alpha1/nodeworks/n1"));
    let tested = json!([
        {"op": "test", "path": "/metadata/uid", "value": "u-book"},
        {"op": "test", "path": "/metadata/generation", "value": 4},
        {"op": "add", "path": "/spec/orders", "value": [order()]},
    ]);
    assert_eq!(body, tested);
    let (request, _) = begin(action());
    assert_eq!(request.headers()["content-type"], "application/json-patch+json");
    let ends = |code| {
        let (_, exchange) = begin(action());
        let over = over(exchange.answered(Answer::Failed(Failure::of_code(code, "no"))));
        let Event::NodeWorkWritten(_, outcome) = over.event else { panic!("{code}") };
        outcome
    };
    assert!(matches!(ends(422), Outcome::Conflict), "a test has failed");
    assert!(matches!(ends(409), Outcome::Conflict));
    assert!(matches!(ends(404), Outcome::Gone));
    assert!(matches!(ends(503), Outcome::Retry));
}

#[test]
fn a_new_book_is_created_under_the_name_of_its_node_with_its_orders() {
    let action = Action::WriteOrders {
        node: "n1".into(),
        basis: Basis::Absent,
        orders: vec![order()],
        closed: Vec::new(),
        adopt: false,
    };
    let (_, exchange) = begin(action);
    let node = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": "n1", "uid": "u-node"}});
    let (request, exchange) = sent(exchange.answered(Answer::Body(node.to_string())));
    assert_eq!(
        (request.method().as_str(), request.uri().path()),
        ("POST", "/apis/pitstop.dev/v1alpha1/nodeworks")
    );
    let body: Value = serde_json::from_slice(request.body()).unwrap();
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u-node"}]);
    assert_eq!(body["metadata"], json!({"name": "n1", "ownerReferences": owner}));
    assert_eq!(body["spec"], json!({"orders": [order()]}));
    let over = over(exchange.answered(Answer::Body(body.to_string())));
    let Event::NodeWorkWritten(node, Outcome::Written(book)) = over.event else { panic!("{over:?}") };
    assert_eq!((node.as_str(), book.node.as_str(), book.orders), ("n1", "n1", vec![order()]));
}

/// For logs and metrics.
#[test]
fn the_end_of_a_write_names_the_write_and_its_object() {
    for (action, name, object) in
        [(write_status(), "write_status", "shop/crr"), (write_orders(), "write_orders", "n1")]
    {
        let (_, exchange) = begin(action);
        let over = over(exchange.answered(Answer::Failed(Failure::of_code(503, "away"))));
        assert_eq!((over.name, over.object.as_str()), (name, object));
        assert_eq!(over.failure.map(|f| f.message).as_deref(), Some("away"));
    }
}

#[test]
fn each_failure_of_a_write_has_one_meaning() {
    let meaning = |code: u16| {
        let (_, exchange) = begin(write_status());
        let over = over(exchange.answered(Answer::Failed(Failure::of_code(code, "why"))));
        let Event::Written { key, uid, outcome: Written::Recreate(outcome) } = over.event else {
            panic!("{code}")
        };
        assert_eq!((key, uid), crr());
        match outcome {
            Outcome::Written(_) => "written".to_owned(),
            Outcome::Gone => "gone".to_owned(),
            Outcome::Conflict => "conflict".to_owned(),
            Outcome::Retry => "retry".to_owned(),
            Outcome::Refused(why) => format!("refused: {why}"),
        }
    };
    for (codes, expected) in [
        (vec![404], "gone"),
        (vec![409, 412], "conflict"),
        (vec![401, 408, 429, 500, 503], "retry"),
        (vec![400, 403, 413, 422], "refused: why"),
    ] {
        for code in codes {
            assert_eq!(meaning(code), expected, "{code}");
        }
    }
}

#[test]
fn a_request_that_was_deleted_is_gone_and_that_is_no_failure() {
    let (key, uid) = crr();
    let (_, exchange) =
        begin(Action::Write { object: Object::new(recreate::ID, key, uid), write: Write::Delete });
    let over = over(exchange.answered(Answer::Body(r#"{"kind":"Status","status":"Success"}"#.into())));
    assert!(
        matches!(over.event, Event::Written { outcome: Written::Recreate(Outcome::Gone), .. }),
        "{over:?}"
    );
    assert_eq!(over.failure, None);
}

#[test]
fn what_only_tells_or_counts_is_no_write() {
    let took = crate::measure::Measure::Took {
        stage: crate::measure::Stage::Stop,
        duration: std::time::Duration::ZERO,
    };
    assert!(Exchange::begin(Action::Count(took), DateTime::UNIX_EPOCH).is_none());
}

#[test]
fn a_resize_is_written_at_its_version_and_deleted_by_its_uid() {
    const PRS: &str = "/apis/pitstop.dev/v1alpha1/namespaces/shop/podresizes/grow";
    let (key, uid) = (ObjectKey::new("shop", "grow"), "u-prs".to_owned());
    let (method, path, body) = wire(Action::Write {
        object: Object { kind: resize::ID, key: key.clone(), uid: uid.clone() },
        write: Write::Status { resource_version: "7".into(), status: Status::Resize(Box::default()) },
    });
    assert_eq!((method.as_str(), path), ("PUT", format!("{PRS}/status")));
    let named = json!({"name": "grow", "namespace": "shop", "uid": "u-prs", "resourceVersion": "7"});
    assert_eq!(body["metadata"], named);
    let (method, path, body) =
        wire(Action::Write { object: Object::new(resize::ID, key, uid), write: Write::Delete });
    assert_eq!((method.as_str(), path.as_str()), ("DELETE", PRS));
    assert_eq!(body["preconditions"], json!({"uid": "u-prs"}));
}

/// A dry run first shows what admission does; a resize that is only tried ends there.
#[test]
fn resources_are_patched_at_the_version_that_was_looked_at_after_a_dry_run() {
    let action = |dry_run| Action::PatchPod {
        key: ObjectKey::new("shop", "web"),
        uid: "u-web".into(),
        resource_version: "7".into(),
        change: PodChange::Resources(Sizing {
            containers: vec![ResourceChange {
                container: "app".into(),
                init: false,
                resources: Resources { cpu_limit: Some(300), ..Resources::default() },
                whole: Resources { cpu_limit: Some(300), ..Resources::default() },
            }],
            dry_run,
        }),
    };
    let admitted = |cpu: &str| {
        let spec = json!({"containers": [{"name": "app", "resources": {"limits": {"cpu": cpu}}}]});
        Answer::Body(json!({"metadata": {"name": "web"}, "spec": spec}).to_string())
    };
    let (request, exchange) = begin(action(false));
    assert_eq!(request.uri(), "/api/v1/namespaces/shop/pods/web/resize?&dryRun=All");
    let body: Value = serde_json::from_slice(request.body()).unwrap();
    assert_eq!(body["metadata"], json!({"uid": "u-web", "resourceVersion": "7"}));
    let (request, exchange) = sent(exchange.answered(admitted("300m")));
    assert_eq!(request.uri(), "/api/v1/namespaces/shop/pods/web/resize?");
    assert!(matches!(over(exchange.answered(admitted("300m"))).event, Event::PodWritten { .. }));

    let (_, exchange) = begin(action(true));
    let Event::PodTried { outcome: Outcome::Written(()), .. } =
        over(exchange.answered(admitted("300m"))).event
    else {
        panic!("it would be stored")
    };
    let (_, exchange) = begin(action(true));
    let Event::PodTried { outcome: Outcome::Refused(why), .. } =
        over(exchange.answered(admitted("100m"))).event
    else {
        panic!("another limit would be stored")
    };
    assert!(why.contains("container app"), "{why}");
}

/// Without support for resizes, the path does not exist, but the Pod does.
#[test]
fn a_resize_that_is_not_served_is_refused_and_a_pod_that_is_gone_is_gone() {
    let action = || Action::PatchPod {
        key: ObjectKey::new("shop", "web"),
        uid: "u-web".into(),
        resource_version: "7".into(),
        change: PodChange::Resources(Sizing::default()),
    };
    let ends = |text: &str| {
        let (_, exchange) = begin(action());
        let Event::PodWritten { outcome, .. } =
            over(exchange.answered(Answer::Failed(Failure::of_code(404, text)))).event
        else {
            panic!("{text}")
        };
        outcome
    };
    assert!(matches!(ends("the server could not find the requested resource"), Outcome::Refused(_)));
    assert!(matches!(ends("pods \"web\" not found"), Outcome::Gone));
}

#[test]
fn a_node_is_asked_for_by_its_name_and_is_ready_unless_it_says_otherwise() {
    let ask = || begin(doing(Deed::AskNode("n1".into())));
    let (request, _) = ask();
    assert_eq!((request.method().as_str(), request.uri().path()), ("GET", "/api/v1/nodes/n1"));
    let ready = |status: &str| {
        let ready =
            json!({"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "silence"});
        json!({"metadata": {"name": "n1"}, "status": {"conditions": [{"type": "DiskPressure", "status": "False"}, ready]}})
    };
    for (answer, expected) in [
        (Answer::Body(ready("True").to_string()), Done::Effected),
        (Answer::Body(json!({"metadata": {"name": "n1"}}).to_string()), Done::Effected),
        (Answer::Body(ready("Unknown").to_string()), Done::Gone),
        (Answer::Body(ready("False").to_string()), Done::Gone),
        (Answer::Failed(Failure::of_code(404, "no such node")), Done::Gone),
        (Answer::Failed(Failure::of_code(409, "not sent")), Done::Conflict),
        (Answer::Failed(Failure::of_code(403, "forbidden")), Done::Refused("forbidden".into())),
        (Answer::Failed(Failure::of_code(503, "away")), Done::Retry("away".into())),
    ] {
        let (_, exchange) = ask();
        let Step::Over(over) = exchange.answered(answer) else { panic!() };
        let Event::DeedDone { done, .. } = over.event else { panic!("{:?}", over.event) };
        assert_eq!(done, expected);
        let words = over.failure.map(|failure| failure.message).unwrap_or_default();
        let explains = words.contains("NodeStatusUnknown: silence") || words == "no such node";
        assert_eq!(explains, expected == Done::Gone, "{words}");
    }
}
