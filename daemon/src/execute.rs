//! The one place that carries actions out. Outcomes go back to the core as events.

use std::time::Duration;

use kube::Client;
use pitstop_api::logic::answer::{Answer, Failure};
use pitstop_api::nodework::NodeWorkStatus;
use pitstop_daemon_core::resize::{Seen, listed};
use pitstop_daemon_core::{Action, CallFailure, Event, Outcome, wire};
use pitstop_kit::clock::Monotonic;
use pitstop_kit::{client, describe, shown};
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::hook;
use crate::metrics::DaemonMetrics;
use crate::record::Record;
use crate::resize::Resizer;
use crate::runtime;
use crate::search::Link;

/// What actions are carried out with.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) node: String,
    pub(crate) client: Client,
    pub(crate) link: Link,
    pub(crate) record: Record,
    pub(crate) resizer: Resizer,
    pub(crate) metrics: DaemonMetrics,
    pub(crate) events: mpsc::Sender<Event>,
}

impl Executor {
    /// Carries one action out and tells the outcome.
    pub(crate) async fn execute(self, action: Action) {
        let event = match action {
            Action::Inspect { order_id, container_id } => {
                let result = match self.link.runtime() {
                    Ok(runtime) => self.doubting(runtime::inspect(&runtime, &container_id).await),
                    Err(lost) => Err(lost),
                };
                self.count("inspect", result.is_ok());
                match &result {
                    Ok(facts) => {
                        let state = facts.as_ref().map_or("not there", |facts| facts.state.as_str());
                        debug!(order_id, container_id, state, "asked about the container");
                    }
                    Err(failure) => {
                        warn!(
                            order_id,
                            container_id,
                            error = failure.message,
                            "cannot ask about the container"
                        );
                    }
                }
                Event::Inspected(order_id, result)
            }
            Action::RunHook { order_id, container_id, hook, limit_seconds } => {
                info!(order_id, container_id, limit_seconds, "runs the container's preStop hook");
                let runtime = self.link.runtime();
                let kind = hook.kind();
                let result = hook::run(runtime.as_ref(), &container_id, hook, limit_seconds).await;
                self.metrics.hook(kind, result.is_ok());
                match &result {
                    Ok(()) => info!(order_id, container_id, "the preStop hook ended"),
                    Err(hook::Failure { told, detail }) => {
                        warn!(order_id, container_id, error = told, detail, "the preStop hook failed");
                    }
                }
                let result = result.map_err(|failure| failure.told);
                // Before anyone is told: who knows of the end may stop the container.
                self.record.hook_ended(&order_id, result.as_ref().err().map(String::as_str));
                Event::HookDone(order_id, result)
            }
            Action::Stop { order_id, container_id, grace_seconds } => {
                info!(order_id, container_id, grace_seconds, "stopping the container");
                self.record.stops(&order_id);
                let begun = Monotonic::now();
                let result = match self.link.runtime() {
                    Ok(runtime) => self.doubting(runtime::stop(&runtime, &container_id, grace_seconds).await),
                    Err(lost) => Err(lost),
                };
                self.count("stop", result.is_ok());
                self.metrics.stopped(Duration::from_millis(Monotonic::now().saturating_sub(begun)));
                match &result {
                    Ok(()) => info!(order_id, container_id, "the container is stopped"),
                    Err(failure) => {
                        warn!(order_id, container_id, error = failure.message, "the stop failed");
                    }
                }
                Event::Stopped(order_id, result)
            }
            Action::ReadCgroups { order_id, container_id, pod_uid } => {
                let result = match self.link.runtime() {
                    Ok(runtime) => {
                        let cgroups = &self.resizer.cgroups;
                        self.doubting(cgroups.read(&runtime, &container_id, &pod_uid).await)
                    }
                    Err(lost) => Err(lost),
                };
                self.count("read_cgroups", result.is_ok());
                match &result {
                    Ok(observed) => {
                        debug!(order_id, container_id, observed = shown(observed), "read the cgroups");
                    }
                    Err(failure) => {
                        warn!(order_id, container_id, error = failure.message, "cannot read the cgroups");
                    }
                }
                Event::CgroupsRead(order_id, result)
            }
            action @ (Action::ReadResources { .. } | Action::Resize { .. } | Action::WriteBack { .. }) => {
                let Some(event) = self.resources(action).await else { return };
                event
            }
            Action::WriteStatus { resource_version, status } => {
                Event::StatusWritten(self.write(resource_version, *status).await)
            }
        };
        // The receiver is gone only when the process ends.
        let _ = self.events.send(event).await;
    }

    /// Looks at resources, or changes them.
    async fn resources(&self, action: Action) -> Option<Event> {
        match action {
            Action::ReadResources { order_id, container_id, pod_uid, runs, held } => {
                let result = match self.link.runtime() {
                    Ok(runtime) => {
                        let held = held.as_deref();
                        self.doubting(self.resizer.look(&runtime, &container_id, &pod_uid, runs, held).await)
                    }
                    Err(lost) => Err(lost),
                };
                self.count("read_resources", result.is_ok());
                match &result {
                    Ok(present) => {
                        let of = |seen: &Option<Seen>| shown(&seen.as_ref().map(|seen| seen.cgroup));
                        let (container, pod) = (of(&present.container), of(&present.pod));
                        debug!(order_id, container_id, container, pod, "looked at the resources");
                    }
                    Err(failure) => {
                        warn!(
                            order_id,
                            container_id,
                            error = failure.message,
                            "cannot look at the resources"
                        );
                    }
                }
                Some(Event::ResourcesRead(order_id, result))
            }
            Action::Resize { order_id, container_id, pod_uid, cgroup, writes } => {
                info!(order_id, container_id, pod_uid, writes = listed(&writes), "changes the resources");
                let result = match self.link.runtime() {
                    // Whose fault a failure is, is not known: systemd or the kernel may have refused.
                    Ok(runtime) => self.resizer.apply(&runtime, &cgroup, &writes, false).await,
                    Err(lost) => Err(lost),
                };
                self.count("resize", result.is_ok());
                match &result {
                    Ok(()) => info!(order_id, container_id, "the resources are changed"),
                    Err(failure) => {
                        warn!(order_id, container_id, error = failure.message, "cannot change the resources");
                    }
                }
                Some(Event::Resized(order_id, result))
            }
            Action::WriteBack { held } => {
                let (pod, uid) = (&held.pod, held.pod.uid.clone());
                info!(
                    namespace = pod.namespace,
                    pod = pod.name,
                    uid,
                    "the book is gone: gives back what was"
                );
                let result = match self.link.runtime() {
                    Ok(runtime) => self.resizer.write_back(&runtime, &held).await,
                    Err(lost) => Err(lost),
                };
                self.count("write_back", result.is_ok());
                match &result {
                    Ok(()) => info!(uid, "the Pod has what it had before"),
                    Err(failure) => {
                        warn!(uid, error = failure.message, "cannot give the Pod what it had before");
                    }
                }
                Some(Event::WrittenBack(uid, result))
            }
            _ => None,
        }
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

    /// Passes the result of a call on. A failure that may pass may also mean that the runtime is gone.
    fn doubting<T>(&self, result: Result<T, CallFailure>) -> Result<T, CallFailure> {
        if result.as_ref().is_err_and(|failure| failure.retry) {
            self.link.doubt();
        }
        result
    }

    fn count(&self, action: &'static str, ok: bool) {
        self.metrics.count(action, if ok { "ok" } else { "error" });
    }
}
