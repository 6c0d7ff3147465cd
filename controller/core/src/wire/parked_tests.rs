//! What is read, tried and written of a parked workload, as requests and answers.

use chrono::DateTime;
use pitstop_api::logic::answer::{Answer, Failure};
use pitstop_api::rollout::TargetKind;
use serde_json::{Value, json};

use crate::action::{Action, Event, Object};
use crate::deed::{Deed, Done, Release, Strategy};
use crate::key::ObjectKey;
use crate::rollout;
use crate::wire::{Exchange, HttpRequest, Step};
use crate::workload::WorkloadQuery;

/// The policy's denial of a change.
const BY_POLICY: &str = "statefulsets.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'pitstop-controller-workloads' with \
                         binding 'pitstop-controller-workloads' denied request: no";

fn web() -> ObjectKey {
    ObjectKey::new("shop", "web")
}

fn begin(deed: Deed) -> (HttpRequest, Exchange) {
    let object = Object::new(rollout::ID, web(), "u-1");
    sent(Exchange::begin(Action::Do { object, deed }, DateTime::UNIX_EPOCH).unwrap())
}

fn sent(step: Step) -> (HttpRequest, Exchange) {
    match step {
        Step::Send(request, exchange) => (*request, *exchange),
        Step::Over(over) => panic!("{over:?}"),
    }
}

fn done(step: Step) -> Done {
    let Step::Over(over) = step else { panic!("it is not over") };
    let Event::DeedDone { done, .. } = over.event else { panic!("{over:?}") };
    done
}

fn asks(request: &HttpRequest) -> (String, Value) {
    let body = serde_json::from_slice(request.body()).unwrap_or_default();
    (format!("{} {}", request.method(), request.uri()), body)
}

fn failed(code: u16, message: &str) -> Answer {
    Answer::Failed(Failure::of_code(code, message))
}

#[test]
fn a_release_rests_on_the_version_and_puts_the_strategy_back() {
    let workload = |kind, to| {
        let (uid, resource_version) = ("w".to_owned(), "9".to_owned());
        begin(Deed::Release(Box::new(Release { kind, key: web(), uid, resource_version, to })))
    };
    let metadata = |version, label| json!({"uid": "w", "resourceVersion": version, "labels": {"pitstop.dev/parked": label}});
    let stored = |labels: Value| {
        let body = json!({"metadata": {"name": "web", "resourceVersion": "10", "labels": labels}});
        Answer::Body(body.to_string())
    };
    let of = |plural: &str| format!("PATCH /apis/apps/v1/namespaces/shop/{plural}/web?");
    for (kind, to, plural, label, spec) in [
        (
            TargetKind::StatefulSet,
            Strategy::Partition(2),
            "statefulsets",
            "release-2",
            json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}}),
        ),
        (
            TargetKind::DaemonSet,
            Strategy::Rolling,
            "daemonsets",
            "release-RollingUpdate",
            json!({"updateStrategy": {"type": "RollingUpdate"}}),
        ),
        (
            TargetKind::Deployment,
            Strategy::Unpaused,
            "deployments",
            "release-Unpaused",
            json!({"paused": null}),
        ),
    ] {
        let (request, exchange) = workload(kind, to);
        assert_eq!(asks(&request), (of(plural), json!({"metadata": metadata("9", json!(label))})));
        assert_eq!(done(exchange.answered(stored(json!({"app": "web"})))), Done::Effected);
        // Admission has not released it: the policy for the controller's writes denies it, or no policy does.
        for (answer, version) in
            [(failed(403, BY_POLICY), "9"), (stored(json!({"pitstop.dev/parked": label})), "10")]
        {
            let (request, exchange) = sent(workload(kind, to).1.answered(answer));
            let expected = json!({"metadata": metadata(version, Value::Null), "spec": spec});
            assert_eq!(asks(&request), (of(plural), expected));
            assert_eq!(done(exchange.answered(stored(json!({})))), Done::Effected);
        }
        let refused = workload(kind, to).1.answered(failed(403, "User \"x\" cannot patch resource \"web\""));
        assert!(matches!(done(refused), Done::Refused(text) if text.contains("a RoleBinding")));
    }
    // If its user has given it another strategy, only the label is removed.
    let (request, exchange) = workload(TargetKind::StatefulSet, Strategy::AsIs);
    assert_eq!(asks(&request).1, json!({"metadata": metadata("9", Value::Null)}));
    assert_eq!(done(exchange.answered(failed(409, "it is another version"))), Done::Conflict);
}

