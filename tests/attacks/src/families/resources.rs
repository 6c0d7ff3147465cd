//! Every verb of every resource that the API server serves, asked for in earnest with a daemon's token.

use anyhow::Result;
use http::Method;
use pitstop_e2e::discovery::{self, Found};
use pitstop_e2e::system::NAMESPACE;
use serde_json::{Value, json};

use crate::ask::{self, Ask};
use crate::probe::{Expected, Probe, granted, refused, rights};
use crate::report::Report;
use crate::stage::Stage;

/// A name that nothing has: rights are judged before anything is looked up.
const NAME: &str = "attacks";

/// What a daemon's token is good for, with the object that is sent: the two rights of the daemon, and what the API
/// server grants to every ServiceAccount (its roles `system:basic-user` and `system:discovery`).
fn exceptions() -> Vec<(&'static str, &'static str, Value, Expected)> {
    let review = |group: &str, kind: &str, spec: Value| json!({"apiVersion": format!("{group}.k8s.io/v1"), "kind": kind, "spec": spec});
    let path = json!({"nonResourceAttributes": {"path": "/", "verb": "get"}});
    let namespace = json!({"namespace": "default"});
    let book = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "NodeWork",
        "metadata": {"name": NAME, "resourceVersion": "1"}, "spec": {}});
    vec![
        ("pitstop.dev/nodeworks", "list", Value::Null, granted(200)),
        ("pitstop.dev/nodeworks", "watch", Value::Null, granted(200)),
        ("pitstop.dev/nodeworks/status", "update", book, refused(404, "not found")),
        (
            "authentication.k8s.io/selfsubjectreviews",
            "create",
            review("authentication", "SelfSubjectReview", Value::Null),
            granted(201),
        ),
        (
            "authorization.k8s.io/selfsubjectaccessreviews",
            "create",
            review("authorization", "SelfSubjectAccessReview", path),
            granted(201),
        ),
        (
            "authorization.k8s.io/selfsubjectrulesreviews",
            "create",
            review("authorization", "SelfSubjectRulesReview", namespace),
            granted(201),
        ),
    ]
}

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let who = &stage.a().daemon.who;
    let exceptions = exceptions();
    for found in discovery::resources(&stage.cluster.client).await? {
        let name = full_name(&found);
        for verb in &found.resource.verbs {
            let exception = exceptions.iter().find(|(resource, v, ..)| *resource == name && v == verb);
            let (body, expected) = match exception {
                Some((_, _, body, expected)) => (body.clone(), expected.clone()),
                None => (json!({}), rights()),
            };
            for (scope, ask) in asks(&found, verb, &body) {
                let what = format!("{verb} {name} {}{scope}", found.version);
                report.probe(who, Probe { what, ask, expected: expected.clone() }).await;
            }
        }
    }
    Ok(())
}

/// `group/resource` or `group/resource/subresource`.
pub(super) fn full_name(found: &Found) -> String {
    let group = if found.group.is_empty() { "core" } else { &found.group };
    format!("{group}/{}", found.resource.name)
}

/// The requests of a verb: lists and watches of a namespaced resource in all namespaces and in pitstop's own. What
/// would write is a dry run.
fn asks(found: &Found, verb: &str, body: &Value) -> Vec<(&'static str, Ask)> {
    let root = if found.group.is_empty() {
        format!("/api/{}", found.version)
    } else {
        format!("/apis/{}/{}", found.group, found.version)
    };
    let (resource, sub) = match found.resource.name.split_once('/') {
        Some((resource, sub)) => (resource, format!("/{sub}")),
        None => (found.resource.name.as_str(), String::new()),
    };
    let everywhere = format!("{root}/{resource}");
    let collection = if found.resource.namespaced {
        format!("{root}/namespaces/{NAMESPACE}/{resource}")
    } else {
        everywhere.clone()
    };
    let one = format!("{collection}/{NAME}{sub}");
    let all = if sub.is_empty() { collection.clone() } else { one.clone() };
    let dry = |path: &str| format!("{path}?dryRun=All");
    let both = |query: &str| {
        let mut asks = vec![("", ask::get(&format!("{everywhere}{query}")))];
        if found.resource.namespaced {
            asks.push((" in pitstop-system", ask::get(&format!("{collection}{query}"))));
        }
        asks
    };
    match verb {
        "list" => both(""),
        "watch" => both("?watch=true&timeoutSeconds=1"),
        "get" => vec![("", ask::get(&one))],
        "create" => vec![("", ask::post(&dry(&all), body))],
        "update" => vec![("", ask::put(&dry(&one), body))],
        "patch" => vec![("", ask::patch(&dry(&one), "merge", body))],
        "delete" => vec![("", ask::plain(&Method::DELETE, &dry(&one)))],
        "deletecollection" => vec![("", ask::plain(&Method::DELETE, &dry(&all)))],
        other => panic!("no request is known for the verb {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(name: &str, namespaced: bool, verb: &str) -> Vec<String> {
        let resource = serde_json::from_value(
            json!({"name": name, "namespaced": namespaced, "kind": "X", "singularName": "", "verbs": []}),
        );
        let found = Found { group: String::new(), version: "v1".to_owned(), resource: resource.unwrap() };
        asks(&found, verb, &json!({}))
            .iter()
            .map(|(_, ask)| format!("{} {}", ask.method(), ask.uri()))
            .collect()
    }

    #[test]
    fn verbs_become_requests() {
        assert_eq!(
            paths("pods", true, "list"),
            ["GET /api/v1/pods", "GET /api/v1/namespaces/pitstop-system/pods"]
        );
        assert_eq!(paths("nodes", false, "delete"), ["DELETE /api/v1/nodes/attacks?dryRun=All"]);
        let exec = "POST /api/v1/namespaces/pitstop-system/pods/attacks/exec?dryRun=All";
        assert_eq!(paths("pods/exec", true, "create"), [exec]);
        let all = "DELETE /api/v1/namespaces/pitstop-system/pods?dryRun=All";
        assert_eq!(paths("pods", true, "deletecollection"), [all]);
        assert_eq!(paths("nodes/proxy", false, "get"), ["GET /api/v1/nodes/attacks/proxy"]);
    }
}
