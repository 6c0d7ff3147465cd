//! The webhook's answers about updates: a request is bound to the Pod that exists when it is made.

use pitstop_api::Invalid;
use pitstop_api::image_update::validate;

use super::ImageUpdate;
use crate::key::ObjectKey;
use crate::kind::Kind as _;
use crate::pod_ref;
use crate::review::{BAD_REQUEST, Live, Response, ReviewRequest, Step, without_status};

fn deny(key: &ObjectKey, why: &Invalid) -> Step {
    Step::Over(Response::Deny { code: BAD_REQUEST, message: format!("PodImageUpdate {key}: {why}") })
}

/// Begins the review of a request. An unreadable one is not judged here, but by the schema or the controller.
pub(super) fn review(asked: &ReviewRequest) -> Step {
    let Ok(new) = asked.read(asked.new.as_ref()).map(ImageUpdate::observe) else {
        return Step::Over(Response::Allow(Vec::new()));
    };
    if asked.update {
        let old = asked.read(asked.old.clone().map(without_status).as_ref()).map(ImageUpdate::observe);
        let kept = old.map(|old| pod_ref::keep(&old.spec.pod_ref, &new.spec.pod_ref));
        return Step::Over(Response::Allow(kept.unwrap_or_default()));
    }
    if let Err(invalid) = validate(&new.spec) {
        return deny(&new.key, &invalid);
    }
    let pod = new.pod_key();
    let judge = move |found: Result<Option<Live>, String>| {
        let uid = found.ok().flatten().map(|live| live.pod.uid);
        match pod_ref::bind(&new.spec.pod_ref, &new.pod_key(), uid.as_deref()) {
            Ok(patch) => Step::Over(Response::Allow(patch)),
            Err(invalid) => deny(&new.key, &invalid),
        }
    };
    Step::Pod(pod, Box::new(judge))
}
