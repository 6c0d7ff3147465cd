//! The readiness gate for Pods that opt in: by an admission policy, or by a webhook for these Pods alone.

use std::collections::BTreeSet;

use pitstop_controller_core::readiness::{OPT_IN, PITSTOP_READY};
use pitstop_manifests_test::object::{list, text};
use pitstop_manifests_test::{Object, find, kustomize, root};
use serde_json::{Value, json};

use super::folders::{default, gate_webhook};

const POLICY: &str = "pitstop-readiness-gate";

fn policy(objects: &[Object]) -> &Value {
    &find(objects, "MutatingAdmissionPolicy", POLICY).unwrap().0["spec"]
}

/// Selector that excludes namespaces whose Pods must not wait for pitstop's gate: the cluster's and pitstop's own.
fn elsewhere() -> Value {
    let names = ["kube-system", "pitstop-system"];
    json!([{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names}])
}

fn new_pods() -> Value {
    json!([{
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
        "scope": "Namespaced"
    }])
}

/// The two ways to opt in: a namespace without some of its Pods, or single Pods.
fn ways() -> [(Value, Value); 2] {
    [
        (
            json!({OPT_IN: "enabled"}),
            json!({"matchExpressions": [{"key": OPT_IN, "operator": "NotIn", "values": ["disabled"]}]}),
        ),
        (Value::Null, json!({"matchLabels": {OPT_IN: "enabled"}})),
    ]
}

#[test]
fn the_policy_is_about_new_pods_and_holds_up_none() {
    let objects = default();
    let policy = policy(&objects);
    assert_eq!(policy["failurePolicy"], "Ignore");
    let constraints = &policy["matchConstraints"];
    assert_eq!(constraints["resourceRules"], new_pods());
    assert_eq!(constraints["namespaceSelector"], json!({"matchExpressions": elsewhere()}));
    assert_eq!(constraints.get("objectSelector"), None, "the bindings select");
}

#[test]
fn the_policys_gate_is_ours_and_is_given_once() {
    let objects = default();
    let policy = policy(&objects);
    let mutations = list(policy, "/mutations");
    assert_eq!(mutations.len(), 1);
    let patch = text(&mutations[0], "/jsonPatch/expression");
    let gate = json!({"conditionType": PITSTOP_READY}).to_string().replace(':', ": ");
    assert_eq!(patch.matches(&gate).count(), 2, "{patch}");
    assert!(!patch.contains("Object."), "an API server may panic: {patch}");
    let conditions = list(policy, "/matchConditions");
    let without = conditions.iter().find(|c| c["name"] == "without-the-gate").unwrap();
    assert!(text(without, "/expression").contains(&format!("g.conditionType == '{PITSTOP_READY}'")));
}

#[test]
fn the_policys_bindings_select_those_that_opted_in() {
    let objects = default();
    let bindings: Vec<&Object> =
        objects.iter().filter(|o| o.kind() == "MutatingAdmissionPolicyBinding").collect();
    assert_eq!(bindings.len(), 2);
    for (binding, (namespaces, pods)) in bindings.iter().zip(ways()) {
        let spec = &binding.0["spec"];
        assert_eq!(spec["policyName"], POLICY);
        assert_eq!(spec["paramRef"], json!({"name": "pitstop", "parameterNotFoundAction": "Allow"}));
        let selected = spec["matchResources"].pointer("/namespaceSelector/matchLabels");
        assert_eq!(selected.unwrap_or(&Value::Null), &namespaces, "{}", binding.name());
        assert_eq!(spec["matchResources"]["objectSelector"], pods, "{}", binding.name());
    }
}

/// Without the programs, no gate would open. `kubectl delete -k deploy/base` removes the policy's parameter, and so
/// does the removal of all or of any overlay.
#[test]
fn no_pod_gets_the_gate_once_the_programs_are_removed() {
    let objects = default();
    let policy = policy(&objects);
    let kind =
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"});
    assert_eq!(policy["paramKind"], kind);
    let base = kustomize::load(&root().join("deploy/base")).unwrap();
    let parameters = |objects: &[Object]| {
        objects.iter().filter(|o| o.kind() == "MutatingWebhookConfiguration" && o.name() == "pitstop").count()
    };
    assert_eq!((parameters(&base), parameters(&objects)), (1, 1), "it is in base, and nowhere else");
}

#[test]
fn the_webhook_takes_the_place_of_the_policy_and_changes_nothing_else() {
    let (policy, webhook) = (default(), gate_webhook());
    let names = |objects: &[Object]| -> BTreeSet<String> {
        let others = objects.iter().filter(|o| !o.kind().starts_with("MutatingAdmissionPolicy"));
        others.map(|o| format!("{} {}", o.kind(), o.name())).collect()
    };
    assert_eq!(names(&policy), names(&webhook));
    assert!(webhook.iter().all(|o| !o.kind().starts_with("MutatingAdmissionPolicy")));
}

#[test]
fn the_webhook_is_asked_about_new_pods_that_opted_in_and_fails_open() {
    let objects = gate_webhook();
    let configuration = find(&objects, "MutatingWebhookConfiguration", "pitstop").unwrap();
    let webhooks = list(&configuration.0, "/webhooks");
    let kinds =
        [pitstop_api::recreate::PLURAL, pitstop_api::resize::PLURAL, pitstop_api::image_update::PLURAL];
    assert_eq!(webhooks.len(), kinds.len() + ways().len());
    for (webhook, plural) in webhooks.iter().zip(kinds) {
        assert_eq!(webhook["rules"][0]["resources"], json!([plural]));
    }
    for (webhook, (namespaces, pods)) in webhooks[kinds.len()..].iter().zip(ways()) {
        let name = text(webhook, "/name");
        assert_eq!(webhook["rules"], new_pods(), "{name}");
        assert_eq!(webhook["failurePolicy"], "Ignore", "{name}");
        assert_eq!(webhook["sideEffects"], "None", "{name}");
        assert!(webhook["timeoutSeconds"].as_u64().unwrap() <= 2, "{name}");
        assert_eq!(webhook["namespaceSelector"]["matchExpressions"], elsewhere(), "{name}");
        let selected = webhook.pointer("/namespaceSelector/matchLabels").unwrap_or(&Value::Null);
        assert_eq!(selected, &namespaces, "{name}");
        assert_eq!(webhook["objectSelector"], pods, "{name}");
        let mut service = webhooks[0]["clientConfig"].clone();
        service["service"]["path"] = json!("/inject-readiness-gate");
        assert_eq!(webhook["clientConfig"], service, "{name}");
    }
}
