//! Defaults and canonical forms of the built-in kinds.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use crate::server::failure::{Checked, Failure};
use crate::server::kinds::Family;

/// Sets the defaults that the API server sets when it reads an object.
pub(super) fn fill(family: Family, object: &mut Value) -> Checked<()> {
    match family {
        Family::Pod => {
            pod(object);
            Ok(())
        }
        Family::ConfigMap => config_map(object),
        Family::Lease => lease(object),
        Family::Event => micro_time(object, "eventTime"),
        Family::Namespace => {
            let name = crate::server::meta::text(object, "name").to_owned();
            if !name.is_empty() {
                let labels = crate::server::meta::of(object).entry("labels").or_insert_with(|| json!({}));
                labels["kubernetes.io/metadata.name"] = name.into();
            }
            Ok(())
        }
        Family::Node | Family::Bounds | Family::Workload | Family::Custom => Ok(()),
    }
}

fn default(map: &mut Map<String, Value>, field: &str, value: Value) {
    map.entry(field).or_insert(value);
}

fn pod(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    default(spec, "restartPolicy", "Always".into());
    default(spec, "dnsPolicy", "ClusterFirst".into());
    default(spec, "schedulerName", "default-scheduler".into());
    default(spec, "securityContext", json!({}));
    default(spec, "terminationGracePeriodSeconds", 30.into());
    default(spec, "enableServiceLinks", true.into());
    default(spec, "preemptionPolicy", "PreemptLowerPriority".into());
    default(spec, "priority", 0.into());
    default(spec, "serviceAccountName", "default".into());
    let account = spec["serviceAccountName"].clone();
    default(spec, "serviceAccount", account);
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let list = tolerations.as_array_mut().unwrap();
        if !list.iter().any(|one| one["key"] == key) {
            list.push(
                json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }),
            );
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                fill_container(container);
            }
        }
    }
}

fn fill_container(container: &mut Map<String, Value>) {
    default(container, "resources", json!({}));
    if let Some(limits) = container["resources"].get("limits").and_then(Value::as_object).cloned() {
        let requests =
            container["resources"].as_object_mut().unwrap().entry("requests").or_insert_with(|| json!({}));
        for (resource, limit) in limits {
            default(requests.as_object_mut().unwrap(), &resource, limit);
        }
    }
    default(container, "terminationMessagePath", "/dev/termination-log".into());
    default(container, "terminationMessagePolicy", "File".into());
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let last = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    default(container, "imagePullPolicy", if latest { "Always" } else { "IfNotPresent" }.into());
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            default(port, "protocol", "TCP".into());
        }
    }
}

fn config_map(object: &mut Value) -> Checked<()> {
    for field in ["data", "binaryData"] {
        match object.get(field) {
            None => continue,
            Some(Value::Object(map)) if map.values().all(Value::is_string) => {}
            Some(_) => return Err(Failure::bad_request(format!("cannot decode {field}"))),
        }
        if object[field].as_object().is_some_and(Map::is_empty) {
            object.as_object_mut().unwrap().remove(field);
        }
    }
    Ok(())
}

fn lease(object: &mut Value) -> Checked<()> {
    let Some(spec) = object.get_mut("spec") else { return Ok(()) };
    micro_time(spec, "acquireTime")?;
    micro_time(spec, "renewTime")?;
    for (field, value) in spec.as_object().into_iter().flatten() {
        let fine = match field.as_str() {
            "leaseDurationSeconds" | "leaseTransitions" => value.is_i64(),
            "holderIdentity" => value.is_string(),
            _ => true,
        };
        if !fine {
            return Err(Failure::bad_request(format!("cannot decode spec.{field}")));
        }
    }
    Ok(())
}

/// Times with microseconds always have six digits; others are refused.
fn micro_time(object: &mut Value, field: &str) -> Checked<()> {
    let Some(value) = object.get_mut(field) else { return Ok(()) };
    let six = |text: &&str| {
        let digits = text.split_once('.').map_or("", |(_, rest)| rest);
        digits.bytes().take_while(u8::is_ascii_digit).count() == 6
    };
    let parsed = value.as_str().filter(six).and_then(|text| text.parse::<DateTime<Utc>>().ok());
    let time = parsed.ok_or_else(|| Failure::bad_request(format!("cannot decode {field}")))?;
    *value = time.to_rfc3339_opts(SecondsFormat::Micros, true).into();
    Ok(())
}
