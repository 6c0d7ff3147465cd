//! The subresource `resize` of Pods: what it takes over and refuses. `dropNonResizeUpdates` of
//! `pkg/registry/core/pod/strategy.go` and `ValidatePodResize`, Kubernetes 1.36.

use pitstop_api::quantity::Resource;
use serde_json::{Map, Value, json};

use crate::server::failure::Invalid;
use crate::server::meta;

const LISTS: [&str; 2] = ["containers", "initContainers"];

/// Takes only the resources of containers from the sent object; a change of them raises the generation.
pub(in crate::server) fn take_over(new: &mut Value, old: &Value) {
    let sent = std::mem::replace(new, old.clone());
    meta::set(new, "resourceVersion", meta::get(&sent, "resourceVersion").cloned());
    for list in LISTS {
        for container in new["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let named = sent["spec"][list]
                .as_array()
                .and_then(|all| all.iter().find(|c| c["name"] == container["name"]));
            if let Some(named) = named {
                container["resources"] = without_empty(&named["resources"]);
            }
        }
    }
    if new["spec"] != old["spec"] {
        meta::bump_generation(new);
    }
}

/// Drops empty lists of amounts.
fn without_empty(resources: &Value) -> Value {
    let mut kept: Map<String, Value> = resources.as_object().cloned().unwrap_or_default();
    kept.retain(|_, amounts| amounts.as_object().is_none_or(|all| !all.is_empty()));
    Value::Object(kept)
}

/// Collects the errors of new resources.
pub(in crate::server) fn validate(new: &Value, old: &Value, errors: &mut Vec<Invalid>) {
    let running = |status: &&Value| status["state"]["running"].is_object();
    let statuses = old["status"]["containerStatuses"].as_array().into_iter().flatten();
    if statuses.filter(running).any(|status| status["resources"].is_null()) {
        let why = "Forbidden: Pod running on node without support for resize";
        errors.push(Invalid::new("FieldValueForbidden", "spec", why));
        return;
    }
    let (before, after) = (super::qos(old), super::qos(new));
    if before != after {
        let why = format!("Invalid value: {after:?}: Pod QOS Class may not change as a result of resizing");
        errors.push(Invalid::new("FieldValueInvalid", "spec", why));
    }
    for list in LISTS {
        let containers = new["spec"][list].as_array().into_iter().flatten();
        for (index, container) in containers.enumerate() {
            let path = format!("spec.{list}[{index}].resources");
            let earlier = old["spec"][list][index].get("resources").cloned().unwrap_or(json!({}));
            amounts(&path, &container["resources"], &earlier, errors);
        }
    }
}

fn amounts(path: &str, new: &Value, old: &Value, errors: &mut Vec<Invalid>) {
    for resource in Resource::ALL {
        let amount = |from: &Value, list: &str| from[list][resource.as_str()].as_str().map(str::to_owned);
        for list in ["requests", "limits"] {
            if amount(old, list).is_some() && amount(new, list).is_none() {
                let why = format!("Forbidden: resource {list} cannot be removed");
                errors.push(Invalid::new("FieldValueForbidden", format!("{path}.{list}"), why));
            }
        }
        let parsed = |list: &str| amount(new, list).and_then(|text| resource.parse(&text));
        if let (Some(request), Some(limit)) = (parsed("requests"), parsed("limits"))
            && request > limit
        {
            let why = format!("Invalid value: must be less than or equal to {resource} limit of {limit}");
            errors.push(Invalid::new("FieldValueInvalid", format!("{path}.requests"), why));
        }
    }
}
