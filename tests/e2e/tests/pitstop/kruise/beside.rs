//! Where `OpenKruise` is installed, pitstop does not carry out the same requests.

use anyhow::ensure;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use pitstop_api::recreate::ContainerRecreateRequestStatus;
use pitstop_e2e::system::{self, CONTROLLER, NAMESPACE};
use pitstop_e2e::{Cluster, LONG, Ns, Result, SHORT, on_cluster, pods, requests, until};
use serde_json::json;

const CONFIGURATION: &str = "kruise-mutating-webhook-configuration";
const DEPLOYMENT: &str = "deployment/pitstop-controller";

#[test]
fn beside_kruise_nothing_is_restarted_until_it_is_said_to_be_off() -> Result<()> {
    on_cluster(async |ns| {
        let outcome = beside_kruise(ns).await;
        // In any case, the next test needs a cluster without Kruise.
        let cleaned = clean(&ns.cluster).await;
        outcome.and(cleaned)
    })
}

async fn beside_kruise(ns: &Ns) -> Result<()> {
    let before = ns.start_pod(pods::app("web")).await?;
    install_kruise(&ns.cluster).await?;
    until("no controller to be ready", SHORT, async || {
        let list = system::pods_of(&ns.cluster, CONTROLLER).await?;
        Ok((!list.is_empty() && !list.iter().any(pods::is_ready)).then_some(()))
    })
    .await?;
    until("people to be told", SHORT, async || {
        let events: Api<Event> = Api::namespaced(ns.cluster.client.clone(), NAMESPACE);
        let list = events.list(&ListParams::default()).await?.items;
        let warned = |event: &Event| {
            let on_pod = event.regarding.as_ref().is_some_and(|about| about.uid.is_some());
            event.reason.as_deref() == Some("OpenKruiseFound") && on_pod
        };
        Ok(list.iter().any(warned).then_some(()))
    })
    .await?;

    ns.create(requests::recreate("again", "web", &["app"])).await?;
    // An active controller accepts a request long before a later Pod is ready.
    ns.start_pod(pods::app("other")).await?;
    let untouched = ns.request("again").await?;
    let unseen = ContainerRecreateRequestStatus { observed_generation: Some(-1), ..Default::default() };
    ensure!(untouched.status == Some(unseen), "the request was touched: {:?}", untouched.status);

    ns.cluster.kubectl(&["-n", NAMESPACE, "set", "env", DEPLOYMENT, "PITSTOP_KRUISE_CRR_OFF=true"])?;
    let over = ns.over_within("again", LONG).await?;
    assert_eq!(requests::states(&over), [requests::succeeded("app")]);
    pods::assert_restarted_once(&before, &ns.pod("web").await?, "app")
}

#[test]
fn when_kruise_goes_pitstop_goes_on_by_itself() -> Result<()> {
    on_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        install_kruise(&ns.cluster).await?;
        let outcome = async {
            until("no controller to be ready", SHORT, async || {
                let list = system::pods_of(&ns.cluster, CONTROLLER).await?;
                Ok((!list.is_empty() && !list.iter().any(pods::is_ready)).then_some(()))
            })
            .await?;
            ns.create(requests::recreate("again", "web", &["app"])).await
        }
        .await;
        remove_kruise(&ns.cluster).await?;
        outcome?;
        ns.over("again").await?;
        pods::assert_restarted_once(&before, &ns.pod("web").await?, "app")?;
        system::healthy(&ns.cluster).await
    })
}

/// Creates the webhook configuration of Kruise's chart for requests, without the program behind it.
async fn install_kruise(cluster: &Cluster) -> Result<()> {
    let service = json!({"namespace": "kruise-system", "name": "kruise-webhook-service",
                         "path": "/mutate-apps-kruise-io-v1alpha1-containerrecreaterequest"});
    let configuration = json!({
        "metadata": {"name": CONFIGURATION},
        "webhooks": [{
            "name": "mcontainerrecreaterequest.kb.io",
            "admissionReviewVersions": ["v1", "v1beta1"],
            "clientConfig": {"service": service},
            // The real one has `Fail`; no server runs behind this one.
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "rules": [{"apiGroups": ["apps.kruise.io"], "apiVersions": ["v1alpha1"],
                       "operations": ["CREATE", "UPDATE"], "resources": ["containerrecreaterequests"]}],
        }],
    });
    let all: Api<MutatingWebhookConfiguration> = Api::all(cluster.client.clone());
    all.create(&PostParams::default(), &serde_json::from_value(configuration)?).await?;
    Ok(())
}

async fn remove_kruise(cluster: &Cluster) -> Result<()> {
    let all: Api<MutatingWebhookConfiguration> = Api::all(cluster.client.clone());
    all.delete(CONFIGURATION, &DeleteParams::default()).await?;
    Ok(())
}

async fn clean(cluster: &Cluster) -> Result<()> {
    let removed = remove_kruise(cluster).await;
    cluster.kubectl(&["-n", NAMESPACE, "set", "env", DEPLOYMENT, "PITSTOP_KRUISE_CRR_OFF-"])?;
    removed?;
    system::healthy(cluster).await
}
