//! What can be refused from the rollout alone. The API server's schema says the same; one that slipped past an older schema
//! is judged alike.

use std::collections::BTreeSet;

use super::{InPlaceRolloutSpec, MAX_ANNOTATION, MAX_ANNOTATIONS, MAX_CONTAINERS, MAX_SOAK_SECONDS};
use crate::text::quoted;
use crate::{Invalid, MAX_SECONDS};

/// The first reason to refuse the rollout, judged without its workload.
pub fn validate(spec: &InPlaceRolloutSpec) -> Result<(), Invalid> {
    if spec.target_ref.name.is_empty() {
        return Err(Invalid::new("spec.targetRef.name", "must name a workload of the namespace"));
    }
    if spec.restarted_at.as_ref().is_some_and(|at| at.is_empty() || at.len() > 64) {
        return Err(Invalid::new("spec.restartedAt", "must be a time of 1 to 64 characters"));
    }
    containers(spec)?;
    annotations(&spec.restart_annotations)?;
    let strategy = spec.strategy.as_ref();
    if let Some(most) = strategy.and_then(|strategy| strategy.max_unavailable.as_ref()) {
        most.check().map_err(|why| Invalid::new("spec.strategy.maxUnavailable", why))?;
    }
    let canary = strategy.and_then(|strategy| strategy.canary.as_ref());
    let numbers = [
        ("progressDeadlineSeconds", spec.progress_deadline_seconds, 1, MAX_SECONDS),
        ("strategy.soakSeconds", strategy.and_then(|s| s.soak_seconds), 0, MAX_SOAK_SECONDS),
        (
            "strategy.unreadyGracePeriodSeconds",
            strategy.and_then(|s| s.unready_grace_period_seconds),
            0,
            MAX_SECONDS,
        ),
        ("strategy.failureThreshold", strategy.and_then(|s| s.failure_threshold.map(i64::from)), 1, 1000),
        ("strategy.canary.pods", canary.map(|canary| canary.pods.into()), 1, 1000),
        ("strategy.canary.soakSeconds", canary.and_then(|canary| canary.soak_seconds), 0, MAX_SOAK_SECONDS),
    ];
    for (field, value, least, most) in numbers {
        if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
            let text = format!("must be between {least} and {most}, not {value}");
            return Err(Invalid::new(format!("spec.{field}"), text));
        }
    }
    Ok(())
}

/// Each container is named once.
fn containers(spec: &InPlaceRolloutSpec) -> Result<(), Invalid> {
    let named = spec.restart.as_ref().map_or(&[][..], |restart| &restart.containers);
    if named.len() > MAX_CONTAINERS {
        let text = format!("must name at most {MAX_CONTAINERS} containers, not {}", named.len());
        return Err(Invalid::new("spec.restart.containers", text));
    }
    let mut seen = BTreeSet::new();
    for (i, name) in named.iter().enumerate() {
        let at = format!("spec.restart.containers[{i}]");
        if name.is_empty() {
            return Err(Invalid::new(at, "must name a container of the Pods"));
        }
        if !seen.insert(name.as_str()) {
            return Err(Invalid::new(at, format!("{} is named twice", quoted(name))));
        }
    }
    Ok(())
}

/// Each is the name of an annotation, and not one of pitstop's own.
fn annotations(named: &[String]) -> Result<(), Invalid> {
    const FIELD: &str = "spec.restartAnnotations";
    if named.len() > MAX_ANNOTATIONS {
        let text = format!("must name at most {MAX_ANNOTATIONS} annotations, not {}", named.len());
        return Err(Invalid::new(FIELD, text));
    }
    let mut seen = BTreeSet::new();
    for (i, name) in named.iter().enumerate() {
        let at = format!("{FIELD}[{i}]");
        let own = name.strip_prefix("pitstop.dev").is_some_and(|rest| rest.starts_with('/'));
        if name.is_empty() || name.len() > MAX_ANNOTATION || own {
            let text = format!("must be the name of an annotation of others, not {}", quoted(name));
            return Err(Invalid::new(at, text));
        }
        if !seen.insert(name.as_str()) {
            return Err(Invalid::new(at, format!("{} is named twice", quoted(name))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(change: impl FnOnce(&mut Value)) -> Result<(), String> {
        let mut spec = json!({"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "restart": {}, "strategy": {"canary": {"pods": 1}}});
        change(&mut spec);
        let spec: InPlaceRolloutSpec = serde_json::from_value(spec).unwrap();
        validate(&spec).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn what_is_meant_is_taken() {
        assert_eq!(judged(|_| {}), Ok(()));
        assert_eq!(judged(|spec| spec["strategy"]["maxUnavailable"] = json!("25%")), Ok(()));
        assert_eq!(judged(|spec| spec["restartedAt"] = json!("2026-11-22T10:00:00Z")), Ok(()));
        assert_eq!(judged(|spec| spec["strategy"]["soakSeconds"] = json!(0)), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let at = |path: &'static [&'static str], value: Value| {
            judged(move |spec| {
                let field = path.iter().fold(spec, |at, key| &mut at[*key]);
                *field = value;
            })
        };
        for (judged, why) in [
            (at(&["targetRef", "name"], json!("")), "spec.targetRef.name: must name"),
            (at(&["restartedAt"], json!("")), "spec.restartedAt: "),
            (at(&["restartedAt"], json!("9".repeat(65))), "spec.restartedAt: "),
            (at(&["restart", "containers"], json!([""])), "spec.restart.containers[0]: must name"),
            (
                at(&["restart", "containers"], json!(["a", "a"])),
                "spec.restart.containers[1]: \"a\" is named twice",
            ),
            (
                at(&["restart", "containers"], json!(vec!["a"; 65])),
                "spec.restart.containers: must name at most 64",
            ),
            (
                at(&["strategy", "maxUnavailable"], json!(0)),
                "spec.strategy.maxUnavailable: must be at least 1",
            ),
            (
                at(&["strategy", "soakSeconds"], json!(86_401)),
                "spec.strategy.soakSeconds: must be between 0 and 86400",
            ),
            (at(&["strategy", "failureThreshold"], json!(0)), "spec.strategy.failureThreshold: "),
            (
                at(&["strategy", "unreadyGracePeriodSeconds"], json!(-1)),
                "spec.strategy.unreadyGracePeriodSeconds: ",
            ),
            (
                at(&["strategy", "canary", "pods"], json!(0)),
                "spec.strategy.canary.pods: must be between 1 and 1000",
            ),
            (at(&["strategy", "canary", "soakSeconds"], json!(-1)), "spec.strategy.canary.soakSeconds: "),
            (at(&["progressDeadlineSeconds"], json!(0)), "spec.progressDeadlineSeconds: "),
            (
                at(&["restartAnnotations"], json!(["a/b", "pitstop.dev/void"])),
                "spec.restartAnnotations[1]: must be the name of an annotation of others, not \"pitstop.dev/void\"",
            ),
            (at(&["restartAnnotations"], json!([""])), "spec.restartAnnotations[0]: must be"),
            (
                at(&["restartAnnotations"], json!(["a", "a"])),
                "spec.restartAnnotations[1]: \"a\" is named twice",
            ),
            (
                at(&["restartAnnotations"], json!(vec!["a"; 17])),
                "spec.restartAnnotations: must name at most 16",
            ),
        ] {
            let error = judged.unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
