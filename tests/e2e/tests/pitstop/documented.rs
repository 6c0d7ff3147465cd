//! The documented commands do what the pages say: install, upgrade, change, remove. The tests take them from the pages,
//! by their marks.

use std::path::Path;

use anyhow::ensure;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use pitstop_e2e::cluster::root;
use pitstop_e2e::system::{self, CONTROLLER, DAEMON, NAMESPACE};
use pitstop_e2e::{Cluster, Context, LONG, Ns, Result, on_cluster, pods, requests, until};
use pitstop_manifests_test::{Object, kustomize, object};
use serde_json::{Value, json};

/// The label by which Pods opt in to the gate, and the gate.
const OPT_IN: &str = "pitstop.dev/readiness-gate";
const GATE: &str = "pitstop.dev/ready";

#[test]
fn installing_upgrading_and_removing() -> Result<()> {
    on_cluster(async |ns| {
        let outcome = installing(ns).await;
        ns.cluster.install()?;
        system::healthy(&ns.cluster).await?;
        outcome
    })
}

async fn installing(ns: &Ns) -> Result<()> {
    let cluster = &ns.cluster;
    cluster.uninstall()?;
    cluster.documented("install", &[])?;
    system::healthy(cluster).await?;
    restarts(ns, "installed").await?;

    // The same programs under another tag stand for an older build.
    older(cluster).await?;
    cluster.documented("upgrade", &[])?;
    system::healthy(cluster).await?;
    for (program, image) in [(CONTROLLER, image(cluster, CONTROLLER)?), (DAEMON, image(cluster, DAEMON)?)] {
        for pod in system::pods_of(cluster, program).await? {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let runs = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.clone());
            ensure!(runs.as_ref() == Some(&image), "Pod {name} runs {runs:?} after an upgrade to {image}");
        }
    }
    restarts(ns, "upgraded").await?;

    // Without the programs, requests stay, and no Pod gets a gate, which no controller would open.
    cluster.documented("remove-programs", &[])?;
    gated(ns, "without-programs", &[]).await?;
    ensure!(requests::is_over(&ns.request("installed").await?), "the requests of before are kept");
    cluster.documented("install", &[])?;
    system::healthy(cluster).await?;
    gated(ns, "with-programs", &[GATE]).await?;

    cluster.documented("uninstall", &[])?;
    let folder = root().join("deploy/default");
    let left =
        cluster.kubectl(&["get", "-k", &folder.to_string_lossy(), "--ignore-not-found", "-o", "name"])?;
    ensure!(left.trim().is_empty(), "left after uninstalling: {left}");
    gated(ns, "uninstalled", &[]).await
}

/// Restarts a container of a Pod of that name.
pub(crate) async fn restarts(ns: &Ns, name: &str) -> Result<()> {
    let before = ns.start_pod(pods::app(name)).await?;
    ns.create(requests::recreate(name, name, &["app"])).await?;
    let over = ns.over_within(name, LONG).await?;
    ensure!(requests::states(&over) == [requests::succeeded("app")], "{:?}", requests::conditions(&over));
    pods::assert_restarted_once(&before, &ns.pod(name).await?, "app")
}

/// Waits until a new Pod that opts in has these gates and becomes ready. API servers see changed policies a moment
/// later.
async fn gated(ns: &Ns, name: &str, expected: &[&str]) -> Result<()> {
    let mut tries = 0;
    let made = until(&format!("Pods with the gates {expected:?}"), LONG, async || {
        tries += 1;
        let mut pod = pods::app(&format!("{name}-{tries}"));
        pod["metadata"]["labels"][OPT_IN] = json!("enabled");
        let pod = ns.create_pod(pod).await?;
        let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.clone()).unwrap_or_default();
        let gates: Vec<&str> = gates.iter().map(|gate| gate.condition_type.as_str()).collect();
        Ok((gates == expected).then_some(pod))
    })
    .await?;
    ns.ready(made.metadata.name.as_deref().context("a Pod without a name")?).await.map(drop)
}

/// The installed image, as `target/deploy` names it.
fn image(cluster: &Cluster, workload: &str) -> Result<String> {
    let objects = kustomize::load(&cluster.folder())?;
    let workload =
        objects.iter().find(|o| o.pod().is_some() && o.name() == workload).context("no workload")?;
    Ok(object::text(&workload.0, "/spec/template/spec/containers/0/image").to_owned())
}

/// Installs the same programs under other tags.
async fn older(cluster: &Cluster) -> Result<()> {
    const TAG: &str = "0.1.0-older";
    for program in ["controller", "daemon"] {
        let archive = root().join(format!("target/images/pitstop-{program}.tar"));
        cluster.push(&archive, &format!("pitstop.dev/{program}:{TAG}"))?;
    }
    let tags = [("pitstop.dev/controller", TAG), ("pitstop.dev/daemon", TAG)];
    let folder = cluster.combined(&cluster.folder(), &[], &tags)?;
    cluster.apply(&folder)?;
    system::healthy(cluster).await?;
    let daemon = system::daemon(cluster).await?;
    let runs = daemon.spec.as_ref().and_then(|spec| spec.containers.first()?.image.as_deref());
    ensure!(runs == Some(&format!("pitstop.dev/daemon:{TAG}")), "{runs:?}");
    Ok(())
}

