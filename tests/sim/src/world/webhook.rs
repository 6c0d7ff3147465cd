//! pitstop's own webhook in the model API server: the production rules, asked as `controller/src/admission` asks them.

use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_controller_core::kind::Kind as _;
use pitstop_controller_core::recreate::Request;
use pitstop_controller_core::recreate::admission::{Hooks, create, keep, precheck, update};
use pitstop_controller_core::review::Verdict;
use pitstop_controller_core::wire::observe;
use serde::Deserialize;
use serde_json::Value;

use crate::server::Server;
use crate::server::admission::{Admission, Operation, Refusal, Review};

/// Header of requests that the webhook is not asked about, since it is away; its policy is to let them pass.
pub const UNASKED: &str = "x-webhook-away";
/// Header that names who sends a request.
pub const FROM: &str = "x-from";

/// The webhook.
#[derive(Debug)]
pub struct Webhook;

impl Admission for Webhook {
    fn mutate(&self, server: &Server, review: &Review<'_>, object: &mut Value) -> Result<(), Refusal> {
        let away = review.headers.contains_key(UNASKED) || review.subresource == "status";
        if review.kind != "ContainerRecreateRequest" || away {
            return Ok(());
        }
        let new = request(review, object)?;
        let verdict = if let (Operation::Update, Some(old)) = (review.operation, review.old) {
            let by_controller = review.headers.get(FROM).is_some_and(|h| h == "controller");
            match update(&request(review, old)?, &new, by_controller) {
                Verdict::Allow(mut patch) => {
                    patch.extend(keep(old.get("spec"), object.get("spec")));
                    Verdict::Allow(patch)
                }
                refused @ Verdict::Deny { .. } => refused,
            }
        } else if let Some(refused) = precheck(&new) {
            refused
        } else {
            let pod = server.object("Pod", review.namespace, &new.spec.pod_name);
            let pod = pod.map(|pod| observe::pod(Deserialize::deserialize(&**pod).unwrap()));
            create(&new, pod.as_ref(), &Hooks::new(), false)
        };
        match verdict {
            Verdict::Allow(patch) => {
                let patch: json_patch::Patch = serde_json::from_value(Value::Array(patch)).unwrap();
                json_patch::patch(object, &patch).unwrap();
                Ok(())
            }
            Verdict::Deny { code, message } => Err(Refusal { code, reason: "Forbidden", message }),
        }
    }
}

fn request(review: &Review<'_>, object: &Value) -> Result<Request, Refusal> {
    let mut parsed = ContainerRecreateRequest::deserialize(object).map_err(|error| Refusal {
        code: 400,
        reason: "BadRequest",
        message: error.to_string(),
    })?;
    parsed.metadata.namespace.get_or_insert_with(|| review.namespace.to_owned());
    Ok(Request::observe(parsed))
}
