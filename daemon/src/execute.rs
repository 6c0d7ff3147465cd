//! Carries actions out. Outcomes go back to the core as events.

use std::time::Duration;

use kube::Client;
use pitstop_api::logic::answer::{Answer, Failure};
use pitstop_api::nodework::{CgroupReading, Held, NodeWorkStatus, OrderPod};
use pitstop_cri::{ContainerId, Runtime};
use pitstop_daemon_core::resize::{Present, Seen, Write, describe_writes};
use pitstop_daemon_core::{Action, CallFailure, Event, Facts, Hook, Look, Outcome, PullFailure, wire};
use pitstop_kit::clock::Monotonic;
use pitstop_kit::{client, describe, shown};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::disk::Disk;
use crate::hook;
use crate::image;
use crate::metrics::DaemonMetrics;
use crate::record::Record;
use crate::resize::Resizer;
use crate::runtime;
use crate::search::Link;

/// Everything that actions need.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) node: String,
    pub(crate) disk: Disk,
    pub(crate) client: Client,
    pub(crate) link: Link,
    pub(crate) record: Record,
    pub(crate) resizer: Resizer,
    pub(crate) metrics: DaemonMetrics,
    pub(crate) events: mpsc::Sender<Event>,
}

impl Executor {
    /// Carries out one action and reports the outcome.
    pub(crate) async fn execute(self, action: Action) {
        let event = match action {
            Action::Inspect { order_id, container_id } => {
                let result = self.inspect(&order_id, &container_id).await;
                Event::Inspected(order_id, result)
            }
            Action::RunHook { order_id, container_id, hook, limit_seconds } => {
                let result = self.run_hook(&order_id, &container_id, hook, limit_seconds).await;
                Event::HookDone(order_id, result)
            }
            Action::Stop { order_id, container_id, grace_seconds } => {
                let result = self.stop(&order_id, &container_id, grace_seconds).await;
                Event::Stopped(order_id, result)
            }
            Action::ReadCgroups { order_id, container_id, pod_uid } => {
                let result = self.read_cgroups(&order_id, &container_id, &pod_uid).await;
                Event::CgroupsRead(order_id, result)
            }
            Action::ReadResources { order_id, container_id, pod_uid, runs, held } => {
                let result = self.read_resources(&container_id, &pod_uid, runs, held.as_deref()).await;
                log_resources(&order_id, &container_id, &result);
                Event::ResourcesRead(order_id, result)
            }
            Action::Resize { order_id, container_id, pod_uid, cgroup, writes } => {
                let text = describe_writes(&writes);
                info!(order_id, %container_id, pod_uid, writes = text, "changes the resources");
                let result = self.resize(&order_id, &container_id, &cgroup, &writes).await;
                Event::Resized(order_id, result)
            }
            Action::LookAtImage { order_id, container_id, pod_uid, container, image, room } => {
                let disk = Some(&self.disk).filter(|_| room);
                let result = self.look_at_image(&container_id, &pod_uid, &container, &image, disk).await;
                Event::ImageSeen(order_id, result)
            }
            Action::Pull { order_id, image, limit } => {
                let result = self.pull(&order_id, &image, limit).await;
                Event::Pulled(image, result)
            }
            // The loop of `run` aborts the pull.
            Action::CancelPull { .. } => return,
            Action::WriteBack { held } => {
                let result = self.write_back(&held).await;
                Event::WrittenBack(held.pod.uid, result)
            }
            Action::WriteStatus { resource_version, status } => {
                Event::StatusWritten(self.write(resource_version, *status).await)
            }
        };
        // The receiver is gone only when the process ends.
        let _ = self.events.send(event).await;
    }

    async fn inspect(
        &self,
        order_id: &str,
        container_id: &ContainerId,
    ) -> Result<Option<Facts>, CallFailure> {
        let inspect = async |runtime: Runtime| runtime::inspect(&runtime, container_id).await;
        let result = self.ask("inspect", inspect).await;
        match &result {
            Ok(facts) => {
                let state = facts.as_ref().map_or("missing", |facts| facts.state.as_str());
                debug!(order_id, %container_id, state, "inspected the container");
            }
            Err(failure) => {
                warn!(order_id, %container_id, error = failure.message, "cannot inspect the container");
            }
        }
        result
    }

