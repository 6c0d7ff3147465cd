//! How the API server treats an object by its kind: reading, defaults, fields that an endpoint does not
//! write, validation.

mod defaults;
pub(super) mod resize;
mod validate;

use serde_json::{Map, Value, json};

use super::failure::{Checked, Failure};
use super::kinds::{Family, Kind};
use super::meta;

pub(super) use self::validate::validate;

/// Reads an object: refuses fields of a wrong type, drops unknown and empty fields, sets defaults.
pub(super) fn decode(kind: &Kind, object: &mut Value) -> Checked<()> {
    if let Some(field) = meta::type_error(object) {
        return Err(Failure::bad_request(format!("cannot decode {field}")));
    }
    meta::normalize(object);
    if let Some(schema) = &kind.schema {
        schema.coerce(object);
    } else {
        without_nulls(object);
        defaults::fill(kind.family, object)?;
    }
    Ok(())
}

/// Drops nulls and empty lists, which built-in kinds do not have.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| {
                without_nulls(value);
                !value.is_null() && !value.as_array().is_some_and(Vec::is_empty)
            });
        }
        Value::Array(list) => list.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Sets and removes what a create does.
pub(super) fn prepare_create(kind: &Kind, object: &mut Value) {
    match kind.family {
        Family::Pod => {
            let mut status = json!({ "phase": "Pending", "qosClass": qos(object) });
            if object["spec"]["schedulingGates"].is_array() {
                status["conditions"] = json!([{ "type": "PodScheduled", "status": "False",
                    "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates" }]);
            }
            object["status"] = status;
            meta::set(object, "generation", Some(1.into()));
        }
        Family::Namespace => {
            object["status"] = json!({ "phase": "Active" });
            let spec = part(object, "spec");
            let mut finalizers =
                spec.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
            if !finalizers.iter().any(|f| f == "kubernetes") {
                finalizers.push("kubernetes".into());
            }
            spec.insert("finalizers".to_owned(), Value::Array(finalizers));
        }
        Family::Custom => {
            if kind.status {
                object.as_object_mut().unwrap().remove("status");
            }
            // An object that is read from storage has its defaults.
            if let Some(schema) = &kind.schema {
                schema.coerce(object);
            }
            meta::set(object, "generation", Some(1.into()));
        }
        Family::Node | Family::ConfigMap | Family::Event | Family::Lease | Family::Bounds => {}
        Family::Workload => meta::set(object, "generation", Some(1.into())),
    }
}

/// Keeps the stored fields that the endpoint does not write, and raises the generation.
pub(super) fn prepare_update(kind: &Kind, subresource: &str, new: &mut Value, old: &Value) {
    let keep = |new: &mut Value, field: &str| match old.get(field) {
        Some(value) => {
            new[field] = value.clone();
        }
        None => {
            new.as_object_mut().unwrap().remove(field);
        }
    };
    match (kind.family, subresource) {
        (Family::Custom, "status") => {
            let status = new.as_object_mut().unwrap().remove("status");
            *new = old.clone();
            match status {
                Some(status) => new["status"] = status,
                None => drop(new.as_object_mut().unwrap().remove("status")),
            }
        }
        (Family::Custom, _) => {
            if kind.status {
                keep(new, "status");
            }
            let differs = |a: &Value, b: &Value| {
                let other = |v: &Value| v.as_object().unwrap().keys().filter(|k| *k != "metadata").count();
                other(a) != other(b)
                    || a.as_object().unwrap().iter().any(|(k, v)| k != "metadata" && b.get(k) != Some(v))
            };
            if differs(new, old) {
                meta::bump_generation(new);
            }
        }
        (Family::Pod, "status") => {
            keep(new, "spec");
            meta::set(new, "deletionTimestamp", None);
            meta::set(new, "ownerReferences", meta::get(old, "ownerReferences").cloned());
            if new["status"]["qosClass"].as_str().unwrap_or_default().is_empty()
                && let Some(class) = old["status"].get("qosClass")
            {
                new["status"]["qosClass"] = class.clone();
            }
        }
        (Family::Pod, "resize") => resize::take_over(new, old),
        (Family::Pod, _) => {
            keep(new, "status");
            if new["spec"] != old["spec"] {
                meta::bump_generation(new);
            }
        }
        (Family::Node | Family::Namespace, "status") => keep(new, "spec"),
        (Family::Namespace, "finalize") | (Family::Node, _) => keep(new, "status"),
        (Family::Namespace, _) => {
            keep(new, "status");
            match old["spec"].get("finalizers") {
                Some(finalizers) => new["spec"]["finalizers"] = finalizers.clone(),
                None => drop(part(new, "spec").remove("finalizers")),
            }
        }
        (Family::Workload, _) => {
            keep(new, "status");
            if new["spec"] != old["spec"] {
                meta::bump_generation(new);
            }
        }
        (Family::ConfigMap | Family::Event | Family::Lease | Family::Bounds, _) => {}
    }
}

/// Whether the kind lets an object go: a namespace only once its own finalizers are gone.
pub(super) fn may_vanish(kind: &Kind, object: &Value) -> bool {
    kind.family != Family::Namespace || object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

/// A part that is an object; created if it is missing.
fn part<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let part = object.as_object_mut().unwrap().entry(field).or_insert_with(|| Value::Object(Map::new()));
    part.as_object_mut().unwrap()
}

/// Quality of service of a Pod.
fn qos(pod: &Value) -> &'static str {
    let mut any = false;
    let mut all = true;
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array().into_iter().flatten() {
            for resource in ["cpu", "memory"] {
                let limit = &container["resources"]["limits"][resource];
                let request = &container["resources"]["requests"][resource];
                any |= !limit.is_null() || !request.is_null();
                all &= !limit.is_null() && (request.is_null() || request == limit);
            }
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
