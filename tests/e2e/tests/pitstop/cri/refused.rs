//! Resizes that are refused or must wait: here only pitstop checks them.

use kube::api::{Patch, PatchParams};
use pitstop_api::resize::Phase;
use pitstop_e2e::resizes::{MI, api, create, ends, fill, groups, kernel, resize, waits, wanting, web, with};
use pitstop_e2e::stories::{self, both};
use pitstop_e2e::{Result, pods};
use serde_json::json;

use super::{BEFORE, on_old_cluster};

#[test]
fn a_full_node_is_waited_for_until_there_is_room() -> Result<()> {
    on_old_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        let cpu = fill(ns).await?;
        create(ns, wanting("grow", &cpu)).await?;
        let status = waits(ns, "grow", "NodeBusy").await?;
        assert_eq!(status.phase, Some(Phase::Deferred));
        assert_eq!(groups(&before, "app")?, BEFORE);
        ns.kubectl(&["delete", "pod", "filler", "--grace-period=1"])?;
        ends(ns, "grow", Phase::Succeeded, "Resized").await?;
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")
    })
}

#[test]
fn what_is_deferred_ends_by_deadline_by_patience_and_by_cancel() -> Result<()> {
    on_old_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        let cpu = fill(ns).await?;
        create(ns, with(wanting("deadline", &cpu), "activeDeadlineSeconds", &json!(6))).await?;
        ends(ns, "deadline", Phase::Failed, "DeadlineExceeded").await?;
        create(ns, with(wanting("patience", &cpu), "onDeferred", &json!({"waitSeconds": 4}))).await?;
        ends(ns, "patience", Phase::Failed, "NodeBusy").await?;
        create(ns, wanting("cancel", &cpu)).await?;
        waits(ns, "cancel", "NodeBusy").await?;
        let change = Patch::Merge(json!({"spec": {"cancel": true}}));
        api(ns).patch("cancel", &PatchParams::default(), &change).await?;
        ends(ns, "cancel", Phase::Cancelled, "Cancelled").await?;
        assert_eq!(groups(&before, "app")?, BEFORE);
        Ok(())
    })
}

#[test]
fn refusals_are_told_in_the_users_words_and_change_nothing() -> Result<()> {
    on_old_cluster(async |ns| {
        let before = stories::refusals(ns).await?;
        assert_eq!(kernel(&ns.pod("web").await?, "app")?, [(10_000, 64 * MI); 2], "nothing was changed");
        // What is admitted counts for the next one.
        create(ns, resize("grow", "app", &both("140m"))).await?;
        ends(ns, "grow", Phase::Succeeded, "Resized").await?;
        assert_eq!(kernel(&ns.pod("web").await?, "app")?, [(14_000, 64 * MI); 2]);
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")
    })
}

#[test]
fn what_only_a_kubelet_that_resizes_can_do_is_refused() -> Result<()> {
    on_old_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        let cases = [
            ("api", "mechanism", json!("API"), "the kubelet of the Pod's node does not resize"),
            ("step", "memoryShrink", json!({"step": "16Mi"}), "spec.memoryShrink.step"),
            ("keep", "onDeferred", json!({"waitSeconds": 5, "then": "Keep"}), "spec.onDeferred.then"),
        ];
        for (name, field, value, words) in &cases {
            let object = resize(name, "app", &json!({"limits": {"cpu": "300m", "memory": "96Mi"}}));
            create(ns, with(object, field, value)).await?;
            let status = ends(ns, name, Phase::Failed, "Unsupported").await?;
            assert!(status.message.contains(words), "{}", status.message);
        }
        assert_eq!(groups(&before, "app")?, BEFORE);
        Ok(())
    })
}
