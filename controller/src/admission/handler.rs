//! Answers admission reviews of requests and Pods with the rules of the core, and reads the objects that those need.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::core::admission::{AdmissionRequest, AdmissionResponse, Operation};
use kube::core::response::StatusSummary;
use kube::core::{ApiResource, DynamicObject, Status};
use kube::{Api, Client};
use pitstop_api::condition::truncate;
use pitstop_api::labels;
use pitstop_controller_core::review::{Live, Response, Review, ReviewRequest, Step, without_status};
use pitstop_controller_core::wire::observe;
use pitstop_controller_core::{ObjectKey, kinds, readiness};
use pitstop_kit::describe;
use tracing::{info, warn};

use crate::metrics::ControllerMetrics;

/// The resource of reviews that are about Pods.
const PODS: &str = "pods";
/// Longest text of a refusal, in characters: it may repeat user input that no schema has bounded yet.
const MAX_REFUSAL: usize = 1024;
/// Longest name of a Pod, a namespace or a node, in bytes.
const MAX_NAME: usize = 253;

/// Answers reviews.
#[derive(Clone)]
pub struct Handler {
    /// Reads Pods and nodes.
    pub client: Client,
    /// Counts the answers.
    pub metrics: ControllerMetrics,
    /// Name of the controller's own user.
    pub own_user: String,
}

impl Handler {
    /// Answers one review.
    pub async fn review(&self, review: AdmissionRequest<DynamicObject>) -> AdmissionResponse {
        let response = AdmissionResponse::from(&review);
        if review.resource.resource == PODS {
            return self.pod_created(response, &review);
        }
        let operation = match review.operation {
            Operation::Create => "create",
            Operation::Update => "update",
            // The webhook's configuration does not ask for these.
            Operation::Delete | Operation::Connect => return response,
        };
        let user = review.user_info.username.clone();
        let Some(kind) = kinds::review(&review.resource.group, &review.resource.resource) else {
            return response;
        };
        match self.answer(kind, self.review_request(review)).await {
            Response::Allow(patch) => {
                self.metrics.admission(operation, 200);
                allow(response, patch)
            }
            Response::Deny { code, message } => {
                let message = truncate(&message, MAX_REFUSAL);
                self.metrics.admission(operation, code);
                info!(operation, code, message, user, "refuses a request");
                refuse(response, code, &message)
            }
        }
    }

    fn review_request(&self, review: AdmissionRequest<DynamicObject>) -> ReviewRequest {
        ReviewRequest {
            key: ObjectKey::new(review.namespace.unwrap_or_default(), review.name),
            update: review.operation == Operation::Update,
            new: review.object.map(without_status),
            old: review.old_object,
            by_controller: review.user_info.username.as_deref() == Some(self.own_user.as_str()),
        }
    }

    /// Reads the objects that the kind asks for, until it has a response.
    async fn answer(&self, kind: &Review, asked: ReviewRequest) -> Response {
        let mut step = (kind.begin)(&asked);
        loop {
            step = match step {
                Step::Over(response) => return response,
                Step::Pod(key, then) => then(self.pod(&key).await),
                Step::Node(name, then) => then(self.is_virtual(&name).await),
            };
        }
    }

    /// Gives a new Pod the readiness gate. It never refuses: the Pod matters more than the gate.
    fn pod_created(
        &self,
        response: AdmissionResponse,
        review: &AdmissionRequest<DynamicObject>,
    ) -> AdmissionResponse {
        self.metrics.admission("inject_gate", 200);
        let pod = review.object.as_ref().filter(|_| review.operation == Operation::Create);
        let patch = pod.and_then(|pod| serde_json::to_value(pod).ok()).map(|pod| readiness::inject(&pod));
        allow(response, patch.unwrap_or_default())
    }

