//! One Pod, by an update or by a bare patch.

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
use crate::harness::pods::{CONTAINER, Yard, failed, ready_container, replaced};
use crate::harness::processes::{self, End};
use crate::harness::programs::NAMESPACE;
use crate::harness::tape::Tape;
use crate::harness::writes::Writes;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(1);
/// Quiet between two Pods: the kubelet's and pitstop's last writes for one must not meet the next.
const PAUSE: Duration = Duration::from_millis(700);
/// The kubelet looks at its containers once a second; each Pod meets another moment of that second.
const SECOND: u32 = 1000;
const STRIDE: u32 = 370;
/// The tag of the new image.
const TAG: &str = "2";
/// That of one whose container ends at once.
const BAD: &str = "crash";
/// Seconds for which a new container would be watched: it fails sooner.
const WATCHED: u32 = 30;

/// What measuring needs.
pub(super) struct Bench<'a> {
    pub(super) yard: &'a Yard,
    pub(super) pods: Tape<Pod>,
    pub(super) updates: Tape<PodImageUpdate>,
    pub(super) audit_log: PathBuf,
    /// Pods that were worked on.
    pub(super) done: u32,
}

/// A new image, by an update or by a patch: milliseconds since just before that was sent.
pub(super) struct Updated {
    /// The old process was gone.
    pub(super) gone: f64,
    /// The Pod's status with the new container ready arrived here.
    pub(super) ready: f64,
    /// The update's status with its end arrived here; for a patch, the same as `ready`.
    pub(super) over: f64,
    /// What pitstop wrote until nothing was left to do about it.
    pub(super) writes: Writes,
}

impl Bench<'_> {
    /// Takes the new image from the node.
    pub(super) async fn forget(&mut self, lab: &Lab) -> Result<()> {
        images::forget(lab)?;
        self.pause().await;
        Ok(())
    }

    /// A new image by a `PodImageUpdate` of the Pod's own name.
    pub(super) async fn by_update(&mut self, pod: &str) -> Result<Updated> {
        let (old, end) = self.fresh(pod).await?;
        let mark = Mark::end_of(&self.audit_log)?;
        let start = self.update(pod, TAG, 0).await?;
        let gone = end.time().await? - start;
        let ready = self.replaced(start, pod, &old).await? - start;
        let over = self.ends(start, pod, Phase::Succeeded).await?;
        no_orders(&self.yard.client, PATIENCE).await?;
        self.pause().await;
        let entries = mark.read()?;
        // The lease is renewed whether there is an update or not.
        let of_update = entries.iter().filter(|e| !e.dry_run() && e.object_ref.resource != "leases");
        Ok(Updated {
            gone: milliseconds(gone),
            ready: milliseconds(ready),
            over: milliseconds(over - start),
            writes: Writes::count(of_update, NAMESPACE),
        })
    }

    /// A new image by a patch of the Pod.
    pub(super) async fn by_patch(&mut self, pod: &str) -> Result<Updated> {
        let (old, end) = self.fresh(pod).await?;
        let start = self.patch(pod, TAG).await?;
        let gone = milliseconds(end.time().await? - start);
        let ready = milliseconds(self.replaced(start, pod, &old).await? - start);
        self.pause().await;
        Ok(Updated { gone, ready, over: ready, writes: Writes::default() })
    }

    /// An image that fails, by an update that is to take it back: milliseconds from the failure to the old image being ready again.
    pub(super) async fn back_by_update(&mut self, pod: &str) -> Result<f64> {
        let image = self.image(pod).await?;
        let start = self.update(pod, BAD, WATCHED).await?;
        let failed = self.fails(start, pod).await?;
        let ready = self.has_again(failed, pod, &image).await?;
        self.ends(start, pod, Phase::RolledBack).await?;
        no_orders(&self.yard.client, PATIENCE).await?;
        self.pause().await;
        Ok(milliseconds(ready - failed))
    }

    /// The same by a patch, and another one as soon as the failure is seen.
    pub(super) async fn back_by_patch(&mut self, pod: &str) -> Result<f64> {
        let image = self.image(pod).await?;
        let start = self.patch(pod, BAD).await?;
        let failed = self.fails(start, pod).await?;
        self.patch(pod, "1").await?;
        let ready = self.has_again(failed, pod, &image).await?;
        self.pause().await;
        Ok(milliseconds(ready - failed))
    }

    /// Creates an update of the Pod's own name; when.
    async fn update(&self, pod: &str, tag: &str, observe: u32) -> Result<Instant> {
        let api: Api<PodImageUpdate> = self.yard.api();
        let update = images::update(pod, tag, &json!({"podRef": {"name": pod}, "observeSeconds": observe}));
        let start = Instant::now();
        api.create(&PostParams::default(), &serde_json::from_value(update)?)
            .await
            .context("cannot create the update")?;
        Ok(start)
    }

    /// When the status with the end of that update arrived here, which must be this one.
    async fn ends(&mut self, start: Instant, pod: &str, end: Phase) -> Result<Instant> {
        let over = |seen: &PodImageUpdate| {
            let status = seen.status.as_ref().filter(|_| seen.name_any() == pod)?;
            status.completion_time.as_ref().and(status.phase)
        };
        let (over, phase) = self.updates.find(start, PATIENCE, "the update to end", over).await?;
        if phase != end {
            bail!(
                "the update ended as {phase:?}; see `kubectl -n {} get piu {pod} -o yaml`",
                self.yard.namespace
            );
        }
        Ok(over)
    }

    /// Patches the image of the Pod; when.
    async fn patch(&self, pod: &str, tag: &str) -> Result<Instant> {
        let api: Api<Pod> = self.yard.api();
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
        let api: Api<Pod> = self.yard.api();
        let object = api.get(pod).await?;
        Ok(ready_container(&object).context("the container is not ready")?.image_id.clone())
    }

    /// When a container that had failed arrived here.
    async fn fails(&mut self, start: Instant, pod: &str) -> Result<Instant> {
        let is = |seen: &Pod| failed(seen, pod).then_some(());
        Ok(self.pods.find(start, PATIENCE, "the new container to fail", is).await?.0)
    }

    /// When the container with that image, ready, arrived here.
    async fn has_again(&mut self, since: Instant, pod: &str, image: &str) -> Result<Instant> {
        let is = |seen: &Pod| {
            let own = (seen.name_any() == pod).then(|| ready_container(seen)).flatten();
            own.filter(|status| status.image_id == image).map(drop)
        };
        Ok(self.pods.find(since, PATIENCE, "the old image to be ready again", is).await?.0)
    }

    /// The container of a Pod to which nothing has been done, and the end of its process.
    async fn fresh(&self, pod: &str) -> Result<(ContainerId, End)> {
        let api: Api<Pod> = self.yard.api();
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
