//! What can be refused from the request alone.
//!
//! Order and wording follow `OpenKruise`'s admission (its clients match on the texts); ours put the field's
//! path before. The admission webhook and the controller's planner call the same function, so a request that
//! slipped past an absent webhook is judged alike.

use std::collections::BTreeSet;

use super::{ContainerRecreateRequestSpec, MAX_CONTAINERS};
use crate::{Invalid, too_long};

/// The first reason to refuse the request, judged without the Pod.
pub fn validate(spec: &ContainerRecreateRequestSpec) -> Result<(), Invalid> {
    if spec.pod_name.is_empty() {
        return Err(Invalid::new("spec.podName", "podName can not be empty"));
    }
    if spec.containers.is_empty() {
        return Err(Invalid::new("spec.containers", "containers list can not be null"));
    }
    if spec.containers.len() > MAX_CONTAINERS {
        let text = format!("at most {MAX_CONTAINERS} containers, not {}", spec.containers.len());
        return Err(Invalid::new("spec.containers", text));
    }
    if spec.active_deadline_seconds.is_some_and(|seconds| seconds < 3) {
        return Err(Invalid::new(
            "spec.activeDeadlineSeconds",
            "activeDeadlineSeconds can not be less than 3s",
        ));
    }
    if spec.ttl_seconds_after_finished.is_some_and(|seconds| seconds < 0) {
        return Err(Invalid::new(
            "spec.ttlSecondsAfterFinished",
            "ttlSecondsAfterFinished must be non-negative integer",
        ));
    }
    strategy(spec)?;
    for (field, seconds) in durations(spec) {
        if let Some(text) = seconds.and_then(too_long) {
            return Err(Invalid::new(field, text));
        }
    }
    let mut seen = BTreeSet::new();
    for (i, container) in spec.containers.iter().enumerate() {
        if !seen.insert(container.name.as_str()) {
            let text = format!("can not recreate {} multi times", container.name);
            return Err(Invalid::new(format!("spec.containers[{i}].name"), text));
        }
    }
    Ok(())
}

fn strategy(spec: &ContainerRecreateRequestSpec) -> Result<(), Invalid> {
    let Some(strategy) = &spec.strategy else { return Ok(()) };
    let negative = [
        ("terminationGracePeriodSeconds", strategy.termination_grace_period_seconds.unwrap_or_default()),
        ("unreadyGracePeriodSeconds", strategy.unready_grace_period_seconds.unwrap_or_default()),
        ("minStartedSeconds", i64::from(strategy.min_started_seconds)),
    ]
    .into_iter()
    .find(|(_, seconds)| *seconds < 0);
    if let Some((name, _)) = negative {
        let text = format!("{name} must be non-negative integer");
        return Err(Invalid::new(format!("spec.strategy.{name}"), text));
    }
    Ok(())
}

