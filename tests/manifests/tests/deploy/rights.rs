//! The rights of both programs and of users: exactly these, so that any widening is a change of this file.

use std::collections::BTreeSet;

use pitstop_manifests_test::Object;
use pitstop_manifests_test::object::{list, text};
use pitstop_manifests_test::rbac::rights;
use serde_json::Value;

use super::folders::{NAMESPACE, default, every_install};

const DAEMON: [&str; 3] = [
    "cluster list pitstop.dev/nodeworks",
    "cluster update pitstop.dev/nodeworks/status",
    "cluster watch pitstop.dev/nodeworks",
];

const CONTROLLER: [&str; 32] = [
    "cluster create events.k8s.io/events",
    "cluster create pitstop.dev/nodeworks",
    "cluster delete apps.kruise.io/containerrecreaterequests",
    "cluster get /nodes",
    "cluster get /pods",
    "cluster list /pods",
    "cluster patch /pods",
    "cluster patch /pods/status",
    "cluster list admissionregistration.k8s.io/mutatingwebhookconfigurations kruise-mutating-webhook-configuration",
    "cluster list admissionregistration.k8s.io/mutatingwebhookconfigurations pitstop",
    "cluster list apiextensions.k8s.io/customresourcedefinitions containerrecreaterequests.apps.kruise.io",
    "cluster list apps.kruise.io/containerrecreaterequests",
    "cluster list pitstop.dev/nodeworks",
    "cluster patch admissionregistration.k8s.io/mutatingwebhookconfigurations pitstop",
    "cluster patch apps.kruise.io/containerrecreaterequests",
    "cluster update apps.kruise.io/containerrecreaterequests/status",
    "cluster patch events.k8s.io/events",
    "cluster patch pitstop.dev/nodeworks",
    "cluster watch /pods",
    "cluster watch admissionregistration.k8s.io/mutatingwebhookconfigurations kruise-mutating-webhook-configuration",
    "cluster watch admissionregistration.k8s.io/mutatingwebhookconfigurations pitstop",
    "cluster watch apiextensions.k8s.io/customresourcedefinitions containerrecreaterequests.apps.kruise.io",
    "cluster watch apps.kruise.io/containerrecreaterequests",
    "cluster watch pitstop.dev/nodeworks",
    "pitstop-system create /secrets",
    "pitstop-system create coordination.k8s.io/leases",
    "pitstop-system list /secrets pitstop-webhook-cert",
    "pitstop-system list coordination.k8s.io/leases pitstop-controller",
    "pitstop-system patch /secrets pitstop-webhook-cert",
    "pitstop-system update coordination.k8s.io/leases pitstop-controller",
    "pitstop-system watch /secrets pitstop-webhook-cert",
    "pitstop-system watch coordination.k8s.io/leases pitstop-controller",
];

fn table(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn the_daemon_reads_order_books_and_writes_their_status_and_nothing_else() {
    for objects in every_install() {
        assert_eq!(rights(&objects, NAMESPACE, "pitstop-daemon").unwrap(), table(&DAEMON));
    }
}

#[test]
fn the_controller_has_exactly_these_rights() {
    for objects in every_install() {
        assert_eq!(rights(&objects, NAMESPACE, "pitstop-controller").unwrap(), table(&CONTROLLER));
    }
}

#[test]
fn nobody_else_is_given_anything() {
    let objects = default();
    let accounts: Vec<&str> =
        objects.iter().filter(|o| o.kind() == "ServiceAccount").map(Object::name).collect();
    assert_eq!(accounts, ["pitstop-controller", "pitstop-daemon"]);
    for binding in objects.iter().filter(|o| o.kind().ends_with("RoleBinding")) {
        let subjects: Vec<&str> = list(&binding.0, "/subjects").iter().map(|s| text(s, "/name")).collect();
        assert_eq!(subjects, [binding.name()], "{} {}", binding.kind(), binding.name());
    }
}

#[test]
fn no_rule_has_a_wildcard_or_a_verb_that_gives_other_rights() {
    for role in default().iter().filter(|o| matches!(o.kind(), "Role" | "ClusterRole")) {
        for rule in list(&role.0, "/rules") {
            for (field, values) in rule.as_object().into_iter().flatten() {
                for value in values.as_array().into_iter().flatten().filter_map(Value::as_str) {
                    let power = ["bind", "escalate", "impersonate", "sign", "approve"].contains(&value);
                    assert!(!value.contains('*') && !power, "{}: {field} {value}", role.name());
                }
            }
        }
    }
}

#[test]
fn users_get_their_rights_by_aggregation_and_never_the_status() {
    let mut granted = Vec::new();
    for role in default() {
        let labels =
            role.0.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default();
        let to: Vec<&str> = labels
            .keys()
            .filter_map(|key| key.strip_prefix("rbac.authorization.k8s.io/aggregate-to-"))
            .collect();
        if to.is_empty() {
            continue;
        }
        for rule in list(&role.0, "/rules") {
            assert_eq!(rule["apiGroups"], serde_json::json!(["apps.kruise.io"]));
            assert_eq!(rule["resources"], serde_json::json!(["containerrecreaterequests"]));
            let verbs: Vec<&str> = list(rule, "/verbs").iter().filter_map(Value::as_str).collect();
            granted.push(format!("{}: {}", to.join(" "), verbs.join(" ")));
        }
    }
    assert_eq!(
        granted,
        ["admin edit view: get list watch", "admin edit: create update patch delete deletecollection"]
    );
}

#[test]
fn resources_of_ours_are_called_as_the_definitions_call_them() {
    let ours = [
        ("apps.kruise.io".to_owned(), pitstop_api::recreate::PLURAL),
        (pitstop_api::GROUP.to_owned(), pitstop_api::nodework::PLURAL),
    ];
    for right in DAEMON.iter().chain(&CONTROLLER) {
        let (group, resource) = right.split(' ').nth(2).unwrap().split_once('/').unwrap();
        let known = [
            "",
            "events.k8s.io",
            "coordination.k8s.io",
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
        ];
        let plural = resource.split('/').next().unwrap();
        assert!(known.contains(&group) || ours.contains(&(group.to_owned(), plural)), "{right}");
    }
}
