//! Image updates of one Pod, by a `PodImageUpdate` or by a bare patch.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use pitstop_api::image_update::{Phase, PodImageUpdate};
use pitstop_cri::{ContainerId, split_reference};
use pitstop_e2e::{cluster::Cluster as Lab, images};
use serde_json::json;

use crate::harness::audit::Mark;
use crate::harness::books::no_orders;
use crate::harness::figures::milliseconds;
use crate::harness::pods::{CONTAINER, Ns, failed, ready_container, replaced};
use crate::harness::processes::{self, End};
use crate::harness::programs::NAMESPACE;
use crate::harness::tape::Tape;
use crate::harness::writes::Writes;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(1);
/// Pause between two Pods, so that last writes for one do not disturb the next.
const PAUSE: Duration = Duration::from_millis(700);
/// The kubelet checks its containers once a second. Each Pod starts at another moment of that second, in milliseconds.
const SECOND: u32 = 1000;
const STRIDE: u32 = 370;
/// The tag of the new image.
const TAG: &str = "2";
/// Tag of an image whose container fails at once.
const BAD: &str = "crash";
/// Seconds for which pitstop observes a new container. The bad image fails sooner.
const WATCHED: u32 = 30;

/// State of the benchmark.
pub(super) struct Bench<'a> {
    pub(super) ns: &'a Ns,
    pub(super) pods: Tape<Pod>,
    pub(super) updates: Tape<PodImageUpdate>,
    pub(super) audit_log: PathBuf,
    /// Number of measured Pods.
    pub(super) done: u32,
}

/// A new image by an update or a patch, in milliseconds since just before that was sent.
pub(super) struct Updated {
    /// The old process was gone.
    pub(super) gone: f64,
    /// The Pod's status with the new container ready arrived here.
    pub(super) ready: f64,
    /// The update's status with its end arrived here; `ready` for a patch.
    pub(super) over: f64,
    /// pitstop's writes until the orders were removed.
    pub(super) writes: Writes,
}

