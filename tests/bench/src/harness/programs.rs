//! pitstop's own programs in the cluster, as processes of this machine.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::processes::of_container;

/// pitstop's namespace.
pub(crate) const NAMESPACE: &str = "pitstop-system";
/// Label values of both programs' Pods.
pub(crate) const COMPONENTS: [&str; 2] = ["daemon", "controller"];

const SELECTOR: &str = "app.kubernetes.io/name=pitstop";
const COMPONENT: &str = "app.kubernetes.io/component";
const LEASE: &str = "pitstop-controller";

/// A running program.
pub(crate) struct Program {
    /// One of [`COMPONENTS`].
    pub(crate) component: String,
    /// Name of its Pod.
    pub(crate) pod: String,
    /// Its process ID on this machine.
    pub(crate) pid: u32,
    /// Start time of its container.
    pub(crate) started: SystemTime,
}

/// Processes of pitstop's Pods. Fails unless each program has a Pod and all Pods are ready.
pub(crate) async fn find(client: &Client) -> Result<Vec<Program>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut programs = Vec::new();
    for pod in api.list(&ListParams::default().labels(SELECTOR)).await? {
        let name = pod.name_any();
        let component = pod.labels().get(COMPONENT).cloned().unwrap_or_default();
        let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        let [status] = statuses.as_slice() else { bail!("Pod {name} does not run one container yet") };
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        let started = running.and_then(|running| running.started_at.as_ref());
        let (Some(id), Some(started), true) = (&status.container_id, started, status.ready) else {
            bail!("Pod {name} is not ready");
        };
        let (_, id) = pitstop_cri::split_reference(id).with_context(|| format!("Pod {name}"))?;
        let since_epoch = Duration::from_secs(started.0.as_second().unsigned_abs());
        let started = SystemTime::UNIX_EPOCH + since_epoch;
        programs.push(Program { component, pid: of_container(id.as_str())?, pod: name, started });
    }
    for component in COMPONENTS {
        if !programs.iter().any(|program| program.component == component) {
            bail!("no Pod of the {component} in namespace {NAMESPACE}; install pitstop with `make demo`");
        }
    }
    programs.sort_by(|a, b| (&b.component, &a.pod).cmp(&(&a.component, &b.pod)));
    Ok(programs)
}

/// Name of the leading controller's Pod.
pub(crate) async fn leader(client: &Client) -> Result<String> {
    let api: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let lease = api.get(LEASE).await.context("cannot read the controller's Lease")?;
    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
    Ok(holder.split('_').next().unwrap_or_default().to_owned())
}

impl Program {
    /// Its Pod's name, marked if it leads.
    pub(crate) fn title(&self, leader: &str) -> String {
        let leads = if self.pod == leader { " (leads)" } else { "" };
        format!("{}{leads}", self.pod)
    }
}
