//! The exact rights of both programs and of users. Any wider right needs a change of this file.

use std::collections::BTreeSet;
use std::path::Path;

use pitstop_manifests_test::object::{list, text};
use pitstop_manifests_test::rbac::rights;
use pitstop_manifests_test::{Object, find};
use serde_json::{Value, json};

use super::folders::{NAMESPACE, default, usual_installs, with};

const DAEMON: [&str; 3] = [
    "cluster list pitstop.dev/nodeworks",
    "cluster update pitstop.dev/nodeworks/status",
    "cluster watch pitstop.dev/nodeworks",
];

const CONTROLLER: [&str; 60] = [
    "cluster create apps.kruise.io/containerrecreaterequests",
    "cluster create events.k8s.io/events",
    "cluster create pitstop.dev/nodeworks",
    "cluster delete apps.kruise.io/containerrecreaterequests",
    "cluster delete pitstop.dev/podresizes",
    "cluster list pitstop.dev/podresizes",
    "cluster watch pitstop.dev/podresizes",
    "cluster update pitstop.dev/podresizes/status",
    "cluster delete pitstop.dev/podimageupdates",
    "cluster list pitstop.dev/podimageupdates",
    "cluster watch pitstop.dev/podimageupdates",
    "cluster update pitstop.dev/podimageupdates/status",
    "cluster list pitstop.dev/inplacerollouts",
    "cluster watch pitstop.dev/inplacerollouts",
    "cluster update pitstop.dev/inplacerollouts/status",
    "cluster create pitstop.dev/podimageupdates",
    "cluster patch pitstop.dev/podimageupdates",
    "cluster create pitstop.dev/podresizes",
    "cluster list apps/controllerrevisions",
    "cluster list apps/daemonsets",
    "cluster list apps/deployments",
    "cluster list apps/statefulsets",
    "cluster watch apps/daemonsets",
    "cluster watch apps/deployments",
    "cluster watch apps/statefulsets",
    "cluster get apps/daemonsets",
    "cluster get apps/deployments",
    "cluster get apps/statefulsets",
    "cluster list apps/replicasets",
    "cluster list policy/poddisruptionbudgets",
    "cluster patch /pods/resize",
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
    for objects in usual_installs() {
        assert_eq!(rights(&objects, NAMESPACE, "pitstop-daemon").unwrap(), table(&DAEMON));
    }
}

#[test]
fn the_controller_has_exactly_these_rights() {
    for objects in usual_installs() {
        assert_eq!(rights(&objects, NAMESPACE, "pitstop-controller").unwrap(), table(&CONTROLLER));
    }
}

/// Optional rights, each with its component.
const OPT_IN: [(&str, &[&str]); 3] = [
    ("image-puller", &["cluster create /pods", "cluster delete /pods"]),
    ("resize-cri", &["cluster list /limitranges", "cluster list /resourcequotas"]),
    ("resize-evict", &["cluster create /pods/eviction"]),
];

#[test]
fn a_component_with_rights_of_its_own_gives_those_to_the_controller_alone() {
    for (name, more) in OPT_IN {
        let objects = with(name);
        let mut expected = table(&CONTROLLER);
        expected.extend(table(more));
        assert_eq!(rights(&objects, NAMESPACE, "pitstop-controller").unwrap(), expected);
        assert_eq!(rights(&objects, NAMESPACE, "pitstop-daemon").unwrap(), table(&DAEMON));
        let more = objects.iter().filter(|o| is_about_rights(o)).count();
        let usual = default().iter().filter(|o| is_about_rights(o)).count();
        assert_eq!(more, usual + 2, "a role and its binding");
    }
}

/// The component with a right that namespaces grant.
const IN_PLACE: &str = "in-place";

