//! Access without HTTP, for the world's own models: kubelets, schedulers, users. The same versions and
//! events, but no checks.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{Server, meta, seconds};

fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

impl Server {
    /// An object by kind, namespace (empty if it has none) and name.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.store.get(self.kinds.named(kind).index, &key(namespace, name))
    }

    /// All objects of a kind, by namespace and name.
    pub fn objects(&self, kind: &str) -> impl Iterator<Item = &Arc<Value>> {
        self.store.table(self.kinds.named(kind).index).objects.values()
    }

    /// Stores an object as it is, adding a missing UID and creation time. Replaces an object of its name.
    pub fn insert(&mut self, wall: DateTime<Utc>, kind: &str, mut object: Value) -> Arc<Value> {
        if meta::text(&object, "uid").is_empty() {
            let uid = super::create::uid(self.next_serial());
            meta::set(&mut object, "uid", Some(uid.into()));
        }
        if meta::text(&object, "creationTimestamp").is_empty() {
            meta::set(&mut object, "creationTimestamp", Some(seconds(wall).into()));
        }
        let kind = self.kinds.named(kind);
        object["kind"] = kind.kind.clone().into();
        object["apiVersion"] = kind.api_version(&kind.versions[0]).into();
        let key = key(meta::text(&object, "namespace"), meta::text(&object, "name"));
        self.store.put(kind.index, &key, object)
    }

    /// Creates a namespace.
    pub fn insert_namespace(&mut self, wall: DateTime<Utc>, name: &str) {
        let object = json!({ "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
                             "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" } });
        self.insert(wall, "Namespace", object);
    }

    /// Changes an object in place; writes only a real change. Returns whether the object exists.
    pub fn update(
        &mut self,
        kind: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) -> bool {
        let (kind, key) = (self.kinds.named(kind).index, key(namespace, name));
        let Some(old) = self.store.get(kind, &key) else { return false };
        let mut new = (**old).clone();
        change(&mut new);
        if new != **old {
            self.store.put(kind, &key, new);
        }
        true
    }

    /// Removes an object despite finalizers. Returns whether it existed.
    pub fn remove(&mut self, kind: &str, namespace: &str, name: &str) -> bool {
        let kind = self.kinds.named(kind).index;
        self.store.remove(kind, &key(namespace, name)).is_some()
    }
}
