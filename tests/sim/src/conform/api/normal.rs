//! Answers in a form that is the same for all servers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Scope;
use super::script::Draft;

/// Replaces by tokens the values that differ between servers.
#[derive(Debug)]
pub(super) struct Normal {
    scope: Scope,
    tokens: BTreeMap<String, String>,
}

impl Normal {
    pub(super) fn new(scope: &Scope) -> Self {
        Self { scope: scope.clone(), tokens: BTreeMap::new() }
    }

    /// Normal form of an answer.
    pub(super) fn answer(&mut self, request: &Draft, code: u16, body: &Value) -> Value {
        if body["kind"] == "Status" || !body.is_object() {
            return json!({ "code": code, "status": self.status(body) });
        }
        let mut object = body.clone();
        if object["items"].is_array() {
            let metadata = object["metadata"].as_object_mut().unwrap();
            metadata.insert("resourceVersion".to_owned(), "list".into());
            match metadata.get("continue").and_then(Value::as_str) {
                // Unselected cluster-scoped objects of other scripts and of the cluster count, too.
                Some(_) if request.target == "nw" && request.query.contains("labelSelector=") => {
                    metadata.remove("continue");
                    metadata.remove("remainingItemCount");
                }
                Some("") => drop(metadata.remove("continue")),
                Some(_) => drop(metadata.insert("continue".to_owned(), "more".into())),
                None => {}
            }
            metadata.remove("selfLink");
            for item in object["items"].as_array_mut().unwrap() {
                self.object(request.kind(), item);
            }
        } else {
            self.object(request.kind(), &mut object);
        }
        json!({ "code": code, "object": object })
    }

    /// Normal form of the events of a watch.
    pub(super) fn events(&mut self, events: &[Value]) -> Value {
        let seen = events.iter().filter(|event| !is_idle(event)).map(|event| {
            let what = event["type"].as_str().unwrap_or_default();
            let object = &event["object"];
            match what {
                "ERROR" => json!({ "type": what, "status": self.status(object) }),
                "BOOKMARK" => json!({ "type": what, "kind": object["kind"],
                                      "annotations": object["metadata"]["annotations"] }),
                _ => {
                    let mut object = object.clone();
                    let kind = short(&object);
                    self.object(kind, &mut object);
                    json!({ "type": what, "object": object })
                }
            }
        });
        Value::Array(seen.collect())
    }

    /// The fields of a `Status` that programs read.
    fn status(&self, body: &Value) -> Value {
        let mut status = Map::new();
        for field in ["status", "reason", "code"] {
            status.insert(field.to_owned(), body[field].clone());
        }
        let mut details = Map::new();
        for field in ["name", "group", "kind", "retryAfterSeconds"] {
            let value = &body["details"][field];
            if !value.is_null() && value != "" {
                let value = value.as_str().map_or_else(|| value.clone(), |text| self.mask(text).into());
                details.insert(field.to_owned(), value);
            }
        }
        status.insert("details".to_owned(), Value::Object(details));
        Value::Object(status)
    }

    fn object(&mut self, kind: &str, object: &mut Value) {
        let built_in = !matches!(kind, "crr" | "crrb" | "nw");
        let generated = !object["metadata"]["generateName"].is_null();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for (field, value) in metadata.iter_mut() {
                match (field.as_str(), value.as_str()) {
                    ("resourceVersion", Some(text)) => *value = self.token("version", text),
                    ("uid", Some(text)) => *value = self.token("uid", text),
                    ("name", Some(text)) if generated => *value = self.token("name", text),
                    ("creationTimestamp" | "deletionTimestamp", Some(_)) => *value = "time".into(),
                    _ => {}
                }
            }
            // The model has no field managers.
            metadata.remove("managedFields");
        }
        if built_in {
            without_nothing(object);
        }
        self.mask_all(object);
    }

    fn token(&mut self, what: &str, text: &str) -> Value {
        let known = self.tokens.keys().filter(|key| key.starts_with(what)).count();
        let key = format!("{what} {text}");
        self.tokens.entry(key).or_insert_with(|| format!("{what}-{}", known + 1)).clone().into()
    }

    /// Replaces the scope in all texts and keys.
    fn mask_all(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.mask(text),
            Value::Array(list) => list.iter_mut().for_each(|item| self.mask_all(item)),
            Value::Object(map) => {
                let old = std::mem::take(map);
                for (key, mut value) in old {
                    self.mask_all(&mut value);
                    map.insert(self.mask(&key), value);
                }
            }
            _ => {}
        }
    }

    /// Replaces the scope and the known UIDs in a text.
    fn mask(&self, text: &str) -> String {
        let mut text = text.replace(&self.scope.id, "{id}").replace(&self.scope.namespace, "{ns}");
        for (key, token) in &self.tokens {
            if let Some(uid) = key.strip_prefix("uid ").filter(|uid| text.contains(uid)) {
                text = text.replace(uid, token);
            }
        }
        text
    }
}

/// Whether an event is a periodic bookmark, which may come at any time.
pub fn is_idle(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"].is_null()
}

/// The kind of an object as scripts call it.
fn short(object: &Value) -> &'static str {
    match object["kind"].as_str().unwrap_or_default() {
        "ConfigMap" => "cm",
        "Lease" => "lease",
        "ContainerRecreateRequest" => "crr",
        "NodeWork" => "nw",
        _ => "other",
    }
}

/// Drops empty fields: built-in kinds show some and omit others.
fn without_nothing(value: &mut Value) {
    match value {
        Value::Object(map) => map.retain(|_, value| {
            without_nothing(value);
            match value {
                Value::Null => false,
                Value::String(text) => !text.is_empty(),
                Value::Array(list) => !list.is_empty(),
                Value::Object(map) => !map.is_empty(),
                _ => true,
            }
        }),
        Value::Array(list) => list.iter_mut().for_each(without_nothing),
        _ => {}
    }
}

/// The path of the first difference between two values, and both values.
pub(super) fn first_difference(a: &Value, b: &Value) -> String {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys = x.keys().chain(y.keys());
            for key in keys {
                let (left, right) = (x.get(key), y.get(key));
                if left != right {
                    let below = match (left, right) {
                        (Some(left), Some(right)) => first_difference(left, right),
                        (Some(left), None) => format!(": only the model has {left}"),
                        (None, right) => format!(": only the real one has {}", right.unwrap_or(&Value::Null)),
                    };
                    return format!("/{key}{below}");
                }
            }
            String::new()
        }
        (Value::Array(x), Value::Array(y)) => {
            for index in 0..x.len().max(y.len()) {
                if x.get(index) != y.get(index) {
                    let null = Value::Null;
                    let (left, right) = (x.get(index).unwrap_or(&null), y.get(index).unwrap_or(&null));
                    return format!("/{index}{}", first_difference(left, right));
                }
            }
            String::new()
        }
        _ => format!(": {a} but really {b}"),
    }
}