/// Each runtime alone and with all other components, on every base that this Kubernetes can have.
#[test]
fn every_component_is_accepted_by_the_api_server() -> Result<()> {
    on_cluster(async |ns| every_component(&ns.cluster, &["default", "gate-webhook", "resize-cri"]))
}

/// Dry-runs each base with each runtime, alone and with all other components.
pub(crate) fn every_component(cluster: &Cluster, bases: &[&str]) -> Result<()> {
    for base in bases {
        let folder = root().join("target/deploy").join(base);
        for runtime in ["crio", "k0s", "k3s", "microk8s"] {
            let rest = ["locked-namespace", "seccomp", "resize-cri", "resize-evict"];
            let rest = rest.into_iter().filter(|name| name != base);
            for components in [vec![runtime], [runtime].into_iter().chain(rest).collect()] {
                dry_run(cluster, &folder, &components)?;
            }
        }
    }
    Ok(())
}

fn dry_run(cluster: &Cluster, base: &Path, components: &[&str]) -> Result<()> {
    let folder = cluster.combined(base, components, &[])?;
    let output = cluster.accepts(["-k", &folder.to_string_lossy()], "")?;
    let objects: Vec<Object> = kustomize::load(&folder)?;
    ensure!(output.lines().count() == objects.len(), "{} with {components:?}: {output}", base.display());
    Ok(())
}

#[test]
fn a_kustomization_of_ones_own_combines_components() -> Result<()> {
    on_cluster(async |ns| {
        let cluster = &ns.cluster;
        let combined = async {
            cluster.documented("combine", &[])?;
            system::healthy(cluster).await?;
            for policy in ["pitstop-locked-pods", "pitstop-users", "pitstop-daemon"] {
                cluster.kubectl(&["get", "validatingadmissionpolicy", policy])?;
            }
            cluster.kubectl(&["get", "clusterrolebinding", "pitstop-controller-evict"])?;
            restarts(ns, "combined").await
        };
        let outcome = combined.await;
        for component in ["locked-namespace", "resize-evict"] {
            let folder = root().join("deploy/components").join(component);
            cluster.kubectl(&["delete", "-k", &folder.to_string_lossy(), "--ignore-not-found"])?;
        }
        cluster.install()?;
        system::healthy(cluster).await?;
        outcome
    })
}

const KRUISE: &str = "kruise-mutating-webhook-configuration";

/// No Kruise runs here: the test checks what the commands do to its configuration and to pitstop.
#[test]
fn the_way_beside_openkruise() -> Result<()> {
    on_cluster(async |ns| {
        let cluster = &ns.cluster;
        let all: Api<MutatingWebhookConfiguration> = Api::all(cluster.client.clone());
        all.create(&PostParams::default(), &serde_json::from_value(kruise())?).await?;
        let outcome = beside(ns, &all).await;
        let removed = all.delete(KRUISE, &DeleteParams::default()).await;
        let unset =
            ["-n", NAMESPACE, "set", "env", "deployment/pitstop-controller", "PITSTOP_KRUISE_CRR_OFF-"];
        cluster.kubectl(&unset)?;
        removed?;
        system::healthy(cluster).await?;
        outcome
    })
}

async fn beside(ns: &Ns, all: &Api<MutatingWebhookConfiguration>) -> Result<()> {
    ns.cluster.documented("kruise-look", &[])?;
    ns.cluster.documented("kruise-webhook", &[])?;
    let found = all.get(KRUISE).await?;
    let names: Vec<String> = found.webhooks.into_iter().flatten().map(|webhook| webhook.name).collect();
    ensure!(names == ["mpod.kb.io"], "{names:?}");
    let template =
        found.metadata.annotations.unwrap_or_default().remove("template").context("no template")?;
    let template: Value = serde_json::from_str(&template)?;
    let names: Vec<&Value> =
        template.as_array().into_iter().flatten().map(|webhook| &webhook["name"]).collect();
    ensure!(names == ["mpod.kb.io"], "{names:?}");
    ns.cluster.documented("kruise-off", &[])?;
    system::healthy(&ns.cluster).await?;
    restarts(ns, "beside").await
}

/// Two webhooks of Kruise, and the annotation from which it restores them.
fn kruise() -> Value {
    let webhook = |name: &str, group: &str, resource: &str| {
        json!({
            "name": name,
            "admissionReviewVersions": ["v1", "v1beta1"],
            "clientConfig": {"service": {"namespace": "kruise-system", "name": "kruise-webhook-service", "path": "/x"}},
            // The real ones have `Fail`; no server runs behind these.
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "timeoutSeconds": 1,
            "rules": [{"apiGroups": [group], "apiVersions": ["v1alpha1"], "operations": ["CREATE"], "resources": [resource]}],
        })
    };
    let webhooks = json!([
        webhook("mpod.kb.io", "apps.kruise.io", "clonesets"),
        webhook("mcontainerrecreaterequest.kb.io", "apps.kruise.io", "containerrecreaterequests"),
    ]);
    let template = webhooks.to_string();
    json!({"metadata": {"name": KRUISE, "annotations": {"template": template}}, "webhooks": webhooks})
}
