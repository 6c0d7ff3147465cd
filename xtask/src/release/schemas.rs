//! The kinds as JSON schemas, for editors and for kubeconform: `<group>/<kind>_<version>.json`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::image::{Entry, compressed};

/// All of them in one archive.
pub(super) fn archive() -> Result<Vec<u8>> {
    let files = all()?;
    compressed(files.iter().map(|(path, text)| Entry::file(path, text.as_bytes())))
}

fn all() -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for crd in pitstop_api::crds() {
        let (group, kind) = (&crd.spec.group, &crd.spec.names.kind);
        for version in &crd.spec.versions {
            let api = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
            let api = api.with_context(|| format!("{kind} {} has no schema", version.name))?;
            let mut schema = strict(serde_json::to_value(api)?);
            name(&mut schema, &format!("{group}/{}", version.name), kind);
            let path = format!("{group}/{}_{}.json", kind.to_lowercase(), version.name);
            files.insert(path, serde_json::to_string_pretty(&schema)? + "\n");
        }
    }
    Ok(files)
}

/// Adds the fields that the API server defines itself, and a definition does not repeat.
fn name(schema: &mut Value, version: &str, kind: &str) {
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({ "type": "string", "enum": [version] });
    properties["kind"] = json!({ "type": "string", "enum": [kind] });
    properties["metadata"] = json!({ "type": "object" });
    let mut required = vec![json!("apiVersion"), json!("kind"), json!("metadata")];
    required.extend(schema["required"].as_array().into_iter().flatten().cloned());
    schema["required"] = Value::Array(required);
}

/// Turns a schema of Kubernetes into a JSON schema that rejects unknown fields. The API server drops such fields,
/// with a warning at most.
fn strict(schema: Value) -> Value {
    match schema {
        Value::Array(items) => items.into_iter().map(strict).collect(),
        Value::Object(mut map) => {
            let is_true = |key: &str| map.get(key) == Some(&Value::Bool(true));
            let (either, open) =
                (is_true("x-kubernetes-int-or-string"), is_true("x-kubernetes-preserve-unknown-fields"));
            if map.get("properties").is_some_and(Value::is_object) && !open {
                map.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            if either {
                map.insert("type".to_owned(), json!(["integer", "string"]));
                map.remove("anyOf");
            }
            map.retain(|key, _| !key.starts_with("x-kubernetes-"));
            map.into_iter().map(|(key, value)| (key, strict(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_not_known_is_named_and_what_is_open_stays_open() {
        let schema = json!({ "type": "object", "properties": {
            "cpu": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            "any": { "type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": true },
            "name": { "type": "string", "x-kubernetes-validations": [{ "rule": "self != ''" }] },
        } });
        let expected = json!({ "type": "object", "additionalProperties": false, "properties": {
            "cpu": { "type": ["integer", "string"] },
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            "any": { "type": "object", "properties": {} },
            "name": { "type": "string" },
        } });
        assert_eq!(strict(schema), expected);
    }

    #[test]
    fn every_kind_has_its_name_and_version() {
        let files = all().unwrap();
        let of = |path: &str| serde_json::from_str::<Value>(&files[path]).unwrap();
        let request = of("apps.kruise.io/containerrecreaterequest_v1alpha1.json");
        assert_eq!(request["properties"]["kind"]["enum"], json!(["ContainerRecreateRequest"]));
        assert_eq!(request["properties"]["apiVersion"]["enum"], json!(["apps.kruise.io/v1alpha1"]));
        let required = request["required"].as_array().unwrap();
        assert!(required.contains(&json!("spec")) && required.contains(&json!("metadata")));
        assert_eq!(request["additionalProperties"], json!(false));
        assert!(files.values().all(|text| !text.contains("x-kubernetes-")));
        let versions: usize = pitstop_api::crds().iter().map(|crd| crd.spec.versions.len()).sum();
        assert_eq!(files.len(), versions);
    }
}
