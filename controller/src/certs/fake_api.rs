//! Just enough of an API server for one Secret and one webhook configuration.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::{StreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// Objects by plural name; at most one of each.
#[derive(Default)]
pub struct State {
    version: u64,
    objects: BTreeMap<&'static str, Value>,
    watchers: Vec<(&'static str, UnboundedSender<String>)>,
    /// Method and plural of every accepted write.
    pub writes: Vec<(Method, &'static str)>,
    /// Number of writes refused because their precondition failed.
    pub conflicts: usize,
}

#[derive(Clone, Default)]
pub struct FakeApi(pub Arc<Mutex<State>>);

impl FakeApi {
    pub fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        });
        Client::new(service, "ns")
    }

    pub fn get(&self, plural: &'static str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(plural).cloned()
    }

    pub fn put(&self, plural: &'static str, object: Value) -> Value {
        let mut state = self.0.lock().unwrap();
        state.version += 1;
        let mut object = object;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        let kind = if state.objects.insert(plural, object.clone()).is_some() { "MODIFIED" } else { "ADDED" };
        state.notify(plural, kind, &object);
        object
    }

    pub fn delete(&self, plural: &'static str) {
        let mut state = self.0.lock().unwrap();
        state.version += 1;
        let mut object = state.objects.remove(plural).unwrap();
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.notify(plural, "DELETED", &object);
    }

    async fn answer(&self, request: Request<Body>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let plural = if request.uri().path().contains("/secrets") { "secrets" } else { "webhooks" };
        let method = request.method().clone();
        if method == Method::GET {
            return self.watch(plural);
        }
        let body: Value =
            serde_json::from_slice(&request.into_body().collect_bytes().await.unwrap()).unwrap();
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        let new = match (&method, self.get(plural)) {
            (&Method::POST, None) => body,
            (&Method::PATCH, Some(mut stored)) if version(&body) == version(&stored) => {
                for (key, value) in body["data"].as_object().into_iter().flatten() {
                    stored["data"][key] = value.clone();
                }
                // A merge patch removes members that are null (RFC 7396).
                if let Some(data) = stored["data"].as_object_mut() {
                    data.retain(|_, value| !value.is_null());
                }
                for new in body["webhooks"].as_array().into_iter().flatten() {
                    let webhooks = stored["webhooks"].as_array_mut().unwrap();
                    let webhook = webhooks.iter_mut().find(|webhook| webhook["name"] == new["name"]).unwrap();
                    webhook["clientConfig"]["caBundle"] = new["clientConfig"]["caBundle"].clone();
                }
                stored
            }
            _ => {
                self.0.lock().unwrap().conflicts += 1;
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409});
                return answer(409, &status);
            }
        };
        self.0.lock().unwrap().writes.push((method, plural));
        answer(200, &self.put(plural, new))
    }

    fn watch(&self, plural: &'static str) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let mut state = self.0.lock().unwrap();
        let (tx, rx) = unbounded();
        if let Some(object) = state.objects.get(plural) {
            tx.unbounded_send(event("ADDED", object)).unwrap();
        }
        let end = json!({"kind": "X", "apiVersion": "v1", "metadata": {
            "resourceVersion": state.version.to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"},
        }});
        tx.unbounded_send(event("BOOKMARK", &end)).unwrap();
        state.watchers.push((plural, tx));
        let frames = rx.map(|line| Ok(Frame::data(Bytes::from(line))));
        Response::new(BodyExt::boxed_unsync(StreamBody::new(frames.chain(stream::pending()))))
    }
}

impl State {
    fn notify(&mut self, plural: &'static str, kind: &str, object: &Value) {
        let line = event(kind, object);
        for (watched, tx) in &self.watchers {
            if *watched == plural {
                let _ = tx.unbounded_send(line.clone());
            }
        }
    }
}

fn event(kind: &str, object: &Value) -> String {
    // The real server writes the members in this order.
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn answer(code: u16, body: &Value) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let body = Full::new(Bytes::from(body.to_string()));
    Response::builder().status(code).body(body.boxed_unsync()).unwrap()
}
