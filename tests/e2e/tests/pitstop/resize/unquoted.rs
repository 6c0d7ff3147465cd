//! A kubelet that sets no CPU quota (`cpuCFSQuota: false`): pitstop expects none.

use std::fs;

use pitstop_api::condition;
use pitstop_api::resize::{PodResizeStatus, conditions};
use pitstop_e2e::ns::NODE;
use pitstop_e2e::{Ns, ensure};

use super::*;

/// Runs a test while the node's kubelet sets none. Pods that the test creates have none.
async fn without_quotas(ns: &Ns, test: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let file = ns.cluster.config(NODE, "kubelet.json");
    let before = fs::read_to_string(&file)?;
    let mut config: Value = serde_json::from_str(&before)?;
    config["cpuCFSQuota"] = json!(false);
    let kubelet = format!("kubelet@{NODE}");
    fs::write(&file, config.to_string())?;
    let outcome = match ns.cluster.kill(&kubelet) {
        Ok(()) => test().await,
        Err(error) => Err(error),
    };
    fs::write(&file, before)?;
    ns.cluster.kill(&kubelet)?;
    outcome
}

fn assert_unquoted(status: &PodResizeStatus) -> Result<()> {
    let verified = condition::find(&status.conditions, conditions::VERIFIED).context("not verified")?;
    ensure!(verified.reason == "CPUQuotaNotSet", "{}: {}", verified.reason, verified.message);
    Ok(())
}

#[test]
fn a_quota_that_the_kubelet_does_not_set_is_not_missed() -> Result<()> {
    on_cluster(async |ns| {
        without_quotas(ns, async || {
            let before = ns.start_pod(web()).await?;
            assert_eq!(kernel(&before, "app")?, [(-1, 128 * MI), (-1, 256 * MI)]);
            create(ns, resize("memory", "app", &json!({"limits": {"memory": "256Mi"}}))).await?;
            assert_unquoted(&ends(ns, "memory", Phase::Succeeded, "Resized").await?)?;
            // The kubelet still reports the previous limit.
            let both = json!({"requests": {"cpu": "150m"}, "limits": {"cpu": "400m", "memory": "192Mi"}});
            create(ns, resize("both", "app", &both)).await?;
            assert_unquoted(&ends(ns, "both", Phase::Succeeded, "Resized").await?)?;
            let after = ns.pod("web").await?;
            assert_eq!(kernel(&after, "app")?, [(-1, 192 * MI), (-1, 320 * MI)]);
            assert_eq!(spec_amount(&after, "app", "limits", "cpu")?, "400m");
            pods::assert_untouched(&before, &after, "app")
        })
        .await
    })
}
