use pitstop_api::logic::answer::Answer;
use serde_json::json;

use super::*;
use crate::action::{Action, Event};
use crate::deed::{Deed, Done};
use crate::image;
use crate::pod::{Explanation, Made};
use crate::wire::{Exchange, Step, observe};

const LENDER: &str = r#"{"metadata":{"name":"web-0","namespace":"shop","uid":"pod-1"},
    "spec":{"nodeName":"node1","serviceAccountName":"seller","imagePullSecrets":[{"name":"registry"},{"name":"mirror"}],
        "initContainers":[{"name":"proxy","image":"registry.example.com/shop/proxy:v1","restartPolicy":"Always"}],
        "containers":[{"name":"app","image":"registry.example.com/shop/app:v1","env":[{"name":"PASSWORD","value":"x"}]}]},
    "status":{"initContainerStatuses":[{"name":"proxy","state":{"running":{}}}],
        "containerStatuses":[{"name":"app","state":{"running":{}}}]}}"#;

/// A node with this version of containerd.
fn node(containerd: &str) -> Answer {
    let info =
        json!({"kubeletVersion": "v1.36.3", "containerRuntimeVersion": format!("containerd://{containerd}")});
    Answer::Body(json!({"metadata": {"name": "node1"}, "status": {"nodeInfo": info}}).to_string())
}

fn puller() -> Puller {
    let image = |container: &str, policy| ImageToPull {
        container: container.into(),
        image: format!("registry.example.com/shop/{container}:v2"),
        policy,
    };
    Puller {
        key: ObjectKey::new("shop", "pitstop-pull-u-1"),
        lender: ObjectKey::new("shop", "web-0"),
        lender_uid: "pod-1".into(),
        node: "node1".into(),
        limit: 600,
        images: vec![image("app", PullPolicy::IfNotPresent), image("proxy", PullPolicy::Always)],
    }
}

fn begin() -> (HttpRequest, Exchange) {
    let object = Object::new(image::ID, ObjectKey::new("shop", "web-0-v2"), "u-1");
    let deed = Deed::Pull(Box::new(puller()));
    sent(Exchange::begin(Action::Do { object, deed }, chrono::DateTime::UNIX_EPOCH).unwrap())
}

/// The step after the lender is read, on a node that cannot mount images.
fn lent(text: &str) -> Step {
    sent(begin().1.answered(node("1.7.20"))).1.answered(Answer::Body(text.into()))
}

/// The Pod that is made, by these answers about its node and the lender.
fn made(node: Answer, lender: &str) -> Value {
    let (_, exchange) = sent(begin().1.answered(node));
    let (probe, exchange) = sent(exchange.answered(Answer::Body(lender.into())));
    let (create, _) = sent(exchange.answered(denial()));
    assert_eq!(body(&probe)["spec"], body(&create)["spec"]);
    body(&create)
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
            let Event::DeedDone { object, done, .. } = over.event else { panic!() };
            assert_eq!(object.uid, "u-1");
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
    let (node_read, exchange) = begin();
    assert_eq!((node_read.method().as_str(), node_read.uri().path()), ("GET", "/api/v1/nodes/node1"));
    let (read, exchange) = sent(exchange.answered(node("1.7.20")));
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
            "command": ["/.pitstop-pull-only"], "volumeMounts": [],
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
            "imagePullSecrets": [{"name": "registry"}, {"name": "mirror"}], "volumes": [],
            "containers": [container("app", "IfNotPresent"), container("proxy", "Always")]}});
    assert_eq!(body(&create), expected);
    assert_eq!(body(&probe)["spec"], expected["spec"]);
    assert_eq!(done(exchange.answered(Answer::Body("{}".into()))), Done::Effected);
}

