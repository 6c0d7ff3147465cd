//! Restarts of one Pod, by request or at the runtime.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use pitstop_api::labels;
use pitstop_api::recreate::{ContainerRecreateRequest, Mechanism};
use pitstop_cri::{ContainerId, Deadlines, split_reference};

use crate::harness::audit::Mark;
use crate::harness::cluster::Cluster;
use crate::harness::figures::milliseconds;
use crate::harness::pods::{GRACE, Ns, ready_container, replaced};
use crate::harness::processes::{self, End};
use crate::harness::requests::{outcome, restart};
use crate::harness::steps::{Step, steps};
use crate::harness::tape::Tape;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(1);
/// Pause between two Pods, so that last writes for one do not disturb the next.
const PAUSE: Duration = Duration::from_millis(500);
/// The kubelet checks its containers once a second. Each Pod starts at another moment of that second, in milliseconds.
const SECOND: u32 = 1000;
const STRIDE: u32 = 370;

/// State of the benchmark.
pub(super) struct Bench<'a> {
    pub(super) ns: &'a Ns,
    pub(super) pods: Tape<Pod>,
    pub(super) requests: Tape<ContainerRecreateRequest>,
    pub(super) audit_log: PathBuf,
    /// Number of measured Pods.
    pub(super) done: u32,
}

/// A restart by request, in milliseconds since just before the request was sent.
pub(super) struct ByRequest {
    /// The old process was gone.
    pub(super) gone: f64,
    /// The Pod's status with the new container ready arrived here.
    pub(super) ready: f64,
    /// The request's status with `Completed` arrived here.
    pub(super) completed: f64,
    /// Steps from the request to the old process's end.
    pub(super) stop_steps: Vec<Step>,
    /// Steps from the new container to `Completed`.
    pub(super) end_steps: Vec<Step>,
}

/// A stop sent directly to the runtime, in milliseconds since just before it was sent.
pub(super) struct Direct {
    /// The old process was gone.
    pub(super) gone: f64,
    /// The Pod's status with the new container ready arrived here.
    pub(super) ready: f64,
}

/// A Pod before its restart.
struct Fresh {
    container: ContainerId,
    pid: u32,
    node: String,
}

impl Bench<'_> {
    /// Restarts a Pod's container by request.
    pub(super) async fn by_request(&mut self, pod: &str, mechanism: Mechanism) -> Result<ByRequest> {
        let fresh = self.fresh(pod).await?;
        let mark = Mark::end_of(&self.audit_log)?;
        let api: Api<ContainerRecreateRequest> = self.ns.api();
        let request = restart(pod, mechanism);
        let end = End::watch(fresh.pid, PATIENCE)?;

        let (start, wall) = (Instant::now(), SystemTime::now());
        api.create(&PostParams::default(), &request).await.context("cannot create the request")?;
        let gone = end.time().await? - start;
        let ready = self.restarted(start, pod, &fresh.container).await? - start;
        let completed =
            self.requests.find(start, PATIENCE, "the request to complete", |seen| outcome(pod, seen)).await?;
        let complete = completed.1;
        if !complete {
            bail!(
                "the request ended without restarting the container; see `kubectl -n {} get crr {pod} -o yaml`",
                self.ns.namespace
            );
        }
        let active = |seen: &ContainerRecreateRequest| {
            (seen.name_any() == pod
                && outcome(pod, seen).is_some()
                && !seen.labels().contains_key(labels::ACTIVE))
            .then_some(())
        };
        self.requests.find(start, PATIENCE, "the label `active` to go", active).await?;
        self.pause().await;

        let entries = mark.read()?;
        let completed = completed.0 - start;
        Ok(ByRequest {
            gone: milliseconds(gone),
            ready: milliseconds(ready),
            completed: milliseconds(completed),
            stop_steps: steps(&entries, wall, wall + gone, last_step(mechanism)),
            end_steps: steps(&entries, wall + ready, wall + completed, "bench: Completed arrives"),
        })
    }

    /// Stops a Pod's container at the runtime.
    pub(super) async fn direct(&mut self, cluster: &Cluster, pod: &str) -> Result<Direct> {
        let fresh = self.fresh(pod).await?;
        let runtime = pitstop_cri::connect(&cluster.containerd_socket(&fresh.node)?, Deadlines::default())?;
        // Connect before the measurement, because the daemon is also connected already.
        runtime.version().await?;
        let end = End::watch(fresh.pid, PATIENCE)?;

        let start = Instant::now();
        runtime.stop_container(&fresh.container, GRACE).await?;
        let gone = end.time().await? - start;
        let ready = self.restarted(start, pod, &fresh.container).await? - start;
        self.pause().await;
        Ok(Direct { gone: milliseconds(gone), ready: milliseconds(ready) })
    }

    async fn pause(&mut self) {
        self.done += 1;
        let more = self.done * STRIDE % SECOND;
        tokio::time::sleep(PAUSE + Duration::from_millis(more.into())).await;
    }

    async fn fresh(&self, pod: &str) -> Result<Fresh> {
        let api: Api<Pod> = self.ns.api();
        let object = api.get(pod).await?;
        let status = ready_container(&object).context("the container is not ready")?;
        if status.restart_count != 0 {
            bail!("the container was restarted before: {:?}", status.last_state);
        }
        let (_, container) = split_reference(status.container_id.as_deref().unwrap_or_default())?;
        let pid = processes::of_container(container.as_str())?;
        let node = object.spec.and_then(|spec| spec.node_name).unwrap_or_default();
        Ok(Fresh { container, pid, node })
    }

    /// Time when the Pod's status showed a new ready container.
    async fn restarted(&mut self, since: Instant, pod: &str, old: &ContainerId) -> Result<Instant> {
        let restarted = |seen: &Pod| replaced(seen, pod, old).then_some(());
        let (at, ()) = self.pods.find(since, PATIENCE, "the new container to be ready", restarted).await?;
        Ok(at)
    }
}

/// Name of the step from the last write before the stop to the process's end.
fn last_step(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::Kubelet => "kubelet: stop, until the process is gone",
        Mechanism::Runtime | Mechanism::Auto => "daemon: stop, until the process is gone",
    }
}
