//! Events on the controller's own Pod: they concern this installation, not one request.

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use pitstop_api::condition::truncate;
use pitstop_kit::describe;
use tracing::debug;

use crate::events::MAX_NOTE;

/// The Pod that this process runs in.
#[derive(Clone)]
pub struct OwnPod {
    /// Kubernetes client.
    pub client: Client,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl OwnPod {
    /// Records an event. A failure is logged, and not retried.
    ///
    /// `reason` and `action` are one `CamelCase` word each; a `note` that is too long is cut.
    pub async fn record(&self, type_: EventType, reason: &str, action: &str, note: &str) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        // Without its UID, `kubectl describe pod` does not show the event.
        let uid = match pods.get_metadata(&self.name).await {
            Ok(pod) => pod.metadata.uid,
            Err(error) => {
                debug!(error = describe(&error), "cannot read the controller's own Pod");
                None
            }
        };
        let own = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(self.namespace.clone()),
            name: Some(self.name.clone()),
            uid,
            ..ObjectReference::default()
        };
        let reporter = Reporter { controller: "pitstop".to_owned(), instance: Some(self.name.clone()) };
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(truncate(note, MAX_NOTE)),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = Recorder::new(self.client.clone(), reporter).publish(&event, &own).await {
            debug!(error = describe(&error), reason, "an event was not recorded");
        }
    }
}
