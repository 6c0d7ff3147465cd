//! The `CustomResourceDefinition`s of all kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use crate::{nodework::NodeWork, recreate::ContainerRecreateRequest, resize::PodResize};

/// Every `CustomResourceDefinition`, sorted by name.
///
/// `ContainerRecreateRequest` is served as `v1alpha1` and as `v1beta1` with one schema, so no conversion
/// webhook is needed. `v1alpha1` is the stored one: it is what every release of `OpenKruise` stores.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut recreate = ContainerRecreateRequest::crd();
    if let Some(alpha) = recreate.spec.versions.first().cloned() {
        let beta = k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion {
            name: "v1beta1".to_owned(),
            storage: false,
            ..alpha
        };
        recreate.spec.versions.push(beta);
    }
    vec![recreate, NodeWork::crd(), PodResize::crd()]
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

    #[test]
    fn both_versions_of_the_request_share_one_schema() {
        let all = crds();
        let versions = &all[0].spec.versions;
        assert_eq!(versions.iter().map(|v| v.name.as_str()).collect::<Vec<_>>(), ["v1alpha1", "v1beta1"]);
        assert_eq!(versions.iter().filter(|v| v.storage).count(), 1);
        assert_eq!(versions[0].schema, versions[1].schema);
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
