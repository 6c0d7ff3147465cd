//! The cases of `OpenKruise`'s own tests of `ContainerRecreateRequest` with `v1beta1`, and with both versions.

use pitstop_e2e::kruise::{
    self, Client, Request, SYNC_CONTAINER_STATUSES, Spec, Strategy, UNREADY_ACQUIRED, V1alpha1, V1beta1,
};
use pitstop_e2e::{Context, LONG, Ns, Result, SHORT, on_shared_cluster, pods, until};
use serde_json::Value;

use super::cases::{GATE, both_containers, one_container, ordered, pod};

#[test]
fn case_5_one_container_that_must_have_run_for_a_while() -> Result<()> {
    on_shared_cluster(one_container::<V1beta1>)
}

#[test]
fn case_5_both_containers() -> Result<()> {
    on_shared_cluster(both_containers::<V1beta1>)
}

#[test]
fn case_6_the_snapshot_is_there_with_the_end() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pods::gated(pods::pod("web", &[pods::web("app")]), &[GATE])).await?;
        let client = Client::<V1beta1>::new(ns);
        client.create("snapshot", kruise::spec("web", &["app"])).await?;
        let over = client.completed("snapshot", SHORT).await?;
        let shown = over.status.clone().context("no status")?.container_status_snapshot;
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        let id = pods::id(&after, "app")?;
        assert_eq!(
            shown,
            [kruise::Snapshot { name: "app".into(), ready: true, restart_count: 1, container_id: id }]
        );
        assert_eq!(kruise::annotation(&over, SYNC_CONTAINER_STATUSES), None);
        Ok(())
    })
}

#[test]
fn case_7_ordered_waits_for_the_success_of_the_one_before() -> Result<()> {
    on_shared_cluster(async |ns| ordered::<V1beta1>(ns, Strategy::default(), LONG).await)
}

fn drained() -> Spec {
    let strategy = Strategy { unready_grace_period_seconds: Some(1), ..Strategy::default() };
    Spec { strategy: Some(strategy), ..kruise::spec("web", &["app", "sidecar"]) }
}

/// Start of the drain by the condition of `v1beta1`, in the format of the annotation of `v1alpha1`.
fn began(request: &Request<V1beta1>) -> Result<String> {
    let conditions = request.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let mut found = conditions.iter().filter(|c| c.type_ == "PreRecreateGrace" && c.status == "True");
    let time = &found.next().context("no condition PreRecreateGrace")?.last_transition_time;
    Ok(pitstop_kit::time::from_time(time).format("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Waits until a client of `v1alpha1` sees when the drain began.
async fn annotated(ns: &Ns, name: &str) -> Result<String> {
    let client = Client::<V1alpha1>::new(ns);
    until("the annotation unready-acquired", std::time::Duration::from_secs(30), async || {
        Ok(kruise::annotation(&client.get(name).await?, UNREADY_ACQUIRED).map(str::to_owned))
    })
    .await
}

#[test]
fn case_8_made_in_v1alpha1_and_read_in_v1beta1() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.start_pod(pod(&Value::Null)).await?;
        Client::<V1alpha1>::new(ns).create("both", drained()).await?;
        let annotation = annotated(ns, "both").await?;
        let client = Client::<V1beta1>::new(ns);
        client.completed("both", LONG).await?;
        let over = client.inactive("both").await?;
        let after = ns.pod("web").await?;
        let shown = over.status.clone().context("no status")?.container_status_snapshot;
        let ids: Vec<_> = shown.iter().map(|s| (s.name.as_str(), s.container_id.clone())).collect();
        assert_eq!(ids, [("app", pods::id(&after, "app")?), ("sidecar", pods::id(&after, "sidecar")?)]);
        assert_eq!(began(&over)?, annotation);
        for key in [SYNC_CONTAINER_STATUSES, UNREADY_ACQUIRED] {
            assert_eq!(kruise::annotation(&over, key), None);
        }
        Ok(())
    })
}

#[test]
fn case_9_made_in_v1beta1_and_read_in_v1alpha1() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.start_pod(pod(&Value::Null)).await?;
        let client = Client::<V1beta1>::new(ns);
        client.create("both", drained()).await?;
        let annotation = annotated(ns, "both").await?;
        let over = client.completed("both", LONG).await?;
        assert_eq!(began(&over)?, annotation);
        // OpenKruise's test reads the annotation only now.
        assert_eq!(annotated(ns, "both").await?, annotation);
        Ok(())
    })
}