    async fn pod(&self, key: &ObjectKey) -> Result<Option<Live>, String> {
        // No Pod can have such a name. In the path of a URL it could mean another object.
        if !is_name(&key.namespace) || !is_name(&key.name) {
            return Ok(None);
        }
        let kind = ApiResource::erase::<Pod>(&());
        let pods: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.namespace, &kind);
        let read = pods.get_opt(&key.name).await.map_err(|error| describe(&error));
        let live = read.and_then(|pod| pod.map(observe::live).transpose().map_err(|error| describe(&error)));
        live.inspect_err(|why| warn!(why, pod = %key, "cannot read the Pod of a request"))
    }

    /// Whether the node says that it is virtual.
    async fn is_virtual(&self, node: &str) -> bool {
        if !is_name(node) {
            return false;
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let metadata = match nodes.get_metadata_opt(node).await {
            Ok(found) => found.map(|n| n.metadata),
            Err(error) => {
                warn!(error = describe(&error), node, "cannot read the node of a request's Pod");
                None
            }
        };
        let found = metadata.and_then(|m| m.labels).unwrap_or_default();
        found.get(labels::NODE_TYPE).is_some_and(|value| value == labels::VIRTUAL_KUBELET)
    }
}

/// Whether a text can be the name of a Pod, a namespace or a node: a DNS subdomain, as far as it matters in a URL.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    !text.is_empty() && text.len() <= MAX_NAME && !text.starts_with('.') && text.bytes().all(plain)
}

fn allow(response: AdmissionResponse, patch: Vec<serde_json::Value>) -> AdmissionResponse {
    if patch.is_empty() {
        return response;
    }
    let patched = serde_json::from_value(serde_json::Value::Array(patch))
        .map_err(|error| describe(&error))
        .and_then(|patch| response.clone().with_patch(patch).map_err(|error| describe(&error)));
    patched.unwrap_or_else(|error| refuse(response, 500, &error))
}

