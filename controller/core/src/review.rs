//! The webhook's answers to admission reviews. A kind says what it must know before it judges; the program reads that.

use std::collections::BTreeMap;

use kube::Resource;
use kube::core::DynamicObject;
use pitstop_api::recreate::{ContainerPort, PreStopHandler};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::key::ObjectKey;
use crate::pod::Pod;

/// The response to an admission review.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// Allowed, with these JSON Patch operations (RFC 6902).
    Allow(Vec<Value>),
    /// Refused.
    Deny {
        /// HTTP status code.
        code: u16,
        /// Names the object, the field, and a correct value.
        message: String,
    },
}

/// HTTP status code for an invalid request.
pub(crate) const BAD_REQUEST: u16 = 400;
/// HTTP status code for a change that is not allowed.
pub(crate) const FORBIDDEN: u16 = 403;
/// HTTP status code if the object cannot be judged.
pub(crate) const INTERNAL: u16 = 500;

/// How the objects of a kind are reviewed.
#[derive(Debug)]
pub struct Review {
    /// The path at which the API server calls the webhook, as in its configuration.
    pub path: &'static str,
    /// Begins a review.
    pub begin: fn(&ReviewRequest) -> Step,
}

/// A review of one object.
#[derive(Clone, Debug)]
pub struct ReviewRequest {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The object exists, and changes.
    pub update: bool,
    /// The object to store, [without a status](without_status).
    pub new: Option<DynamicObject>,
    /// The object as stored.
    pub old: Option<DynamicObject>,
    /// The pitstop controller itself sent it.
    pub by_controller: bool,
}

impl ReviewRequest {
    /// Parses `object` as its kind; the error is a sentence.
    pub fn read<O>(&self, object: Option<&DynamicObject>) -> Result<O, String>
    where
        O: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let name = format!("{} {}/{}", O::kind(&()), self.key.namespace, self.key.name);
        let object = object.ok_or_else(|| format!("{name}: the review carries no object"))?;
        let mut parsed: O = object.clone().try_parse().map_err(|error| format!("{name}: {error}"))?;
        parsed.meta_mut().namespace.get_or_insert_with(|| self.key.namespace.clone());
        Ok(parsed)
    }
}

/// The client's object without its status: the API server does not store that status, and typed clients always send
/// one.
#[must_use]
pub fn without_status(mut object: DynamicObject) -> DynamicObject {
    if let Some(data) = object.data.as_object_mut() {
        data.remove("status");
    }
    object
}

/// How a review continues.
pub enum Step {
    /// The review is over.
    Over(Response),
    /// Read this Pod from the API server, then continue. `None` if it does not exist; a sentence if the read failed.
    Pod(ObjectKey, Then<Result<Option<Live>, String>>),
    /// Find out whether this node is a virtual one, then continue. A node that cannot be read counts as a machine: the
    /// request then waits for its daemon, and says so.
    Node(String, Then<bool>),
}

/// Continues a review with what was read.
pub type Then<T> = Box<dyn FnOnce(T) -> Step + Send>;

/// A Pod that was read as a whole.
#[derive(Debug)]
pub struct Live {
    /// The Pod.
    pub pod: Pod,
    /// Its containers' hooks.
    pub hooks: Hooks,
}

/// The hooks of a Pod's containers, by the containers' names.
pub type Hooks = BTreeMap<String, ContainerHook>;

/// A container's hook, as a request shows it to people; nothing acts on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerHook {
    /// The hook.
    pub pre_stop: PreStopHandler,
    /// The container's ports.
    pub ports: Vec<ContainerPort>,
}

#[cfg(test)]
mod tests {
    use pitstop_api::recreate::ContainerRecreateRequest;

    use super::*;

    #[test]
    fn a_status_that_a_client_sends_is_not_looked_at() {
        let object = serde_json::json!({
            "apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest",
            "metadata": {"name": "again", "creationTimestamp": null},
            "spec": {"podName": "web", "containers": [{"name": "app"}]},
            "status": {"phase": "Unheard"},
        });
        let sent: DynamicObject = serde_json::from_value(object).unwrap();
        let key = ObjectKey::new("ns", "again");
        let asked = ReviewRequest {
            key: key.clone(),
            update: false,
            new: Some(without_status(sent.clone())),
            old: None,
            by_controller: false,
        };
        let refused = asked.read::<ContainerRecreateRequest>(Some(&sent)).unwrap_err();
        assert!(refused.starts_with("ContainerRecreateRequest ns/again: "), "{refused}");
        let request: ContainerRecreateRequest = asked.read(asked.new.as_ref()).unwrap();
        assert_eq!((ObjectKey::of(&request.metadata), request.status), (key, None));
    }
}
