//! Creates many objects: the first through the API, the others as its copies directly in etcd. Through the API, the
//! objects of a large cluster would take an hour.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http::Request;
use kube::Client;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::load::sent;
use crate::harness::cluster::put;
use crate::harness::say;

/// Longest wait until the API server serves the objects in etcd.
const PATIENCE: Duration = Duration::from_mins(10);
const PERIOD: Duration = Duration::from_millis(500);

/// Objects of one kind.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// Prefix of their keys in etcd.
    keys: &'static str,
    api: &'static str,
    resource: &'static str,
}

pub(crate) const NODES: Kind = Kind { keys: "/registry/minions", api: "/api/v1", resource: "nodes" };
pub(crate) const PODS: Kind = Kind { keys: "/registry/pods", api: "/api/v1", resource: "pods" };
pub(crate) const DEPLOYMENTS: Kind =
    Kind { keys: "/registry/deployments", api: "/apis/apps/v1", resource: "deployments" };
pub(crate) const SETS: Kind =
    Kind { keys: "/registry/replicasets", api: "/apis/apps/v1", resource: "replicasets" };
pub(crate) const ROLLOUTS: Kind = Kind {
    keys: "/registry/pitstop.dev/inplacerollouts",
    api: "/apis/pitstop.dev/v1alpha1",
    resource: "inplacerollouts",
};
pub(crate) const REQUESTS: Kind = Kind {
    keys: "/registry/apps.kruise.io/containerrecreaterequests",
    api: "/apis/apps.kruise.io/v1alpha1",
    resource: "containerrecreaterequests",
};

impl Kind {
    /// API path of a namespace's objects. Empty namespace: all objects, or cluster-scoped ones.
    pub(crate) fn path(self, namespace: &str) -> String {
        let Self { api, resource, .. } = self;
        if namespace.is_empty() {
            format!("{api}/{resource}")
        } else {
            format!("{api}/namespaces/{namespace}/{resource}")
        }
    }

    /// Number of objects, and the resource version of that list.
    async fn count(self, client: &Client) -> Result<(usize, String)> {
        let list: List = get(client, &format!("{}?limit=1", self.path(""))).await?;
        Ok((list.items.len() + list.metadata.remaining_item_count, list.metadata.resource_version))
    }

    /// One object, at that resource version or later; empty: the latest.
    async fn one(self, client: &Client, of: &Name, version: &str) -> Result<Value> {
        let path = format!("{}/{}?resourceVersion={version}", self.path(&of.namespace), of.name);
        get(client, &path).await
    }
}

/// The used fields of a list.
#[derive(Deserialize)]
struct List {
    items: Vec<IgnoredAny>,
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    remaining_item_count: usize,
}

/// Name of an object; the namespace is empty for nodes.
#[derive(Debug, Deserialize)]
struct Name {
    #[serde(default)]
    namespace: String,
    name: String,
}

impl Name {
    fn of(object: &Value) -> Result<Self> {
        let metadata = object.get("metadata").context("an object without metadata")?;
        Ok(Self::deserialize(metadata)?)
    }
}

/// Reads the object at an API path.
pub(crate) async fn get<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> Result<T> {
    let text = sent(client, Request::get(path).body(Vec::new())?).await?;
    serde_json::from_str(&text).with_context(|| format!("the answer to GET {path} is not understood"))
}