fn refuse(response: AdmissionResponse, code: u16, message: &str) -> AdmissionResponse {
    let mut refused = response.deny(message);
    refused.result = Status {
        status: Some(StatusSummary::Failure),
        message: message.to_owned(),
        reason: match code {
            403 => "Forbidden",
            400 => "BadRequest",
            _ => "InternalError",
        }
        .to_owned(),
        code,
        ..refused.result
    };
    refused
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;

    #[test]
    fn the_patch_of_a_new_pod_is_one_that_the_api_server_takes() {
        let mut base = AdmissionResponse::invalid("x");
        base.allowed = true;
        let allowed = allow(base, readiness::inject(&serde_json::json!({"spec": {}})));
        assert!(allowed.allowed && allowed.patch.is_some());
    }

    #[test]
    fn refusals_carry_their_code_and_patches_their_type() {
        let refused = refuse(AdmissionResponse::invalid("x"), 403, "no");
        assert!(!refused.allowed);
        assert_eq!((refused.result.code, refused.result.message.as_str()), (403, "no"));
        let op = serde_json::json!({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}});
        let mut base = AdmissionResponse::invalid("x");
        base.allowed = true;
        let allowed = allow(base, vec![op]);
        let wire = serde_json::to_value(&allowed).unwrap();
        assert_eq!(wire["patchType"], "JSONPatch");
    }

    /// A webhook whose API server has a Pod `web`, and the requests to that server.
    fn webhook() -> (Handler, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let service = tower::service_fn({
            let asked = Arc::clone(&asked);
            move |request: hyper::Request<kube::client::Body>| {
                asked.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
                async {
                    let id = format!("containerd://{:064x}", 7);
                    let pod = json!({"apiVersion": "v1", "kind": "Pod",
                        "metadata": {"name": "web", "namespace": "shop", "uid": "u"},
                        "spec": {"nodeName": "node1", "containers": [{"name": "app"}]},
                        "status": {"containerStatuses": [{"name": "app", "containerID": id, "restartCount": 4}]}});
                    let body = http_body_util::Full::new(hyper::body::Bytes::from(pod.to_string()));
                    Ok::<_, std::convert::Infallible>(hyper::Response::new(body))
                }
            }
        });
        let metrics =
            ControllerMetrics::register(&mut pitstop_kit::Metrics::new("pitstop_controller", "0.0.1"));
        (Handler { client: Client::new(service, "ns"), metrics, own_user: String::new() }, asked)
    }

    fn creation(pod_name: &str, container: &str) -> AdmissionRequest<DynamicObject> {
        let resource = json!({"group": "apps.kruise.io", "version": "v1alpha1", "resource": "containerrecreaterequests"});
        let kind =
            json!({"group": "apps.kruise.io", "version": "v1alpha1", "kind": "ContainerRecreateRequest"});
        serde_json::from_value(json!({
            "uid": "r", "kind": kind, "resource": resource, "operation": "CREATE", "userInfo": {},
            "name": "crr", "namespace": "shop", "options": null,
            "object": {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest",
                "metadata": {"name": "crr"}, "spec": {"podName": pod_name, "containers": [{"name": container}]}}
        }))
        .unwrap()
    }

    /// A cache may show a container that has been restarted since; the API server's own store shows the newest.
    #[tokio::test]
    async fn d9_admission_reads_the_pod_itself() {
        let (handler, asked) = webhook();
        let answer = handler.review(creation("web", "app")).await;
        let patch: serde_json::Value = serde_json::from_slice(&answer.patch.unwrap()).unwrap();
        let context =
            patch.as_array().unwrap().iter().find(|op| op["path"] == "/spec/containers/0/statusContext");
        assert_eq!(context.unwrap()["value"]["restartCount"], 4);
        // Without a resourceVersion, which would allow an answer from a cache.
        assert_eq!(asked.lock().unwrap()[0], "GET /api/v1/namespaces/shop/pods/web");
    }

    #[tokio::test]
    async fn a_resize_is_for_the_pod_that_there_is() {
        let (handler, asked) = webhook();
        let review = |pod: &str, limits: serde_json::Value| -> AdmissionRequest<DynamicObject> {
            let resource = json!({"group": "pitstop.dev", "version": "v1alpha1", "resource": "podresizes"});
            let kind = json!({"group": "pitstop.dev", "version": "v1alpha1", "kind": "PodResize"});
            serde_json::from_value(json!({
                "uid": "r", "kind": kind, "resource": resource, "operation": "CREATE", "userInfo": {},
                "name": "grow", "namespace": "shop", "options": null,
                "object": {"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodResize", "metadata": {"name": "grow"},
                    "spec": {"podRef": {"name": pod}, "containers": [{"name": "app", "resources": {"limits": limits}}]}}
            }))
            .unwrap()
        };
        let answer = handler.review(review("web", json!({"cpu": "2"}))).await;
        let patch: serde_json::Value = serde_json::from_slice(&answer.patch.unwrap()).unwrap();
        assert_eq!(patch, json!([{"op": "add", "path": "/spec/podRef/uid", "value": "u"}]));
        assert_eq!(
            asked.lock().unwrap().drain(..).collect::<Vec<_>>(),
            ["GET /api/v1/namespaces/shop/pods/web"]
        );
        let answer = handler.review(review("web", json!({"cpu": "much"}))).await;
        assert!(
            answer.result.message.starts_with("PodResize shop/grow: spec.containers[0].resources.limits"),
            "{answer:?}"
        );
        asked.lock().unwrap().clear();
        // An invalid Pod name, and an invalid resize: the schema refuses them.
        for (pod, limits) in [("../web", json!({"cpu": "2"})), ("web", json!(7))] {
            let answer = handler.review(review(pod, limits)).await;
            assert!(answer.allowed && answer.patch.is_none(), "{answer:?}");
        }
        assert!(asked.lock().unwrap().is_empty());
    }

    /// Admission runs before the schema, and the client writes names into URLs unchanged.
    #[tokio::test]
    async fn what_no_schema_has_bounded_yet_gets_into_no_url_and_no_long_answer() {
        let (handler, asked) = webhook();
        let long = "x".repeat(1_000_000);
        for name in
            ["../../bank/pods/web", "web?resourceVersion=0", "web/log", "web#", "Web", "..", "é", &long]
        {
            let answer = handler.review(creation(name, "app")).await;
            let text = answer.result.message;
            assert!(text.contains("spec.podName: no found Pod named") && text.len() <= 1024, "{text}");
        }
        assert!(asked.lock().unwrap().is_empty());
        let answer = handler.review(creation("web", &long)).await;
        let text = answer.result.message;
        assert!(text.starts_with("ContainerRecreateRequest shop/crr: spec.containers[0].name: "), "{text}");
        assert_eq!(text.len(), 1024);
    }
}