    async fn run_hook(
        &self,
        order_id: &str,
        container_id: &ContainerId,
        hook: Hook,
        limit_seconds: i64,
    ) -> Result<(), String> {
        info!(order_id, %container_id, limit_seconds, "runs the container's preStop hook");
        let runtime = self.link.runtime();
        let kind = hook.kind();
        let result = hook::run(runtime.as_ref(), container_id, hook, limit_seconds).await;
        self.metrics.hook(kind, result.is_ok());
        match &result {
            Ok(()) => info!(order_id, %container_id, "the preStop hook ended"),
            Err(hook::Failure { message, detail }) => {
                warn!(order_id, %container_id, error = message, detail, "the preStop hook failed");
            }
        }
        let result = result.map_err(|failure| failure.message);
        // Before the event: the core may stop the container once it knows of the end.
        self.record.hook_ended(order_id, result.as_ref().err().map(String::as_str));
        result
    }

    async fn read_resources(
        &self,
        container_id: &ContainerId,
        pod_uid: &str,
        runs: bool,
        held: Option<&str>,
    ) -> Result<Box<Present>, CallFailure> {
        let look =
            async |runtime: Runtime| self.resizer.look(&runtime, container_id, pod_uid, runs, held).await;
        self.ask("read_resources", look).await
    }

    async fn look_at_image(
        &self,
        container_id: &ContainerId,
        pod_uid: &str,
        container: &str,
        image: &str,
        disk: Option<&Disk>,
    ) -> Result<Box<Look>, CallFailure> {
        let look = async |runtime: Runtime| {
            image::look(&runtime, container_id, pod_uid, container, image, disk).await.map(Box::new)
        };
        let result = self.ask("look_at_image", look).await;
        if let Err(failure) = &result {
            warn!(%container_id, image, error = failure.message, "cannot inspect the image");
        }
        result
    }

    async fn pull(&self, order_id: &str, image: &str, limit: Duration) -> Result<(), PullFailure> {
        info!(order_id, image, "pulls an image");
        let begun = Monotonic::now();
        let result = match self.link.runtime() {
            Ok(runtime) => {
                let result = image::pull(&runtime, image, limit).await;
                self.metrics.pulled(Duration::from_millis(Monotonic::now().saturating_sub(begun)));
                if result.is_ok() {
                    self.metrics.pulled_bytes(image::size(&runtime, image).await);
                }
                result
            }
            Err(lost) => Err(PullFailure { missing: false, message: lost.message }),
        };
        self.metrics.count("pull", if result.is_ok() { "ok" } else { "error" });
        // The registry's words may hold secrets; the order's answer has them without secrets.
        info!(order_id, image, ok = result.is_ok(), "the pull has ended");
        result
    }

    async fn stop(
        &self,
        order_id: &str,
        container_id: &ContainerId,
        grace_seconds: i64,
    ) -> Result<(), CallFailure> {
        info!(order_id, %container_id, grace_seconds, "stopping the container");
        self.record.stop_begins(order_id);
        let begun = Monotonic::now();
        let stop = async |runtime: Runtime| runtime::stop(&runtime, container_id, grace_seconds).await;
        let result = self.ask("stop", stop).await;
        self.metrics.stopped(Duration::from_millis(Monotonic::now().saturating_sub(begun)));
        match &result {
            Ok(()) => info!(order_id, %container_id, "the container is stopped"),
            Err(failure) => warn!(order_id, %container_id, error = failure.message, "the stop failed"),
        }
        result
    }

