//! Binds a request to the Pod that exists when the request is made.
//!
//! For convenience only: without the webhook, a request is bound to its Pod when it is accepted.

use pitstop_api::Invalid;
use pitstop_api::resize::PodRef;
use serde_json::{Value, json};

use crate::key::ObjectKey;

/// Changes to a request that is created; `found` is the UID of the Pod that it names, just read from the API server.
/// Fails if the request names another UID.
pub(crate) fn bind(named: &PodRef, pod: &ObjectKey, found: Option<&str>) -> Result<Vec<Value>, Invalid> {
    match (named.uid.as_deref(), found) {
        (Some(asked), Some(found)) if asked != found => {
            let text =
                format!("Pod {pod} has the UID {found}, not {asked}: leave out the UID, or correct it");
            Err(Invalid::new("spec.podRef.uid", text))
        }
        (None, Some(found)) => Ok(with(found)),
        // The Pod may be created in a moment.
        (Some(_), _) | (None, None) => Ok(Vec::new()),
    }
}

/// Changes to a request that is updated: it keeps the Pod's UID if the client sends the original manifest again.
pub(crate) fn keep(old: &PodRef, new: &PodRef) -> Vec<Value> {
    match (&old.uid, &new.uid) {
        (Some(uid), None) if old.name == new.name => with(uid),
        _ => Vec::new(),
    }
}

fn with(uid: &str) -> Vec<Value> {
    vec![json!({"op": "add", "path": "/spec/podRef/uid", "value": uid})]
}
