//! Which Pods may be evicted.

use pitstop_api::resize::{AfterWait, LastResort, PodResizeSpec};

use crate::pod::Pod;

/// The field that requests an eviction, if any.
pub(super) fn eviction_field(spec: &PodResizeSpec) -> Option<&'static str> {
    if spec.on_deferred.as_ref().is_some_and(|d| d.then == Some(AfterWait::Evict)) {
        return Some("spec.onDeferred.then");
    }
    let last = spec.on_infeasible.as_ref().is_some_and(|i| i.then == Some(LastResort::Evict));
    last.then_some("spec.onInfeasible.then")
}

/// Why the Pod must not be evicted; `None` if it may be.
pub(super) fn refusal_to_evict(pod: &Pod) -> Option<String> {
    match pod.controller.as_ref().map(|controller| &*controller.kind) {
        None => Some(format!(
            "Pod {} is not evicted: it belongs to no workload that would make another one; take Fail",
            pod.key
        )),
        Some("DaemonSet") => Some(format!(
            "Pod {} is not evicted: its DaemonSet would make another one on the same node; take Fail",
            pod.key
        )),
        Some(_) => None,
    }
}
