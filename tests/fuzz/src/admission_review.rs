//! The webhook's answers to reviews.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, Operation};
use pitstop_api::recreate::{ContainerRecreateRequestSpec, validate};
use pitstop_controller::admission::handler::Handler;
use pitstop_controller::admission::parse;
use pitstop_controller::metrics::ControllerMetrics;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::texts;

/// The handler, and the Pod that the API server returns to it; `None`: not found.
struct Webhook {
    runtime: Runtime,
    handler: Handler,
    pod: Arc<Mutex<Option<String>>>,
}

thread_local! {
    static WEBHOOK: Webhook = Webhook::new();
}

impl Webhook {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let pod = Arc::new(Mutex::new(None));
        let stored = Arc::clone(&pod);
        let server = tower::service_fn(move |request: Request<Body>| {
            // Whatever the Pod's name, the path must stay one of a Pod or node.
            let (path, query) = (request.uri().path(), request.uri().query());
            assert!(query.is_none() && path.split('/').all(|part| part != ".."), "{path}");
            let parts: Vec<&str> = path.split('/').collect();
            let pod = matches!(parts.as_slice(), ["", "api", "v1", "namespaces", _, "pods", _]);
            assert!(pod || matches!(parts.as_slice(), ["", "api", "v1", "nodes", _]), "{path}");
            let stored: Option<String> = stored.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let missing =
                r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}"#;
            let mut response =
                Response::new(Full::new(Bytes::from(stored.clone().unwrap_or_else(|| missing.to_owned()))));
            if stored.is_none() {
                *response.status_mut() = StatusCode::NOT_FOUND;
            }
            async { Ok::<_, Infallible>(response) }
        });
        let entered = runtime.enter();
        let client = Client::new(server, "shop");
        drop(entered);
        let mut metrics = pitstop_kit::Metrics::new("pitstop_controller", "0");
        let metrics = ControllerMetrics::register(&mut metrics);
        let own_user = "system:serviceaccount:pitstop-system:pitstop-controller".to_owned();
        Self { runtime, handler: Handler { client, metrics, own_user }, pod }
    }

    fn review(&self, review: AdmissionRequest<DynamicObject>, pod: &str) -> AdmissionResponse {
        let stored = (!pod.is_empty()).then(|| pod.to_owned());
        *self.pod.lock().unwrap_or_else(PoisonError::into_inner) = stored;
        self.runtime.block_on(self.handler.review(review))
    }
}

/// Input: the body of a review, then the Pod that the API server returns; empty: not found.
pub fn admission_review(input: &[u8]) {
    let body = input.split(|byte| *byte == 0).next().unwrap_or_default();
    let review = match parse(body) {
        Ok(review) => review,
        Err(refused) => return assert!(!refused.to_string().is_empty()),
    };
    let pod = texts::<2>(input).map_or("", |[_, pod]| pod);
    let response = WEBHOOK.with(|webhook| webhook.review(review.clone(), pod));
    assert_eq!(response.uid, review.uid, "the answer to another review");
    let patch: Option<json_patch::Patch> =
        response.patch.as_ref().map(|patch| serde_json::from_slice(patch).expect("a patch"));
    if !response.allowed {
        assert_eq!(patch, None, "a patch of what is refused");
        return refused(&review, &response);
    }
    let object = review.object.as_ref().map_or(Value::Null, |object| serde_json::to_value(object).unwrap());
    let mut patched = object.clone();
    let Some(patch) = patch else { return };
    json_patch::patch(&mut patched, &patch).unwrap_or_else(|error| panic!("{error}: {patch:?} of {object}"));
    if review.resource.resource == "pods" {
        return assert!(patched.pointer("/spec/readinessGates").is_some_and(Value::is_array));
    }
    let spec = |object: &Value| -> ContainerRecreateRequestSpec {
        serde_json::from_value(object["spec"].clone()).expect("a spec that was taken can be read")
    };
    let (asked, taken) = (spec(&object), spec(&patched));
    assert_eq!(asked.pod_name, taken.pod_name);
    let names = |spec: &ContainerRecreateRequestSpec| {
        spec.containers.iter().map(|c| c.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&asked), names(&taken), "other containers");
    if review.operation == Operation::Create {
        assert_eq!(validate(&taken), Ok(()), "what is taken is valid");
        for container in &taken.containers {
            let context = container.status_context.as_ref().expect("the instance that is meant");
            assert!(pitstop_cri::split_reference(&context.container_id).is_ok(), "{context:?}");
        }
    }
}

/// Checks a refusal: the code says whose fault it is, and the message names the object. If the user can fix it (403),
/// the message also names the field.
fn refused(review: &AdmissionRequest<DynamicObject>, response: &AdmissionResponse) {
    let (code, message) = (response.result.code, &response.result.message);
    assert!(matches!(code, 400 | 403 | 500), "{code}: {message}");
    assert_ne!(review.resource.resource, "pods", "a Pod is never refused");
    assert!(message.starts_with("ContainerRecreateRequest "), "{message}");
    assert!(message.chars().count() <= 1024, "{} characters", message.len());
    if code == 403 {
        assert!(message.contains(": spec") || message.contains(": metadata."), "{message} names no field");
    }
}
