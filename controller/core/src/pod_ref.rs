//! The Pod that a request names: the very one that there is when the request is made.
//!
//! For convenience only: a request that the webhook was not asked about is bound to its Pod when it is accepted.

use pitstop_api::Invalid;
use pitstop_api::resize::PodRef;
use serde_json::{Value, json};

use crate::key::ObjectKey;

/// What is changed of a request that is created; `found` is the UID of the Pod that it names, read from the API server just
/// now. Fails where the request names the UID of another one.
pub(crate) fn bind(named: &PodRef, pod: &ObjectKey, found: Option<&str>) -> Result<Vec<Value>, Invalid> {
    match (named.uid.as_deref(), found) {
        (Some(asked), Some(found)) if asked != found => {
            let text = format!(
                "Pod {pod} has the UID {found}, not {asked}: leave it out, or name the Pod that there is"
            );
            Err(Invalid::new("spec.podRef.uid", text))
        }
        (None, Some(found)) => Ok(with(found)),
        // It may be made in a moment.
        (Some(_), _) | (None, None) => Ok(Vec::new()),
    }
}

/// What is changed of a request that changes: a client that sends it as it was written keeps the Pod's UID.
pub(crate) fn keep(old: &PodRef, new: &PodRef) -> Vec<Value> {
    match (&old.uid, &new.uid) {
        (Some(uid), None) if old.name == new.name => with(uid),
        _ => Vec::new(),
    }
}

fn with(uid: &str) -> Vec<Value> {
    vec![json!({"op": "add", "path": "/spec/podRef/uid", "value": uid})]
}
