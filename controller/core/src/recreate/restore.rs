//! The spec of a request never changes; the same spec again is no change.
//!
//! A client that applies the file of a request again omits the fields that admission filled in. A typed client of
//! `OpenKruise` omits fields that its schema lacks: `preStop.sleep` and `strategy.mechanism`. Omitted fields are not
//! removed: the stored spec stays.

use pitstop_api::recreate::ContainerRecreateRequestSpec;
use serde_json::{Value, json};

/// The first field that differs. `new` may omit what admission filled in, and what a typed client of `OpenKruise`
/// cannot carry.
pub(super) fn changed(
    old: &ContainerRecreateRequestSpec,
    new: &ContainerRecreateRequestSpec,
) -> Option<String> {
    let mut restored = new.clone();
    if let Some(kept) = &old.strategy {
        let strategy = restored.strategy.get_or_insert_default();
        strategy.failure_policy = strategy.failure_policy.or(kept.failure_policy);
        strategy.termination_grace_period_seconds =
            strategy.termination_grace_period_seconds.or(kept.termination_grace_period_seconds);
        strategy.mechanism = strategy.mechanism.or(kept.mechanism);
    }
    for (container, kept) in restored.containers.iter_mut().zip(&old.containers) {
        if container.name != kept.name {
            break;
        }
        match (&mut container.pre_stop, &kept.pre_stop) {
            (Some(hook), Some(kept)) => hook.sleep = hook.sleep.take().or_else(|| kept.sleep.clone()),
            (hook, kept) => *hook = hook.take().or_else(|| kept.clone()),
        }
        container.status_context = container.status_context.take().or_else(|| kept.status_context.clone());
        if container.ports.is_empty() {
            container.ports.clone_from(&kept.ports);
        }
    }
    (restored != *old).then(|| difference("spec", &json!(old), &json!(restored)))
}

/// Path of the first difference, as deep as both values are objects, or lists of the same length.
fn difference(path: &str, old: &Value, new: &Value) -> String {
    let below = match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let differs = a.keys().chain(b.keys()).find(|key| a.get(*key) != b.get(*key));
            differs.map(|key| (format!("{path}.{key}"), a.get(key), b.get(key)))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find(|(_, (a, b))| a != b).map(|(i, (a, b))| (format!("{path}[{i}]"), Some(a), Some(b)))
        }
        _ => None,
    };
    match below {
        Some((path, Some(old), Some(new))) => difference(&path, old, new),
        Some((path, ..)) => path,
        None => path.to_owned(),
    }
}

/// The JSON Patch that replaces an [equivalent](changed) spec by the stored one. Both are as the API server has them,
/// because its rule compares them literally.
pub fn keep(stored: Option<&Value>, new: Option<&Value>) -> Vec<Value> {
    match stored {
        Some(spec) if new != stored => vec![json!({"op": "add", "path": "/spec", "value": spec})],
        _ => Vec::new(),
    }
}
