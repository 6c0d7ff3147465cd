//! Whose token may write which status.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use pitstop_e2e::system::{CONTROLLER, DAEMON, NAMESPACE};
use pitstop_e2e::{pods, until};
use serde_json::{Value, json};

use crate::ask::{self, Ask};
use crate::probe::{Answer, Expected, granted, nobody, policy, refused, rights};
use crate::report::Report;
use crate::stage::{BOOKS, Stage, bound_to, on, token_request};
use crate::who::Who;

/// How long the token of a Pod that is gone may be taken for good.
const REVOKED_WITHIN: Duration = Duration::from_secs(15);
/// A Pod with the daemon's ServiceAccount that is none of the DaemonSet's.
const IMPOSTOR: &str = "attacks-impostor";

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    own_and_other(stage, report).await?;
    minted(stage, report).await?;
    gone(stage, report).await?;
    forged(stage, report).await?;
    as_somebody_else(stage, report).await
}

/// A write of a node's status, as it is stored: if it is let through, it changes nothing.
pub(super) async fn same_answers(stage: &Stage, node: &str) -> Result<Ask> {
    let path = format!("{BOOKS}/{node}");
    Ok(ask::put(&format!("{path}/status"), &stage.stored(&path).await?))
}

async fn writes(
    stage: &Stage,
    report: &mut Report,
    who: &Who,
    node: &str,
    whose: &str,
    expected: Expected,
) -> Result<()> {
    let what = format!("write the status of {whose} NodeWork");
    report.ask(who, &what, same_answers(stage, node).await?, expected).await;
    Ok(())
}

/// What the real tokens of both daemons are good for.
async fn own_and_other(stage: &Stage, report: &mut Report) -> Result<()> {
    let (a, b) = (stage.a(), stage.b());
    for (own, other) in [(a, b), (b, a)] {
        let who = &own.daemon.who;
        writes(stage, report, who, &own.name, "its own", granted(200)).await?;
        let not_its_own = policy(&format!("may not write the NodeWork of node {}", other.name));
        writes(stage, report, who, &other.name, "the other node's", not_its_own.clone()).await?;
        let mut false_answer = stage.stored(&format!("{BOOKS}/{}", other.name)).await?;
        let id = "00000000-0000-0000-0000-000000000000/app/0";
        false_answer["status"]["answers"] = json!([{"orderID": id, "state": "Failed"}]);
        let path = format!("{BOOKS}/{}/status", other.name);
        let what = "answer an order of the other node's in its name";
        report.ask(who, what, ask::put(&path, &false_answer), not_its_own.clone()).await;
        let what = "the same as a dry run";
        report.ask(who, what, ask::put(&format!("{path}?dryRun=All"), &false_answer), not_its_own).await;
    }
    for kubelet in [&a.kubelet, &b.kubelet] {
        writes(stage, report, kubelet, &a.name, "node A's", rights()).await?;
    }
    writes(stage, report, &stage.controller.who, &a.name, "node A's", rights()).await
}

/// Tokens of the same ServiceAccount that no daemon's Pod has been given.
async fn minted(stage: &Stage, report: &mut Report) -> Result<()> {
    let (a, b) = (stage.a(), stage.b());
    let unbound = stage.daemons_token("unbound token", &json!({})).await?;
    for (node, whose) in [(a, "node A's"), (b, "node B's")] {
        writes(stage, report, &unbound, &node.name, whose, policy("names no node")).await?;
    }

    let node = stage.stored(&format!("/api/v1/nodes/{}", a.name)).await?;
    let uid = node.pointer("/metadata/uid").and_then(Value::as_str).context("a node without a UID")?;
    let spec = bound_to("Node", &a.name, uid);
    let of_node = stage.daemons_token("token bound to Node A", &spec).await?;
    // It names the node, and is no Pod's.
    for (node, whose) in [(a, "node A's"), (b, "node B's")] {
        writes(stage, report, &of_node, &node.name, whose, policy("")).await?;
    }

    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"generateName": "attacks-", "namespace": NAMESPACE}});
    let secret = stage.done(ask::post(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &secret)).await?;
    let secret = secret.json();
    let field = |key: &str| secret["metadata"][key].as_str().unwrap().to_owned();
    let of_secret = stage
        .daemons_token("token bound to a Secret", &bound_to("Secret", &field("name"), &field("uid")))
        .await?;
    writes(stage, report, &of_secret, &a.name, "node A's", policy("names no node")).await?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/{}", field("name"));
    stage.done(ask::plain(&Method::DELETE, &path)).await?;

    let mut spec = bound_to("Pod", a.daemon.name(), a.daemon.uid());
    spec["audiences"] = json!(["pitstop"]);
    let elsewhere = stage.daemons_token("token of another audience", &spec).await?;
    writes(stage, report, &elsewhere, &a.name, "node A's", nobody()).await?;
    let list = ask::get(BOOKS);
    report.ask(&elsewhere, "list NodeWorks", list, nobody()).await;

    let of_pod = stage
        .daemons_token("new token of daemon A's Pod", &bound_to("Pod", a.daemon.name(), a.daemon.uid()))
        .await?;
    writes(stage, report, &of_pod, &a.name, "its own", granted(200)).await?;
    writes(stage, report, &of_pod, &b.name, "the other node's", policy("may not write")).await?;

    let other_account = stage
        .nobody
        .with_token("token of ServiceAccount default", &stage.token(NAMESPACE, "default", &json!({})).await?);
    writes(stage, report, &other_account, &a.name, "node A's", rights()).await
}

