//! The admission policies that restrict the programs' rights. `tests/e2e` and `tests/attacks` test them with real
//! writes.

use std::collections::BTreeSet;

use pitstop_api::GROUP;
use pitstop_api::nodework::PLURAL;
use pitstop_api::resize;
use pitstop_controller_core::guard::{POLICY, PROBE};
use pitstop_controller_core::readiness::SERVED;
use pitstop_manifests_test::Object;
use pitstop_manifests_test::object::{list, text};
use serde_json::{Value, json};

use super::folders::{NAMESPACE, RIGHTS, combined, default, every_install, with};

fn of_kind<'a>(objects: &'a [Object], kind: &'a str) -> impl Iterator<Item = &'a Object> {
    objects.iter().filter(move |o| o.kind() == kind)
}

#[test]
fn every_policy_is_bound_and_denies() {
    for objects in every_install() {
        let policies: BTreeSet<&str> =
            of_kind(&objects, "ValidatingAdmissionPolicy").map(Object::name).collect();
        assert!(!policies.is_empty());
        let bound: BTreeSet<&str> = of_kind(&objects, "ValidatingAdmissionPolicyBinding")
            .map(|binding| {
                assert_eq!(binding.0.pointer("/spec/validationActions"), Some(&json!(["Deny"])));
                assert_eq!(binding.0.pointer("/spec/matchResources"), None, "it holds everywhere");
                text(&binding.0, "/spec/policyName")
            })
            .collect();
        assert_eq!(policies, bound);
    }
}

/// [`USERS`] also concerns users, but only pitstop's own objects: `a_user_is_asked_about_resizes_and_nothing_else`.
#[test]
fn policies_concern_pitstop_alone_and_fail_closed() {
    let objects = combined("default", &RIGHTS);
    for policy in of_kind(&objects, "ValidatingAdmissionPolicy") {
        assert_eq!(text(&policy.0, "/spec/failurePolicy"), "Fail", "{}", policy.name());
        let conditions: Vec<&str> =
            list(&policy.0, "/spec/matchConditions").iter().map(|c| text(c, "/expression")).collect();
        let by = |program: &str| {
            format!("request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:pitstop-{program}'")
        };
        let expected = match policy.name() {
            POLICY => format!(
                "{} || (request.resource.group == '{GROUP}' && request.resource.resource == '{PLURAL}' && \
                 request.operation == 'CREATE' && request.name == '{PROBE}')",
                by("daemon")
            ),
            USERS | USERS_IMAGES | USERS_ROLLOUTS => {
                "request.operation == 'CREATE' || object.spec != oldObject.spec".to_owned()
            }
            // Applies to every client.
            BOUNDS => String::new(),
            _ => by("controller"),
        };
        let expected: Vec<&str> = [expected.as_str()].into_iter().filter(|text| !text.is_empty()).collect();
        assert_eq!(conditions, expected, "{}", policy.name());
    }
}

/// Policy that bounds the metadata of requests.
const BOUNDS: &str = "pitstop-bounds";

#[test]
fn every_kind_of_request_is_bounded() {
    for objects in every_install() {
        let policy = pitstop_manifests_test::find(&objects, "ValidatingAdmissionPolicy", BOUNDS).unwrap();
        let rules = list(&policy.0, "/spec/matchConstraints/resourceRules");
        let bounded = |group: &str, plural: &str| {
            rules.iter().any(|r| r["apiGroups"] == json!([group]) && r["resources"] == json!([plural]))
        };
        for about in pitstop_controller_core::kinds::all() {
            assert!(bounded(about.group(), about.plural), "{}", about.id);
        }
    }
}

/// Policies that require the author's own right to each action of a request.
const USERS: &str = "pitstop-users";
const USERS_IMAGES: &str = "pitstop-users-images";
const USERS_ROLLOUTS: &str = "pitstop-users-rollouts";

#[test]
fn a_user_is_asked_about_resizes_and_nothing_else() {
    for objects in every_install() {
        let policy = pitstop_manifests_test::find(&objects, "ValidatingAdmissionPolicy", USERS).unwrap();
        let rules = json!([{
            "apiGroups": [GROUP],
            "apiVersions": ["v1alpha1"],
            "operations": ["CREATE", "UPDATE"],
            "resources": [resize::PLURAL],
            "scope": "Namespaced",
        }]);
        assert_eq!(policy.0["spec"]["matchConstraints"], json!({"resourceRules": rules}), "not their status");
    }
}

