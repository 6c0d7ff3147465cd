//! What the webhook answers to admission reviews. A kind says what it must know before it judges; the program reads it.

use std::collections::BTreeMap;

use kube::Resource;
use kube::core::DynamicObject;
use pitstop_api::recreate::{ContainerPort, PreStopHandler};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::key::ObjectKey;
use crate::pod::Pod;

/// The answer to an admission review.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Allowed, with these JSON Patch operations (RFC 6902).
    Allow(Vec<Value>),
    /// Refused.
    Deny {
        /// HTTP status code.
        code: u16,
        /// Names the object, the field, and what would be right.
        message: String,
    },
}

/// The code of a request that makes no sense.
pub(crate) const BAD_REQUEST: u16 = 400;
/// The code of a change that is not allowed.
pub(crate) const FORBIDDEN: u16 = 403;
/// The code of what cannot be judged.
pub(crate) const INTERNAL: u16 = 500;

/// How the objects of a kind are reviewed.
#[derive(Debug)]
pub struct Review {
    /// Where the webhook is asked, as its configuration says.
    pub path: &'static str,
    /// Begins a review.
    pub begin: fn(&Asked) -> Step,
}

/// What the webhook is asked about one object.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The object is there, and changes.
    pub update: bool,
    /// As it is to be stored, [without a status](without_status).
    pub new: Option<DynamicObject>,
    /// As it is stored.
    pub old: Option<DynamicObject>,
    /// Its own controller asks.
    pub by_controller: bool,
}

impl Asked {
    /// One of the two as an object of its kind; a sentence where it is none.
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

/// What a client sent, without the status: the API server stores none from there, and typed clients always send one.
#[must_use]
pub fn without_status(mut object: DynamicObject) -> DynamicObject {
    if let Some(data) = object.data.as_object_mut() {
        data.remove("status");
    }
    object
}

/// How a review goes on.
pub enum Step {
    /// It is over.
    Over(Verdict),
    /// By the Pod of that name, read from the API server now; absent if there is none; a sentence if that is not known.
    Pod(ObjectKey, Then<Result<Option<Live>, String>>),
    /// By whether the node of that name is a virtual one. A node that cannot be read is taken for a machine: the request then
    /// waits for its daemon, and says so.
    Node(String, Then<bool>),
}

/// What follows from what was read.
pub type Then<T> = Box<dyn FnOnce(T) -> Step + Send>;

/// A Pod that was read as a whole.
#[derive(Debug)]
pub struct Live {
    /// It.
    pub pod: Pod,
    /// Its containers' hooks.
    pub hooks: Hooks,
}

/// The hooks of a Pod's containers, by the containers' names.
pub type Hooks = BTreeMap<String, Hooked>;

/// A container's hook, as a request shows it to people; nothing acts on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hooked {
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
        let asked = Asked {
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