    async fn read_cgroups(
        &self,
        order_id: &str,
        container_id: &ContainerId,
        pod_uid: &str,
    ) -> Result<Box<CgroupReading>, CallFailure> {
        let cgroups = &self.resizer.cgroups;
        let read = async |runtime: Runtime| cgroups.read(&runtime, container_id, pod_uid).await;
        let result = self.ask("read_cgroups", read).await;
        match &result {
            Ok(observed) => debug!(order_id, %container_id, observed = shown(observed), "read the cgroups"),
            Err(failure) => {
                warn!(order_id, %container_id, error = failure.message, "cannot read the cgroups");
            }
        }
        result
    }

    async fn resize(
        &self,
        order_id: &str,
        container_id: &ContainerId,
        cgroup: &str,
        writes: &[Write],
    ) -> Result<(), CallFailure> {
        // The cause of a failure is unknown: systemd or the kernel may have refused.
        let apply = async |runtime: Runtime| self.resizer.apply(&runtime, cgroup, writes, false).await;
        let result = self.call("resize", apply).await;
        match &result {
            Ok(()) => info!(order_id, %container_id, "the resources are changed"),
            Err(failure) => {
                warn!(order_id, %container_id, error = failure.message, "cannot change the resources");
            }
        }
        result
    }

    async fn write_back(&self, held: &Held) -> Result<(), CallFailure> {
        let OrderPod { namespace, name, uid } = &held.pod;
        info!(namespace, pod = name, uid, "the NodeWork is deleted: restores the original resources");
        let write_back = async |runtime: Runtime| self.resizer.write_back(&runtime, held).await;
        let result = self.call("write_back", write_back).await;
        match &result {
            Ok(()) => info!(uid, "the Pod has its original resources"),
            Err(failure) => warn!(uid, error = failure.message, "cannot restore the original resources"),
        }
        result
    }

    async fn write(&self, resource_version: String, status: NodeWorkStatus) -> Outcome {
        for answer in &status.answers {
            info!(
                order_id = answer.order_id,
                state = shown(&answer.state),
                reason = answer.reason.as_ref().map(shown),
                "answers"
            );
        }
        let answer = match wire::write_status(&self.node, resource_version, status) {
            Ok(request) => client::send(&self.client, request).await,
            Err(error) => Answer::Failed(Failure::of_code(400, describe(&error))),
        };
        let outcome = wire::written(&answer);
        let label = match outcome {
            Outcome::Written(_) => "ok",
            Outcome::Conflict => "conflict",
            Outcome::Retry => "error",
        };
        self.metrics.count("write_status", label);
        if let (Outcome::Retry, Answer::Failed(failure)) = (&outcome, &answer) {
            warn!(error = failure.message, "cannot write the answers");
        }
        outcome
    }

    /// Calls the runtime. A failure that is worth a retry may also mean that the runtime is gone.
    async fn ask<T>(
        &self,
        name: &'static str,
        call: impl AsyncFnOnce(Runtime) -> Result<T, CallFailure>,
    ) -> Result<T, CallFailure> {
        let call = async |runtime: Runtime| {
            let result = call(runtime).await;
            if result.as_ref().is_err_and(|failure| failure.retry) {
                self.link.doubt();
            }
            result
        };
        self.call(name, call).await
    }

    /// Calls the runtime, if one answers, and counts the call under that name.
    async fn call<T>(
        &self,
        name: &'static str,
        call: impl AsyncFnOnce(Runtime) -> Result<T, CallFailure>,
    ) -> Result<T, CallFailure> {
        let result = match self.link.runtime() {
            Ok(runtime) => call(runtime).await,
            Err(lost) => Err(lost),
        };
        self.metrics.count(name, if result.is_ok() { "ok" } else { "error" });
        result
    }
}

fn log_resources(order_id: &str, container_id: &ContainerId, result: &Result<Box<Present>, CallFailure>) {
    match result {
        Ok(present) => {
            let of = |seen: &Option<Seen>| shown(&seen.as_ref().map(|seen| seen.cgroup));
            let (container, pod) = (of(&present.container), of(&present.pod));
            debug!(order_id, %container_id, container, pod, "read the resources");
        }
        Err(failure) => {
            warn!(order_id, %container_id, error = failure.message, "cannot read the resources");
        }
    }
}
