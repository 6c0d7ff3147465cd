//! From the API object to what decisions need.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_api::{annotations, labels};

use super::{Metadata, Request};

/// The request for decisions, with only the labels that pitstop knows.
pub fn request(object: ContainerRecreateRequest) -> Request {
    let mut request = admitted(object);
    request.more.labels.retain(|key, _| labels::KNOWN.contains(&key.as_str()));
    request
}

/// The request for admission, with all its labels.
pub fn admitted(object: ContainerRecreateRequest) -> Request {
    let ContainerRecreateRequest { mut metadata, spec, status } = object;
    let annotations = metadata.annotations.take().into_iter().flatten();
    let more = Metadata {
        in_v1beta1: metadata.managed_fields.iter().flatten().any(wrote_spec_in_v1beta1),
        labels: metadata.labels.take().unwrap_or_default(),
        annotations: annotations.filter(|(key, _)| annotations::INTERNAL.contains(&key.as_str())).collect(),
    };
    Request::of(metadata, spec, status, more)
}

fn wrote_spec_in_v1beta1(entry: &ManagedFieldsEntry) -> bool {
    let spec = entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some());
    spec && entry.api_version.as_deref() == Some("apps.kruise.io/v1beta1")
}

#[cfg(test)]
mod tests {
    use pitstop_api::recreate::Phase;

    use super::*;

    #[test]
    fn a_request_keeps_all_that_decisions_rest_on() {
        let text = r#"{"apiVersion":"apps.kruise.io/v1alpha1","kind":"ContainerRecreateRequest",
          "metadata":{"name":"crr","namespace":"shop","uid":"u","resourceVersion":"7","generation":2,
            "creationTimestamp":"1970-01-01T00:01:05Z","deletionTimestamp":"1970-01-01T00:02:00Z",
            "labels":{"a":"b","crr.apps.kruise.io/active":"true"},"annotations":{"example.com/own":"x"}},
          "spec":{"podName":"web","containers":[{"name":"app"}]},"status":{"phase":"Recreating"}}"#;
        let all = admitted(serde_json::from_str(text).unwrap());
        assert_eq!(all.more.labels.get("a").map(String::as_str), Some("b"));
        let request = request(serde_json::from_str(text).unwrap());
        assert_eq!((request.key.to_string().as_str(), request.uid.as_str()), ("shop/crr", "u"));
        assert_eq!((request.resource_version.as_str(), request.generation), ("7", Some(2)));
        assert_eq!((request.created, request.deleting), (65, true));
        let labels: Vec<&str> = request.more.labels.keys().map(String::as_str).collect();
        assert_eq!(labels, [labels::ACTIVE], "those of others are none of its business");
        assert!(request.more.annotations.is_empty(), "nor are their annotations");
        assert_eq!((request.spec.pod_name.as_str(), request.status.phase), ("web", Some(Phase::Recreating)));
    }

    #[test]
    fn the_version_of_a_request_is_that_which_its_spec_was_written_in() {
        let made = |spec: &str, status: &str| {
            let entry = |version: &str, fields: &str| {
                format!(
                    r#"{{"manager":"x","operation":"Update","apiVersion":"apps.kruise.io/{version}","fieldsType":"FieldsV1","fieldsV1":{fields}}}"#
                )
            };
            let entries = [
                entry(status, r#"{"f:metadata":{"f:labels":{}}}"#),
                entry(spec, r#"{"f:spec":{".":{},"f:podName":{}}}"#),
            ];
            let text = format!(
                r#"{{"apiVersion":"apps.kruise.io/v1alpha1","kind":"ContainerRecreateRequest",
                    "metadata":{{"name":"a","namespace":"ns","managedFields":[{}]}},
                    "spec":{{"podName":"web","containers":[{{"name":"app"}}]}}}}"#,
                entries.join(",")
            );
            request(serde_json::from_str(&text).unwrap()).more.in_v1beta1
        };
        assert!(made("v1beta1", "v1alpha1"));
        assert!(!made("v1alpha1", "v1beta1"));
    }
}
