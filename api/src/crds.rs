//! The `CustomResourceDefinition`s of all kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt as _;
use serde_json::json;

use crate::image_update::{self, PodImageUpdate};
use crate::nodework::NodeWork;
use crate::recreate::{self, ContainerRecreateRequest};
use crate::resize::{self, PodResize};
use crate::rollout::{self, InPlaceRollout};

/// Every `CustomResourceDefinition`, sorted by name.
///
/// `ContainerRecreateRequest` is served as `v1alpha1` and as `v1beta1` with one schema, so no conversion
/// webhook is needed. `v1alpha1` is the stored one: it is what every release of `OpenKruise` stores.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut recreate = unseen(finished(ContainerRecreateRequest::crd(), recreate::fix));
    if let Some(alpha) = recreate.spec.versions.first().cloned() {
        let beta = CustomResourceDefinitionVersion { name: "v1beta1".to_owned(), storage: false, ..alpha };
        recreate.spec.versions.push(beta);
    }
    vec![
        recreate,
        unseen(finished(InPlaceRollout::crd(), rollout::fix)),
        finished(NodeWork::crd(), |_| {}),
        unseen(finished(PodImageUpdate::crd(), image_update::fix)),
        unseen(finished(PodResize::crd(), resize::fix)),
    ]
}

/// A derived definition with a plain schema, and the spec rules that are easier to write as a loop than as an
/// attribute.
fn finished(mut crd: CustomResourceDefinition, fix: fn(&mut JSONSchemaProps)) -> CustomResourceDefinition {
    let versions = crd.spec.versions.iter_mut();
    for schema in versions.filter_map(|v| v.schema.as_mut()?.open_api_v3_schema.as_mut()) {
        plain(schema);
        if let Some(spec) = schema.properties.as_mut().and_then(|all| all.get_mut("spec")) {
            fix(spec);
        }
    }
    crd
}

/// Removes redundant parts: `nullable` (the API server drops a null anyway, and without it the published `OpenAPI` v2
/// keeps the field's type), `anyOf` beside `x-kubernetes-int-or-string`, and descriptions of elements (the list or map
/// has its own, and `kubectl explain` shows both).
fn plain(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if schema.x_kubernetes_int_or_string == Some(true) {
        schema.any_of = None;
    }
    schema.properties.iter_mut().flat_map(|all| all.values_mut()).for_each(plain);
    if let Some(JSONSchemaPropsOrArray::Schema(element)) = &mut schema.items {
        element.description = None;
        plain(element);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(element)) = &mut schema.additional_properties {
        element.description = None;
        plain(element);
    }
}

