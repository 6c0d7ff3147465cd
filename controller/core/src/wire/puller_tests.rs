use pitstop_api::logic::answer::Answer;
use serde_json::json;

use super::*;
use crate::action::{Action, Event};
use crate::deed::{Deed, Done};
use crate::image;
use crate::pod::{Made, Told};
use crate::wire::{Exchange, Step, observe};

const LENDER: &str = r#"{"metadata":{"name":"web-0","namespace":"shop","uid":"pod-1"},
    "spec":{"nodeName":"node1","serviceAccountName":"seller","imagePullSecrets":[{"name":"registry"},{"name":"mirror"}],
        "containers":[{"name":"app","env":[{"name":"PASSWORD","value":"x"}]}]}}"#;

fn puller() -> Puller {
    let image = |container: &str, policy| ImageToPull {
        container: container.into(),
        image: format!("registry.example.com/shop/{container}:v2"),
        policy,
    };
    Puller {
        key: ObjectKey::new("shop", "pitstop-pull-u-1"),
        of: ObjectKey::new("shop", "web-0"),
        of_uid: "pod-1".into(),
        node: "node1".into(),
        limit: 600,
        images: vec![image("app", PullPolicy::IfNotPresent), image("proxy", PullPolicy::Always)],
    }
}

fn begin() -> (HttpRequest, Exchange) {
    let by = Object::new(image::ID, ObjectKey::new("shop", "web-0-v2"), "u-1");
    let deed = Deed::Pull(Box::new(puller()));
    sent(Exchange::begin(Action::Do { by, deed }, chrono::DateTime::UNIX_EPOCH).unwrap())
}

fn sent(step: Step) -> (HttpRequest, Exchange) {
    match step {
        Step::Send(request, exchange) => (*request, *exchange),
        Step::Over(over) => panic!("{over:?}"),
    }
}

fn done(step: Step) -> Done {
    match step {
        Step::Over(over) => {
            assert_eq!(over.name, "make_puller_pod");
            let Event::DeedDone { by, done, .. } = over.event else { panic!() };
            assert_eq!(by.uid, "u-1");
            done
        }
        Step::Send(request, _) => panic!("{request:?}"),
    }
}

fn body(request: &HttpRequest) -> Value {
    serde_json::from_slice(request.body()).unwrap()
}

fn failed(code: u16, message: &str) -> Answer {
    Answer::Failed(Failure::of_code(code, message))
}

fn denial() -> Answer {
    let name = POLICY.name;
    let text = format!(
        "pods \"x\" is forbidden: ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: no"
    );
    failed(422, &text)
}

/// What the component's policy allows: `tests/attacks/src/families/pullers.rs` has the same form.
#[test]
fn the_pod_has_the_one_form_and_is_sent_once_the_policy_has_denied_another() {
    let (read, exchange) = begin();
    assert_eq!((read.method().as_str(), read.uri().path()), ("GET", "/api/v1/namespaces/shop/pods/web-0"));
    let (probe, exchange) = sent(exchange.answered(Answer::Body(LENDER.into())));
    assert_eq!(probe.uri(), "/api/v1/namespaces/shop/pods?&dryRun=All");
    let metadata = json!({"name": "pitstop-pull-u-1", "namespace": "shop"});
    assert_eq!(body(&probe)["metadata"], metadata, "neither label nor owner");
    let (create, exchange) = sent(exchange.answered(denial()));
    assert_eq!(
        (create.method().as_str(), create.uri().to_string().as_str()),
        ("POST", "/api/v1/namespaces/shop/pods?")
    );
    let container = |name: &str, policy: &str| {
        json!({"name": name, "image": format!("registry.example.com/shop/{name}:v2"), "imagePullPolicy": policy,
            "command": ["/.pitstop-pull-only"],
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "64Mi"}},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": true, "runAsUser": 65534, "readOnlyRootFilesystem": true,
                "seccompProfile": {"type": "RuntimeDefault"}}})
    };
    let expected = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "pitstop-pull-u-1", "namespace": "shop", "labels": {"pitstop.dev/puller": "true"},
            "ownerReferences": [{"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodImageUpdate", "name": "web-0-v2",
                "uid": "u-1", "controller": true, "blockOwnerDeletion": false}]},
        "spec": {"nodeName": "node1", "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "activeDeadlineSeconds": 600, "automountServiceAccountToken": false, "enableServiceLinks": false,
            "tolerations": [{"operator": "Exists"}], "serviceAccountName": "seller",
            "imagePullSecrets": [{"name": "registry"}, {"name": "mirror"}],
            "containers": [container("app", "IfNotPresent"), container("proxy", "Always")]}});
    assert_eq!(body(&create), expected);
    assert_eq!(body(&probe)["spec"], expected["spec"]);
    assert_eq!(done(exchange.answered(Answer::Body("{}".into()))), Done::Effected);
}

