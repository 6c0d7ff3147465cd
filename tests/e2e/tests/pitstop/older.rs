//! The documented downgrade to an older version, and the upgrade back. `cargo xtask platforms` provides the older
//! version.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use pitstop_api::resize::Phase;
use pitstop_e2e::cluster::root;
use pitstop_e2e::ns::NODE;
use pitstop_e2e::resizes::{create, ends, resize, usual, web};
use pitstop_e2e::system::{self, CONTROLLER, DAEMON};
use pitstop_e2e::{Context, Ns, Result, on_cluster, pods, requests};
use pitstop_manifests_test::{kustomize, object, skipped};
use serde_json::json;

use crate::documented::restarts;

/// Variable with the path of the older checkout with its images, which the cluster's registry also has.
const OLDER: &str = "PITSTOP_TEST_OLDER";

#[test]
fn an_older_version_takes_over_and_gives_back() -> Result<()> {
    let Some(older) = std::env::var_os(OLDER).map(PathBuf::from) else {
        return skipped(&format!("{OLDER} is not set; run `cargo xtask platforms`"));
    };
    on_cluster(async |ns| {
        let outcome = takes_over_and_gives_back(ns, &older).await;
        ns.cluster.install()?;
        system::healthy(&ns.cluster).await?;
        outcome
    })
}

async fn takes_over_and_gives_back(ns: &Ns, older: &Path) -> Result<()> {
    let cluster = &ns.cluster;
    let before = ns.start_pod(web()).await?;
    works(ns, "this").await?;

    // The steps of the page.
    for kind in ["podresizes", "inplacerollouts"] {
        cluster.kubectl(&["delete", kind, "--all", "--all-namespaces"])?;
    }
    let held = cluster.kubectl(&["get", "nodework", NODE, "--output=jsonpath={.status.held}"])?;
    ensure!(held.is_empty(), "held: {held}");
    let texts = [("../older", older.to_str().context("the path of the older version is no text")?)];
    cluster.documented("downgrade", &texts)?;
    system::healthy(cluster).await?;
    runs(ns, older).await?;
    cluster.documented("compare-versions", &texts)?;
    ensure!(requests::is_over(&ns.request("this").await?), "the requests of before are kept");
    works(ns, "older").await?;

    cluster.documented("upgrade", &[])?;
    system::healthy(cluster).await?;
    runs(ns, &root()).await?;
    ensure!(requests::is_over(&ns.request("older").await?), "the requests of before are kept");
    works(ns, "again").await?;
    let after = ns.pod("web").await?;
    pods::assert_untouched(&before, &after, "app")?;
    pods::assert_untouched(&before, &after, "proxy")
}

/// Restarts a container of a new Pod, and resizes one of an old Pod up and back.
async fn works(ns: &Ns, by: &str) -> Result<()> {
    restarts(ns, by).await?;
    let larger = json!({"limits": {"cpu": "400m", "memory": "x2"}});
    for (name, resources) in [(format!("{by}-grows"), larger), (format!("{by}-shrinks"), usual())] {
        create(ns, resize(&name, "app", &resources)).await?;
        ends(ns, &name, Phase::Succeeded, "Resized").await?;
    }
    Ok(())
}

/// Fails unless the programs are those of that checkout.
async fn runs(ns: &Ns, checkout: &Path) -> Result<()> {
    let objects = kustomize::load(&checkout.join("target/deploy/default"))?;
    for program in [CONTROLLER, DAEMON] {
        let workload = objects.iter().find(|o| o.pod().is_some() && o.name() == program);
        let image = object::text(&workload.context(program)?.0, "/spec/template/spec/containers/0/image");
        for pod in system::pods_of(&ns.cluster, program).await? {
            let has = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.as_deref());
            ensure!(has == Some(image), "{program} runs {has:?} in place of {image}");
        }
    }
    Ok(())
}
