//! What the API server is sent.

use std::convert::Infallible;
use std::sync::Mutex;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, Response};
use kube::client::Body;
use pitstop_api::recreate::ContainerRecreateRequestStatus;
use pitstop_controller_core::{ObjectKey, Outcome};
use pitstop_kit::Metrics;
use serde_json::{Value, json};

use super::*;

/// Carries an action out against an API server that always answers 409; gives back what it was sent.
async fn refused(action: Action) -> ((Method, String, Value), Event) {
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
                    "reason": "Conflict", "code": 409, "message": "the object has been modified"});
                let answer = Full::new(Bytes::from(status.to_string()));
                Ok::<_, Infallible>(Response::builder().status(409).body(answer).unwrap())
            }
        }
    });
    let client = Client::new(service, "ns");
    let metrics = ControllerMetrics::register(&mut Metrics::new("pitstop_controller", "0.0.1"));
    let (events, _) = Events::new(client.clone(), "test".to_owned(), metrics.clone());
    let (outcomes, mut told) = mpsc::channel(1);
    Executor::new(client, events, metrics, outcomes).execute(action).await;
    let outcome = told.recv().await.unwrap();
    let mut sent = sent.lock().unwrap();
    assert_eq!(sent.len(), 1, "once: whether to write again is decided anew");
    (sent.remove(0), outcome)
}

const KEY: &str = "/apis/apps.kruise.io/v1alpha1/namespaces/shop/containerrecreaterequests/crr";

/// So that nobody turns a request back that another one has ended meanwhile.
#[tokio::test]
async fn d3_every_write_of_a_request_names_the_version_that_it_rests_on() {
    let key = ObjectKey::new("shop", "crr");
    let status = Box::new(ContainerRecreateRequestStatus::default());
    let write =
        Action::WriteStatus { key: key.clone(), uid: "u".into(), resource_version: "7".into(), status };
    let ((method, url, body), outcome) = refused(write).await;
    assert_eq!((method, url), (Method::PUT, format!("{KEY}/status")));
    assert_eq!((&body["metadata"]["resourceVersion"], &body["metadata"]["uid"]), (&json!("7"), &json!("u")));
    assert!(matches!(outcome, Event::RequestWritten { outcome: Outcome::Conflict, .. }), "{outcome:?}");

    let (labels, annotations) = ([("a".to_owned(), None)].into(), [].into());
    let patch =
        Action::PatchMetadata { key, uid: "u".into(), resource_version: "7".into(), labels, annotations };
    let ((method, url, body), outcome) = refused(patch).await;
    assert_eq!((method, url), (Method::PATCH, KEY.to_owned()));
    assert_eq!(body["metadata"]["resourceVersion"], "7");
    assert!(matches!(outcome, Event::RequestWritten { outcome: Outcome::Conflict, .. }), "{outcome:?}");
}
