//! The admission policies that narrow what the programs' rights are good for. What they say to real writes,
//! `tests/e2e` and `tests/attacks` show.

use std::collections::BTreeSet;

use pitstop_api::GROUP;
use pitstop_api::nodework::PLURAL;
use pitstop_controller_core::guard::{POLICY, PROBE};
use pitstop_controller_core::readiness::SERVED;
use pitstop_manifests_test::Object;
use pitstop_manifests_test::object::{list, text};
use serde_json::Value;

use super::folders::{NAMESPACE, default, every_install};

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
                assert_eq!(binding.0.pointer("/spec/validationActions"), Some(&serde_json::json!(["Deny"])));
                assert_eq!(binding.0.pointer("/spec/matchResources"), None, "it holds everywhere");
                text(&binding.0, "/spec/policyName")
            })
            .collect();
        assert_eq!(policies, bound);
    }
}

#[test]
fn policies_concern_pitstop_alone_and_fail_closed() {
    for policy in of_kind(&default(), "ValidatingAdmissionPolicy") {
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
            _ => by("controller"),
        };
        assert_eq!(conditions, [expected], "{}", policy.name());
    }
}

/// Between a right and the policy that comes after it, the right is worth all that it says.
#[test]
fn policies_are_applied_before_the_rights_that_they_narrow() {
    for objects in every_install() {
        let at = |kind: &str, name: &str| {
            objects
                .iter()
                .position(|o| o.kind() == kind && o.name() == name)
                .unwrap_or_else(|| panic!("{name}"))
        };
        for policy in of_kind(&objects, "ValidatingAdmissionPolicy").map(Object::name) {
            let program = if policy == POLICY { "pitstop-daemon" } else { "pitstop-controller" };
            let right = at("ClusterRoleBinding", program);
            assert!(at("ValidatingAdmissionPolicy", policy) < right, "{policy}");
            assert!(at("ValidatingAdmissionPolicyBinding", policy) < right, "{policy}");
        }
    }
}

/// Also rights that somebody adds: everything that can be written is looked at.
#[test]
fn the_daemons_policy_looks_at_every_write() {
    let objects = default();
    let policy = pitstop_manifests_test::find(&objects, "ValidatingAdmissionPolicy", POLICY).unwrap();
    assert_eq!(
        policy.0.pointer("/spec/matchConstraints"),
        Some(&serde_json::json!({"resourceRules":
            [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]}))
    );
}

/// A right to change Pods goes with a policy for that very resource.
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
