//! What the executor sends to the API server.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, Response};
use kube::client::Body;
use pitstop_api::quantity::Resources;
use pitstop_api::recreate::ContainerRecreateRequestStatus;
use pitstop_controller_core::change::ResourceChange;
use pitstop_controller_core::recreate;
use pitstop_controller_core::{Object, ObjectKey, Outcome, Status, Write, Written};
use pitstop_kit::Metrics;
use serde_json::{Value, json};

use super::*;

/// Carries out an action against an API server that always answers 409. Returns the request and the outcome.
async fn refused(action: Action) -> ((Method, String, Value), Event) {
    refused_with(409, "Conflict", "the object has been modified", action).await
}

/// The same with this refusal as the answer.
async fn refused_with(
    code: u16,
    reason: &'static str,
    message: &'static str,
    action: Action,
) -> ((Method, String, Value), Event) {
    let present = now().mono;
    let until = Some(present.after(Duration::from_mins(1)));
    let (mut sent, outcome) = carried_out((code, reason, message), action, present, until).await;
    assert_eq!(sent.len(), 1, "once: whether to write again is decided anew");
    (sent.remove(0), outcome)
}

/// The same for an action decided at `decided`, by a process that leads until `leads_until`.
async fn carried_out(
    (code, reason, message): (u16, &'static str, &'static str),
    action: Action,
    decided: Mono,
    leads_until: Option<Mono>,
) -> (Vec<(Method, String, Value)>, Event) {
    let sent = Arc::new(Mutex::new(Vec::new()));
    let service = tower::service_fn({
        let sent = Arc::clone(&sent);
        move |request: Request<Body>| {
            let sent = Arc::clone(&sent);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap();
                sent.lock().unwrap().push((parts.method, parts.uri.path().to_owned(), body));
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "reason": reason, "code": code, "message": message});
                let answer = Full::new(Bytes::from(status.to_string()));
                Ok::<_, Infallible>(Response::builder().status(code).body(answer).unwrap())
            }
        }
    });
    let client = Client::new(service, "ns");
    let metrics = ControllerMetrics::register(&mut Metrics::new("pitstop_controller", "0.0.1"));
    let (events, _) = Events::new(client.clone(), "test".to_owned(), metrics.clone());
    let (outcomes, mut received) = mpsc::channel(1);
    let (_until, leads_until) = signal::channel(leads_until);
    Executor::new(client, events, metrics, leads_until, outcomes).execute(action, decided).await;
    let outcome = received.recv().await.unwrap();
    let sent = std::mem::take(&mut *sent.lock().unwrap());
    (sent, outcome)
}

/// A frozen process wakes up, with actions that it decided before.
#[tokio::test]
async fn what_waited_for_too_long_or_outlived_the_lead_is_not_sent() {
    let present = now().mono;
    let later = Some(present.after(Duration::from_mins(1)));
    let long_ago = Mono(present.0.saturating_sub(10_000));
    for (decided, until) in [(long_ago, later), (present, Some(present)), (present, None)] {
        let key = ObjectKey::new("shop", "crr");
        let delete = Action::Write {
            object: Object { kind: recreate::ID, key, uid: "u".into() },
            write: Write::Delete,
        };
        let (sent, outcome) =
            carried_out((409, "Conflict", "the object has been modified"), delete, decided, until).await;
        assert!(sent.is_empty(), "{sent:?}");
        // It is certain that nothing was written.
        assert!(
            matches!(outcome, Event::Written { outcome: Written::Recreate(Outcome::Conflict), .. }),
            "{outcome:?}"
        );
    }
}

/// The API server's words become the request's message and its event.
#[tokio::test]
async fn a_refusal_is_told_in_the_words_of_the_api_server_and_nothing_else() {
    const QUOTA: &str = "pods \"web\" is forbidden: exceeded quota: small, requested: requests.cpu=400m, used: \
                         requests.cpu=100m, limited: requests.cpu=300m";
    let sizing = Sizing {
        containers: vec![ResourceChange {
            container: "app".to_owned(),
            init: false,
            resources: Resources { cpu_request: Some(400), ..Resources::default() },
            whole: Resources { cpu_request: Some(400), ..Resources::default() },
        }],
        dry_run: true,
    };
    let key = ObjectKey::new("shop", "web");
    let change = PodChange::Resources(sizing);
    let write = Action::PatchPod { key, uid: "u".into(), resource_version: "7".into(), change };
    let ((method, url, _), outcome) = refused_with(403, "Forbidden", QUOTA, write).await;
    assert_eq!((method, &*url), (Method::PATCH, "/api/v1/namespaces/shop/pods/web/resize"));
    let Event::PodTried { outcome: Outcome::Refused(text), .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(text, QUOTA);
}

const KEY: &str = "/apis/apps.kruise.io/v1alpha1/namespaces/shop/containerrecreaterequests/crr";

/// Otherwise a controller could reopen a request that another controller has ended.
#[tokio::test]
async fn d3_every_write_of_a_request_names_the_version_that_it_rests_on() {
    let key = ObjectKey::new("shop", "crr");
    let status = Box::new(ContainerRecreateRequestStatus::default());
    let write = Action::Write {
        object: Object { kind: recreate::ID, key: key.clone(), uid: "u".into() },
        write: Write::Status { resource_version: "7".into(), status: Status::Recreate(status) },
    };
    let ((method, url, body), outcome) = refused(write).await;
    assert_eq!((method, url), (Method::PUT, format!("{KEY}/status")));
    assert_eq!((&body["metadata"]["resourceVersion"], &body["metadata"]["uid"]), (&json!("7"), &json!("u")));
    assert!(
        matches!(outcome, Event::Written { outcome: Written::Recreate(Outcome::Conflict), .. }),
        "{outcome:?}"
    );

    let (labels, annotations) = ([("a".to_owned(), None)].into(), [].into());
    let patch = Action::Write {
        object: Object { kind: recreate::ID, key, uid: "u".into() },
        write: Write::Metadata { resource_version: "7".into(), labels, annotations },
    };
    let ((method, url, body), outcome) = refused(patch).await;
    assert_eq!((method, url), (Method::PATCH, KEY.to_owned()));
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    assert!(
        matches!(outcome, Event::Written { outcome: Written::Recreate(Outcome::Conflict), .. }),
        "{outcome:?}"
    );
}
