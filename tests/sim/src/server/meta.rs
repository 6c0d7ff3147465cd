//! `metadata`: access, and the rules for all kinds.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::failure::Invalid;
use super::seconds;

/// Fields of `ObjectMeta`; others are dropped.
const FIELDS: [&str; 14] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
];

/// The metadata; created if it is missing.
pub(super) fn of(object: &mut Value) -> &mut Map<String, Value> {
    let object = object.as_object_mut().unwrap();
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().unwrap()
}

/// A text of the metadata; empty if it is missing.
pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn get<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    object.get("metadata").and_then(|m| m.get(field))
}

pub(super) fn number(object: &Value, field: &str) -> Option<i64> {
    get(object, field).and_then(Value::as_i64)
}

/// Sets a field of the metadata; None removes it.
pub(super) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    match value {
        Some(value) => of(object).insert(field.to_owned(), value),
        None => of(object).remove(field),
    };
}

pub(super) fn version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

pub(super) fn set_version(object: &mut Value, version: u64) {
    set(object, "resourceVersion", Some(version.to_string().into()));
}

pub(super) fn is_terminating(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

pub(super) fn finalizers(object: &Value) -> &[Value] {
    get(object, "finalizers").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Raises the generation, if the object has one.
pub(super) fn bump_generation(object: &mut Value) {
    if let Some(generation) = number(object, "generation").filter(|g| *g > 0) {
        set(object, "generation", Some((generation + 1).into()));
    }
}

/// Drops unknown and empty fields, as reading into `ObjectMeta` and writing it again does.
pub(super) fn normalize(object: &mut Value) {
    let metadata = of(object);
    metadata.retain(|field, value| {
        FIELDS.contains(&field.as_str())
            && match value {
                Value::Null => false,
                Value::String(text) => !text.is_empty(),
                Value::Array(list) => !list.is_empty(),
                Value::Object(map) => !map.is_empty(),
                Value::Bool(_) | Value::Number(_) => true,
            }
    });
}

/// The first field of a wrong type, which reading into `ObjectMeta` refuses.
pub(super) fn type_error(object: &Value) -> Option<String> {
    let metadata = match object.get("metadata") {
        None | Some(Value::Null) => return None,
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Some("metadata".to_owned()),
    };
    let texts =
        |value: &Value| value.as_object().is_some_and(|m| m.values().all(|v| v.is_string() || v.is_null()));
    for (field, value) in metadata {
        let fine = match field.as_str() {
            _ if value.is_null() => true,
            "labels" | "annotations" => texts(value),
            "finalizers" => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            "ownerReferences" => value.as_array().is_some_and(|list| list.iter().all(Value::is_object)),
            "generation" | "deletionGracePeriodSeconds" => value.is_i64(),
            field if FIELDS.contains(&field) => value.is_string(),
            _ => true,
        };
        if !fine {
            return Some(format!("metadata.{field}"));
        }
    }
    None
}

/// Sets the fields of a new object that only the server sets.
pub(super) fn fill_new(object: &mut Value, wall: DateTime<Utc>, uid: String) {
    let metadata = of(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    metadata.insert("creationTimestamp".to_owned(), seconds(wall).into());
    metadata.insert("uid".to_owned(), uid.into());
}

/// Keeps the fields that an update cannot change.
pub(super) fn carry_over(new: &mut Value, old: &Value) {
    let keep = |new: &mut Value, field: &str| set(new, field, get(old, field).cloned());
    if text(new, "uid").is_empty() {
        keep(new, "uid");
    }
    keep(new, "creationTimestamp");
    if is_terminating(old) {
        keep(new, "deletionTimestamp");
    }
    if get(new, "deletionGracePeriodSeconds").is_none() {
        keep(new, "deletionGracePeriodSeconds");
    }
    if text(new, "namespace").is_empty() {
        keep(new, "namespace");
    }
}

/// Checks the metadata in creates and updates.
pub(super) fn validate(object: &Value, errors: &mut Vec<Invalid>) {
    let (name, prefix) = (text(object, "name"), text(object, "generateName"));
    if name.is_empty() {
        let message = "Required value: name or generateName is required";
        errors.push(Invalid::new("FieldValueRequired", "metadata.name", message));
    } else if !is_dns_subdomain(name) {
        errors.push(Invalid::new("FieldValueInvalid", "metadata.name", format!("Invalid value: {name:?}")));
    }
    if !prefix.is_empty() && !is_dns_subdomain(&format!("{prefix}x")) {
        errors.push(Invalid::new(
            "FieldValueInvalid",
            "metadata.generateName",
            format!("Invalid value: {prefix:?}"),
        ));
    }
    for (key, value) in get(object, "labels").and_then(Value::as_object).into_iter().flatten() {
        if !is_qualified_name(key) || !is_label_value(value.as_str().unwrap_or_default()) {
            errors.push(Invalid::new(
                "FieldValueInvalid",
                "metadata.labels",
                format!("Invalid value: {value}"),
            ));
        }
    }
    for key in get(object, "annotations").and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        if !is_qualified_name(&key.to_lowercase()) {
            errors.push(Invalid::new(
                "FieldValueInvalid",
                "metadata.annotations",
                format!("Invalid value: {key:?}"),
            ));
        }
    }
    for finalizer in finalizers(object) {
        let name = finalizer.as_str().unwrap_or_default();
        if !is_qualified_name(name) {
            errors.push(Invalid::new(
                "FieldValueInvalid",
                "metadata.finalizers",
                format!("Invalid value: {name:?}"),
            ));
        }
    }
    validate_owners(object, errors);
}

fn validate_owners(object: &Value, errors: &mut Vec<Invalid>) {
    let owners = get(object, "ownerReferences").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for (index, owner) in owners.iter().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                errors.push(Invalid::new(
                    "FieldValueInvalid",
                    path,
                    "Invalid value: \"\": must not be empty",
                ));
            }
        }
    }
    if owners.iter().filter(|owner| owner["controller"] == true).count() > 1 {
        let message = "Invalid value: Only one reference can have Controller set to true";
        errors.push(Invalid::new("FieldValueInvalid", "metadata.ownerReferences", message));
    }
}

