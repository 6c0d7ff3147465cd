//! A Kubernetes object in a manifest.

use serde_json::Value;

/// A Kubernetes object in a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Object(pub Value);

impl Object {
    /// `kind`.
    pub fn kind(&self) -> &str {
        text(&self.0, "/kind")
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        text(&self.0, "/metadata/name")
    }

    /// `metadata.namespace`; empty without one.
    pub fn namespace(&self) -> &str {
        text(&self.0, "/metadata/namespace")
    }

    /// The Pod, or a workload's Pod template; `None` for other kinds.
    pub fn pod(&self) -> Option<&Value> {
        match self.kind() {
            "CronJob" => self.0.pointer("/spec/jobTemplate/spec/template"),
            "Pod" => Some(&self.0),
            _ => self.0.pointer("/spec/template"),
        }
    }
}

/// The string at a JSON pointer; empty without one.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The items of the list at a JSON pointer; empty without one.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The object of that kind and name.
pub fn find<'a>(objects: &'a [Object], kind: &str, name: &str) -> Option<&'a Object> {
    objects.iter().find(|object| object.kind() == kind && object.name() == name)
}