/// A Pod with the daemon's ServiceAccount, deleted, and one of the same name on the other node.
async fn gone(stage: &Stage, report: &mut Report) -> Result<()> {
    let (a, b) = (stage.a(), stage.b());
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let path = format!("{pods}/{IMPOSTOR}");
    let impostor = |node: &str| {
        let mut pod = on(node, pods::pod(IMPOSTOR, &[pods::idle("app")]));
        pod["spec"]["serviceAccountName"] = json!(DAEMON);
        pod
    };
    let uid = async |node: &str| -> Result<String> {
        let made = stage.done(ask::post(&pods, &impostor(node))).await?.json();
        made["metadata"]["uid"].as_str().map(str::to_owned).context("a Pod without a UID")
    };
    let old = uid(&b.name).await?;
    let who =
        stage.daemons_token("another Pod of its account on B", &bound_to("Pod", IMPOSTOR, &old)).await?;
    writes(stage, report, &who, &a.name, "node A's", policy("may not write")).await?;
    // Nothing tells it from a daemon: who may create Pods in pitstop's namespace has the daemons' rights.
    writes(stage, report, &who, &b.name, "node B's", granted(200)).await?;

    stage.done(ask::plain(&Method::DELETE, &format!("{path}?gracePeriodSeconds=0"))).await?;
    let what = format!("write the status of node B's NodeWork, at most {REVOKED_WITHIN:?} later");
    let write = same_answers(stage, &b.name).await?;
    let deleted = who.with_name("token of a deleted Pod");
    let mut answer = Answer::default();
    // Not refused in time, the last answer tells.
    let _ = until("the deleted Pod's token to be refused", REVOKED_WITHIN, async || {
        answer = deleted.send(write.clone()).await;
        Ok((answer.code == nobody().code).then_some(()))
    })
    .await;
    report.answered(&deleted.name, &what, &nobody(), &answer);

    uid(&a.name).await?;
    let same_name = who.with_name("the same, a Pod of its name on A");
    for (node, whose) in [(a, "node A's"), (b, "node B's")] {
        writes(stage, report, &same_name, &node.name, whose, nobody()).await?;
    }
    let mixed = token_request(NAMESPACE, DAEMON, &bound_to("Pod", IMPOSTOR, &old));
    let conflict = refused(409, "does not match the UID in record");
    report.ask(&stage.admin, "ask for a token with the UID of the deleted Pod", mixed, conflict).await;
    stage.done(ask::plain(&Method::DELETE, &format!("{path}?gracePeriodSeconds=0"))).await?;
    Ok(())
}

/// Tokens that the API server has not signed.
async fn forged(stage: &Stage, report: &mut Report) -> Result<()> {
    let (a, b) = (stage.a(), stage.b());
    let real = &a.daemon.token;
    let forged = [
        ("garbage", "garbage".to_owned()),
        (
            "its claims name node B",
            with_claims(real, |claims| claims["kubernetes.io"]["node"]["name"] = json!(b.name))?,
        ),
        (
            "its claims name the controller",
            with_claims(real, |claims| {
                claims["sub"] = json!(format!("system:serviceaccount:{NAMESPACE}:{CONTROLLER}"));
            })?,
        ),
        ("its claims last for ever", with_claims(real, |claims| claims["exp"] = json!(u32::MAX))?),
        ("no signature", unsigned(real)?),
        ("the signature of daemon B's", with_signature_of(real, &b.daemon.token)?),
    ];
    for (how, token) in forged {
        let who = stage.nobody.with_token(&format!("forged: {how}"), &token);
        for (node, whose) in [(a, "node A's"), (b, "node B's")] {
            writes(stage, report, &who, &node.name, whose, nobody()).await?;
        }
    }
    // Nobody is a user too, without rights.
    writes(stage, report, &stage.nobody, &a.name, "node A's", rights()).await
}

