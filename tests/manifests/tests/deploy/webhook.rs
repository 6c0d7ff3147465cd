//! The admission webhook: what it is asked about, and that nothing waits for it.

use pitstop_manifests_test::object::list;
use pitstop_manifests_test::{Object, find};
use serde_json::{Value, json};

use super::folders::default;

fn webhook(objects: &[Object]) -> &Value {
    let all: Vec<&Object> = objects.iter().filter(|o| o.kind().ends_with("WebhookConfiguration")).collect();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].kind(), all[0].name()), ("MutatingWebhookConfiguration", "pitstop"));
    let webhooks = list(&all[0].0, "/webhooks");
    assert_eq!(webhooks.len(), 1);
    &webhooks[0]
}

#[test]
fn it_is_asked_about_requests_and_nothing_else() {
    let objects = default();
    let expected = json!([{
        "apiGroups": ["apps.kruise.io"],
        "apiVersions": ["v1alpha1", "v1beta1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": [pitstop_api::recreate::PLURAL],
        "scope": "Namespaced"
    }]);
    assert_eq!(webhook(&objects)["rules"], expected);
}

#[test]
fn nothing_depends_on_its_answer_and_no_write_waits_long_for_it() {
    let objects = default();
    let webhook = webhook(&objects);
    assert_eq!(webhook["name"], "mcontainerrecreaterequest.pitstop.dev");
    assert_eq!(webhook["failurePolicy"], "Ignore");
    assert_eq!(webhook["sideEffects"], "None");
    assert_eq!(webhook["matchPolicy"], "Equivalent");
    assert_eq!(webhook["reinvocationPolicy"], "Never");
    assert!(webhook["timeoutSeconds"].as_u64().unwrap() <= 3);
    assert_eq!(webhook["admissionReviewVersions"], json!(["v1"]));
}

#[test]
fn it_is_reached_through_its_service_with_a_ca_that_the_controller_fills_in() {
    let objects = default();
    let expected = json!({"service": {
        "namespace": "pitstop-system",
        "name": "pitstop-webhook",
        "port": 443,
        "path": "/mutate-containerrecreaterequest"
    }});
    assert_eq!(webhook(&objects)["clientConfig"], expected);
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