/// Each deed requires its right. Every denial names the right and the role that grants it.
#[test]
fn each_deed_of_a_resize_takes_the_right_to_do_it_by_hand() {
    let objects = default();
    let policy = pitstop_manifests_test::find(&objects, "ValidatingAdmissionPolicy", USERS).unwrap();
    let of_pod = ".namespace(request.namespace) .name(object.spec.podRef.name)";
    let expected = [
        (
            format!(
                "authorizer.group('').resource('pods').subresource('resize'){of_pod}.check('patch').allowed()"
            ),
            ["patch pods/resize", "ClusterRole pitstop-resizer"],
        ),
        (
            format!(
                "!variables.evicts || authorizer.group('').resource('pods').subresource('eviction'){of_pod}\
                 .check('create').allowed()"
            ),
            ["create pods/eviction", "ClusterRole edit"],
        ),
        (
            "!variables.restarts || authorizer.group('apps.kruise.io').resource('containerrecreaterequests')\
             .namespace(request.namespace).check('create').allowed()"
                .to_owned(),
            ["create containerrecreaterequests.apps.kruise.io", "ClusterRole pitstop-edit"],
        ),
    ];
    let validations = list(&policy.0, "/spec/validations");
    assert_eq!(validations.len(), expected.len());
    let spaceless = |text: &str| text.replace([' ', '\n'], "");
    for (validation, (expression, words)) in validations.iter().zip(expected) {
        assert_eq!(spaceless(text(validation, "/expression")), spaceless(&expression));
        assert_eq!(text(validation, "/reason"), "Forbidden");
        let message = text(validation, "/messageExpression").replace("\" + \"", "");
        for word in words {
            assert!(message.contains(word), "{message}");
            assert!(text(validation, "/message").contains(word), "{validation}");
        }
    }
    // Both fields that can ask for an eviction, and the same word in all types.
    let evicts = list(&policy.0, "/spec/variables").iter().find(|v| v["name"] == "evicts").unwrap();
    let serialized = [json!(resize::LastResort::Evict), json!(resize::AfterWait::Evict), json!("Evict")];
    assert!(serialized.iter().all(|word| *word == serialized[0]));
    for field in ["onInfeasible", "onDeferred"] {
        assert!(text(evicts, "/expression").contains(&format!("{field}.?then.orValue('') == 'Evict'")));
    }
}

/// The policy also restricts rights added by others. It skips the most frequent writes, because a policy slows them for
/// all clients.
#[test]
fn the_daemons_policy_looks_at_every_write_but_the_most_common() {
    let objects = default();
    let policy = pitstop_manifests_test::find(&objects, "ValidatingAdmissionPolicy", POLICY).unwrap();
    assert_eq!(
        policy.0.pointer("/spec/matchConstraints"),
        Some(&json!({
            "resourceRules": [
                {"apiGroups": ["pitstop.dev"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]},
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "DELETE", "CONNECT"],
                    "resources": ["*/*"]},
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources":
                    ["*", "*/approval", "*/ephemeralcontainers", "*/finalize", "*/resize", "*/scale"]},
            ],
            "excludeResourceRules": [
                {"apiGroups": ["coordination.k8s.io"], "apiVersions": ["*"], "operations": ["*"], "resources": ["leases"]},
                {"apiGroups": ["", "events.k8s.io"], "apiVersions": ["*"], "operations": ["*"], "resources": ["events"]},
            ],
        }))
    );
}

/// The component changes only that expression, which checks the namespace's label in the API server.
#[test]
fn images_of_other_versions_are_for_namespaces_that_opted_in_with_the_component() {
    let of = |objects: &[Object]| -> Value {
        let name = "pitstop-controller-pods";
        pitstop_manifests_test::find(objects, "ValidatingAdmissionPolicy", name).unwrap().0.clone()
    };
    let in_place = "/spec/variables/0";
    let (mut without, with) = (of(&default()), of(&with("image-update")));
    assert_eq!(without.pointer(in_place), Some(&json!({"name": "inPlace", "expression": "false"})));
    let label = "namespaceObject.metadata.?labels[?'pitstop.dev/in-place'].orValue('') == 'enabled'";
    without["spec"]["variables"][0]["expression"] = json!(label);
    assert_eq!(without, with);
}

/// The component only adds the right and its policy, which covers creation and deletion.
#[test]
fn pods_that_pull_are_made_and_deleted_under_a_policy_that_comes_with_the_right() {
    let usual = default();
    let more: Vec<Object> = with("image-puller").into_iter().filter(|o| !usual.contains(o)).collect();
    let kinds: BTreeSet<&str> = more.iter().map(Object::kind).collect();
    let expected = [
        "ClusterRole",
        "ClusterRoleBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    assert_eq!((more.len(), kinds), (4, expected.into()));
    let policy = of_kind(&more, "ValidatingAdmissionPolicy").next().unwrap();
    assert_eq!(
        policy.0.pointer("/spec/matchConstraints"),
        Some(&json!({"resourceRules":
            [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "DELETE"], "resources": ["pods"]}]}))
    );
}

/// A policy covers each resource of Pods that the controller may change.
#[test]
fn every_right_to_change_pods_has_its_policy() {
    let objects = default();
    let mut rights: BTreeSet<&str> = BTreeSet::new();
    for role in objects.iter().filter(|o| o.kind() == "ClusterRole" && o.name() == "pitstop-controller") {
        for rule in list(&role.0, "/rules") {
            let verbs: Vec<&str> = list(rule, "/verbs").iter().filter_map(Value::as_str).collect();
            let changes = verbs.iter().any(|v| ["create", "update", "patch", "delete"].contains(v));
            let names = list(rule, "/resources").iter().filter_map(Value::as_str);
            rights.extend(names.filter(|r| changes && r.split('/').next() == Some("pods")));
        }
    }
    let guarded: BTreeSet<&str> = of_kind(&objects, "ValidatingAdmissionPolicy")
        .flat_map(|policy| list(&policy.0, "/spec/matchConstraints/resourceRules"))
        .flat_map(|rule| list(rule, "/resources").iter().filter_map(Value::as_str))
        .collect();
    assert!(rights.contains("pods"));
    assert!(rights.is_subset(&guarded), "{rights:?} with policies for {guarded:?}");
}

#[test]
fn the_policy_of_the_status_names_the_gates_that_are_served() {
    let objects = default();
    let policy =
        pitstop_manifests_test::find(&objects, "ValidatingAdmissionPolicy", "pitstop-controller-pods-status");
    let variables = list(&policy.unwrap().0, "/spec/variables");
    let own = variables.iter().find(|v| v["name"] == "own").unwrap();
    assert_eq!(text(own, "/expression"), format!("['{}']", SERVED.join("', '")));
}
