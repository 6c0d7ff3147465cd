//! Namespaces: what may be created in them, and how they end.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::failure::{Checked, Failure};
use super::request::Call;
use super::{Server, meta, seconds};

/// Refuses a create in a namespace that is missing or being deleted.
pub(super) fn admits(server: &Server, call: &Call<'_>, name: &str) -> Checked<()> {
    let Some(namespace) = call.namespace else { return Ok(()) };
    let kind = server.kinds.named("Namespace");
    match server.store.get(kind.index, namespace) {
        None => Err(Failure::not_found(kind, namespace)),
        Some(object) if meta::is_terminating(object) => Err(Failure::terminating(call.kind, name, namespace)),
        Some(_) => Ok(()),
    }
}

impl Server {
    /// DELETE of a namespace: marks it; its contents go later.
    pub(super) fn terminate_namespace(&mut self, call: &Call<'_>, old: &Arc<Value>, dry_run: bool) -> Value {
        let mut namespace = (**old).clone();
        if !meta::is_terminating(&namespace) {
            meta::set(&mut namespace, "deletionTimestamp", Some(seconds(call.wall).into()));
            namespace["status"]["phase"] = "Terminating".into();
        }
        if dry_run || namespace == **old {
            return call.shown(&namespace);
        }
        let stored = self.store.put(call.kind.index, &call.key(), namespace);
        call.shown(&stored)
    }

    /// One round of the namespace controller: deletes the objects in a namespace that is being deleted, and
    /// the namespace once it is empty. Objects with finalizers and Pods with grace stay until others release
    /// them.
    ///
    /// Returns whether the namespace is gone.
    pub fn empty_namespace(&mut self, wall: DateTime<Utc>, name: &str) -> bool {
        let kinds = self.kinds.clone();
        let own = kinds.named("Namespace").index;
        let Some(namespace) = self.store.get(own, name) else { return true };
        if !meta::is_terminating(namespace) {
            return false;
        }
        let mut left = 0;
        for kind in kinds.namespaced() {
            let prefix = format!("{name}/");
            let objects = &self.store.table(kind.index).objects;
            let keys: Vec<Arc<str>> =
                objects.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
            for key in keys {
                let path = format!(
                    "/{}/namespaces/{name}/{}/{}",
                    if kind.group.is_empty() {
                        "api/v1".to_owned()
                    } else {
                        format!("apis/{}/{}", kind.group, kind.versions[0])
                    },
                    kind.plural,
                    &key[prefix.len()..]
                );
                let request = http::Request::delete(path).body(Vec::new()).unwrap();
                self.handle(wall, &request);
                left += usize::from(self.store.get(kind.index, &key).is_some());
            }
        }
        if left == 0 {
            let mut last = (**self.store.get(own, name).unwrap()).clone();
            last["spec"] = json!({});
            self.store.put(own, name, last);
            self.store.remove(own, name);
        }
        left == 0
    }
}
