//! An object that may fail to decode without failing its list or watch.
//!
//! kube's own `DeserializeGuard` does this through a tree of values, twice; on a list of Pods that is most of the work.
//! This guard keeps the object's JSON text and decodes that.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::describe::describe;

/// An object, or why it cannot be decoded. Can only be read from JSON that is in memory.
#[derive(Clone, Debug)]
pub struct Guard<K>(pub Result<K, Malformed>);

/// An object that does not have the shape of its kind.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Malformed {
    /// The decoder's error.
    pub why: String,
    /// Its name, namespace, UID and version, if present.
    pub metadata: ObjectMeta,
}

/// The part of an object that must be readable for a watch to continue.
#[derive(Deserialize)]
struct Named {
    metadata: NamedMeta,
}

/// The parts of metadata that a watch needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamedMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The client holds the whole text of a list or a watch event in memory, so nothing need be copied.
        let raw = <&RawValue>::deserialize(deserializer)?;
        match serde_json::from_str(raw.get()) {
            Ok(object) => Ok(Self(Ok(object))),
            Err(error) => {
                let Named { metadata } = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
                let metadata = ObjectMeta {
                    name: metadata.name,
                    namespace: metadata.namespace,
                    uid: metadata.uid,
                    resource_version: metadata.resource_version,
                    ..ObjectMeta::default()
                };
                Ok(Self(Err(Malformed { why: describe(&error), metadata })))
            }
        }
    }
}

impl<K: Resource> Resource for Guard<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|malformed| &malformed.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|malformed| &mut malformed.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;
    use kube::api::{ObjectList, WatchEvent};

    const GOOD: &str = r#"{"metadata":{"name":"good","resourceVersion":"1"},"spec":{"containers":[]}}"#;
    const BAD: &str =
        r#"{"metadata":{"name":"bad","namespace":"n","resourceVersion":"2"},"spec":{"containers":"no"}}"#;

    #[test]
    fn a_list_keeps_its_good_objects() {
        let json = format!(
            r#"{{"apiVersion":"v1","kind":"PodList","metadata":{{"resourceVersion":"9"}},"items":[{GOOD},{BAD}]}}"#
        );
        let list: ObjectList<Guard<Pod>> = serde_json::from_str(&json).unwrap();
        assert!(list.items[0].0.is_ok());
        let malformed = list.items[1].0.as_ref().unwrap_err();
        assert_eq!(malformed.metadata.name.as_deref(), Some("bad"));
        assert_eq!(list.items[1].meta().resource_version.as_deref(), Some("2"));
    }

    #[test]
    fn a_watch_event_is_decoded_in_the_order_that_the_server_writes() {
        let json = format!(r#"{{"type":"MODIFIED","object":{BAD}}}"#);
        let WatchEvent::Modified(object) = serde_json::from_str::<WatchEvent<Guard<Pod>>>(&json).unwrap()
        else {
            panic!("not a modification");
        };
        assert!(object.0.unwrap_err().to_string().contains("expected"));
    }

    #[test]
    fn an_object_without_metadata_is_an_error() {
        assert!(serde_json::from_str::<Guard<Pod>>(r#"{"spec":{"containers":"no"}}"#).is_err());
    }
}
