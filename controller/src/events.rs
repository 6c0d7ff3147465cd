//! Kubernetes events on requests and Pods. They are for people: if too many wait, some are dropped and counted.
//! Namespaces take turns, so a busy namespace neither delays nor drops the events of another.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use pitstop_api::condition::truncate;
use pitstop_controller_core::change::Note;
use pitstop_controller_core::fair::FairQueue;
use pitstop_controller_core::kinds::about;
use pitstop_kit::describe;
use tokio::sync::mpsc;
use tracing::debug;

use crate::metrics::ControllerMetrics;

/// Capacity of the channel, and of the fair queue behind it.
const QUEUE: usize = 256;
/// Longest note, in characters of at most four bytes. The API server takes 1024 bytes.
pub const MAX_NOTE: usize = 256;

/// Takes events to record.
#[derive(Clone)]
pub struct Events {
    queue: mpsc::Sender<Note>,
    metrics: ControllerMetrics,
}

impl Events {
    /// The queue, and the task that records its events.
    pub fn new(
        client: Client,
        instance: String,
        metrics: ControllerMetrics,
    ) -> (Self, impl Future<Output = ()>) {
        let (queue, inbox) = mpsc::channel(QUEUE);
        let reporter = Reporter { controller: "pitstop".to_owned(), instance: Some(instance) };
        let recording = record_all(Recorder::new(client, reporter), inbox, metrics.clone());
        (Self { queue, metrics }, recording)
    }

    /// Queues the event; if the queue is full, counts it as lost.
    pub fn record(&self, note: Note) {
        if self.queue.try_send(note).is_err() {
            self.metrics.lost_event();
        }
    }
}

async fn record_all(recorder: Recorder, mut inbox: mpsc::Receiver<Note>, metrics: ControllerMetrics) {
    let mut waiting = FairQueue::new(QUEUE);
    let enqueue = |waiting: &mut FairQueue<Note>, note: Note| {
        let namespace = note.request.namespace.clone();
        if waiting.push(&namespace, note).is_some() {
            metrics.lost_event();
        }
    };
    loop {
        let Some(note) = waiting.pop() else {
            let Some(note) = inbox.recv().await else { return };
            enqueue(&mut waiting, note);
            continue;
        };
        let recording = record(&recorder, note);
        tokio::pin!(recording);
        loop {
            tokio::select! {
                () = &mut recording => break,
                Some(note) = inbox.recv() => enqueue(&mut waiting, note),
            }
        }
    }
}

async fn record(recorder: &Recorder, note: Note) {
    // Every other kind is a workload.
    let (api_version, action) =
        about(note.kind).map_or(("apps/v1", "Release"), |about| (about.api_version, about.action));
    let on_request = note.is_on_request();
    let request = ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(note.kind.name().to_owned()),
        namespace: Some(note.request.namespace.clone()),
        name: Some(note.request.name.clone()),
        uid: Some(note.request_uid.clone()),
        ..ObjectReference::default()
    };
    let pod = note.pod.as_ref().map(|(key, uid)| ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(key.namespace.clone()),
        name: Some(key.name.clone()),
        uid: Some(uid.clone()),
        ..ObjectReference::default()
    });
    let event = Event {
        type_: if note.warning { EventType::Warning } else { EventType::Normal },
        reason: note.reason.to_owned(),
        note: Some(truncate(&note.message, MAX_NOTE)),
        action: action.to_owned(),
        secondary: pod.clone(),
    };
    if on_request {
        publish(recorder, &event, &request).await;
    }
    if let Some(pod) = pod {
        publish(recorder, &Event { secondary: Some(request), ..event }, &pod).await;
    }
}

async fn publish(recorder: &Recorder, event: &Event, about: &ObjectReference) {
    if let Err(error) = recorder.publish(event, about).await {
        debug!(error = describe(&error), reason = event.reason, "an event was not recorded");
    }
}
