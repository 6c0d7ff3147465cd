//! What can be refused from the request alone. The API server's schema says the same; a request that slipped past an
//! older schema is judged alike.

use std::collections::BTreeSet;

use super::{ContainerImage, MAX_CONTAINERS, MAX_IMAGE, MAX_STEP_SECONDS, PodImageUpdateSpec};
use crate::image::Reference;
use crate::text::quoted;
use crate::{Invalid, MAX_SECONDS};

/// The first reason to refuse the request, judged without the Pod.
pub fn validate(spec: &PodImageUpdateSpec) -> Result<(), Invalid> {
    if spec.pod_ref.name.is_empty() {
        return Err(Invalid::new("spec.podRef.name", "must name a Pod of the namespace"));
    }
    if spec.containers.is_empty() || spec.containers.len() > MAX_CONTAINERS {
        let text = format!("must name 1 to {MAX_CONTAINERS} containers, not {}", spec.containers.len());
        return Err(Invalid::new("spec.containers", text));
    }
    durations(spec)?;
    images("spec.containers", &spec.containers)
}

/// Every duration is within its bounds.
fn durations(spec: &PodImageUpdateSpec) -> Result<(), Invalid> {
    let bounds = [
        ("pullTimeoutSeconds", spec.pull_timeout_seconds, 1, MAX_STEP_SECONDS),
        ("unreadyGracePeriodSeconds", spec.unready_grace_period_seconds, 0, MAX_SECONDS),
        ("readyTimeoutSeconds", spec.ready_timeout_seconds, 1, MAX_STEP_SECONDS),
        ("observeSeconds", spec.observe_seconds, 0, MAX_STEP_SECONDS),
        ("activeDeadlineSeconds", spec.active_deadline_seconds, 3, MAX_SECONDS),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished.map(i64::from), 0, MAX_SECONDS),
    ];
    for (field, value, least, most) in bounds {
        if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
            let text = format!("must be between {least} and {most}, not {value}");
            return Err(Invalid::new(format!("spec.{field}"), text));
        }
    }
    Ok(())
}

/// Each container is named once, with an image; `field`: where they are.
pub(crate) fn images(field: &str, containers: &[ContainerImage]) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for (i, container) in containers.iter().enumerate() {
        let at = format!("{field}[{i}]");
        if container.name.is_empty() {
            return Err(Invalid::new(format!("{at}.name"), "must name a container of the Pod"));
        }
        if !seen.insert(container.name.as_str()) {
            let text = format!("{} is named twice", quoted(&container.name));
            return Err(Invalid::new(format!("{at}.name"), text));
        }
        if container.image.len() > MAX_IMAGE {
            let text = format!("must be at most {MAX_IMAGE} bytes long");
            return Err(Invalid::new(format!("{at}.image"), text));
        }
        Reference::parse(&container.image).map_err(|why| Invalid::new(format!("{at}.image"), why))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(spec: Value) -> Result<(), String> {
        let spec: PodImageUpdateSpec = serde_json::from_value(spec).unwrap();
        validate(&spec).map_err(|invalid| invalid.to_string())
    }

    fn named(containers: &Value) -> Value {
        json!({"podRef": {"name": "web"}, "containers": containers})
    }

    #[test]
    fn what_is_meant_is_taken() {
        let mut spec = named(&json!([{"name": "app", "image": "registry.example.com:5000/shop/web:v2"}]));
        assert_eq!(judged(spec.clone()), Ok(()));
        spec["observeSeconds"] = json!(0);
        spec["unreadyGracePeriodSeconds"] = json!(0);
        assert_eq!(judged(spec), Ok(()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let app = |image: &str| json!({"name": "app", "image": image});
        let with = |field: &str, value: i64| {
            let mut spec = named(&json!([app("web:v2")]));
            spec[field] = json!(value);
            spec
        };
        let many: Vec<Value> = (0..9).map(|i| json!({"name": format!("c{i}"), "image": "web:v2"})).collect();
        for (spec, why) in [
            (json!({"podRef": {"name": ""}, "containers": [app("web:v2")]}), "spec.podRef.name: must name"),
            (named(&json!([])), "spec.containers: must name 1 to 8 containers, not 0"),
            (named(&json!(many)), "spec.containers: must name 1 to 8 containers, not 9"),
            (
                named(&json!([app("web:v2"), app("web:v3")])),
                "spec.containers[1].name: \"app\" is named twice",
            ),
            (named(&json!([{"name": "", "image": "web"}])), "spec.containers[0].name: must name"),
            (named(&json!([app("")])), "spec.containers[0].image: "),
            (named(&json!([app("Web:v2")])), "spec.containers[0].image: "),
            (named(&json!([app(&"a".repeat(513))])), "spec.containers[0].image: must be at most 512"),
            (with("pullTimeoutSeconds", 0), "spec.pullTimeoutSeconds: must be between 1 and 86400, not 0"),
            (with("observeSeconds", 86_401), "spec.observeSeconds: must be between 0 and 86400, not 86401"),
            (with("readyTimeoutSeconds", 0), "spec.readyTimeoutSeconds: "),
            (with("activeDeadlineSeconds", 2), "spec.activeDeadlineSeconds: must be between 3"),
            (with("ttlSecondsAfterFinished", -1), "spec.ttlSecondsAfterFinished: "),
            (with("unreadyGracePeriodSeconds", -1), "spec.unreadyGracePeriodSeconds: "),
        ] {
            let error = judged(spec).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
    }
}