fn parts(token: &str) -> Result<[&str; 3]> {
    token.split('.').collect::<Vec<_>>().try_into().ok().context("the token is no JWT")
}

fn with_claims(token: &str, change: impl FnOnce(&mut Value)) -> Result<String> {
    let [head, claims, signature] = parts(token)?;
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?;
    let before = claims.clone();
    change(&mut claims);
    ensure!(claims != before, "nothing is forged");
    Ok(format!("{head}.{}.{signature}", URL_SAFE_NO_PAD.encode(claims.to_string())))
}

fn unsigned(token: &str) -> Result<String> {
    let [_, claims, _] = parts(token)?;
    Ok(format!("{}.{claims}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#)))
}

fn with_signature_of(token: &str, other: &str) -> Result<String> {
    let ([head, claims, _], [_, _, signature]) = (parts(token)?, parts(other)?);
    Ok(format!("{head}.{claims}.{signature}"))
}

/// Headers that would make a daemon somebody else.
async fn as_somebody_else(stage: &Stage, report: &mut Report) -> Result<()> {
    const NODE_NAME: &str = "impersonate-extra-authentication.kubernetes.io%2fnode-name";
    let (a, b) = (stage.a(), stage.b());
    let account = |name: &str| format!("system:serviceaccount:{NAMESPACE}:{name}");
    let kubelet = format!("system:node:{}", b.name);
    let (own, controller) = (account(DAEMON), account(CONTROLLER));
    let claims: [(&str, Vec<(&'static str, &str)>); 9] = [
        (
            "the kubelet of node B",
            vec![("impersonate-user", &kubelet), ("impersonate-group", "system:nodes")],
        ),
        ("the kubelet of node B, no group", vec![("impersonate-user", &kubelet)]),
        (
            "the administrator",
            vec![("impersonate-user", "pitstop-admin"), ("impersonate-group", "system:masters")],
        ),
        ("the controller", vec![("impersonate-user", &controller)]),
        ("itself", vec![("impersonate-user", &own)]),
        ("itself on node B", vec![("impersonate-user", &own), (NODE_NAME, &b.name)]),
        ("itself with another UID", vec![("impersonate-user", &own), ("impersonate-uid", "0")]),
        (
            "itself in the group system:masters",
            vec![("impersonate-user", &own), ("impersonate-group", "system:masters")],
        ),
        ("anonymous", vec![("impersonate-user", "system:anonymous")]),
    ];
    for (whom, headers) in claims {
        let write = same_answers(stage, &b.name).await?;
        let write = headers.into_iter().fold(write, |write, (name, value)| ask::header(write, name, value));
        let what = format!("write the status of node B's NodeWork as {whom}");
        report.ask(&a.daemon.who, &what, write, rights()).await;
    }
    // Of a front proxy, which comes with a certificate of its own; from others these headers are nothing.
    let write = ask::header(same_answers(stage, &b.name).await?, "x-remote-user", "pitstop-admin");
    let write = ask::header(write, "x-remote-group", "system:masters");
    let what = "write the status of node B's NodeWork with headers of a front proxy";
    report.ask(&a.daemon.who, what, write, policy("may not write")).await;
    let extra = ask::header(
        same_answers(stage, &b.name).await?,
        "x-remote-extra-authentication.kubernetes.io%2fnode-name",
        &b.name,
    );
    let what = "the same with the node's name";
    report.ask(&a.daemon.who, what, extra, policy("may not write")).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &Value) -> String {
        format!("head.{}.signature", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn forged_tokens_differ_where_they_say() {
        let real = token(&json!({"sub": "a", "exp": 1}));
        let forged = with_claims(&real, |claims| claims["sub"] = json!("b")).unwrap();
        assert_eq!(forged, token(&json!({"sub": "b", "exp": 1})));
        assert!(with_claims(&real, |_| ()).is_err());
        assert!(unsigned(&real).unwrap().ends_with('.'));
        assert_eq!(with_signature_of(&real, "x.y.z").unwrap(), real.replace("signature", "z"));
        assert!(parts("garbage").is_err());
    }
}
