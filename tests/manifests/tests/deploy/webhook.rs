//! The admission webhook: the reviewed kinds, and that no write depends on it.

use std::collections::BTreeMap;

use pitstop_controller_core::kind::About;
use pitstop_controller_core::kinds::all;
use pitstop_manifests_test::object::list;
use pitstop_manifests_test::{Object, find, text};
use serde_json::{Value, json};

use super::folders::default;

/// All configured webhooks.
fn webhooks(objects: &[Object]) -> Vec<&Value> {
    let all: Vec<&Object> = objects.iter().filter(|o| o.kind().ends_with("WebhookConfiguration")).collect();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].kind(), all[0].name()), ("MutatingWebhookConfiguration", "pitstop"));
    list(&all[0].0, "/webhooks").iter().collect()
}

/// The reviewed kinds in the controller's list, in every served version.
#[test]
fn it_is_asked_about_the_kinds_that_are_reviewed_and_nothing_else() {
    let objects = default();
    let found: BTreeMap<&str, &Value> = webhooks(&objects)
        .into_iter()
        .map(|webhook| (text(webhook, "/clientConfig/service/path"), &webhook["rules"]))
        .collect();
    let rules = |about: &About| {
        let crd = format!("{}.{}", about.plural, about.group());
        let crd = find(&objects, "CustomResourceDefinition", &crd).unwrap();
        let versions: Vec<&str> =
            list(&crd.0, "/spec/versions").iter().map(|version| text(version, "/name")).collect();
        json!([{
            "apiGroups": [about.group()],
            "apiVersions": versions,
            "operations": ["CREATE", "UPDATE"],
            "resources": [about.plural],
            "scope": "Namespaced"
        }])
    };
    let reviewed = all().filter_map(|about| Some((about.review.as_ref()?.path, rules(about))));
    let expected: BTreeMap<&str, Value> = reviewed.collect();
    assert_eq!(found, expected.iter().map(|(path, rules)| (*path, rules)).collect());
}

#[test]
fn nothing_depends_on_its_answer_and_no_write_waits_long_for_it() {
    let objects = default();
    for webhook in webhooks(&objects) {
        assert_eq!(webhook["failurePolicy"], "Ignore");
        assert_eq!(webhook["sideEffects"], "None");
        assert_eq!(webhook["matchPolicy"], "Equivalent");
        assert_eq!(webhook["reinvocationPolicy"], "Never");
        assert!(webhook["timeoutSeconds"].as_u64().unwrap() <= 3);
        assert_eq!(webhook["admissionReviewVersions"], json!(["v1"]));
    }
}

#[test]
fn it_is_reached_through_its_service_with_a_ca_that_the_controller_fills_in() {
    let objects = default();
    for webhook in webhooks(&objects) {
        let path = text(webhook, "/clientConfig/service/path");
        let kind = path.strip_prefix("/mutate-").unwrap();
        assert_eq!(webhook["name"], format!("m{kind}.pitstop.dev"));
        let service =
            json!({"namespace": "pitstop-system", "name": "pitstop-webhook", "port": 443, "path": path});
        assert_eq!(webhook["clientConfig"], json!({"service": service}));
    }
    let service = find(&objects, "Service", "pitstop-webhook").unwrap();
    assert_eq!(
        service.0["spec"]["ports"],
        json!([{"name": "webhook", "port": 443, "targetPort": "webhook"}])
    );
    assert_eq!(service.0["spec"].get("type"), None, "reached from within the cluster only");
    let controller = find(&objects, "Deployment", "pitstop-controller").unwrap();
    let ports = list(controller.pod().unwrap(), "/spec/containers/0/ports");
    assert!(ports.contains(&json!({"name": "webhook", "containerPort": 9443})), "{ports:?}");
}
