//! Defaults that need nothing but the request itself.

use super::{ContainerRecreateRequestSpec, FailurePolicy};

/// Fills in what `OpenKruise`'s admission fills in without looking at the Pod: `strategy` and its
/// `failurePolicy`. `pod_grace_seconds` is the Pod's own grace period, taken when the request names none.
pub fn apply_defaults(spec: &mut ContainerRecreateRequestSpec, pod_grace_seconds: Option<i64>) {
    let strategy = spec.strategy.get_or_insert_default();
    strategy.failure_policy.get_or_insert(FailurePolicy::Fail);
    if strategy.termination_grace_period_seconds.is_none() {
        strategy.termination_grace_period_seconds = pod_grace_seconds;
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
}