#[test]
fn a_pod_is_marked_if_it_is_still_that_version() {
    for (kind, field, name) in [
        (TargetKind::StatefulSet, "labels", "controller-revision-hash"),
        (TargetKind::DaemonSet, "labels", "controller-revision-hash"),
        (TargetKind::Deployment, "annotations", "pitstop.dev/revision"),
    ] {
        let (uid, resource_version, revision) = ("p".into(), "7".into(), "5d".into());
        let kind = Some(kind);
        let (request, exchange) = begin(Deed::MarkPod { key: web(), uid, resource_version, revision, kind });
        let metadata = json!({"uid": "p", "resourceVersion": "7", field: {name: "5d"}});
        let expected = ("PATCH /api/v1/namespaces/shop/pods/web?".to_owned(), json!({"metadata": metadata}));
        assert_eq!(asks(&request), expected);
        assert_eq!(done(exchange.answered(Answer::Body("{}".into()))), Done::Effected);
    }
}

/// The right alone would allow more.
#[test]
fn a_workload_can_be_released_where_its_policy_denies_more() {
    let tried = |answer| {
        let (request, exchange) = begin(Deed::TryRelease { kind: TargetKind::StatefulSet, key: web() });
        let (what, body) = asks(&request);
        assert_eq!(what, "PATCH /apis/apps/v1/namespaces/shop/statefulsets/web?&dryRun=All");
        assert!(body["metadata"]["annotations"].is_object(), "no release has that: {body}");
        done(exchange.answered(answer))
    };
    assert_eq!(tried(failed(403, BY_POLICY)), Done::Effected);
    assert_eq!(tried(failed(404, "statefulsets.apps \"web\" not found")), Done::Gone);
    for (answer, part) in [
        (
            Answer::Body("{}".into()),
            "pitstop-controller-workloads is not in force, and pitstop releases no workloads",
        ),
        (
            failed(403, "User \"x\" cannot patch resource \"statefulsets\""),
            "a RoleBinding to the ClusterRole pitstop-in-place",
        ),
    ] {
        assert!(matches!(tried(answer), Done::Refused(text) if text.contains(part)), "{part}");
    }
    assert!(matches!(tried(failed(500, "later")), Done::Retry(_)));
}

#[test]
fn revisions_are_read_before_budgets_and_pods() {
    let query = WorkloadQuery {
        kind: Some(TargetKind::StatefulSet),
        key: web(),
        pods: true,
        budgets: true,
        template: true,
        ..WorkloadQuery::default()
    };
    let (_, exchange) = begin(Deed::AskWorkload(Box::new(query)));
    let template = |image: &str| json!({"spec": {"containers": [{"name": "app", "image": image}]}});
    let object = json!({"metadata": {"uid": "s", "generation": 2, "labels": {"pitstop.dev/parked": "0"}},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template("web:2"),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2_147_483_647}}},
        "status": {"observedGeneration": 2, "updateRevision": "web-b", "currentRevision": "web-a"}});
    let (request, exchange) = sent(exchange.answered(Answer::Body(object.to_string())));
    let path = "GET /apis/apps/v1/namespaces/shop/controllerrevisions?&labelSelector=app%3Dweb&limit=20";
    assert_eq!(asks(&request).0, path);
    let revision = |name: &str, owner: &str, image: &str| {
        json!({"metadata": {"name": name, "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet",
            "name": "web", "uid": owner, "controller": true}]}, "data": {"spec": {"template": template(image)}}})
    };
    let items = json!({"items": [revision("web-a", "s", "web:1"), revision("other", "x", "web:0")]});
    let (request, exchange) = sent(exchange.answered(Answer::Body(items.to_string())));
    assert!(asks(&request).0.contains("/poddisruptionbudgets?"), "{request:?}");
    let (request, exchange) = sent(exchange.answered(Answer::Body(json!({"items": []}).to_string())));
    assert!(asks(&request).0.contains("/pods?"), "{request:?}");
    let pods = json!({"items": [{"metadata": {"name": "web-0", "uid": "p", "labels": {"controller-revision-hash": "web-a"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "s", "controller": true}]}}]});
    let Done::Read(workload) = done(exchange.answered(Answer::Body(pods.to_string()))) else { panic!() };
    let template = workload.template.unwrap();
    let shown = (template.changes.len(), template.holds, template.committed);
    assert_eq!(shown, (1, true, false), "of its own ones alone");
    let listed = workload.pods.unwrap();
    assert_eq!(listed[0].revision, crate::workload::revision_hash("web-a"));
}
