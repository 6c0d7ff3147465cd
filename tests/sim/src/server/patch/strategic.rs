//! Strategic merge patches of the built-in kinds.
//!
//! Elements that a patch adds come before the elements that it does not name, unless these stand before one
//! that it names: a condition that a patch adds to a Pod comes first.

use serde_json::{Map, Value};

use crate::server::failure::{Checked, Failure};

/// How a list is merged.
enum Merge {
    /// It is replaced.
    Replace,
    /// By a field of its elements.
    ByKey(&'static str),
    /// As a set of plain values.
    Set,
}

/// `patchStrategy` and `patchMergeKey` of Kubernetes' types, by the path of a list.
///
/// `containerStatuses` of a Pod is not included: it is replaced.
fn strategy(path: &str) -> Merge {
    match path {
        "metadata.finalizers" | "spec.podCIDRs" => Merge::Set,
        "metadata.ownerReferences" => Merge::ByKey("uid"),
        "status.conditions" | "status.addresses" => Merge::ByKey("type"),
        "spec.containers"
        | "spec.initContainers"
        | "spec.volumes"
        | "spec.imagePullSecrets"
        | "spec.containers.env"
        | "spec.initContainers.env"
        | "spec.schedulingGates"
        | "status.resourceClaimStatuses"
        | "spec.resourceClaims" => Merge::ByKey("name"),
        "spec.hostAliases" | "status.podIPs" | "status.hostIPs" => Merge::ByKey("ip"),
        "spec.topologySpreadConstraints" => Merge::ByKey("topologyKey"),
        "spec.containers.ports" | "spec.initContainers.ports" => Merge::ByKey("containerPort"),
        "spec.containers.volumeMounts" | "spec.initContainers.volumeMounts" => Merge::ByKey("mountPath"),
        "spec.containers.volumeDevices" | "spec.initContainers.volumeDevices" => Merge::ByKey("devicePath"),
        _ => Merge::Replace,
    }
}

/// Merges a patch into an object.
pub(super) fn merge(object: &mut Value, patch: &Value) -> Checked<()> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(Failure::bad_request("the patch is no object"));
    };
    merge_map("", object, patch)
}

fn merge_map(path: &str, object: &mut Map<String, Value>, patch: &Map<String, Value>) -> Checked<()> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *object = plain(patch);
            return Ok(());
        }
        Some("delete") => {
            object.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(Failure::bad_request(format!("Unknown patch type found: {other}"))),
    }
    if let Some(keep) = patch.get("$retainKeys").and_then(Value::as_array) {
        object.retain(|field, _| keep.iter().any(|k| k == field.as_str()));
    }
    for (field, value) in patch.iter().filter(|(field, _)| !field.starts_with('$')) {
        let below = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
        match (object.get_mut(field), value) {
            (_, Value::Null) => {
                object.remove(field);
            }
            (Some(Value::Object(old)), Value::Object(new)) => merge_map(&below, old, new)?,
            (Some(Value::Array(old)), Value::Array(new)) => {
                let order = patch.get(&format!("$setElementOrder/{field}")).and_then(Value::as_array);
                merge_list(&below, old, new, order)?;
            }
            (None, Value::Object(new)) => {
                object.insert(field.clone(), Value::Object(plain(new)));
            }
            (None, Value::Array(new)) => {
                let mut made = Vec::new();
                merge_list(&below, &mut made, new, None)?;
                object.insert(field.clone(), Value::Array(made));
            }
            (_, value) => {
                object.insert(field.clone(), value.clone());
            }
        }
    }
    for (directive, values) in patch {
        if let Some(field) = directive.strip_prefix("$deleteFromPrimitiveList/")
            && let (Some(Value::Array(list)), Some(gone)) = (object.get_mut(field), values.as_array())
        {
            list.retain(|item| !gone.contains(item));
        }
    }
    Ok(())
}

fn merge_list(
    path: &str,
    object: &mut Vec<Value>,
    patch: &[Value],
    order: Option<&Vec<Value>>,
) -> Checked<()> {
    let key = match strategy(path) {
        Merge::Replace => {
            *object = patch.iter().map(plain_value).collect();
            return Ok(());
        }
        Merge::Set => None,
        Merge::ByKey(key) => Some(key),
    };
    let same = |a: &Value, b: &Value| key.map_or_else(|| a == b, |key| a.get(key) == b.get(key));
    if patch.iter().any(|item| item.get("$patch").is_some_and(|p| p == "replace")) {
        *object = patch.iter().filter(|item| item.get("$patch").is_none()).map(plain_value).collect();
        return Ok(());
    }
    let original = object.clone();
    let mut merged = original.clone();
    let mut named = Vec::new();
    for item in patch {
        if let Some(key) = key
            && item.get(key).is_none()
        {
            let message = format!("map: {item} does not contain declared merge key: {key}");
            return Err(Failure::bad_request(message));
        }
        if item.get("$patch").is_some_and(|p| p == "delete") {
            merged.retain(|other| !same(other, item));
            continue;
        }
        match merged.iter_mut().find(|other| same(other, item)) {
            Some(Value::Object(old)) => merge_map(path, old, item.as_object().unwrap())?,
            Some(_) => {}
            None => merged.push(plain_value(item)),
        }
        named.push(item.clone());
    }
    let order = order.unwrap_or(&named);
    let index = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut patched, kept): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| index(order, item).is_some());
    patched.sort_by_key(|item| index(order, item));
    *object = interleave(kept, patched, |item| index(&original, item));
    Ok(())
}

/// Merges the elements that only the server has (`kept`, in their order) with those of the patch (in its
/// order).
fn interleave(kept: Vec<Value>, patched: Vec<Value>, rank: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    let mut kept = kept.into_iter().peekable();
    let mut patched = patched.into_iter().peekable();
    let mut all = Vec::new();
    loop {
        let first = match (kept.peek(), patched.peek()) {
            (None, None) => return all,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(left), Some(right)) => {
                matches!((rank(left), rank(right)), (Some(l), Some(r)) if l < r)
            }
        };
        all.extend(if first { kept.next() } else { patched.next() });
    }
}

/// A new value, without nulls and without most directives: `$retainKeys` stays, as a field.
fn plain(map: &Map<String, Value>) -> Map<String, Value> {
    let directive = |field: &str| field.starts_with('$') && field != "$retainKeys";
    map.iter()
        .filter(|(field, value)| !directive(field) && !value.is_null())
        .map(|(field, value)| (field.clone(), plain_value(value)))
        .collect()
}

fn plain_value(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(plain(map)),
        Value::Array(list) => Value::Array(list.iter().map(plain_value).collect()),
        other => other.clone(),
    }
}
