//! Unwanted writes of other clients: forged orders, and free text in conditions whose messages are lists.

use pitstop_api::nodework::{Order, OrderContainer, OrderPod, Recreate};
use serde_json::{Value, json};

use super::World;
use super::plan::Forgery;
use crate::node::keys;
use crate::oracle::Writer;

/// The types of conditions that pitstop serves.
const GATES: [&str; 2] = ["KruisePodReady", "pitstop.dev/ready"];

/// Writes the conditions behind a Pod's gates.
pub(super) fn write_gates(pod: &mut Value, status: &str, message: Option<&str>) {
    let conditions = pod.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if GATES.contains(&condition["type"].as_str().unwrap_or_default()) {
            condition["status"] = status.into();
            if let Some(message) = message {
                condition["message"] = message.into();
            }
        }
    }
}

impl World {
    /// Puts a forged order for a running container of that Pod, if any, into its node's book.
    pub(super) fn forge(&mut self, pod: &str, forgery: Forgery) {
        for at in 0..self.nodes.len() {
            let now = self.now;
            let found = self.nodes[at].runtime.containers().values().find_map(|c| {
                let label = |key| c.info.labels.get(key).cloned();
                let own = c.alive(now) && label(keys::POD_NAME).as_deref() == Some(pod);
                own.then(|| (label(keys::POD_UID), label(keys::CONTAINER_NAME), c.info.id.clone()))
            });
            let Some((uid, name, id)) = found else { continue };
            let (mut of, mut container) = (
                OrderPod {
                    namespace: super::objects::NAMESPACE.to_owned(),
                    name: pod.to_owned(),
                    uid: uid.unwrap_or_default(),
                },
                OrderContainer { name: name.unwrap_or_default(), id },
            );
            match forgery {
                Forgery::Pod => "forged".clone_into(&mut of.uid),
                Forgery::Namespace => "elsewhere".clone_into(&mut of.namespace),
                Forgery::Prefix => container.id.truncate(12),
            }
            let id = format!("forged/{}/{}", container.name, self.now);
            let action = Recreate::with_grace(Some(2)).into();
            let order = json!(Order { id, pod: of, container, action, ..Order::default() });
            let node = self.nodes[at].name.clone();
            self.change(Writer::Other, "NodeWork", "", &node, |book| {
                match book["spec"]["orders"].as_array_mut() {
                    Some(orders) => orders.push(order),
                    None => book["spec"]["orders"] = json!([order]),
                }
            });
        }
    }
}
