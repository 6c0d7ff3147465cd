//! The spec of a request never changes; saying it again is no change.
//!
//! Whoever applies the file of a request a second time leaves out what admission has filled in since. What is left out
//! is not taken away: the spec stays as it is stored.

use pitstop_api::recreate::ContainerRecreateRequestSpec;
use serde_json::{Value, json};

/// Whether `new` says what `old` says, but for what admission filled in and `new` leaves out.
pub(super) fn says_the_same(old: &ContainerRecreateRequestSpec, new: &ContainerRecreateRequestSpec) -> bool {
    let mut restored = new.clone();
    if let Some(kept) = &old.strategy {
        let strategy = restored.strategy.get_or_insert_default();
        strategy.failure_policy = strategy.failure_policy.or(kept.failure_policy);
        strategy.termination_grace_period_seconds =
            strategy.termination_grace_period_seconds.or(kept.termination_grace_period_seconds);
    }
    for (container, kept) in restored.containers.iter_mut().zip(&old.containers) {
        if container.name != kept.name {
            return false;
        }
        container.pre_stop = container.pre_stop.take().or_else(|| kept.pre_stop.clone());
        container.status_context = container.status_context.take().or_else(|| kept.status_context.clone());
        if container.ports.is_empty() {
            container.ports.clone_from(&kept.ports);
        }
    }
    restored == *old
}

/// The JSON Patch that puts the stored spec in the place of one that [says the same](says_the_same). Both are as the API
/// server has them, since its rule compares them literally.
pub fn keep(stored: Option<&Value>, new: Option<&Value>) -> Vec<Value> {
    match stored {
        Some(spec) if new != stored => vec![json!({"op": "add", "path": "/spec", "value": spec})],
        _ => Vec::new(),
    }
}