#[test]
fn no_pod_is_made_where_the_policy_does_not_deny() {
    for (answer, why) in [
        (Answer::Body("{}".to_owned()), "is not in force"),
        (
            failed(403, "pods is forbidden: User \"x\" cannot create resource \"pods\" in API group \"\""),
            "which the component image-puller gives",
        ),
        (failed(403, "ValidatingAdmissionPolicy 'other' with binding 'other' denied request: no"), "other"),
        (failed(403, "violates PodSecurity \"restricted:latest\": x"), "PodSecurity"),
    ] {
        let (_, exchange) = sent(begin().1.answered(Answer::Body(LENDER.into())));
        let Done::Refused(text) = done(exchange.answered(answer)) else { panic!("{why}") };
        assert!(text.contains(why), "{text}");
    }
    let (_, exchange) = sent(begin().1.answered(Answer::Body(LENDER.into())));
    assert_eq!(done(exchange.answered(failed(503, "later"))), Done::Retry("later".into()));
}

#[test]
fn each_answer_to_the_creation_has_one_meaning() {
    let created = |answer| {
        let (_, exchange) = sent(begin().1.answered(Answer::Body(LENDER.into())));
        done(sent(exchange.answered(denial())).1.answered(answer))
    };
    assert_eq!(created(failed(409, "already exists")), Done::Conflict);
    assert_eq!(created(failed(403, "exceeded quota: q")), Done::Refused("exceeded quota: q".into()));
    assert_eq!(created(failed(500, "later")), Done::Retry("later".into()));
}

#[test]
fn a_pod_that_is_another_one_by_now_lends_nothing() {
    let other = LENDER.replace("pod-1", "pod-2");
    assert_eq!(done(begin().1.answered(Answer::Body(other))), Done::Gone);
    assert_eq!(done(begin().1.answered(failed(404, "not found"))), Done::Gone);
}

#[test]
fn it_is_deleted_by_its_uid() {
    let by = Object::new(image::ID, ObjectKey::new("shop", "web-0-v2"), "u-1");
    let deed = Deed::DeletePod { key: puller().key, uid: "p-1".into() };
    let (request, _) = sent(Exchange::begin(Action::Do { by, deed }, chrono::DateTime::UNIX_EPOCH).unwrap());
    let path = "/api/v1/namespaces/shop/pods/pitstop-pull-u-1";
    assert_eq!((request.method().as_str(), request.uri().path()), ("DELETE", path));
    assert_eq!(body(&request)["preconditions"], json!({"uid": "p-1"}));
}

#[test]
fn of_a_pod_that_was_made_for_one_of_ours_it_is_kept_for_whom_and_how_it_ended() {
    let read = |group: &str| {
        let owner = serde_json::json!({"apiVersion": format!("{group}/v1alpha1"), "kind": "PodImageUpdate",
            "name": "new", "uid": "u", "controller": true});
        let status = serde_json::json!({"phase": "Failed", "reason": "OutOfcpu", "message": "no room"});
        let object =
            serde_json::json!({"metadata": {"name": "web", "ownerReferences": [owner]}, "status": status});
        observe::pod(serde_json::from_value(object).unwrap()).made
    };
    let Made { owner, ended } = *read("pitstop.dev").unwrap();
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()),
        ("PodImageUpdate", "new", "u")
    );
    assert_eq!(ended, Told { reason: "OutOfcpu".into(), message: "no room".into() });
    assert_eq!(read("example.com"), None);
}
