//! Rights that the roles and bindings of a set of manifests grant to a `ServiceAccount`, rule by rule, as text.
//! `tests/attacks` tests the API server's decisions.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::object::{Object, list, text};

/// Every RBAC verb: those of requests, and those that only roles name. `tests/attacks` tests each with the API server.
pub const VERBS: [&str; 14] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "escalate",
    "impersonate",
    "approve",
    "sign",
];

/// Every right of a `ServiceAccount`, one line each: `SCOPE VERB GROUP/RESOURCE[ NAME]`, where the scope is
/// `cluster` or a namespace and the core group is empty. Two bindings that grant the same give one line.
///
/// Fails for unsupported bindings: to a group or a user, or to a role that is not in the manifests.
pub fn rights(objects: &[Object], namespace: &str, account: &str) -> Result<BTreeSet<String>> {
    let mut rights = BTreeSet::new();
    for binding in objects.iter().filter(|o| matches!(o.kind(), "RoleBinding" | "ClusterRoleBinding")) {
        if !names(binding, namespace, account)? {
            continue;
        }
        let scope = if binding.kind() == "RoleBinding" { binding.namespace() } else { "cluster" };
        let role = role_of(objects, binding)?;
        for rule in list(&role.0, "/rules") {
            unfold(rule, scope, &mut rights);
        }
    }
    Ok(rights)
}

fn names(binding: &Object, namespace: &str, account: &str) -> Result<bool> {
    let mut found = false;
    for subject in list(&binding.0, "/subjects") {
        if text(subject, "/kind") != "ServiceAccount" {
            bail!("{} {} grants to a {}", binding.kind(), binding.name(), text(subject, "/kind"));
        }
        found |= text(subject, "/namespace") == namespace && text(subject, "/name") == account;
    }
    Ok(found)
}

fn role_of<'a>(objects: &'a [Object], binding: &Object) -> Result<&'a Object> {
    let (kind, name) = (text(&binding.0, "/roleRef/kind"), text(&binding.0, "/roleRef/name"));
    objects
        .iter()
        .filter(|o| o.kind() == kind && o.name() == name)
        .find(|o| kind == "ClusterRole" || o.namespace() == binding.namespace())
        .with_context(|| format!("{} {}: no {kind} {name} here", binding.kind(), binding.name()))
        .and_then(|role| match role.0.get("aggregationRule") {
            Some(_) => bail!("{kind} {name} gathers rules that are not written in it"),
            None => Ok(role),
        })
}

fn unfold(rule: &Value, scope: &str, rights: &mut BTreeSet<String>) {
    let names = list(rule, "/resourceNames");
    for verb in list(rule, "/verbs").iter().filter_map(Value::as_str) {
        for url in list(rule, "/nonResourceURLs").iter().filter_map(Value::as_str) {
            rights.insert(format!("{scope} {verb} {url}"));
        }
        for group in list(rule, "/apiGroups").iter().filter_map(Value::as_str) {
            for resource in list(rule, "/resources").iter().filter_map(Value::as_str) {
                let right = format!("{scope} {verb} {group}/{resource}");
                if names.is_empty() {
                    rights.insert(right.clone());
                }
                for name in names.iter().filter_map(Value::as_str) {
                    rights.insert(format!("{right} {name}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn binding(role: &str, subject: &Value) -> Object {
        Object(json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "subjects": [subject],
                      "roleRef": {"kind": "ClusterRole", "name": role}}))
    }

    fn account() -> Value {
        json!({"kind": "ServiceAccount", "namespace": "n", "name": "a"})
    }

    fn role(rules: &Value) -> Object {
        Object(json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": rules}))
    }

    #[test]
    fn rules_are_unfolded_and_names_stay_with_them() {
        let rules = json!([
            {"apiGroups": ["", "x.io"], "resources": ["a"], "verbs": ["get", "list"]},
            {"apiGroups": [""], "resources": ["a"], "resourceNames": ["one", "two"], "verbs": ["patch"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
        ]);
        let found = rights(&[role(&rules), binding("r", &account())], "n", "a").unwrap();
        let expected = [
            "cluster get /a",
            "cluster get /metrics",
            "cluster get x.io/a",
            "cluster list /a",
            "cluster list x.io/a",
            "cluster patch /a one",
            "cluster patch /a two",
        ];
        assert_eq!(found, expected.map(str::to_owned).into());
    }

    #[test]
    fn rights_of_another_account_do_not_count() {
        let rules = json!([{"apiGroups": [""], "resources": ["a"], "verbs": ["get"]}]);
        let other = json!({"kind": "ServiceAccount", "namespace": "other", "name": "a"});
        assert!(rights(&[role(&rules), binding("r", &other)], "n", "a").unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_judged_is_an_error() {
        let everyone = json!({"kind": "Group", "name": "system:serviceaccounts"});
        assert!(rights(&[role(&json!([])), binding("r", &everyone)], "n", "a").is_err());
        assert!(rights(&[binding("cluster-admin", &account())], "n", "a").is_err());
    }
}
