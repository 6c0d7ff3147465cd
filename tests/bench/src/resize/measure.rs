//! Resizes of one Pod, by request or by a bare patch.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use pitstop_api::resize::{ContainerResize, Mechanism, Phase, PodRef, PodResize, PodResizeSpec};
use pitstop_cri::split_reference;
use serde_json::json;

use crate::harness::audit::{Entry, Mark};
use crate::harness::books::no_orders;
use crate::harness::figures::signed;
use crate::harness::groups::{Change, Group, Limits};
use crate::harness::pods::{CONTAINER, Ns, ready_container};
use crate::harness::processes;
use crate::harness::programs::NAMESPACE;
use crate::harness::steps::{Step, steps};
use crate::harness::tape::Tape;
use crate::harness::writes::Writes;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(1);
/// Pause between two Pods, so that last writes for one do not disturb the next.
const PAUSE: Duration = Duration::from_millis(700);
/// The kubelet checks its containers once a second. Each Pod starts at another moment of that second, in milliseconds.
const SECOND: u32 = 1000;
const STRIDE: u32 = 370;

/// Original resources: `requests.cpu`, `limits.cpu`, `requests.memory` and `limits.memory`.
const BEFORE: [&str; 4] = ["100m", "200m", "64Mi", "128Mi"];
/// New resources: `requests.cpu`, `limits.cpu`, `limits.memory`.
const AFTER: [&str; 3] = ["150m", "400m", "256Mi"];
/// The original and the new limits in the control group.
const HELD: [Limits; 2] =
    [Limits { cpu_quota: 20_000, memory: 128 << 20 }, Limits { cpu_quota: 40_000, memory: 256 << 20 }];

/// State of the benchmark.
pub(super) struct Bench<'a> {
    pub(super) ns: &'a Ns,
    pub(super) requests: Tape<PodResize>,
    pub(super) audit_log: PathBuf,
    /// Number of measured Pods.
    pub(super) done: u32,
}

/// Effects of a patch, in milliseconds since its arrival at the API server.
pub(super) struct Patched {
    /// The API server had answered.
    pub(super) answered: f64,
    /// The container's control group had the values.
    pub(super) held: f64,
}

/// A resize by request, in milliseconds.
pub(super) struct ByRequest {
    /// From the request's arrival at the API server to the patch's arrival.
    pub(super) before: f64,
    /// Effects of the patch.
    pub(super) patched: Patched,
    /// From just before the request was sent to the arrival of its end in this process.
    pub(super) over: f64,
    /// pitstop's writes until the orders were removed.
    pub(super) writes: Writes,
    /// Steps from the request to the new limits.
    pub(super) steps: Vec<Step>,
}

/// The original resources of the containers.
pub(super) fn before() -> ResourceRequirements {
    let [cpu_request, cpu_limit, memory_request, memory_limit] = BEFORE;
    let amounts = |cpu: &str, memory: &str| {
        let amounts = [("cpu", cpu), ("memory", memory)];
        Some(amounts.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned()))).into())
    };
    ResourceRequirements {
        requests: amounts(cpu_request, memory_request),
        limits: amounts(cpu_limit, memory_limit),
        ..ResourceRequirements::default()
    }
}