impl Bench<'_> {
    /// Removes the new image from the node.
    pub(super) async fn forget(&mut self, lab: &Lab) -> Result<()> {
        images::forget(lab)?;
        self.pause().await;
        Ok(())
    }

    /// Updates the image by a `PodImageUpdate` with the Pod's name.
    pub(super) async fn by_update(&mut self, pod: &str) -> Result<Updated> {
        let (old, end) = self.fresh(pod).await?;
        let mark = Mark::end_of(&self.audit_log)?;
        let start = self.update(pod, TAG, 0).await?;
        let gone = end.time().await? - start;
        let ready = self.replaced(start, pod, &old).await? - start;
        let over = self.ends(start, pod, Phase::Succeeded).await?;
        no_orders(&self.ns.client, PATIENCE).await?;
        self.pause().await;
        let entries = mark.read()?;
        // Renewals of the lease do not depend on updates.
        let of_update = entries.iter().filter(|e| !e.dry_run() && e.object_ref.resource != "leases");
        Ok(Updated {
            gone: milliseconds(gone),
            ready: milliseconds(ready),
            over: milliseconds(over - start),
            writes: Writes::count(of_update, NAMESPACE),
        })
    }

    /// Updates the image by a patch of the Pod.
    pub(super) async fn by_patch(&mut self, pod: &str) -> Result<Updated> {
        let (old, end) = self.fresh(pod).await?;
        let start = self.patch(pod, TAG).await?;
        let gone = milliseconds(end.time().await? - start);
        let ready = milliseconds(self.replaced(start, pod, &old).await? - start);
        self.pause().await;
        Ok(Updated { gone, ready, over: ready, writes: Writes::default() })
    }

    /// Updates to a failing image by an update that rolls back. Returns milliseconds from the failure until the old
    /// image is ready again.
    pub(super) async fn back_by_update(&mut self, pod: &str) -> Result<f64> {
        let image = self.image(pod).await?;
        let start = self.update(pod, BAD, WATCHED).await?;
        let failed = self.fails(start, pod).await?;
        let ready = self.has_again(failed, pod, &image).await?;
        self.ends(start, pod, Phase::RolledBack).await?;
        no_orders(&self.ns.client, PATIENCE).await?;
        self.pause().await;
        Ok(milliseconds(ready - failed))
    }

    /// The same by a patch, and a second patch as soon as the failure is seen.
    pub(super) async fn back_by_patch(&mut self, pod: &str) -> Result<f64> {
        let image = self.image(pod).await?;
        let start = self.patch(pod, BAD).await?;
        let failed = self.fails(start, pod).await?;
        self.patch(pod, "1").await?;
        let ready = self.has_again(failed, pod, &image).await?;
        self.pause().await;
        Ok(milliseconds(ready - failed))
    }

    /// Creates an update with the Pod's name; returns the time just before.
    async fn update(&self, pod: &str, tag: &str, observe: u32) -> Result<Instant> {
        let api: Api<PodImageUpdate> = self.ns.api();
        let update = images::update(pod, tag, &json!({"podRef": {"name": pod}, "observeSeconds": observe}));
        let start = Instant::now();
        api.create(&PostParams::default(), &serde_json::from_value(update)?)
            .await
            .context("cannot create the update")?;
        Ok(start)
    }

    /// Time when the status with the update's end arrived here. Fails if the end is not `end`.
    async fn ends(&mut self, start: Instant, pod: &str, end: Phase) -> Result<Instant> {
        let over = |seen: &PodImageUpdate| {
            let status = seen.status.as_ref().filter(|_| seen.name_any() == pod)?;
            status.completion_time.as_ref().and(status.phase)
        };
        let (over, phase) = self.updates.find(start, PATIENCE, "the update to end", over).await?;
        if phase != end {
            bail!(
                "the update ended as {phase:?}; see `kubectl -n {} get piu {pod} -o yaml`",
                self.ns.namespace
            );
        }
        Ok(over)
    }

    /// Patches the Pod's image; returns the time just before.
    async fn patch(&self, pod: &str, tag: &str) -> Result<Instant> {
        let api: Api<Pod> = self.ns.api();
        let image = format!("{}:{tag}", images::REPOSITORY);
        let patch = json!({"spec": {"containers": [{"name": CONTAINER, "image": image}]}});
        let start = Instant::now();
        api.patch(pod, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .context("cannot patch the Pod")?;
        Ok(start)
    }

    /// The ID of the image that the container runs.
    async fn image(&self, pod: &str) -> Result<String> {
        let api: Api<Pod> = self.ns.api();
        let object = api.get(pod).await?;
        Ok(ready_container(&object).context("the container is not ready")?.image_id.clone())
    }

    /// Time when the Pod's status with a failed container arrived here.
    async fn fails(&mut self, start: Instant, pod: &str) -> Result<Instant> {
        let is = |seen: &Pod| failed(seen, pod).then_some(());
        Ok(self.pods.find(start, PATIENCE, "the new container to fail", is).await?.0)
    }

    /// Time when the Pod's status with that image ready arrived here.
    async fn has_again(&mut self, since: Instant, pod: &str, image: &str) -> Result<Instant> {
        let is = |seen: &Pod| {
            let own = (seen.name_any() == pod).then(|| ready_container(seen)).flatten();
            own.filter(|status| status.image_id == image).map(drop)
        };
        Ok(self.pods.find(since, PATIENCE, "the old image to be ready again", is).await?.0)
    }

    /// The container of a Pod before its update, and the end of its process.
    async fn fresh(&self, pod: &str) -> Result<(ContainerId, End)> {
        let api: Api<Pod> = self.ns.api();
        let object = api.get(pod).await?;
        let status = ready_container(&object).context("the container is not ready")?;
        let (_, container) = split_reference(status.container_id.as_deref().unwrap_or_default())?;
        let end = End::watch(processes::of_container(container.as_str())?, PATIENCE)?;
        Ok((container, end))
    }

    async fn replaced(&mut self, start: Instant, pod: &str, old: &ContainerId) -> Result<Instant> {
        let is = |seen: &Pod| replaced(seen, pod, old).then_some(());
        Ok(self.pods.find(start, PATIENCE, "the new container to be ready", is).await?.0)
    }

    async fn pause(&mut self) {
        self.done += 1;
        let more = self.done * STRIDE % SECOND;
        tokio::time::sleep(PAUSE + Duration::from_millis(more.into())).await;
    }
}
