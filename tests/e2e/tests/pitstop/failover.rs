//! A controller replica ends gracefully, or the webhook's certificate is deleted.

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::DeleteParams;
use pitstop_e2e::system::{self, NAMESPACE};
use pitstop_e2e::{Context, Result, SHORT, on_cluster, pods, requests, until};

/// Name of the webhook's certificate.
const SECRET: &str = "pitstop-webhook-cert";
/// Less than the 15 s after which an unreleased lease expires.
const AT_ONCE: Duration = Duration::from_secs(8);

#[test]
fn a_leader_that_is_asked_to_end_hands_over_at_once() -> Result<()> {
    on_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        let old = system::leader(&ns.cluster).await?.metadata.name.context("a Pod without a name")?;
        system::api(&ns.cluster).delete(&old, &DeleteParams::default()).await?;
        until("another leader", AT_ONCE, async || {
            Ok(system::leader_name(&ns.cluster).await?.filter(|name| *name != old))
        })
        .await?;
        ns.create(requests::recreate("again", "web", &["app"])).await?;
        let over = ns.over("again").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        pods::assert_restarted_once(&before, &ns.pod("web").await?, "app")
    })
}

#[test]
fn a_deleted_certificate_is_made_anew() -> Result<()> {
    on_cluster(async |ns| {
        let secrets: Api<Secret> = Api::namespaced(ns.cluster.client.clone(), NAMESPACE);
        let (old, bundle) = (secrets.get(SECRET).await?, system::ca_bundle(&ns.cluster).await?);
        assert!(bundle.is_some());
        secrets.delete(SECRET, &DeleteParams::default()).await?;
        let new = until("a new certificate", SHORT, async || {
            Ok(secrets.get_opt(SECRET).await?.filter(|s| s.metadata.uid != old.metadata.uid))
        })
        .await?;
        assert_ne!(old.data, new.data);
        until("the new CA to be known", SHORT, async || {
            let now = system::ca_bundle(&ns.cluster).await?;
            Ok((now.is_some() && now != bundle).then_some(()))
        })
        .await?;
        // Many tries, so that both replicas answer: connections to the API server are kept for a while.
        for _ in 0..20 {
            until("the webhook to answer", SHORT, async || {
                Ok(system::webhook_answers(&ns.cluster).await?.then_some(()))
            })
            .await?;
        }
        Ok(())
    })
}
