//! What can be refused from the request alone. The API server's schema says the same; a request that slipped past an
//! older schema is judged alike.

use std::collections::BTreeSet;

use super::{Amount, ContainerResize, MAX_CONTAINERS, MemoryShrink, NewResources, PodResizeSpec};
use crate::quantity::Resource;
use crate::text::quoted;
use crate::{Invalid, too_long};

/// Smallest `memoryShrink.step`, in bytes.
const LEAST_STEP: i64 = 1 << 20;

/// The first reason to refuse the request, without its Pod.
pub fn validate(spec: &PodResizeSpec) -> Result<(), Invalid> {
    if spec.pod_ref.name.is_empty() {
        return Err(Invalid::new("spec.podRef.name", "must name a Pod of the namespace"));
    }
    if spec.containers.is_empty() || spec.containers.len() > MAX_CONTAINERS {
        let text = format!("must name 1 to {MAX_CONTAINERS} containers, not {}", spec.containers.len());
        return Err(Invalid::new("spec.containers", text));
    }
    durations(spec)?;
    spec.memory_shrink.as_ref().map_or(Ok(()), shrinking)?;
    containers(&spec.containers)
}

/// Every duration is within its bounds.
fn durations(spec: &PodResizeSpec) -> Result<(), Invalid> {
    let bounds = [
        ("spec.activeDeadlineSeconds", spec.active_deadline_seconds, 3),
        ("spec.ttlSecondsAfterFinished", spec.ttl_seconds_after_finished.map(i64::from), 0),
        ("spec.onInfeasible.waitSeconds", spec.on_infeasible.as_ref().and_then(|i| i.wait_seconds), 0),
        ("spec.onDeferred.waitSeconds", spec.on_deferred.as_ref().map(|d| d.wait_seconds), 0),
        (
            "spec.rollbackOnFailure.observeSeconds",
            spec.rollback_on_failure.as_ref().map(|r| r.observe_seconds),
            1,
        ),
    ];
    for (field, value, least) in bounds {
        if let Some(value) = value.filter(|value| *value < least) {
            return Err(Invalid::new(field, format!("must be at least {least}, not {value}")));
        }
        if let Some(text) = value.and_then(too_long) {
            return Err(Invalid::new(field, text));
        }
    }
    Ok(())
}

/// The amounts of `memoryShrink` are valid.
fn shrinking(shrink: &MemoryShrink) -> Result<(), Invalid> {
    let of = |field: &str, text: Option<&String>, least: i64| {
        let Some(text) = text else { return Ok(()) };
        let why = match Resource::Memory.parse(text) {
            Some(amount) if amount >= least => return Ok(()),
            Some(_) => format!("must be at least {}, not {text}", Resource::Memory.show(least)),
            None => format!("{} is no amount of memory: write a quantity such as 64Mi", quoted(text)),
        };
        Err(Invalid::new(format!("spec.memoryShrink.{field}"), why))
    };
    of("margin", shrink.margin.as_ref(), 0)?;
    of("step", shrink.step.as_ref(), LEAST_STEP)
}

/// Each container is named once, with amounts.
fn containers(containers: &[ContainerResize]) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        let at = format!("spec.containers[{i}]");
        if !seen.insert(container.name.as_str()) {
            let text = format!("{} is named twice", quoted(&container.name));
            return Err(Invalid::new(format!("{at}.name"), text));
        }
        let at = format!("{at}.resources");
        let NewResources { requests, limits } = &container.resources;
        if requests.is_empty() && limits.is_empty() {
            return Err(Invalid::new(at, "must name at least one of requests and limits"));
        }
        for (list, amounts) in [("requests", requests), ("limits", limits)] {
            for (resource, amount) in amounts {
                amount_of(resource, amount)
                    .map_err(|message| Invalid::new(format!("{at}.{list}.{resource}"), message))?;
            }
        }
    }
    Ok(())
}

/// Refuses an amount that is wrong for every container.
fn amount_of(resource: &str, amount: &Amount) -> Result<(), String> {
    let known = Resource::ALL.into_iter().find(|known| known.as_str() == resource);
    let known = known.ok_or_else(|| "only cpu and memory can be resized in place".to_owned())?;
    amount.resolve(known, Some(1)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(spec: Value) -> Result<(), String> {
        let spec: PodResizeSpec = serde_json::from_value(spec).unwrap();
        validate(&spec).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn what_is_meant_is_taken() {
        for containers in [
            json!([{"name": "app", "resources": {"requests": {"cpu": "+20%", "memory": "1Gi"}, "limits": {"cpu": 2}}}]),
            json!([{"name": "app", "resources": {"limits": {"memory": "x1.5"}}}, {"name": "proxy", "resources": {"requests": {"cpu": "10m"}}}]),
        ] {
            assert_eq!(judged(json!({"podRef": {"name": "web"}, "containers": containers})), Ok(()));
        }
    }

    #[test]
    fn each_refusal_names_the_field_and_what_would_be_right() {
        let app = json!([{"name": "app", "resources": {"limits": {"cpu": "1"}}}]);
        let many: Vec<Value> = (0..65)
            .map(|i| json!({"name": format!("c{i}"), "resources": {"limits": {"cpu": "1"}}}))
            .collect();
        for (spec, why) in [
            (json!({"podRef": {"name": ""}, "containers": app}), "spec.podRef.name: must name a Pod"),
            (
                json!({"podRef": {"name": "web"}, "containers": []}),
                "spec.containers: must name 1 to 64 containers, not 0",
            ),
            (json!({"podRef": {"name": "web"}, "containers": many}), "not 65"),
            (
                json!({"podRef": {"name": "web"}, "containers": [app[0], app[0]]}),
                "spec.containers[1].name: \"app\" is named twice",
            ),
            (
                json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "resources": {}}]}),
                "spec.containers[0].resources: must name at least one",
            ),
            (
                json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "resources": {"requests": {"nvidia.com/gpu": 1}}}]}),
                "spec.containers[0].resources.requests.nvidia.com/gpu: only cpu and memory",
            ),
            (
                json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "resources": {"limits": {"memory": "lots"}}}]}),
                "spec.containers[0].resources.limits.memory: \"lots\" is no amount of memory: write a quantity such as 256Mi",
            ),
            (
                json!({"podRef": {"name": "web"}, "containers": app, "activeDeadlineSeconds": 2}),
                "spec.activeDeadlineSeconds: must be at least 3, not 2",
            ),
            (
                json!({"podRef": {"name": "web"}, "containers": app, "onDeferred": {"waitSeconds": 31_536_001}}),
                "spec.onDeferred.waitSeconds: must be at most 31536000 (365 days), not 31536001",
            ),
            (
                json!({"podRef": {"name": "web"}, "containers": app, "rollbackOnFailure": {"observeSeconds": 0}}),
                "spec.rollbackOnFailure.observeSeconds: must be at least 1, not 0",
            ),
            (
                json!({"podRef": {"name": "web"}, "containers": app, "onInfeasible": {"waitSeconds": -1}}),
                "spec.onInfeasible.waitSeconds: must be at least 0, not -1",
            ),
            (
                json!({"podRef": {"name": "web"}, "containers": app, "memoryShrink": {"margin": "-1Mi"}}),
                "spec.memoryShrink.margin: \"-1Mi\" is no amount of memory: write a quantity such as 64Mi",
            ),
            (
                json!({"podRef": {"name": "web"}, "containers": app, "memoryShrink": {"step": "1000Ki"}}),
                "spec.memoryShrink.step: must be at least 1Mi, not 1000Ki",
            ),
        ] {
            let error = judged(spec).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