/// No image to pull is the root of a container.
#[test]
fn where_the_node_can_the_images_are_mounted_into_containers_with_those_that_run() {
    let old = made(node("1.7.20"), LENDER);
    let new = made(node("2.4.2"), LENDER);
    let image = |name: &str, tag: &str| format!("registry.example.com/shop/{name}:{tag}");
    let volume = |name: &str, policy: &str| json!({"name": name, "image": {"reference": image(name, "v2"), "pullPolicy": policy}});
    let mut expected = old.clone();
    expected["spec"]["volumes"] = json!([volume("app", "IfNotPresent"), volume("proxy", "Always")]);
    for (at, name) in ["app", "proxy"].into_iter().enumerate() {
        let container = &mut expected["spec"]["containers"][at];
        (container["image"], container["imagePullPolicy"]) =
            (json!(image(name, "v1")), json!("IfNotPresent"));
        container["volumeMounts"] = json!([{"name": name, "mountPath": "/.pitstop-pull", "readOnly": true}]);
    }
    assert_eq!(new, expected);
    // The node may lack the image of a container that does not run.
    let waits = LENDER.replace(
        r#""name":"app","state":{"running":{}}"#,
        r#""name":"app","state":{"waiting":{"reason":"ImagePullBackOff"}}"#,
    );
    let mixed = made(node("2.4.2"), &waits);
    assert_eq!(mixed["spec"]["volumes"], json!([volume("proxy", "Always")]));
    assert_eq!(mixed["spec"]["containers"][0], old["spec"]["containers"][0]);
    assert_eq!(mixed["spec"]["containers"][1], expected["spec"]["containers"][1]);
}

#[test]
fn what_is_not_known_of_a_node_is_that_it_can_mount_images() {
    let old = made(node("1.7.20"), LENDER);
    for answer in [Answer::Body("{}".into()), failed(404, "not found"), failed(503, "later")] {
        assert_eq!(made(answer, LENDER), old);
    }
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
        let (_, exchange) = sent(lent(LENDER));
        let Done::Refused(text) = done(exchange.answered(answer)) else { panic!("{why}") };
        assert!(text.contains(why), "{text}");
    }
    let (_, exchange) = sent(lent(LENDER));
    assert_eq!(done(exchange.answered(failed(503, "later"))), Done::Retry("later".into()));
}

#[test]
fn each_answer_to_the_creation_has_one_meaning() {
    let created = |answer| {
        let (_, exchange) = sent(lent(LENDER));
        done(sent(exchange.answered(denial())).1.answered(answer))
    };
    assert_eq!(created(failed(409, "already exists")), Done::Conflict);
    assert_eq!(created(failed(403, "exceeded quota: q")), Done::Refused("exceeded quota: q".into()));
    assert_eq!(created(failed(500, "later")), Done::Retry("later".into()));
}

#[test]
fn a_pod_that_is_another_one_by_now_lends_nothing() {
    let other = LENDER.replace("pod-1", "pod-2");
    assert_eq!(done(lent(&other)), Done::Gone);
    let (_, exchange) = sent(begin().1.answered(node("2.4.2")));
    assert_eq!(done(exchange.answered(failed(404, "not found"))), Done::Gone);
}

#[test]
fn it_is_deleted_by_its_uid() {
    let object = Object::new(image::ID, ObjectKey::new("shop", "web-0-v2"), "u-1");
    let deed = Deed::DeletePod { key: puller().key, uid: "p-1".into() };
    let step = Exchange::begin(Action::Do { object, deed }, chrono::DateTime::UNIX_EPOCH).unwrap();
    let (request, _) = sent(step);
    let path = "/api/v1/namespaces/shop/pods/pitstop-pull-u-1";
    assert_eq!((request.method().as_str(), request.uri().path()), ("DELETE", path));
    assert_eq!(body(&request)["preconditions"], json!({"uid": "p-1"}));
}

#[test]
fn of_a_pod_that_was_made_for_one_of_ours_it_is_kept_for_whom_and_how_it_ended() {
    let read = |group: &str| {
        let owner = serde_json::json!({"apiVersion": format!("{group}/v1alpha1"), "kind": "PodImageUpdate",
            "name": "new", "uid": "u", "controller": true});
        let volumes =
            serde_json::json!([{"name": "app", "image": {"reference": "r/web:v2", "pullPolicy": "Always"}}]);
        let spec = serde_json::json!({"volumes": volumes});
        let status = serde_json::json!({"phase": "Failed", "reason": "OutOfcpu", "message": "no room"});
        let object = serde_json::json!({"metadata": {"name": "web", "ownerReferences": [owner]}, "spec": spec, "status": status});
        observe::pod(serde_json::from_value(object).unwrap()).made
    };
    let Made { owner, ended, volumes } = *read("pitstop.dev").unwrap();
    assert_eq!(
        (owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()),
        ("PodImageUpdate", "new", "u")
    );
    assert_eq!(ended, Explanation { reason: "OutOfcpu".into(), message: "no room".into() });
    assert_eq!(volumes, [("app".to_owned(), "r/web:v2".to_owned())].into());
    assert_eq!(read("example.com"), None);
}
