//! The admission webhook: what it is asked about, and that nothing waits for it.

use pitstop_manifests_test::object::list;
use pitstop_manifests_test::{Object, find};
use serde_json::{Value, json};

use super::folders::default;

/// Those of recreate requests and of resizes.
fn webhooks(objects: &[Object]) -> [&Value; 2] {
    let all: Vec<&Object> = objects.iter().filter(|o| o.kind().ends_with("WebhookConfiguration")).collect();
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].kind(), all[0].name()), ("MutatingWebhookConfiguration", "pitstop"));
    let [recreate, resize] = list(&all[0].0, "/webhooks") else { panic!("{:?}", all[0].0) };
    [recreate, resize]
}

#[test]
fn it_is_asked_about_requests_and_nothing_else() {
    let objects = default();
    let rules = |group: &str, versions: &[&str], plural: &str| {
        json!([{
            "apiGroups": [group],
            "apiVersions": versions,
            "operations": ["CREATE", "UPDATE"],
            "resources": [plural],
            "scope": "Namespaced"
        }])
    };
    let expected = [
        rules("apps.kruise.io", &["v1alpha1", "v1beta1"], pitstop_api::recreate::PLURAL),
        rules("pitstop.dev", &["v1alpha1"], pitstop_api::resize::PLURAL),
    ];
    assert_eq!(webhooks(&objects).map(|webhook| webhook["rules"].clone()), expected);
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
    let names = [
        ("mcontainerrecreaterequest.pitstop.dev", "/mutate-containerrecreaterequest"),
        ("mpodresize.pitstop.dev", "/mutate-podresize"),
    ];
    for (webhook, (name, path)) in webhooks(&objects).into_iter().zip(names) {
        assert_eq!(webhook["name"], name);
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
