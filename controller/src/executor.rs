//! Carries out the core's actions. Outcomes go back to the core as events.

use kube::Client;
use pitstop_api::logic::answer::{Answer, Failure};
use pitstop_controller_core::change::{Note, PodChange, Sizing};
use pitstop_controller_core::deed::Deed;
use pitstop_controller_core::lease::Config;
use pitstop_controller_core::wire::{Exchange, Over, Step};
use pitstop_controller_core::{Action, Event, Mono, Object, Write};
use pitstop_kit::{Class, client, clock, now, shown};
use tokio::sync::{mpsc, watch as signal};
use tracing::{debug, info, warn};

use crate::events::Events;
use crate::metrics::ControllerMetrics;

/// Carries out actions.
#[derive(Clone)]
pub struct Executor {
    client: Client,
    events: Events,
    metrics: ControllerMetrics,
    leads_until: signal::Receiver<Option<Mono>>,
    outcomes: mpsc::Sender<Event>,
}

impl Executor {
    /// Sends outcomes to `outcomes`. `leads_until` is the end of this process's lead without another renewal.
    pub fn new(
        client: Client,
        events: Events,
        metrics: ControllerMetrics,
        leads_until: signal::Receiver<Option<Mono>>,
        outcomes: mpsc::Sender<Event>,
    ) -> Self {
        Self { client, events, metrics, leads_until, outcomes }
    }

    /// Carries out an action that the core decided at `decided`, and sends the outcome.
    pub async fn execute(self, action: Action, decided: Mono) {
        let action = match action {
            Action::Count(measure) => return self.metrics.measure(&measure),
            Action::Emit(note) => {
                log_note(&note);
                return self.events.record(note);
            }
            write => write,
        };
        self.write(action, decided).await;
    }

    async fn write(&self, action: Action, decided: Mono) {
        log(&action);
        let Some(mut step) = Exchange::begin(action, clock::wall()) else { return };
        let over = loop {
            match step {
                Step::Send(request, exchange) => {
                    let answer = if self.may_send(decided) {
                        client::send(&self.client, *request).await
                    } else {
                        debug!(uri = %request.uri(), "not sent: decided too long ago, or not the leader");
                        // Counts as a conflict: it is certain that nothing was written.
                        Answer::Failed(Failure::of_code(
                            409,
                            "not sent: decided too long ago, or not the leader",
                        ))
                    };
                    step = exchange.answered(answer);
                }
                Step::Over(over) => break over,
            }
        };
        self.report(&over);
        // The receiver is gone only when the process ends.
        let _ = self.outcomes.send(over.event).await;
    }

    /// Whether a request may be sent now. Checked right before each request: while a write waits, the process may be
    /// frozen. The clock runs on then, also while the machine sleeps.
    fn may_send(&self, decided: Mono) -> bool {
        Config::default().may_send(now().mono, decided, *self.leads_until.borrow())
    }

    fn report(&self, Over { name, object, failure, .. }: &Over) {
        let Some(failure) = failure else { return self.metrics.count(name, "ok") };
        self.metrics.count(name, failure.label());
        let error = &failure.message;
        match failure.class {
            Class::Conflict => {}
            _ if failure.gone => {}
            Class::Retry => warn!(action = name, object, error, "a write failed and will be tried again"),
            Class::Invalid | Class::Fatal => {
                warn!(action = name, object, error, "the API server refuses a write");
            }
        }
    }
}

fn log_note(note: &Note) {
    let (request, request_uid) = (note.request.to_string(), &note.request_uid);
    info!(request, request_uid, reason = note.reason, "{}", note.message);
}

fn log(action: &Action) {
    match action {
        Action::Count(_) | Action::Emit(_) => {}
        Action::Write { object: Object { kind, key, uid }, write } => match write {
            Write::Status { .. } => debug!(%kind, request = %key, request_uid = uid, "writes the status"),
            Write::Metadata { labels, annotations, .. } => {
                let (labels, annotations) = (shown(labels), shown(annotations));
                debug!(%kind, request = %key, request_uid = uid, labels, annotations, "patches metadata");
            }
            Write::Delete => {
                info!(%kind, request = %key, request_uid = uid, "deletes the request: its time to live is over");
            }
        },
        Action::Survey { key } => {
            debug!(place = %key, "reads the limits of a namespace and a node");
        }
        Action::ReadPod { object: Object { kind, key, uid }, pod } => {
            debug!(%kind, request = %key, request_uid = uid, %pod, "asks whether the Pod exists");
        }
        Action::Do { object: Object { kind, key, uid }, deed } => {
            let (what, object) = deed_of(deed);
            info!(%kind, request = %key, request_uid = uid, what, object, "carries out a step of a request");
        }
        Action::PatchPod { key, uid, change, .. } => {
            let what = match change {
                PodChange::Gates(_) => "conditions",
                PodChange::Images(_) => "images",
                PodChange::Resources(Sizing { dry_run: true, .. }) => "resources, as a dry run",
                PodChange::Resources(_) => "resources",
            };
            debug!(pod = %key, pod_uid = uid, what, "changes the Pod");
        }
        Action::WriteOrders { node, orders, .. } => {
            for order in orders {
                debug!(order_id = order.id, node, container = order.container.id, "writes an order");
            }
        }
    }
}

/// Verb and object of a deed.
fn deed_of(deed: &Deed) -> (&'static str, String) {
    match deed {
        Deed::Create(child) => ("create", format!("{} {}", child.kind, child.key)),
        Deed::Delete { kind, key, .. } => ("delete", format!("{kind} {key}")),
        Deed::Resume { kind, key, .. } => ("resume", format!("{kind} {key}")),
        Deed::TryImages { key, .. } => ("try images", format!("Pod {key}")),
        Deed::AskNode(name) => ("look up", format!("node {name}")),
        Deed::AskWorkload(query) => {
            ("read", format!("{} {}", query.kind.map_or("Pods of selector", |kind| kind.name()), query.key))
        }
        Deed::MarkPod { key, revision, .. } => ("mark", format!("Pod {key} of revision {revision}")),
        Deed::Release(release) => ("release", format!("{} {}", release.kind.name(), release.key)),
        Deed::Commit(commit) => {
            (commit.step.name(), format!("Deployment {}/{}", commit.namespace, commit.deployment.name))
        }
        Deed::TryRelease { kind, key } => ("try to release", format!("{} {key}", kind.name())),
        Deed::Pull(puller) => ("create a puller Pod", format!("Pod {}", puller.key)),
        Deed::DeletePod { key, .. } => ("delete", format!("Pod {key}")),
        Deed::Evict { key, .. } => ("evict", format!("Pod {key}")),
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
