//! The gate `pitstop.dev/ready`: which Pods get it, by policy and by webhook; and the right to write its condition.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::{Api, Resource as _};
use pitstop_e2e::ns::{Refusal, refusal};
use pitstop_e2e::system::{self, NAMESPACE, WEBHOOK};
use pitstop_e2e::{Context, Ns, Result, SHORT, bail, cluster, ensure, on_cluster, pods, until};
use serde_json::{Value, json};

const GATE: &str = "pitstop.dev/ready";
const OPT_IN: &str = "pitstop.dev/readiness-gate";

fn plain(name: &str) -> Value {
    pods::pod(name, &[pods::idle("app")])
}

fn labelled(name: &str, value: &str) -> Value {
    let mut pod = plain(name);
    pod["metadata"]["labels"][OPT_IN] = json!(value);
    pod
}

/// Creates a Pod and gives back its gates.
async fn gates_of(ns: &Ns, pod: Value) -> Result<Vec<String>> {
    Ok(gates(&ns.create_pod(pod).await?))
}

fn gates(pod: &Pod) -> Vec<String> {
    let gates = pod.spec.iter().filter_map(|s| s.readiness_gates.as_ref()).flatten();
    gates.map(|g| g.condition_type.clone()).collect()
}

/// Which Pods get the gate, before and after the namespace opts in.
async fn who_gets_it(ns: &Ns) -> Result<()> {
    assert_eq!(gates_of(ns, plain("outside")).await?, [""; 0]);
    assert_eq!(gates_of(ns, labelled("alone", "enabled")).await?, [GATE]);
    ns.cluster.kubectl(&["label", "namespace", &ns.name, &format!("{OPT_IN}=enabled")])?;
    // The API server may see the namespace's label a moment later.
    let mut tries = 0;
    until("a gate by the namespace's label", SHORT, async || {
        tries += 1;
        Ok((gates_of(ns, plain(&format!("try-{tries}"))).await? == [GATE]).then_some(()))
    })
    .await?;
    assert_eq!(gates_of(ns, labelled("out", "disabled")).await?, [""; 0]);
    assert_eq!(gates_of(ns, labelled("twice", "enabled")).await?, [GATE], "once");
    let has = pods::gated(plain("has"), &[GATE, "KruisePodReady"]);
    assert_eq!(gates_of(ns, has).await?, [GATE, "KruisePodReady"]);
    let other = pods::gated(plain("other"), &["KruisePodReady"]);
    assert_eq!(gates_of(ns, other).await?, ["KruisePodReady", GATE]);
    // The controller opens it, or the Pod would never be ready.
    let ready = ns.ready("other").await?;
    for type_ in gates(&ready) {
        let condition = pods::condition(&ready, &type_).context("no condition")?;
        assert_eq!((condition.status.as_str(), condition.message.as_deref()), ("True", Some("[]")));
    }
    Ok(())
}

#[test]
fn pods_that_opt_in_get_the_gate_by_the_policy() -> Result<()> {
    on_cluster(async |ns| who_gets_it(ns).await)
}

#[test]
fn where_no_policy_is_served_they_get_it_by_the_webhook() -> Result<()> {
    on_cluster(async |ns| {
        let outcome = by_webhook(ns).await;
        ns.cluster.install()?;
        until("the gate's webhooks to go", SHORT, async || {
            Ok(webhooks(ns).await?.iter().all(|w| !of_the_gate(w)).then_some(()))
        })
        .await?;
        outcome
    })
}

async fn by_webhook(ns: &Ns) -> Result<()> {
    let policy = cluster::root().join("deploy/gate-policy");
    ns.cluster.kubectl(&["delete", "-k", &policy.to_string_lossy()])?;
    ns.cluster.apply(&cluster::root().join("target/deploy/gate-webhook"))?;
    until("a CA for every webhook", SHORT, async || {
        let webhooks = webhooks(ns).await?;
        let with_ca =
            webhooks.iter().all(|w| w.client_config.ca_bundle.as_ref().is_some_and(|b| !b.0.is_empty()));
        Ok((webhooks.iter().any(of_the_gate) && with_ca).then_some(()))
    })
    .await?;
    // The API server sees the configuration a moment later.
    let mut tries = 0;
    until("the webhook to be asked", SHORT, async || {
        tries += 1;
        Ok((gates_of(ns, labelled(&format!("first-{tries}"), "enabled")).await? == [GATE]).then_some(()))
    })
    .await?;
    who_gets_it(ns).await
}

async fn webhooks(ns: &Ns) -> Result<Vec<MutatingWebhook>> {
    let all: Api<MutatingWebhookConfiguration> = Api::all(ns.cluster.client.clone());
    Ok(all.get(WEBHOOK).await?.webhooks.unwrap_or_default())
}

/// Whether it is one of the overlay's two webhooks for Pods.
fn of_the_gate(webhook: &MutatingWebhook) -> bool {
    webhook.name.starts_with("readiness-gate-")
}

/// Dry-runs a change of the Pod's status as the controller, which may patch but not read it.
async fn forged(ns: &Ns, patch: &Value) -> Result<Result<Pod, Refusal>> {
    let params = PatchParams::default().dry_run();
    let mut request = Request::new(Pod::url_path(&(), Some(&ns.name))).patch_subresource(
        "status",
        "web",
        &params,
        &Patch::Strategic(patch),
    )?;
    let user = format!("system:serviceaccount:{NAMESPACE}:{}", system::CONTROLLER);
    request.headers_mut().insert("impersonate-user", user.parse()?);
    refusal(ns.cluster.client.request::<Pod>(request).await)
}

#[test]
fn the_right_to_patch_the_status_is_good_for_two_conditions() -> Result<()> {
    on_cluster(async |ns| {
        ns.start_pod(pods::app("web")).await?;
        let condition = |type_: &str, status: &str| json!({"status": {"conditions": [{"type": type_, "status": status, "message": "[]"}]}});
        for type_ in ["KruisePodReady", GATE] {
            if let Err((code, error)) = forged(ns, &condition(type_, "False")).await? {
                bail!("{type_}: {code} {error}");
            }
        }
        let mut wrong = Vec::new();
        for denied in [
            condition("Ready", "False"),
            condition("ContainersReady", "False"),
            condition("example.com/other", "True"),
            json!({"status": {"conditions": [{"type": "PodScheduled", "$patch": "delete"}]}}),
            json!({"status": {"phase": "Failed"}}),
            json!({"status": {"reason": "Evicted"}}),
            json!({"status": {"podIP": "10.9.8.7", "podIPs": [{"$patch": "replace"}, {"ip": "10.9.8.7"}]}}),
            json!({"status": {"message": "x"}}),
            json!({"status": {"observedGeneration": 77}}),
            json!({"status": {"containerStatuses": null}}),
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {"labels": {"app": null}}}),
            json!({"metadata": {"annotations": {"a": "b"}}}),
            json!({"metadata": {"finalizers": ["a.example/b"]}}),
        ] {
            match forged(ns, &denied).await? {
                Err((_, error)) if error.contains("pitstop may") => (),
                Err((code, error)) => wrong.push(format!("{denied}: {code} {error}")),
                Ok(_) => wrong.push(format!("allowed: {denied}")),
            }
        }
        ensure!(wrong.is_empty(), "{wrong:#?}");
        // Other users are not restricted.
        let patch = condition("example.com/other", "True").to_string();
        ns.kubectl(&["patch", "pod", "web", "--subresource=status", "-p", &patch]).map(drop)
    })
}
