//! The one place that writes. Outcomes go back to the core as events.

use std::sync::Arc;

use kube::Client;
use pitstop_controller_core::wire::{Exchange, Over, Step};
use pitstop_controller_core::{Action, Event};
use pitstop_kit::{Class, client, clock};
use tokio::sync::{Semaphore, mpsc};
use tracing::{debug, info, warn};

use crate::events::Events;
use crate::metrics::ControllerMetrics;

/// Most writes under way at a time; each holds a connection.
const MAX_WRITES: usize = 16;

/// What actions are carried out with.
#[derive(Clone)]
pub struct Executor {
    client: Client,
    events: Events,
    metrics: ControllerMetrics,
    outcomes: mpsc::Sender<Event>,
    slots: Arc<Semaphore>,
}

impl Executor {
    /// Tells outcomes to `outcomes`.
    pub fn new(
        client: Client,
        events: Events,
        metrics: ControllerMetrics,
        outcomes: mpsc::Sender<Event>,
    ) -> Self {
        Self { client, events, metrics, outcomes, slots: Arc::new(Semaphore::new(MAX_WRITES)) }
    }

    /// Carries one action out and tells the outcome.
    pub async fn execute(self, action: Action) {
        let Ok(_slot) = self.slots.acquire().await else { return };
        log(&action);
        let step = match action {
            Action::Count(measure) => return self.metrics.measure(&measure),
            Action::Emit(note) => return self.events.record(note),
            write => Exchange::begin(write, clock::wall()),
        };
        let Some(mut step) = step else { return };
        let over = loop {
            match step {
                Step::Send(request, exchange) => {
                    step = exchange.answered(client::send(&self.client, *request).await);
                }
                Step::Over(over) => break over,
            }
        };
        self.tell(&over);
        // The receiver is gone only when the process ends.
        let _ = self.outcomes.send(over.event).await;
    }

    fn tell(&self, Over { name, object, failure, .. }: &Over) {
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

fn log(action: &Action) {
    match action {
        Action::Count(_) => {}
        Action::Emit(note) => {
            let (request, request_uid) = (note.request.to_string(), &note.request_uid);
            info!(request, request_uid, reason = note.reason, "{}", note.message);
        }
        Action::WriteStatus { key, uid, status, .. } => {
            debug!(request = %key, request_uid = uid, phase = ?status.phase, "writes the status");
        }
        Action::WriteResizeStatus { key, uid, status, .. } => {
            debug!(resize = %key, resize_uid = uid, phase = ?status.phase, "writes the status");
        }
        Action::Survey { key, uid, node } => {
            debug!(resize = %key, resize_uid = uid, node, "looks at what bounds the Pod");
        }
        Action::DeleteResize { key, uid } => {
            info!(resize = %key, resize_uid = uid, "deletes the resize: its time to live is over");
        }
        Action::PatchMetadata { key, uid, labels, annotations, .. } => {
            debug!(request = %key, request_uid = uid, ?labels, ?annotations, "patches metadata");
        }
        Action::DeleteRequest { key, uid } => {
            info!(request = %key, request_uid = uid, "deletes the request: its time to live is over");
        }
        Action::Do { key, uid, deed } => {
            info!(resize = %key, resize_uid = uid, ?deed, "does what a resize asks for");
        }
        Action::PatchPod { key, uid, change, .. } => {
            debug!(pod = %key, pod_uid = uid, ?change, "changes the Pod");
        }
        Action::WriteOrders { node, orders, .. } => {
            for order in orders {
                debug!(order_id = order.id, node, container = order.container.id, "order stands");
            }
        }
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
