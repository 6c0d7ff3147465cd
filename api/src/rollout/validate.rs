//! What can be refused from the rollout alone. The API server's schema says the same; one that slipped past an older schema
//! is judged alike.

use std::collections::BTreeSet;

use super::{
    ContainerAmounts, InPlaceRolloutSpec, MAX_ANNOTATION, MAX_ANNOTATIONS, MAX_CONTAINERS, MAX_LABELS,
    MAX_SOAK_SECONDS, PodSelector,
};
use crate::image_update;
use crate::text::quoted;
use crate::{Invalid, MAX_SECONDS};

/// The first reason to refuse the rollout, judged without its workload.
pub fn validate(spec: &InPlaceRolloutSpec) -> Result<(), Invalid> {
    match (&spec.target_ref, &spec.selector) {
        (Some(target), None) if target.name.is_empty() => {
            return Err(Invalid::new("spec.targetRef.name", "must name a workload of the namespace"));
        }
        (Some(_), None) => no_wishes(spec)?,
        (None, Some(selector)) => selected(spec, selector)?,
        (Some(_), Some(_)) | (None, None) => {
            return Err(Invalid::new("spec", "must have one of targetRef and selector"));
        }
    }
    if spec.restarted_at.as_ref().is_some_and(|at| at.is_empty() || at.chars().count() > 64) {
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

/// What the Pods of a workload are to have, its template says.
fn no_wishes(spec: &InPlaceRolloutSpec) -> Result<(), Invalid> {
    for (field, is) in
        [("spec.images", !spec.images.is_empty()), ("spec.resources", !spec.resources.is_empty())]
    {
        if is {
            return Err(Invalid::new(
                field,
                "is for spec.selector: a workload's template says what its Pods are to have",
            ));
        }
    }
    Ok(())
}

/// What is asked for of selected Pods.
fn selected(spec: &InPlaceRolloutSpec, selector: &PodSelector) -> Result<(), Invalid> {
    let labels = &selector.match_labels;
    if labels.is_empty() || labels.len() > MAX_LABELS {
        let text = format!("must have 1 to {MAX_LABELS} labels, not {}", labels.len());
        return Err(Invalid::new("spec.selector.matchLabels", text));
    }
    let plain = |text: &str, also: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c));
    for (name, value) in labels {
        if name.is_empty() || name.len() > MAX_ANNOTATION || !plain(name, "-_./") {
            let text = format!("{} is not the name of a label", quoted(name));
            return Err(Invalid::new("spec.selector.matchLabels", text));
        }
        if value.len() > 63 || !plain(value, "-_.") {
            let text = format!(
                "{} is not the value of a label: at most 63 letters, digits, -, _ and .",
                quoted(value)
            );
            return Err(Invalid::new(format!("spec.selector.matchLabels.{name}"), text));
        }
    }
    let template = |field: &str, is: bool, must: &str| {
        let text = || format!("must be {must} with spec.selector: there is no template");
        if is { Err(Invalid::new(field, text())) } else { Ok(()) }
    };
    template("spec.templateChanges", spec.changes_in_place(), "Native")?;
    template("spec.restartAnnotations", !spec.restart_annotations.is_empty(), "absent")?;
    if spec.rolls_back() {
        let text = "must be Pause with spec.selector: what other Pods had before is not kept";
        return Err(Invalid::new("spec.strategy.onFailure", text));
    }
    image_update::images("spec.images", &spec.images)?;
    let mut seen = BTreeSet::new();
    for (i, ContainerAmounts { name, resources }) in spec.resources.iter().enumerate() {
        let at = format!("spec.resources[{i}]");
        if name.is_empty() || !seen.insert(name.as_str()) {
            return Err(Invalid::new(format!("{at}.name"), "must name a container, and each once"));
        }
        resources.read().map_err(|(field, why)| Invalid::new(format!("{at}.resources.{field}"), why))?;
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
        assert_eq!(
            judged(|spec| spec["restartedAt"] = json!("\u{e9}".repeat(64))),
            Ok(()),
            "the schema counts characters"
        );
        assert_eq!(judged(|spec| spec["strategy"]["soakSeconds"] = json!(0)), Ok(()));
    }

    fn selects(change: impl FnOnce(&mut Value)) -> Result<(), String> {
        judged(|spec| {
            *spec = json!({"selector": {"matchLabels": {"app.kubernetes.io/name": "web", "empty": ""}},
                "images": [{"name": "app", "image": "web:2"}],
                "resources": [{"name": "app", "resources": {"requests": {"cpu": "500m"}}}]});
            change(spec);
        })
    }

    #[test]
    fn what_is_asked_for_of_selected_pods_is_judged() {
        assert_eq!(selects(|_| {}), Ok(()));
        let with = |field: &'static str, value: Value| selects(move |spec| spec[field] = value);
        let label = |name: &str, value: &str| with("selector", json!({"matchLabels": {name: value}}));
        let cpu = |cpu: &str| json!([{"name": "app", "resources": {"limits": {"cpu": cpu}}}]);
        for (judged, why) in [
            (
                with("selector", json!({"matchLabels": {}})),
                "spec.selector.matchLabels: must have 1 to 16 labels, not 0",
            ),
            (label("a b", "c"), "spec.selector.matchLabels: \"a b\" is not the name of a label"),
            (label("a", "c,d=e"), "spec.selector.matchLabels.a: \"c,d=e\" is not the value of a label"),
            (with("images", json!([{"name": "app", "image": "Web"}])), "spec.images[0].image: "),
            (
                with("resources", cpu("+20%")),
                "spec.resources[0].resources.limits.cpu: \"+20%\" is no amount of cpu",
            ),
            (with("resources", json!([{"name": "", "resources": {}}])), "spec.resources[0].name: must name"),
            (
                with("resources", json!([{"name": "app", "resources": {"limits": {"gpu": "1"}}}])),
                "spec.resources[0].resources.limits.gpu: only cpu and memory",
            ),
            (
                with("templateChanges", json!("InPlace")),
                "spec.templateChanges: must be Native with spec.selector",
            ),
            (
                with("restartAnnotations", json!(["a"])),
                "spec.restartAnnotations: must be absent with spec.selector",
            ),
            (
                with("strategy", json!({"onFailure": "RollBack"})),
                "spec.strategy.onFailure: must be Pause with",
            ),
            (
                selects(|spec| drop(spec.as_object_mut().unwrap().remove("selector"))),
                "spec: must have one of",
            ),
            (judged(|spec| spec["selector"] = json!({"matchLabels": {"a": "b"}})), "spec: must have one of"),
            (
                judged(|spec| spec["images"] = json!([{"name": "app", "image": "web:2"}])),
                "spec.images: is for spec.selector",
            ),
            (judged(|spec| spec["resources"] = cpu("1")), "spec.resources: is for spec.selector"),
        ] {
            let error = judged.unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
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
