//! Structural schemas of custom resources: what they prune, default and refuse.

use std::collections::BTreeMap;

use chrono::DateTime;
use serde_json::{Map, Value};

use super::failure::Invalid;
use super::rules::{Pattern, Rule};

/// The `openAPIV3Schema` of a version, or a part of it.
#[derive(Debug)]
pub(super) struct Schema {
    kind: String,
    format: String,
    nullable: bool,
    int_or_string: bool,
    pub preserve: bool,
    pub properties: BTreeMap<String, Schema>,
    pub additional: Option<Box<Schema>>,
    pub items: Option<Box<Schema>>,
    required: Vec<String>,
    choices: Vec<Value>,
    default: Option<Value>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
    pattern: Option<Pattern>,
    pub list: List,
    rules: Vec<Rule>,
}

/// How elements of a list are distinguished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum List {
    Atomic,
    Set,
    Map(Vec<String>),
}

impl Schema {
    /// Reads a schema. Panics on what it does not know, so that no rule is forgotten.
    pub(super) fn parse(value: &Value) -> Self {
        for (key, setting) in value.as_object().unwrap() {
            let known = match key.as_str() {
                "description"
                | "title"
                | "type"
                | "format"
                | "nullable"
                | "properties"
                | "items"
                | "required"
                | "enum"
                | "default"
                | "minimum"
                | "maximum"
                | "minLength"
                | "maxLength"
                | "minItems"
                | "maxItems"
                | "minProperties"
                | "maxProperties"
                | "pattern"
                | "x-kubernetes-validations"
                | "x-kubernetes-list-type"
                | "x-kubernetes-list-map-keys"
                | "x-kubernetes-int-or-string"
                | "x-kubernetes-preserve-unknown-fields" => true,
                "additionalProperties" => setting.is_object(),
                // `x-kubernetes-int-or-string` says this already.
                "anyOf" => value["x-kubernetes-int-or-string"] == true,
                _ => false,
            };
            assert!(known, "the model does not know {key}: {setting} of a schema");
        }
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let flag = |key: &str| value[key] == true;
        let texts = |key: &str| {
            let all = value[key].as_array().into_iter().flatten();
            all.map(|v| v.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let part = |key: &str| value.get(key).map(|part| Box::new(Self::parse(part)));
        Self {
            kind: text("type"),
            format: text("format"),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            properties: value["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, property)| (name.clone(), Self::parse(property)))
                .collect(),
            additional: part("additionalProperties"),
            items: part("items"),
            required: texts("required"),
            choices: value["enum"].as_array().cloned().unwrap_or_default(),
            default: value.get("default").cloned(),
            minimum: value["minimum"].as_f64(),
            maximum: value["maximum"].as_f64(),
            min_length: value["minLength"].as_u64(),
            max_length: value["maxLength"].as_u64(),
            min_items: value["minItems"].as_u64(),
            max_items: value["maxItems"].as_u64(),
            min_properties: value["minProperties"].as_u64(),
            max_properties: value["maxProperties"].as_u64(),
            pattern: value["pattern"].as_str().map(Pattern::known),
            list: match value["x-kubernetes-list-type"].as_str() {
                None | Some("atomic") => List::Atomic,
                Some("set") => List::Set,
                Some("map") => List::Map(texts("x-kubernetes-list-map-keys")),
                Some(other) => panic!("the model does not know the list type {other}"),
            },
            rules: value["x-kubernetes-validations"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|rule| Rule::known(rule["rule"].as_str().unwrap()))
                .collect(),
        }
    }

    /// Reads an object: drops unknown fields and forbidden nulls, sets defaults.
    pub(super) fn coerce(&self, object: &mut Value) {
        let map = object.as_object_mut().unwrap();
        map.retain(|field, _| {
            matches!(field.as_str(), "apiVersion" | "kind" | "metadata")
                || self.properties.contains_key(field)
        });
        for (field, schema) in &self.properties {
            if !matches!(field.as_str(), "apiVersion" | "kind" | "metadata") {
                schema.coerce_field(field, map);
            }
        }
    }

    /// The same for a field of a map.
    fn coerce_field(&self, field: &str, map: &mut Map<String, Value>) {
        match (map.get_mut(field), &self.default) {
            (Some(Value::Null), None) if !self.nullable => {
                map.remove(field);
            }
            (Some(Value::Null), Some(default)) if !self.nullable => {
                map.insert(field.to_owned(), default.clone());
            }
            (None, Some(default)) => {
                map.insert(field.to_owned(), default.clone());
            }
            _ => {}
        }
        if let Some(value) = map.get_mut(field) {
            self.coerce_value(value);
        }
    }

    fn coerce_value(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                if let Some(additional) = &self.additional {
                    let fields: Vec<String> = map.keys().cloned().collect();
                    for field in &fields {
                        additional.coerce_field(field, map);
                    }
                    return;
                }
                if !self.preserve {
                    map.retain(|field, _| self.properties.contains_key(field));
                }
                for (field, schema) in &self.properties {
                    schema.coerce_field(field, map);
                }
            }
            Value::Array(list) => {
                if let Some(items) = &self.items {
                    for item in list {
                        items.coerce_value(item);
                    }
                }
            }
            _ => {}
        }
    }

    /// Collects the errors of an object. Values that did not change since `old` are not checked.
    pub(super) fn validate(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<Invalid>) {
        let fields = errors.len();
        self.check("", new, old, errors);
        // If a value breaks the schema, the rules are not evaluated.
        if errors.len() == fields {
            self.ask("", new, old, errors);
        }
    }

    fn check(&self, path: &str, new: &Value, old: Option<&Value>, errors: &mut Vec<Invalid>) {
        let allowed = self.choices.is_empty() || self.choices.contains(new);
        // Null is no member of an enum, whatever `nullable` says.
        let null = new.is_null() && self.nullable;
        if old == Some(new) || (null && allowed) {
            return;
        }
        let mut refuse = |reason: &'static str, why: String| errors.push(Invalid::new(reason, path, why));
        if !null && !self.is_of_type(new) {
            refuse("FieldValueTypeInvalid", format!("Invalid value: {new}: must be of type {}", self.kind));
            return;
        }
        if !allowed {
            refuse("FieldValueNotSupported", format!("Unsupported value: {new}"));
        }
        let invalid = "FieldValueInvalid";
        match new {
            Value::Number(number) => {
                let number = number.as_f64().unwrap();
                if self.minimum.is_some_and(|min| number < min)
                    || self.maximum.is_some_and(|max| number > max)
                {
                    refuse(invalid, format!("Invalid value: {new}: out of bounds"));
                }
            }
            Value::String(text) => {
                let length = u64::try_from(text.chars().count()).unwrap();
                if self.min_length.is_some_and(|min| length < min) {
                    refuse(invalid, format!("Invalid value: {new}: should be longer"));
                }
                if self.max_length.is_some_and(|max| length > max) {
                    refuse("FieldValueTooLong", "Too long".to_owned());
                }
                if self.pattern.is_some_and(|pattern| !pattern.matches(text)) {
                    refuse(invalid, format!("Invalid value: {new}: should match the pattern"));
                }
                if self.format == "date-time" && DateTime::parse_from_rfc3339(text).is_err() {
                    refuse(invalid, format!("Invalid value: {new}: must be of type date-time"));
                }
            }
            Value::Array(list) => {
                let length = u64::try_from(list.len()).unwrap();
                if self.min_items.is_some_and(|min| length < min) {
                    refuse(invalid, format!("Invalid value: {length}: should have more items"));
                }
                if self.max_items.is_some_and(|max| length > max) {
                    refuse("FieldValueTooMany", format!("Too many: {length}"));
                }
                self.check_items(path, list, old, errors);
            }
            Value::Object(map) => {
                if self.min_properties.is_some_and(|min| u64::try_from(map.len()).unwrap() < min) {
                    refuse(invalid, format!("Invalid value: {}: should have more properties", map.len()));
                }
                if self.max_properties.is_some_and(|max| u64::try_from(map.len()).unwrap() > max) {
                    refuse("FieldValueTooMany", format!("Too many: {}", map.len()));
                }
                self.check_fields(path, map, old, errors);
            }
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn check_fields(
        &self,
        path: &str,
        map: &Map<String, Value>,
        old: Option<&Value>,
        errors: &mut Vec<Invalid>,
    ) {
        let below = |field: &str| if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
        for field in self.required.iter().filter(|field| !map.contains_key(*field)) {
            errors.push(Invalid::new("FieldValueRequired", below(field), "Required value"));
        }
        for (field, value) in map {
            if let Some(schema) = self.properties.get(field).or(self.additional.as_deref()) {
                schema.check(&below(field), value, old.and_then(|old| old.get(field)), errors);
            }
        }
    }

    fn check_items(&self, path: &str, list: &[Value], old: Option<&Value>, errors: &mut Vec<Invalid>) {
        for (index, item) in list.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if let Some(items) = &self.items {
                items.check(&path, item, self.same_item(item, old), errors);
            }
            if self.list != List::Atomic && list[..index].iter().any(|other| self.is_same(item, other)) {
                errors.push(Invalid::new("FieldValueDuplicate", path, format!("Duplicate value: {item}")));
            }
        }
    }

    /// Whether two items of a list are the same element.
    pub(super) fn is_same(&self, a: &Value, b: &Value) -> bool {
        match &self.list {
            List::Atomic => false,
            List::Set => a == b,
            List::Map(keys) => keys.iter().all(|key| a.get(key) == b.get(key)),
        }
    }

    fn same_item<'a>(&self, item: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
        if !matches!(self.list, List::Map(_)) {
            return None;
        }
        old?.as_array()?.iter().find(|other| self.is_same(item, other))
    }

    /// Evaluates the rules of this value and of all values below it.
    fn ask(&self, path: &str, new: &Value, old: Option<&Value>, errors: &mut Vec<Invalid>) {
        if old == Some(new) {
            return;
        }
        for rule in &self.rules {
            if !new.is_null() && !rule.holds(new, old.filter(|old| !old.is_null())) {
                errors.push(Invalid::new(
                    "FieldValueInvalid",
                    path,
                    format!("Invalid value: {}", rule.text()),
                ));
            }
        }
        match new {
            Value::Object(map) => {
                for (field, value) in map {
                    if let Some(schema) = self.properties.get(field).or(self.additional.as_deref()) {
                        let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                        schema.ask(&path, value, old.and_then(|old| old.get(field)), errors);
                    }
                }
            }
            Value::Array(list) => {
                for (index, item) in list.iter().enumerate() {
                    if let Some(items) = &self.items {
                        items.ask(&format!("{path}[{index}]"), item, self.same_item(item, old), errors);
                    }
                }
            }
            _ => {}
        }
    }

    pub(super) fn is_of_type(&self, value: &Value) -> bool {
        if self.int_or_string {
            return value.is_string() || value.is_i64() || value.is_u64();
        }
        match self.kind.as_str() {
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "object" => value.is_object(),
            "array" => value.is_array(),
            "number" => value.is_number(),
            "integer" => match self.format.as_str() {
                "int32" => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
                _ => value.is_i64(),
            },
            "" => true,
            other => panic!("the model does not know the type {other}"),
        }
    }
}