/// Every duration that a request names, in seconds.
fn durations(spec: &ContainerRecreateRequestSpec) -> [(&'static str, Option<i64>); 5] {
    let strategy = spec.strategy.as_ref();
    [
        ("spec.activeDeadlineSeconds", spec.active_deadline_seconds),
        ("spec.ttlSecondsAfterFinished", spec.ttl_seconds_after_finished.map(i64::from)),
        (
            "spec.strategy.terminationGracePeriodSeconds",
            strategy.and_then(|s| s.termination_grace_period_seconds),
        ),
        ("spec.strategy.unreadyGracePeriodSeconds", strategy.and_then(|s| s.unready_grace_period_seconds)),
        ("spec.strategy.minStartedSeconds", strategy.map(|s| i64::from(s.min_started_seconds))),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::{FailurePolicy, Mechanism, RecreateContainer, RecreateStrategy};
    use super::*;

    fn good() -> ContainerRecreateRequestSpec {
        ContainerRecreateRequestSpec {
            pod_name: "web".into(),
            containers: vec![RecreateContainer { name: "app".into(), ..Default::default() }],
            ..Default::default()
        }
    }

    fn refused(change: impl FnOnce(&mut ContainerRecreateRequestSpec)) -> (String, String) {
        let mut spec = good();
        change(&mut spec);
        let invalid = validate(&spec).unwrap_err();
        (invalid.field, invalid.message)
    }

    fn refused_strategy(strategy: RecreateStrategy) -> (String, String) {
        refused(|s| s.strategy = Some(strategy))
    }

    #[test]
    fn a_plain_request_is_valid() {
        assert_eq!(validate(&good()), Ok(()));
        let mut spec = good();
        spec.active_deadline_seconds = Some(3);
        spec.ttl_seconds_after_finished = Some(0);
        spec.strategy = Some(RecreateStrategy {
            failure_policy: Some(FailurePolicy::Fail),
            termination_grace_period_seconds: Some(0),
            ordered_recreate: true,
            force_recreate: true,
            min_started_seconds: 5,
            unready_grace_period_seconds: Some(0),
            mechanism: Some(Mechanism::Kubelet),
        });
        assert_eq!(validate(&spec), Ok(()));
    }

    #[test]
    fn kruises_texts_stay() {
        assert_eq!(
            refused(|s| s.pod_name.clear()),
            ("spec.podName".into(), "podName can not be empty".into())
        );
        assert_eq!(
            refused(|s| s.containers.clear()),
            ("spec.containers".into(), "containers list can not be null".into())
        );
        assert_eq!(
            refused(|s| s.active_deadline_seconds = Some(2)),
            ("spec.activeDeadlineSeconds".into(), "activeDeadlineSeconds can not be less than 3s".into())
        );
        assert_eq!(
            refused(|s| s.containers.push(RecreateContainer { name: "app".into(), ..Default::default() })),
            ("spec.containers[1].name".into(), "can not recreate app multi times".into())
        );
        assert_eq!(
            refused_strategy(RecreateStrategy {
                termination_grace_period_seconds: Some(-1),
                ..Default::default()
            })
            .1,
            "terminationGracePeriodSeconds must be non-negative integer"
        );
    }

    #[test]
    fn negative_times_are_refused() {
        assert_eq!(refused(|s| s.ttl_seconds_after_finished = Some(-1)).0, "spec.ttlSecondsAfterFinished");
        let (field, _) = refused_strategy(RecreateStrategy { min_started_seconds: -1, ..Default::default() });
        assert_eq!(field, "spec.strategy.minStartedSeconds");
        let drain = RecreateStrategy { unready_grace_period_seconds: Some(-1), ..Default::default() };
        let (field, message) = refused_strategy(drain);
        assert_eq!(field, "spec.strategy.unreadyGracePeriodSeconds");
        assert_eq!(message, "unreadyGracePeriodSeconds must be non-negative integer");
    }

    /// Above 9223372036 s containerd's nanoseconds overflow, and it kills at once.
    #[test]
    fn absurd_times_are_refused_with_the_bound() {
        let of = |name: &str, seconds: i64| {
            let mut spec = serde_json::to_value(good()).unwrap();
            match name.split_once('.') {
                Some((strategy, field)) => spec[strategy] = serde_json::json!({field: seconds}),
                None => spec[name] = seconds.into(),
            }
            validate(&serde_json::from_value(spec).unwrap())
        };
        for name in [
            "activeDeadlineSeconds",
            "ttlSecondsAfterFinished",
            "strategy.terminationGracePeriodSeconds",
            "strategy.unreadyGracePeriodSeconds",
            "strategy.minStartedSeconds",
        ] {
            assert_eq!(of(name, 31_536_000), Ok(()), "{name}");
            let refused = of(name, 31_536_001).unwrap_err();
            assert_eq!(refused.field, format!("spec.{name}"));
            assert_eq!(refused.message, "must be at most 31536000 (365 days), not 31536001");
        }
    }

    #[test]
    fn the_number_of_containers_is_bounded() {
        let many = |n: usize| {
            (0..n).map(|i| RecreateContainer { name: format!("c{i}"), ..Default::default() }).collect()
        };
        let mut spec = good();
        spec.containers = many(MAX_CONTAINERS);
        assert_eq!(validate(&spec), Ok(()));
        assert_eq!(refused(|s| s.containers = many(MAX_CONTAINERS + 1)).0, "spec.containers");
    }
}
