//! pitstop's own webhook in the model API server: the production rules, called as in `controller/src/admission`.

use pitstop_controller_core::ObjectKey;
use pitstop_controller_core::image::ImageUpdate;
use pitstop_controller_core::kind::Kind as _;
use pitstop_controller_core::recreate::Request;
use pitstop_controller_core::review::{Response, ReviewRequest, Step, without_status};
use pitstop_controller_core::wire::observe;
use serde_json::Value;

use crate::server::Server;
use crate::server::admission::{Admission, Operation, Refusal, Review};

/// Header of requests for which the webhook is down; its failure policy lets them pass.
pub const UNASKED: &str = "x-webhook-away";
/// Header that names the sender of a request.
pub const FROM: &str = "x-from";

/// The webhook.
#[derive(Debug)]
pub struct Webhook;

impl Admission for Webhook {
    fn mutate(&self, server: &Server, review: &Review<'_>, object: &mut Value) -> Result<(), Refusal> {
        let away = review.headers.contains_key(UNASKED) || review.subresource == "status";
        let abouts = [Request::ABOUT, ImageUpdate::ABOUT];
        let Some(about) = abouts.into_iter().find(|a| a.id.name() == review.kind && !away) else {
            return Ok(());
        };
        let dynamic = |object: &Value| serde_json::from_value(object.clone()).unwrap();
        let asked = ReviewRequest {
            key: ObjectKey::new(review.namespace, object["metadata"]["name"].as_str().unwrap_or_default()),
            update: review.operation == Operation::Update,
            new: Some(without_status(dynamic(object))),
            old: review.old.map(dynamic),
            by_controller: review.headers.get(FROM).is_some_and(|h| h == "controller"),
        };
        let mut step = (about.review.unwrap().begin)(&asked);
        let response = loop {
            step = match step {
                Step::Over(response) => break response,
                Step::Pod(key, then) => {
                    let pod = server.object("Pod", &key.namespace, &key.name);
                    then(Ok(pod.map(|pod| observe::live(dynamic(pod)).unwrap())))
                }
                Step::Node(_, then) => then(false),
            };
        };
        match response {
            Response::Allow(patch) => {
                let patch: json_patch::Patch = serde_json::from_value(Value::Array(patch)).unwrap();
                json_patch::patch(object, &patch).unwrap();
                Ok(())
            }
            Response::Deny { code, message } => Err(Refusal { code, reason: "Forbidden", message }),
        }
    }
}