/// Writes one object per item: a copy of the first object as the API server stored it, with the item's own members,
/// such as its UID. Fails if the API server does not serve all objects.
pub(crate) async fn write<T: Send + 'static>(
    client: &Client,
    kind: Kind,
    of: Vec<T>,
    object: impl Fn(&T) -> Value + Send + 'static,
) -> Result<()> {
    let begin = Instant::now();
    let ([first, ..], [.., last]) = (of.as_slice(), of.as_slice()) else { return Ok(()) };
    let (first, last, count) = (Name::of(&object(first))?, object(last), of.len());
    // The first object already exists. It is written again to get its intended UID.
    let wanted = kind.count(client).await?.0 + count - 1;
    let form = form(kind.one(client, &first, "").await?);
    tokio::task::spawn_blocking(move || put(of.iter().map(|of| line(kind, &form, object(of))))).await??;
    let (_, version) = kind.count(client).await?;
    // While the API server's cache is behind, a list comes from etcd. A get at that version comes from the cache, as
    // watches do.
    let last_name = Name::of(&last)?;
    let served = loop {
        match kind.one(client, &last_name, &version).await {
            Err(_) if begin.elapsed() < PATIENCE => tokio::time::sleep(PERIOD).await,
            served => break served?,
        }
    };
    let (found, _) = kind.count(client).await?;
    if found != wanted {
        bail!("the API server lists {found} {}, although etcd has {wanted}", kind.resource);
    }
    if !holds(&served, &last) {
        bail!("the API server serves another object than was written: {served} for {last}");
    }
    say(format!("{count} {} in {:.1} s", kind.resource, begin.elapsed().as_secs_f64()));
    Ok(())
}

/// An object as stored in etcd, which keeps the resource version separately.
fn form(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    object
}

/// etcd key and value of a copy.
fn line(kind: Kind, form: &Value, own: Value) -> Result<(String, String)> {
    let Name { namespace, name } = Name::of(&own)?;
    let slash = if namespace.is_empty() { "" } else { "/" };
    let mut object = form.clone();
    overlay(&mut object, own);
    Ok((format!("{}{slash}{namespace}/{name}", kind.keys), object.to_string()))
}

/// Merges `over` into `under`. Lists are replaced: the API server sets the defaults of their members also on reading.
pub(crate) fn overlay(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, over) in over {
                overlay(under.entry(name).or_insert(Value::Null), over);
            }
        }
        (under, over) => *under = over,
    }
}

/// Whether an object has all wanted members. Empty strings are ignored, because the API server omits them.
fn holds(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| *wanted == "" || found.get(name).is_some_and(|found| holds(found, wanted))),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| holds(found, wanted))
        }
        (found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_copy_has_its_own_members_and_the_others_of_the_first() {
        let first = json!({"kind": "Pod", "metadata": {
            "namespace": "a", "name": "one", "uid": "1", "resourceVersion": "7", "labels": {"app": "x", "of": "1"}}});
        let own = json!({"metadata": {"namespace": "a", "name": "two", "uid": "2", "labels": {"of": "2"}}});
        let (key, value) = line(PODS, &form(first), own.clone()).unwrap();
        assert_eq!(key, "/registry/pods/a/two");
        let copy: Value = serde_json::from_str(&value).unwrap();
        let expected = json!({"kind": "Pod", "metadata": {
            "namespace": "a", "name": "two", "uid": "2", "labels": {"app": "x", "of": "2"}}});
        assert_eq!(copy, expected);
        assert!(holds(&copy, &own));
        let node = json!({"metadata": {"name": "n"}});
        assert_eq!(line(NODES, &json!({}), node).unwrap().0, "/registry/minions/n");
    }

    #[test]
    fn an_object_that_lacks_something_is_another_one() {
        let found = json!({"a": [{"b": 1, "c": 2}], "d": {}});
        assert!(holds(&found, &json!({"a": [{"b": 1}], "d": {}, "e": ""})));
        for wanted in
            [json!({"a": []}), json!({"a": [{"b": 2}]}), json!({"e": 1}), json!({"a": [{"b": 1}, 2]})]
        {
            assert!(!holds(&found, &wanted), "{wanted}");
        }
    }

    #[test]
    fn lists_end_with_or_without_a_rest() {
        let count = |text: &str| {
            let list: List = serde_json::from_str(text).unwrap();
            list.items.len() + list.metadata.remaining_item_count
        };
        assert_eq!(count(r#"{"items":[{}],"metadata":{"remainingItemCount":41}}"#), 42);
        assert_eq!(count(r#"{"items":[],"metadata":{}}"#), 0);
    }
}