/// Gives each request a default status that says that no controller has seen it.
///
/// kstatus takes an object without status for one that is done. So a client that applies a request and waits for it
/// would not wait if it looks before the controller does
/// (<https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>).
fn unseen(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas = crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut());
    let roots = schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()?.properties.as_mut());
    for status in roots.filter_map(|properties| properties.get_mut("status")) {
        status.default = Some(JSON(json!({"observedGeneration": -1})));
    }
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(path: &str, schema: &serde_json::Value, problems: &mut Vec<String>) {
        let has = |key: &str| schema.get(key).is_some();
        match schema["type"].as_str() {
            Some("string") if !has("maxLength") && !has("enum") && !has("format") && !has("pattern") => {
                problems.push(format!("{path}: no maxLength"));
            }
            Some("array") if !has("maxItems") => problems.push(format!("{path}: no maxItems")),
            _ => {}
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            bounded(&format!("{path}.{name}"), property, problems);
        }
        if has("items") {
            bounded(&format!("{path}[]"), &schema["items"], problems);
        }
    }

    /// Calls `look` with every schema and its path.
    fn each(path: &str, schema: &serde_json::Value, look: &mut dyn FnMut(&str, &serde_json::Value)) {
        look(path, schema);
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            each(&format!("{path}.{name}"), property, look);
        }
        for (key, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
            if schema[key].is_object() {
                each(&format!("{path}{mark}"), &schema[key], look);
            }
        }
    }

    /// Findings of `wrong` in the schemas of spec and status of all kinds, except Kubernetes' own types inside
    /// read-only fields.
    fn problems(wrong: impl Fn(&str, &serde_json::Value) -> Option<&'static str>) -> Vec<String> {
        let mut found = Vec::new();
        for crd in crds() {
            let version = serde_json::to_value(&crd.spec.versions[0]).unwrap();
            for part in ["spec", "status"] {
                let schema = &version["schema"]["openAPIV3Schema"]["properties"][part];
                each(part, schema, &mut |path, schema| {
                    let ours = !path.contains("preStop.") && !path.contains("containers[].ports[]");
                    if let Some(what) = wrong(path, schema).filter(|_| ours) {
                        found.push(format!("{}: {path}: {what}", crd.spec.names.kind));
                    }
                });
            }
        }
        found
    }

    #[test]
    fn no_schema_says_a_thing_twice_or_hides_a_type() {
        let slips = problems(|_, schema| {
            if schema.get("nullable").is_some() {
                return Some("nullable: OpenAPI v2 then has no type");
            }
            let empty = |all: &serde_json::Value| {
                all.as_array().is_some_and(|a| a.iter().any(|s| s == &serde_json::json!({})))
            };
            if ["anyOf", "oneOf", "allOf"].iter().any(|key| empty(&schema[*key])) {
                return Some("a choice of anything");
            }
            let text = schema["description"].as_str().unwrap_or_default();
            let bounds = text.contains("At least") || text.contains("At most");
            (bounds && (schema.get("minimum").is_some() || schema.get("maximum").is_some()))
                .then_some("a bound that the schema says already")
        });
        assert!(slips.is_empty(), "{slips:#?}");
    }

    #[test]
    fn what_explain_shows_names_every_value_and_every_default() {
        let slips = problems(|path, schema| {
            let text = schema["description"].as_str().unwrap_or_default();
            let values = schema["enum"].as_array().into_iter().flatten().filter_map(|v| v.as_str());
            if path.starts_with("spec") && !values.clone().all(|v| text.contains(&format!("`{v}`"))) {
                return Some("a value that the description does not name");
            }
            let default = &schema["default"];
            if default.is_string() && !text.contains(&format!("`{}` (default", default.as_str().unwrap())) {
                return Some("a default that the description does not name");
            }
            None
        });
        assert!(slips.is_empty(), "{slips:#?}");
    }

    #[test]
    fn lists_of_named_things_are_maps() {
        let slips = problems(|_, schema| {
            let required = schema["items"]["required"].as_array().into_iter().flatten();
            let named = required.filter_map(|v| v.as_str()).any(|v| v == "name" || v == "type");
            let keyed = schema["x-kubernetes-list-type"] == "map";
            (named && !keyed).then_some("keyed by name, and no map")
        });
        assert!(slips.is_empty(), "{slips:#?}");
    }

    #[test]
    fn every_kind_is_found_under_pitstop_and_selected_by_pod_and_phase() {
        for crd in crds() {
            let (names, fields) = (&crd.spec.names, &crd.spec.versions[0].selectable_fields);
            assert_eq!(names.categories.as_deref(), Some(&["pitstop".to_owned()][..]), "{}", names.kind);
            let paths: Vec<_> = fields.iter().flatten().map(|f| f.json_path.as_str()).collect();
            match names.kind.as_str() {
                "NodeWork" => assert!(paths.is_empty()),
                "InPlaceRollout" => assert_eq!(paths, [".spec.targetRef.name", ".status.phase"]),
                "PodImageUpdate" | "PodResize" => assert_eq!(paths, [".spec.podRef.name", ".status.phase"]),
                _ => assert_eq!(paths, [".spec.podName", ".status.phase"]),
            }
        }
    }

    #[test]
    fn both_versions_of_the_request_share_one_schema() {
        let all = crds();
        let versions = &all[0].spec.versions;
        assert_eq!(versions.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["v1alpha1", "v1beta1"]);
        assert_eq!(versions.iter().filter(|v| v.storage).count(), 1);
        assert_eq!(versions[0].schema, versions[1].schema);
    }

    #[test]
    fn a_request_that_nobody_has_seen_says_so() {
        for crd in crds() {
            for version in &crd.spec.versions {
                let schema = serde_json::to_value(version).unwrap();
                let default = &schema["schema"]["openAPIV3Schema"]["properties"]["status"]["default"];
                let requests = crd.spec.names.kind != "NodeWork";
                assert_eq!(
                    *default == json!({"observedGeneration": -1}),
                    requests,
                    "{}",
                    crd.spec.names.kind
                );
            }
        }
    }

    #[test]
    fn every_string_and_list_of_ours_is_bounded() {
        for crd in crds() {
            let value = serde_json::to_value(&crd.spec.versions[0]).unwrap();
            let schema = &value["schema"]["openAPIV3Schema"];
            let mut problems = Vec::new();
            for part in ["spec", "status"] {
                bounded(part, &schema["properties"][part], &mut problems);
            }
            // Kubernetes' own types inside the read-only fields; the webhook refuses them from users.
            problems.retain(|p| !p.contains("preStop.") && !p.contains("containers[].ports[]"));
            assert!(problems.is_empty(), "{}: {problems:#?}", crd.spec.names.kind);
        }
    }
}