/// Checks the metadata against the stored object.
pub(super) fn validate_update(new: &Value, old: &Value, errors: &mut Vec<Invalid>) {
    let invalid =
        |field: &str, why: &str| Invalid::new("FieldValueInvalid", format!("metadata.{field}"), why);
    if is_terminating(old) && finalizers(new).iter().any(|f| !finalizers(old).contains(f)) {
        let why = "Forbidden: no new finalizers can be added if the object is being deleted";
        errors.push(Invalid::new("FieldValueForbidden", "metadata.finalizers", why));
    }
    if version(new).is_empty() {
        errors.push(invalid("resourceVersion", "Invalid value: \"\": must be specified for an update"));
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        if get(new, field) != get(old, field) {
            errors.push(invalid(field, "Invalid value: field is immutable"));
        }
    }
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// RFC 1123 subdomain.
fn is_dns_subdomain(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|part| {
            let bytes = part.as_bytes();
            matches!((bytes.first(), bytes.last()), (Some(a), Some(z)) if is_alphanumeric(*a) && is_alphanumeric(*z))
                && bytes.iter().all(|b| is_alphanumeric(*b) || *b == b'-')
        })
}

/// `name` or `prefix/name`.
fn is_qualified_name(key: &str) -> bool {
    let name = match key.split_once('/') {
        Some((prefix, name)) if is_dns_subdomain(prefix) => name,
        Some(_) => return false,
        None => key,
    };
    !name.is_empty() && is_label_value(name)
}

fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    value.len() <= 63
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && bytes.first().is_none_or(u8::is_ascii_alphanumeric)
        && bytes.last().is_none_or(u8::is_ascii_alphanumeric)
}
