//! The Helm chart on a real cluster: the API server accepts its objects, and Helm installs, upgrades and removes
//! pitstop.

use anyhow::ensure;
use pitstop_e2e::system::{self, NAMESPACE};
use pitstop_e2e::{Cluster, Context, Ns, Result, on_cluster, requests};
use pitstop_manifests_test::helm::{self, CHART, COMPONENTS, Helm};

use crate::documented::restarts;

#[test]
fn what_it_renders_is_accepted_by_the_api_server() -> Result<()> {
    on_cluster(async |ns| rendered(ns, &["policy", "webhook"]))
}

/// Dry-runs each gate: alone, and with each runtime and all other options.
pub(crate) fn rendered(ns: &Ns, gates: &[&str]) -> Result<()> {
    let Some(helm) = Helm::find()? else { return Ok(()) };
    let opt_in = format!("optIn.namespaces={{{}}}", ns.name);
    for gate in gates {
        let gate = format!("gate.mode={gate}");
        dry_run(&ns.cluster, &helm, &[&gate])?;
        for runtime in ["crio", "k0s", "k3s", "microk8s"] {
            let runtime = format!("runtime.preset={runtime}");
            let others = [&gate, &runtime, &opt_in, "kruiseCrrOff=true", "rbac.aggregate=false"];
            dry_run(&ns.cluster, &helm, &[&others[..], &COMPONENTS].concat())?;
        }
        let custom = ["runtime.preset=custom", "runtime.socket=/run/my/my.sock"];
        dry_run(&ns.cluster, &helm, &[&[&*gate], &custom[..]].concat())?;
    }
    Ok(())
}

fn dry_run(cluster: &Cluster, helm: &Helm, values: &[&str]) -> Result<()> {
    let values = [&["image.registry=pitstop.dev", "namespace.create=true"], values].concat();
    let printed = helm.template(CHART, NAMESPACE, &values)?;
    let output = cluster.accepts(["-f", "-"], &printed)?;
    let objects = helm::objects(&printed)?.len();
    ensure!(output.lines().count() == objects, "{objects} objects with {values:?}: {output}");
    Ok(())
}

/// The node has the images already, as after `ctr images import`.
#[test]
fn helm_installs_upgrades_and_removes_pitstop() -> Result<()> {
    let Some(helm) = Helm::find()? else { return Ok(()) };
    on_cluster(async |ns| {
        let outcome = installing(ns, &helm).await;
        // Helm, too, uses the cluster of KUBECONFIG.
        helm.run(&["uninstall", "pitstop", "--namespace", NAMESPACE, "--ignore-not-found"])?;
        ns.cluster.install()?;
        system::healthy(&ns.cluster).await?;
        outcome
    })
}

async fn installing(ns: &Ns, helm: &Helm) -> Result<()> {
    const RIGHT: [&str; 3] = ["get", "clusterrolebinding", "pitstop-controller-evict"];
    let cluster = &ns.cluster;
    cluster.uninstall()?;
    cluster.documented("helm-install", &[])?;
    system::healthy(cluster).await?;
    restarts(ns, "charted").await?;
    ensure!(cluster.kubectl(&RIGHT).is_err(), "the default has no right to evict");
    // Only a cluster shows which namespaces exist.
    let absent = [
        "--reuse-values",
        "--set",
        "features.imageUpdate=true,features.inPlace=true,optIn.namespaces={absent}",
    ];
    let refused = helm.run(&[&["upgrade", "pitstop", CHART, "--namespace", NAMESPACE][..], &absent].concat());
    let refused = refused.err().context("upgraded")?;
    ensure!(format!("{refused:#}").contains("there is no namespace absent"), "{refused:#}");

    cluster.documented("helm-upgrade", &[])?;
    system::healthy(cluster).await?;
    cluster.kubectl(&RIGHT).context("after the upgrade")?;
    restarts(ns, "upgraded").await?;

    cluster.documented("helm-rollback", &[])?;
    system::healthy(cluster).await?;
    ensure!(cluster.kubectl(&RIGHT).is_err(), "the right to evict was left by the downgrade");

    cluster.documented("helm-uninstall", &[])?;
    let left = ["get", "deployments,daemonsets,validatingadmissionpolicies,clusterroles"];
    let left = [&left[..], &["-A", "-l", "app.kubernetes.io/name=pitstop", "-o", "name"]].concat();
    let left = cluster.kubectl(&left)?;
    ensure!(left.trim().is_empty(), "left after uninstalling: {left}");
    ensure!(requests::is_over(&ns.request("charted").await?), "definitions and requests are kept");

    cluster.documented("remove-definitions", &[])?;
    let left = cluster.kubectl(&["get", "crd,namespaces", "-o", "name"])?;
    let left = left.lines().filter(|name| name.contains("pitstop.dev") || name.ends_with(NAMESPACE));
    ensure!(left.count() == 0, "left after removing the definitions");
    Ok(())
}
