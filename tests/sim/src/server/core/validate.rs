//! Validation of objects by kind.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::server::failure::Invalid;
use crate::server::kinds::{Family, Kind};
use crate::server::meta;

/// Collects the errors of an object, compared with the stored one if it exists.
pub(in crate::server) fn validate(kind: &Kind, new: &Value, old: Option<&Value>, errors: &mut Vec<Invalid>) {
    match kind.family {
        Family::Custom => kind.schema.as_ref().unwrap().validate(new, old, errors),
        Family::Pod => pod(new, old, errors),
        Family::Lease => lease(new, errors),
        Family::Event => event(new, old, errors),
        Family::ConfigMap => config_map(new, old, errors),
        Family::Node | Family::Namespace | Family::Bounds | Family::Workload => {}
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

fn pod(new: &Value, old: Option<&Value>, errors: &mut Vec<Invalid>) {
    let containers = new["spec"]["containers"].as_array().map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        errors.push(Invalid::new("FieldValueRequired", "spec.containers", "Required value"));
    }
    let mut names = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        for field in ["name", "image"] {
            if text(container, field).is_empty() {
                let path = format!("spec.containers[{index}].{field}");
                errors.push(Invalid::new("FieldValueRequired", path, "Required value"));
            }
        }
        if !names.insert(text(container, "name")) {
            let path = format!("spec.containers[{index}].name");
            errors.push(Invalid::new("FieldValueDuplicate", path, "Duplicate value"));
        }
    }
    if let Some(old) = old.filter(|old| old["spec"] != new["spec"])
        && fixed(&new["spec"]) != fixed(&old["spec"])
    {
        let why = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
                   `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                   existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        errors.push(Invalid::new("FieldValueForbidden", "spec", why));
    }
    if let Some(old) = old {
        let deadline = |pod: &Value| pod["spec"]["activeDeadlineSeconds"].as_i64();
        if deadline(old).is_some_and(|before| deadline(new).is_none_or(|now| now > before)) {
            errors.push(Invalid::new(
                "FieldValueInvalid",
                "spec.activeDeadlineSeconds",
                "must not grow or vanish",
            ));
        }
        let gates = |pod: &Value| pod["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
        let before = gates(old);
        if gates(new).iter().any(|gate| !before.contains(gate)) {
            errors.push(Invalid::new(
                "FieldValueForbidden",
                "spec.schedulingGates",
                "only deletion is allowed",
            ));
        }
        let tolerations = |pod: &Value| pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        let now = tolerations(new);
        if tolerations(old).iter().any(|one| !now.contains(one)) {
            errors.push(Invalid::new(
                "FieldValueForbidden",
                "spec.tolerations",
                "only additions are allowed",
            ));
        }
    }
}

/// The part of a Pod's spec that never changes.
fn fixed(spec: &Value) -> Value {
    let mut spec = spec.clone();
    let map = spec.as_object_mut().unwrap();
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        map.remove(field);
    }
    for list in ["containers", "initContainers"] {
        for container in map.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container.as_object_mut().unwrap().remove("image");
        }
    }
    spec
}

fn lease(new: &Value, errors: &mut Vec<Invalid>) {
    let number = |field: &str| new["spec"][field].as_i64();
    if number("leaseDurationSeconds").is_some_and(|n| n <= 0) {
        let why = "Invalid value: must be greater than 0";
        errors.push(Invalid::new("FieldValueInvalid", "spec.leaseDurationSeconds", why));
    }
    if number("leaseTransitions").is_some_and(|n| n < 0) {
        let why = "Invalid value: must be greater than or equal to 0";
        errors.push(Invalid::new("FieldValueInvalid", "spec.leaseTransitions", why));
    }
}

fn config_map(new: &Value, old: Option<&Value>, errors: &mut Vec<Invalid>) {
    for field in ["data", "binaryData"] {
        for key in new[field].as_object().into_iter().flatten().map(|(key, _)| key) {
            let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if key.is_empty() || key.len() > 253 || !key.bytes().all(fine) {
                errors.push(Invalid::new("FieldValueInvalid", format!("{field}[{key}]"), "Invalid value"));
            }
        }
    }
    if let Some(old) = old.filter(|old| old["immutable"] == true) {
        for field in ["immutable", "data", "binaryData"] {
            if new[field] != old[field] {
                let why = "Forbidden: field is immutable when `immutable` is set";
                errors.push(Invalid::new("FieldValueForbidden", field, why));
            }
        }
    }
}

/// Fields of an `events.k8s.io/v1` Event that never change.
const EVENT: [&str; 9] = [
    "regarding",
    "related",
    "reason",
    "note",
    "type",
    "eventTime",
    "action",
    "reportingController",
    "reportingInstance",
];

fn event(new: &Value, old: Option<&Value>, errors: &mut Vec<Invalid>) {
    let mut refuse = |field: &str, why: &str| errors.push(Invalid::new("FieldValueInvalid", field, why));
    if let Some(old) = old {
        for field in EVENT {
            if new[field] != old[field] {
                refuse(field, "Invalid value: field is immutable");
            }
        }
        return;
    }
    let namespace = text(&new["regarding"], "namespace");
    let own = meta::text(new, "namespace");
    if namespace != own && !(namespace.is_empty() && matches!(own, "default" | "kube-system")) {
        refuse("involvedObject.namespace", "Invalid value: does not match event.namespace");
    }
    for field in ["eventTime", "reportingController", "reportingInstance", "action", "reason"] {
        if text(new, field).is_empty() {
            refuse(field, "Required value");
        }
    }
    if !matches!(text(new, "type"), "Normal" | "Warning") {
        refuse("type", "Invalid value: must be one of Normal, Warning");
    }
    if text(new, "note").len() > 1024 {
        refuse("message", "can have at most 1024 bytes");
    }
}
