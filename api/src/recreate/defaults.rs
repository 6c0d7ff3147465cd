//! Defaults that need nothing but the request itself.

use super::{ContainerRecreateRequestSpec, FailurePolicy};
use crate::MAX_SECONDS;

/// Fills in `strategy` and its `failurePolicy`, as `OpenKruise`'s admission does. If the request names no grace period,
/// it gets the Pod's own (`pod_grace_seconds`), but at most [`MAX_SECONDS`]: a Pod's own has no bound.
pub fn apply_defaults(spec: &mut ContainerRecreateRequestSpec, pod_grace_seconds: Option<i64>) {
    let strategy = spec.strategy.get_or_insert_default();
    strategy.failure_policy.get_or_insert(FailurePolicy::Fail);
    if strategy.termination_grace_period_seconds.is_none() {
        strategy.termination_grace_period_seconds = pod_grace_seconds.map(|seconds| seconds.min(MAX_SECONDS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_grace_period_stays_and_defaults_are_idempotent() {
        let mut spec = ContainerRecreateRequestSpec::default();
        apply_defaults(&mut spec, Some(30));
        let strategy = spec.strategy.clone().unwrap();
        assert_eq!(strategy.failure_policy, Some(FailurePolicy::Fail));
        assert_eq!(strategy.termination_grace_period_seconds, Some(30));
        let once = spec.clone();
        apply_defaults(&mut spec, Some(5));
        assert_eq!(spec, once);
    }

    #[test]
    fn the_grace_of_a_pod_is_taken_as_far_as_a_request_may_ask_for_it() {
        let mut spec = ContainerRecreateRequestSpec::default();
        apply_defaults(&mut spec, Some(9_223_372_037));
        assert_eq!(spec.strategy.unwrap().termination_grace_period_seconds, Some(MAX_SECONDS));
    }
}
