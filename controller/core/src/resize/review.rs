//! The webhook's answers about resizes. It binds a new request to the UID of its Pod.

use pitstop_api::Invalid;
use pitstop_api::resize::validate;

use super::Resize;
use crate::kind::Kind as _;
use crate::pod_ref;
use crate::review::{BAD_REQUEST, Live, Response, ReviewRequest, Step, without_status};

/// Begins the review of a request. An unreadable object is allowed: the schema or the controller judges it.
pub(super) fn review(asked: &ReviewRequest) -> Step {
    let Ok(new) = asked.read(asked.new.as_ref()).map(Resize::observe) else {
        return Step::Over(Response::Allow(Vec::new()));
    };
    if asked.update {
        let old = asked.read(asked.old.clone().map(without_status).as_ref()).map(Resize::observe);
        return Step::Over(old.map_or(Response::Allow(Vec::new()), |old| update(&old, &new)));
    }
    let pod = new.pod_key();
    let judge = move |found: Result<Option<Live>, String>| {
        let uid = found.ok().flatten().map(|live| live.pod.uid);
        Step::Over(create(&new, uid.as_deref()))
    };
    Step::Pod(pod, Box::new(judge))
}

fn deny(resize: &Resize, why: &Invalid) -> Response {
    Response::Deny { code: BAD_REQUEST, message: format!("PodResize {}: {why}", resize.key) }
}

/// Answers the creation of a request. `pod_uid`: UID of the named Pod, just read from the API server.
fn create(resize: &Resize, pod_uid: Option<&str>) -> Response {
    if let Err(invalid) = validate(&resize.spec) {
        return deny(resize, &invalid);
    }
    match pod_ref::bind(&resize.spec.pod_ref, &resize.pod_key(), pod_uid) {
        Ok(patch) => Response::Allow(patch),
        Err(invalid) => deny(resize, &invalid),
    }
}

/// Answers a change of a request. A client that omits the Pod's UID keeps the stored one.
fn update(old: &Resize, new: &Resize) -> Response {
    Response::Allow(pod_ref::keep(&old.spec.pod_ref, &new.spec.pod_ref))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::key::ObjectKey;

    fn resize(uid: Option<&str>, cpu: &str) -> Resize {
        let spec = json!({"podRef": {"name": "web", "uid": uid}, "containers": [{"name": "app", "resources": {"limits": {"cpu": cpu}}}]});
        let spec = serde_json::from_value(spec).unwrap();
        Resize { key: ObjectKey::new("shop", "grow"), spec, ..Resize::default() }
    }

    fn refusal(response: Response) -> String {
        let Response::Deny { code: 400, message } = response else { panic!("{response:?}") };
        message
    }

    #[test]
    fn a_request_is_bound_to_the_pod_that_there_is() {
        let uid = json!({"op": "add", "path": "/spec/podRef/uid", "value": "u1"});
        assert_eq!(create(&resize(None, "2"), Some("u1")), Response::Allow(vec![uid]));
        for (asked, found) in [(Some("u1"), Some("u1")), (Some("u1"), None), (None, None)] {
            assert_eq!(create(&resize(asked, "2"), found), Response::Allow(Vec::new()));
        }
        let text = refusal(create(&resize(Some("u1"), "2"), Some("u2")));
        assert!(
            text.starts_with("PodResize shop/grow: spec.podRef.uid: Pod shop/web has the UID u2"),
            "{text}"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_at_once() {
        let text = refusal(create(&resize(None, "much"), Some("u1")));
        assert!(text.starts_with("PodResize shop/grow: spec.containers[0].resources.limits"), "{text}");
    }

    #[test]
    fn who_writes_the_request_as_it_was_made_changes_nothing() {
        let stored = resize(Some("u1"), "2");
        assert_eq!(update(&stored, &resize(None, "2")), create(&resize(None, "2"), Some("u1")));
        for new in [&stored, &resize(Some("u2"), "2")] {
            assert_eq!(update(&stored, new), Response::Allow(Vec::new()), "the schema judges that");
        }
        assert_eq!(update(&resize(None, "2"), &resize(None, "2")), Response::Allow(Vec::new()));
    }
}
