//! Every right of a daemon's token, as the API server counts them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use pitstop_e2e::discovery::{self, VERBS};
use pitstop_e2e::system::NAMESPACE;
use serde_json::{Value, json};

use super::resources::full_name;
use crate::ask;
use crate::report::Report;
use crate::stage::Stage;

/// Everything that a daemon's token may do to resources.
const RIGHTS: [(&str, &str); 5] = [
    // Its own: deploy/base/daemon/rbac.yaml.
    ("pitstop.dev/nodeworks", "list watch"),
    ("pitstop.dev/nodeworks/status", "update"),
    // Everybody's: the API server's role system:basic-user.
    ("authentication.k8s.io/selfsubjectreviews", "create"),
    ("authorization.k8s.io/selfsubjectaccessreviews", "create"),
    ("authorization.k8s.io/selfsubjectrulesreviews", "create"),
];

/// Every path that it may get: the API server's roles system:discovery, system:public-info-viewer and
/// system:service-account-issuer-discovery.
const PATHS: [&str; 15] = [
    "/.well-known/openid-configuration",
    "/.well-known/openid-configuration/",
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/openid/v1/jwks",
    "/openid/v1/jwks/",
    "/readyz",
    "/version",
    "/version/",
];

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let rights: BTreeMap<&str, &str> = RIGHTS.into();
    let mut resources = BTreeMap::new();
    for found in discovery::resources(&stage.cluster.client).await? {
        resources.insert(full_name(&found), found.resource.namespaced);
    }
    for (name, namespaced) in resources {
        let expected = rights.get(name.as_str()).copied().unwrap_or("none");
        let seen = allowed(stage, &name, namespaced).await?;
        report.fact("daemon A", &format!("rights on {name}"), expected, &seen);
    }
    for namespace in ["default", NAMESPACE] {
        let rules = rules(stage, namespace).await?;
        let expected: BTreeSet<String> = RIGHTS
            .into_iter()
            .flat_map(|(name, verbs)| verbs.split(' ').map(move |verb| format!("{verb} {name}")))
            .chain(PATHS.map(|path| format!("get {path}")))
            .collect();
        let what = format!("all rules in the namespace {namespace}");
        report.fact("daemon A", &what, "exact", &difference(&expected, &rules));
    }
    Ok(())
}

/// The verbs that are allowed on a resource, in all namespaces or in pitstop's.
async fn allowed(stage: &Stage, name: &str, namespaced: bool) -> Result<String> {
    const AT_A_TIME: usize = 12;
    let (group, resource) = name.split_once('/').context("a resource without a group")?;
    let (resource, sub) = resource.split_once('/').unwrap_or((resource, ""));
    let group = if group == "core" { "" } else { group };
    let scopes = if namespaced { vec!["", NAMESPACE] } else { vec![""] };
    let questions = VERBS.iter().flat_map(|verb| scopes.iter().map(move |namespace| (*verb, *namespace)));
    let answers: Vec<Option<&str>> = stream::iter(questions)
        .map(async |(verb, namespace)| {
            let attributes = json!({"group": group, "resource": resource, "subresource": sub, "verb": verb, "namespace": namespace});
            let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes}});
            let question = ask::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review);
            let answer = stage.a().daemon.who.send(question).await;
            let allowed = answer.json().pointer("/status/allowed").and_then(Value::as_bool);
            let allowed = allowed.with_context(|| format!("{} {}", answer.code, answer.text))?;
            anyhow::Ok(allowed.then_some(verb))
        })
        .buffered(AT_A_TIME)
        .try_collect()
        .await?;
    let mut verbs: Vec<&str> = answers.into_iter().flatten().collect();
    verbs.dedup();
    Ok(if verbs.is_empty() { "none".to_owned() } else { verbs.join(" ") })
}

/// Every rule that holds for the token in a namespace, `verb group/resource` or `verb path`.
async fn rules(stage: &Stage, namespace: &str) -> Result<BTreeSet<String>> {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace}});
    let question = ask::post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", &review);
    let answer = stage.a().daemon.who.send(question).await;
    let json = answer.json();
    let status = json.get("status").with_context(|| answer.text.clone())?;
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        let list = rule[key].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut rules = BTreeSet::new();
    for rule in status["resourceRules"].as_array().into_iter().flatten() {
        // A rule that is bound to names is no less one.
        let names = texts(rule, "resourceNames").join(",");
        for verb in texts(rule, "verbs") {
            for group in texts(rule, "apiGroups") {
                for resource in texts(rule, "resources") {
                    rules.insert(format!("{verb} {group}/{resource} {names}").trim_end().to_owned());
                }
            }
        }
    }
    for rule in status["nonResourceRules"].as_array().into_iter().flatten() {
        for verb in texts(rule, "verbs") {
            rules.extend(texts(rule, "nonResourceURLs").iter().map(|path| format!("{verb} {path}")));
        }
    }
    Ok(rules)
}

/// `exact`, or what is too much and what is missing.
fn difference(expected: &BTreeSet<String>, seen: &BTreeSet<String>) -> String {
    let more = seen.difference(expected).map(|rule| format!("+{rule}"));
    let less = expected.difference(seen).map(|rule| format!("-{rule}"));
    let all: Vec<String> = more.chain(less).collect();
    if all.is_empty() { "exact".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_named() {
        let set = |rules: &[&str]| rules.iter().map(|rule| (*rule).to_owned()).collect();
        assert_eq!(difference(&set(&["a"]), &set(&["a"])), "exact");
        assert_eq!(difference(&set(&["a", "b"]), &set(&["b", "c"])), "+c, -a");
    }
}