#[test]
fn the_right_to_release_workloads_is_in_one_role_that_is_bound_nowhere() {
    let usual = default();
    let more: Vec<Object> = with(IN_PLACE).into_iter().filter(|o| !usual.contains(o)).collect();
    let kinds: BTreeSet<&str> = more.iter().map(Object::kind).collect();
    let expected = ["ClusterRole", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
    assert_eq!((more.len(), kinds), (5, expected.into()));
    let role = find(&more, "ClusterRole", "pitstop-in-place").unwrap();
    assert_eq!(
        role.0["rules"],
        json!([{"apiGroups": ["pitstop.dev"], "resources": ["inplacerollouts"], "verbs": ["patch"]},
            {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets", "daemonsets"], "verbs": ["patch"]},
            {"apiGroups": ["apps"], "resources": ["replicasets"], "verbs": ["get", "create", "patch"]}])
    );
    // The policy checks every write of a workload, so it also restricts rights added by others.
    let policy = find(&more, "ValidatingAdmissionPolicy", "pitstop-controller-workloads").unwrap();
    assert_eq!(
        policy.0.pointer("/spec/matchConstraints"),
        Some(&json!({"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["*/*"]}]}))
    );
}

fn is_about_rights(object: &Object) -> bool {
    matches!(object.kind(), "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding" | "ServiceAccount")
}

#[test]
fn every_usual_install_grants_the_same() {
    let of = |objects: Vec<Object>| -> Vec<Object> { objects.into_iter().filter(is_about_rights).collect() };
    let expected = of(default());
    for objects in usual_installs() {
        assert!(of(objects) == expected);
    }
}

/// Covers also files in no installation, which users may apply by hand. The chart has only templates, and links to
/// these files.
#[test]
fn no_file_under_deploy_grants_more() {
    fn visit(folder: &Path, found: &mut Vec<Object>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("deploy/chart") {
                continue;
            }
            if path.is_dir() {
                visit(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = std::fs::read_to_string(&path).unwrap();
                let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
                found.extend(documents.into_iter().map(Object).filter(is_about_rights));
            }
        }
    }
    let mut found = Vec::new();
    visit(&pitstop_manifests_test::root().join("deploy"), &mut found);
    let mut known: Vec<Object> = default().into_iter().filter(is_about_rights).collect();
    for name in OPT_IN.map(|(name, _)| name).into_iter().chain([IN_PLACE]) {
        let more = with(name).into_iter().filter(is_about_rights);
        let more: Vec<Object> = more.filter(|object| !known.contains(object)).collect();
        known.extend(more);
    }
    assert_eq!(found.len(), known.len());
    assert!(found.iter().all(|object| known.contains(object)));
}

#[test]
fn nobody_else_is_given_anything() {
    let objects = default();
    let accounts: Vec<&str> =
        objects.iter().filter(|o| o.kind() == "ServiceAccount").map(Object::name).collect();
    assert_eq!(accounts, ["pitstop-controller", "pitstop-daemon"]);
    for binding in objects.iter().filter(|o| o.kind().ends_with("RoleBinding")) {
        let expected = json!([{"kind": "ServiceAccount", "name": binding.name(), "namespace": NAMESPACE}]);
        assert_eq!(binding.0["subjects"], expected, "{} {}", binding.kind(), binding.name());
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
            let resource = format!("{}/{}", rule["apiGroups"][0], rule["resources"][0]).replace('"', "");
            let ours = [
                "apps.kruise.io/containerrecreaterequests",
                "pitstop.dev/podresizes",
                "pitstop.dev/podimageupdates",
                "pitstop.dev/inplacerollouts",
                "pitstop.dev/nodeworks",
            ];
            assert!(ours.contains(&resource.as_str()), "{resource}");
            assert_eq!((list(rule, "/apiGroups").len(), list(rule, "/resources").len()), (1, 1));
            let verbs: Vec<&str> = list(rule, "/verbs").iter().filter_map(Value::as_str).collect();
            granted.push(format!("{}: {} {resource}", to.join(" "), verbs.join(" ")));
        }
    }
    let all = "create update patch delete deletecollection";
    assert_eq!(
        granted,
        [
            "admin edit view: get list watch apps.kruise.io/containerrecreaterequests".to_owned(),
            "admin edit view: get list watch pitstop.dev/podresizes".to_owned(),
            "admin edit view: get list watch pitstop.dev/podimageupdates".to_owned(),
            "admin edit view: get list watch pitstop.dev/inplacerollouts".to_owned(),
            // A cluster-scoped object, so only for users who may view all namespaces.
            "admin edit view: get list watch pitstop.dev/nodeworks".to_owned(),
            format!("admin edit: {all} apps.kruise.io/containerrecreaterequests"),
            format!("admin edit: {all} pitstop.dev/podresizes"),
            format!("admin edit: {all} pitstop.dev/podimageupdates"),
            format!("admin edit: {all} pitstop.dev/inplacerollouts"),
        ]
    );
}

/// An administrator grants the additional right for a `PodResize` explicitly. No role of Kubernetes has it.
#[test]
fn the_right_to_resize_is_in_one_role_that_nothing_is_joined_to() {
    let resizers: Vec<Object> = default()
        .into_iter()
        .filter(|o| o.kind() == "ClusterRole" && o.name() != "pitstop-controller")
        .filter(|o| {
            list(&o.0, "/rules").iter().any(|rule| list(rule, "/resources").contains(&json!("pods/resize")))
        })
        .collect();
    let [role] = resizers.as_slice() else { panic!("{resizers:?}") };
    assert_eq!(role.name(), "pitstop-resizer");
    assert_eq!(role.0["metadata"]["labels"], json!({"app.kubernetes.io/name": "pitstop"}), "not aggregated");
    let all = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];
    assert_eq!(
        role.0["rules"],
        json!([
            {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
            {"apiGroups": ["pitstop.dev"], "resources": ["podresizes"], "verbs": all},
        ])
    );
    let joined = default();
    let joined = joined.iter().filter(|o| o.kind().ends_with("RoleBinding"));
    assert!(joined.map(|o| text(&o.0, "/roleRef/name")).all(|name| name != "pitstop-resizer"));
}

#[test]
fn resources_of_ours_are_called_as_the_definitions_call_them() {
    let ours = [
        ("apps.kruise.io".to_owned(), pitstop_api::recreate::PLURAL),
        (pitstop_api::GROUP.to_owned(), pitstop_api::nodework::PLURAL),
        (pitstop_api::GROUP.to_owned(), pitstop_api::image_update::PLURAL),
        (pitstop_api::GROUP.to_owned(), pitstop_api::resize::PLURAL),
        (pitstop_api::GROUP.to_owned(), pitstop_api::rollout::PLURAL),
    ];
    for right in DAEMON.iter().chain(&CONTROLLER) {
        let (group, resource) = right.split(' ').nth(2).unwrap().split_once('/').unwrap();
        let known = [
            "",
            "apps",
            "events.k8s.io",
            "coordination.k8s.io",
            "policy",
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
        ];
        let plural = resource.split('/').next().unwrap();
        assert!(known.contains(&group) || ours.contains(&(group.to_owned(), plural)), "{right}");
    }
}

/// Covers the controller's list of kinds.
#[test]
fn every_kind_is_installed_and_the_controller_may_serve_it() {
    let objects = default();
    for about in pitstop_controller_core::kinds::all() {
        let group = about.group();
        let resource = format!("{group}/{}", about.plural);
        let verbs = [("list", ""), ("watch", ""), ("update", "/status"), ("delete", "")];
        // A kind for many Pods has no time to live, so the controller needs no `delete`.
        let verbs = verbs.iter().take(if about.many { 3 } else { 4 });
        for right in verbs.map(|(verb, part)| format!("cluster {verb} {resource}{part}")) {
            assert!(CONTROLLER.contains(&right.as_str()), "{right}");
        }
        let crd = find(&objects, "CustomResourceDefinition", &format!("{}.{group}", about.plural));
        let kind = crd.map(|crd| text(&crd.0, "/spec/names/kind").to_owned());
        assert_eq!(kind.as_deref(), Some(about.id.name()));
    }
}