impl Bench<'_> {
    /// Resizes a Pod by request.
    pub(super) async fn by_request(&mut self, pod: &str) -> Result<ByRequest> {
        let mark = Mark::end_of(&self.audit_log)?;
        let change = self.expect(pod).await?;
        let api: Api<PodResize> = self.ns.api();

        let (start, wall) = (Instant::now(), SystemTime::now());
        api.create(&PostParams::default(), &request(pod)?).await.context("cannot create the request")?;
        let held = change.time().await?;
        let over = |seen: &PodResize| {
            let phase = seen.status.as_ref()?.phase.filter(|_| seen.name_any() == pod)?;
            phase.is_end().then_some(phase)
        };
        let (over, phase) = self.requests.find(start, PATIENCE, "the request to end", over).await?;
        if phase != Phase::Succeeded {
            bail!(
                "the request ended as {phase:?}; see `kubectl -n {} get prz {pod} -o yaml`",
                self.ns.namespace
            );
        }
        no_orders(&self.ns.client, PATIENCE).await?;
        self.pause().await;

        let entries = mark.read()?;
        let patch = patch_of(&entries, pod, |entry| entry.account(NAMESPACE).is_some())?;
        // Only one request exists at a time.
        let create = entries.iter().find(|entry| entry.name() == "create podresizes");
        let create = create.context("the audit log has no create of the request")?;
        // Renewals of the lease do not depend on requests.
        let of_request = entries.iter().filter(|e| !e.dry_run() && e.object_ref.resource != "leases");
        Ok(ByRequest {
            before: signed(create.received(), patch.received()),
            patched: Patched::of(patch, held),
            over: (over - start).as_secs_f64() * 1e3,
            writes: Writes::count(of_request, NAMESPACE),
            steps: steps(&entries, wall, held, "kubelet: patch, until the control group has the values"),
        })
    }

    /// Makes the same change by a patch of the Pod.
    pub(super) async fn bare(&mut self, pod: &str) -> Result<Patched> {
        let mark = Mark::end_of(&self.audit_log)?;
        let change = self.expect(pod).await?;
        let api: Api<Pod> = self.ns.api();
        let [cpu_request, cpu_limit, memory_limit] = AFTER;
        let resources =
            json!({"requests": {"cpu": cpu_request}, "limits": {"cpu": cpu_limit, "memory": memory_limit}});
        let patch = json!({"spec": {"containers": [{"name": CONTAINER, "resources": resources}]}});
        api.patch_subresource("resize", pod, &PatchParams::default(), &Patch::Strategic(patch))
            .await
            .context("cannot patch the Pod")?;
        let held = change.time().await?;
        self.pause().await;
        let entries = mark.read()?;
        Ok(Patched::of(patch_of(&entries, pod, |entry| entry.program() == "pitstop-bench")?, held))
    }

    /// Starts polling the control group of a Pod's container for the new limits.
    async fn expect(&self, pod: &str) -> Result<Change> {
        let api: Api<Pod> = self.ns.api();
        let object = api.get(pod).await?;
        let status = ready_container(&object).context("the container is not ready")?;
        let (_, container) = split_reference(status.container_id.as_deref().unwrap_or_default())?;
        let group = Group::of(processes::of_container(container.as_str())?)?;
        let [before, after] = HELD;
        let found = group.limits();
        if found != Some(before) {
            bail!("the container's control group holds {found:?} and not {before:?}");
        }
        Ok(Change::watch(group, after, PATIENCE))
    }

    async fn pause(&mut self) {
        self.done += 1;
        let more = self.done * STRIDE % SECOND;
        tokio::time::sleep(PAUSE + Duration::from_millis(more.into())).await;
    }
}

/// A request with the Pod's name.
fn request(pod: &str) -> Result<PodResize> {
    let [cpu_request, cpu_limit, memory_limit] = AFTER;
    let container = json!({"name": CONTAINER, "resources": {
        "requests": {"cpu": cpu_request}, "limits": {"cpu": cpu_limit, "memory": memory_limit}}});
    let container: ContainerResize = serde_json::from_value(container)?;
    let spec = PodResizeSpec {
        pod_ref: PodRef { name: pod.to_owned(), uid: None },
        containers: vec![container],
        mechanism: Some(Mechanism::Api),
        ..PodResizeSpec::default()
    };
    Ok(PodResize::new(pod, spec))
}

/// The last accepted patch of `pods/resize` that is `wanted`.
fn patch_of<'a>(entries: &'a [Entry], pod: &str, wanted: impl Fn(&Entry) -> bool) -> Result<&'a Entry> {
    let mut patches = entries.iter().filter(|e| e.name() == "patch pods/resize" && e.object_ref.name == pod);
    patches.rfind(|e| !e.refused() && wanted(e)).context("the audit log has no patch of the Pod's resources")
}

impl Patched {
    fn of(patch: &Entry, held: SystemTime) -> Self {
        let since = |later| signed(patch.received(), later);
        Self { answered: since(patch.answered()), held: since(held) }
    }
}
