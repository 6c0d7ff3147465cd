//! The policy that restricts each daemon to its own node: no order is placed without it.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use pitstop_api::nodework::{NodeWork, NodeWorkSpec};
use pitstop_e2e::system::{self, CONTROLLER};
use pitstop_e2e::{Cluster, LONG, Ns, Result, SHORT, on_cluster, pods, requests, until};
use serde_json::json;

/// Name of policy and binding.
const POLICY: &str = "pitstop-daemon";
/// The `NodeWork` that nobody may create.
const PROBE: &str = "self-check.pitstop.dev";

/// The API server's denial of the `NodeWork` that nobody may create; None if it would be created.
async fn denial(cluster: &Cluster) -> Result<Option<String>> {
    let books: Api<NodeWork> = Api::all(cluster.client.clone());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    match books.create(&dry, &NodeWork::new(PROBE, NodeWorkSpec::default())).await {
        Ok(_) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(Some(status.message)),
        Err(error) => Err(error.into()),
    }
}

#[test]
fn nobody_may_create_what_the_self_check_asks_for() -> Result<()> {
    on_cluster(async |ns| {
        let denial = denial(&ns.cluster).await?.unwrap_or_default();
        let by = format!("ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied request: ");
        assert!(denial.contains(&by), "{denial}");
        assert!(denial.ends_with("may update the status of NodeWorks, not CREATE nodeworks"), "{denial}");
        Ok(())
    })
}

#[test]
fn without_the_policy_no_order_is_placed() -> Result<()> {
    on_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(ns.cluster.client.clone());
        bindings.delete(POLICY, &DeleteParams::default()).await?;
        until("the API server to forget it", SHORT, async || {
            Ok(denial(&ns.cluster).await?.is_none().then_some(()))
        })
        .await?;
        // A controller trusts a seen denial for a minute; a new process has seen none.
        system::kill_9(&system::pods_of(&ns.cluster, CONTROLLER).await?)?;
        let mut spec = requests::plain("web", &["app"]);
        spec["strategy"] = json!({"mechanism": "Runtime"});
        let created = ns.create(requests::with_spec("again", &spec)).await?;
        waits_for_the_policy(ns).await?;
        assert!(ns.orders(&created).await?.is_empty());
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")?;
        ns.cluster.install()?;
        let over = ns.over_within("again", LONG).await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        pods::assert_restarted_once(&before, &ns.pod("web").await?, "app")
    })
}

async fn waits_for_the_policy(ns: &Ns) -> Result<()> {
    until("the request to say what it waits for", LONG, async || {
        let request = ns.request("again").await?;
        let complete = requests::condition(&request, "Complete");
        Ok(complete.is_some_and(|c| c.reason == "WaitingForPolicy").then_some(()))
    })
    .await
}
