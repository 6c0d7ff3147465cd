//! The sequence of requests, and the meaning of the answers.

#[path = "preconditions_tests.rs"]
mod preconditions;

use pitstop_api::recreate::ContainerRecreateRequestStatus;
use serde_json::Value;

use super::*;
use crate::action::Basis;
use crate::change::ImageChange;
use crate::kinds::Status;
use crate::recreate;

fn begin(action: Action) -> (HttpRequest, Exchange) {
    sent(Exchange::begin(action, DateTime::UNIX_EPOCH).unwrap())
}

fn sent(step: Step) -> (HttpRequest, Exchange) {
    match step {
        Step::Send(request, exchange) => (*request, *exchange),
        Step::Over(over) => panic!("{over:?}"),
    }
}

fn over(step: Step) -> Over {
    match step {
        Step::Over(over) => *over,
        Step::Send(request, _) => panic!("{request:?}"),
    }
}

fn body(request: &HttpRequest) -> Value {
    serde_json::from_slice(request.body()).unwrap()
}

fn pin(tried: bool) -> Action {
    let image = "app@sha256:1".into();
    let images = vec![ImageChange { container: "app".into(), init: false, image, tried }];
    Action::PatchPod {
        key: ObjectKey::new("shop", "web"),
        uid: "u".into(),
        resource_version: "7".into(),
        change: PodChange::Images(images),
    }
}

fn pod(image: &str) -> Answer {
    let pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "8"},
        "spec": {"containers": [{"name": "app", "image": image}]}});
    Answer::Body(pod.to_string())
}

#[test]
fn whether_a_pod_exists_is_read_from_the_api_server() {
    let outcome = |answer: Answer| {
        let (key, uid) = (ObjectKey::new("shop", "a"), "u".to_owned());
        let pod = ObjectKey::new("shop", "web");
        let object = Object { kind: recreate::ID, key, uid };
        let (request, exchange) = begin(Action::ReadPod { object, pod });
        assert_eq!(
            (request.method().as_str(), request.uri().path()),
            ("GET", "/api/v1/namespaces/shop/pods/web")
        );
        assert_eq!(request.uri().query().unwrap_or_default(), "", "from no cache");
        let Event::PodRead { object, outcome } = over(exchange.answered(answer)).event else { panic!() };
        assert_eq!((object.key.name.as_str(), object.uid.as_str()), ("a", "u"));
        outcome
    };
    assert!(matches!(outcome(pod("app")), Outcome::Written(uid) if uid == "u"));
    let failed = |code| Answer::Failed(Failure::of_code(code, "words".to_owned()));
    assert!(matches!(outcome(failed(404)), Outcome::Gone));
    assert!(matches!(outcome(failed(500)), Outcome::Retry));
    assert!(matches!(outcome(failed(403)), Outcome::Refused(_)));
}

#[test]
fn images_are_written_after_a_dry_run_that_stores_just_them() {
    let (dry, exchange) = begin(pin(false));
    assert!(dry.uri().query().unwrap().contains("dryRun=All"), "{dry:?}");
    let (real, exchange) = sent(exchange.answered(pod("app@sha256:1")));
    assert_eq!(real.uri().query().unwrap_or_default(), "");
    assert_eq!(body(&real), body(&dry));
    assert_eq!(body(&real)["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
    let over = over(exchange.answered(pod("app@sha256:1")));
    assert!(matches!(over.event, Event::PodWritten { outcome: Outcome::Written(_), .. }), "{over:?}");
}

#[test]
fn images_that_were_tried_just_now_are_written_at_once() {
    let (real, exchange) = begin(pin(true));
    assert_eq!(real.uri().query().unwrap_or_default(), "");
    assert_eq!(body(&real)["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
    let over = over(exchange.answered(pod("app@sha256:1")));
    assert!(matches!(over.event, Event::PodWritten { outcome: Outcome::Written(_), .. }), "{over:?}");
}

#[test]
fn images_that_admission_alters_are_not_written() {
    let (_, exchange) = begin(pin(false));
    let over = over(exchange.answered(pod("mirror/app@sha256:1")));
    let Event::PodWritten { outcome: Outcome::Refused(why), .. } = over.event else { panic!("{over:?}") };
    assert!(why.contains("container app"), "{why}");
}

#[test]
fn a_new_book_belongs_to_its_node_and_none_is_made_for_a_node_that_is_not_there() {
    let create = || Action::WriteOrders {
        node: "n1".into(),
        basis: Basis::Absent,
        orders: Vec::new(),
        closed: Vec::new(),
        adopt: false,
    };
    let (read, exchange) = begin(create());
    assert_eq!((read.method().as_str(), read.uri().path()), ("GET", "/api/v1/nodes/n1"));
    let node = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": "n1", "uid": "node-uid"}});
    let (made, _) = sent(exchange.answered(Answer::Body(node.to_string())));
    assert_eq!(body(&made)["metadata"]["ownerReferences"][0]["uid"], "node-uid");
    let (_, exchange) = begin(create());
    let gone = over(exchange.answered(Answer::Failed(Failure::of_code(404, "no such node"))));
    assert!(matches!(gone.event, Event::NodeWorkWritten(_, Outcome::Gone)), "{gone:?}");
    let (_, exchange) = begin(create());
    let over = over(exchange.answered(Answer::Failed(Failure::of_code(503, "away"))));
    assert!(matches!(over.event, Event::NodeWorkWritten(_, Outcome::Retry)), "{over:?}");
}

/// A book of an older version, made while its node was away.
#[test]
fn a_book_without_an_owner_gets_its_node_for_one() {
    let adopt = || Action::WriteOrders {
        node: "n1".into(),
        basis: Basis::Version("7".into()),
        orders: Vec::new(),
        closed: Vec::new(),
        adopt: true,
    };
    let (read, exchange) = begin(adopt());
    assert_eq!((read.method().as_str(), read.uri().path()), ("GET", "/api/v1/nodes/n1"));
    let node = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
        "metadata": {"name": "n1", "uid": "node-uid"}});
    let (made, _) = sent(exchange.answered(Answer::Body(node.to_string())));
    let metadata = &body(&made)["metadata"];
    assert_eq!((made.method().as_str(), &metadata["resourceVersion"]), ("PATCH", &json!("7")));
    assert_eq!(metadata["ownerReferences"][0]["uid"], "node-uid");
    // The node is away: orders are withdrawn all the same.
    let (_, exchange) = begin(adopt());
    let (made, _) = sent(exchange.answered(Answer::Failed(Failure::of_code(404, "no such node"))));
    assert_eq!(body(&made)["metadata"], json!({"resourceVersion": "7"}));
}

/// The write took effect; only its answer is unreadable.
#[test]
fn a_success_that_cannot_be_read_is_no_refusal() {
    let key = ObjectKey::new("shop", "crr");
    let status = Box::new(ContainerRecreateRequestStatus::default());
    let write = Action::Write {
        object: Object { kind: recreate::ID, key, uid: "u".into() },
        write: Write::Status { resource_version: "7".into(), status: Status::Recreate(status) },
    };
    let (_, exchange) = begin(write);
    let over = over(exchange.answered(Answer::Body("<html>".into())));
    assert!(
        matches!(over.event, Event::Written { outcome: Written::Recreate(Outcome::Retry), .. }),
        "{over:?}"
    );
}
