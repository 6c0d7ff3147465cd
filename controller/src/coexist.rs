//! Looks for `OpenKruise`, and keeps this program from carrying out requests beside it.
//!
//! `pitstop_controller_core::coexist` decides. Two watches of one object each show when Kruise comes or goes.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::events::EventType;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use pitstop_api::recreate::{ContainerRecreateRequest, PLURAL};
use pitstop_controller_core::coexist::{
    Configuration, DEFINITION, Definition, Mode, Seen, Sign, Surroundings, WEBHOOK_CONFIGURATION, judge,
};
use pitstop_kit::WatchMetrics;
use pitstop_kit::health::{Condition, Readiness};
use pitstop_kit::watch::{self, Source, Watch};
use prometheus_client::metrics::gauge::Gauge;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch as signal};
use tracing::{error, info, warn};

use crate::own_pod::OwnPod;

/// Name of the readiness condition.
pub const CONDITION: &str = "OpenKruise check passed";
/// Reason of the event on the own Pod when requests are not carried out because of Kruise.
pub const FOUND: &str = "OpenKruiseFound";
/// Reason of the event on the own Pod when they are carried out again.
pub const GONE: &str = "OpenKruiseGone";
/// Action of those events.
const ACTION: &str = "Serve";

/// The search for Kruise.
pub struct Coexistence {
    /// Kubernetes client.
    pub client: Client,
    /// Gets the events.
    pub own_pod: OwnPod,
    /// The user says (`--kruise-crr-off`) that Kruise's own controller for requests is off.
    pub kruise_off: bool,
    /// Holds while requests are carried out.
    pub clear: Condition,
    /// 1 while requests are not carried out because of Kruise.
    pub refusing: Gauge,
    /// Counters of the watches.
    pub watch_metrics: WatchMetrics,
}

/// The parts of a definition that decisions need; its schemas are large.
#[derive(Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = CustomResourceDefinition)]
struct SlimDefinition {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SlimSpec {
    conversion: SlimConversion,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SlimConversion {
    strategy: String,
}

/// Events of the watches.
enum Event {
    Configuration(Watch<Configuration>),
    Definition(Watch<Definition>),
}

/// Looks for Kruise while it is polled, and sends to `serving` whether requests may be carried out.
pub async fn run(own: Coexistence, serving: signal::Sender<bool>) {
    let (tx, mut rx) = mpsc::channel(4);
    let watching = watches(&own, tx);
    let judging = async {
        let mut surroundings = Surroundings::default();
        let mut before = Mode::Unknown;
        loop {
            let mode = judge(&surroundings, own.kruise_off);
            match &mode {
                Mode::Refuse(signs) => own.clear.unmet(&refusal(signs)),
                other => own.clear.set(other.serves()),
            }
            own.refusing.set(i64::from(matches!(mode, Mode::Refuse(_))));
            // The receiver is gone only when the process ends.
            let _ = serving.send(mode.serves());
            if mode != before {
                own.report(&before, &mode).await;
                before = mode;
            }
            match rx.recv().await {
                Some(Event::Configuration(watch)) => update(&mut surroundings.configuration, watch),
                Some(Event::Definition(watch)) => update(&mut surroundings.definition, watch),
                None => return,
            }
        }
    };
    tokio::join!(watching, judging);
}

/// Runs both watches until the receiver is dropped.
fn watches(own: &Coexistence, tx: mpsc::Sender<Event>) -> impl Future<Output = ()> + use<> {
    // Not part of `/readyz`: a mode implies that both watches are synced.
    let internal = Readiness::new();
    let source = |name, object: &str| Source {
        name,
        config: watcher::Config::default().fields(&format!("metadata.name={object}")),
        synced: internal.condition(name),
        metrics: own.watch_metrics.clone(),
    };
    let configurations = watch::run(
        Api::all(own.client.clone()),
        source("kruise webhook configuration", WEBHOOK_CONFIGURATION),
        |object: MutatingWebhookConfiguration| Some(configuration(object)),
        Event::Configuration,
        tx.clone(),
    );
    let definitions = watch::run(
        Api::all(own.client.clone()),
        source("definition", DEFINITION),
        |object: SlimDefinition| Some(definition(object)),
        Event::Definition,
        tx,
    );
    async move {
        tokio::join!(configurations, definitions);
    }
}

/// Each watch selects one object by name, so a list holds at most that object.
fn update<T>(seen: &mut Seen<T>, watch: Watch<T>) {
    *seen = watch.shown().map_or(Seen::Absent, Seen::Present);
}

/// The configuration as the core sees it.
fn configuration(object: MutatingWebhookConfiguration) -> Configuration {
    let mut rules =
        object.webhooks.into_iter().flatten().flat_map(|webhook| webhook.rules.unwrap_or_default());
    let names = |list: Option<Vec<String>>, name: &str| {
        list.is_some_and(|list| list.iter().any(|entry| entry == name || entry == "*"))
    };
    let group = ContainerRecreateRequest::group(&());
    let asked = rules.any(|rule| names(rule.api_groups, &group) && names(rule.resources, PLURAL));
    Configuration { asked_about_requests: asked }
}

/// The definition as the core sees it.
fn definition(object: SlimDefinition) -> Definition {
    let mut annotations = object.metadata.annotations.unwrap_or_default();
    Definition {
        converted: object.spec.conversion.strategy == "Webhook",
        helm_release: annotations.remove("meta.helm.sh/release-name"),
    }
}

fn joined(signs: &[Sign]) -> String {
    signs.iter().map(Sign::to_string).collect::<Vec<_>>().join("; ")
}

/// Why no request is carried out, and what helps.
fn refusal(signs: &[Sign]) -> String {
    format!("the controller found OpenKruise, and --kruise-crr-off is not set: {}", joined(signs))
}

impl Coexistence {
    /// Reports a changed mode in the log and as an event on the own Pod.
    async fn report(&self, before: &Mode, mode: &Mode) {
        match mode {
            Mode::Refuse(signs) => {
                let text = refusal(signs);
                error!("no request is carried out: {text}");
                let note = format!("No request is carried out: {text}");
                self.own_pod.record(EventType::Warning, FOUND, ACTION, &note).await;
            }
            Mode::ServeBeside(signs) => {
                warn!(
                    signs = joined(signs),
                    "carries out requests, but a webhook of OpenKruise can make them fail"
                );
            }
            Mode::Serve if matches!(before, Mode::Refuse(_)) => {
                info!("OpenKruise is gone: requests are carried out");
                let text = "OpenKruise is gone: requests are carried out";
                self.own_pod.record(EventType::Normal, GONE, ACTION, text).await;
            }
            Mode::Serve if self.kruise_off => info!("requests are carried out, as --kruise-crr-off says"),
            Mode::Serve | Mode::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kruise_s_webhook_is_known_by_what_it_is_asked_about() {
        let read = |rule: serde_json::Value| {
            let object = json!({
                "metadata": {"name": WEBHOOK_CONFIGURATION},
                "webhooks": [
                    {"name": "mpod.kb.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {},
                     "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]},
                    {"name": "mcontainerrecreaterequest.kb.io", "admissionReviewVersions": ["v1"],
                     "sideEffects": "None", "clientConfig": {}, "rules": [rule]},
                ],
            });
            configuration(serde_json::from_value(object).unwrap()).asked_about_requests
        };
        let rule = |group, resource| json!({"apiGroups": [group], "apiVersions": ["v1alpha1"], "resources": [resource], "operations": ["CREATE", "UPDATE"]});
        assert!(read(rule("apps.kruise.io", "containerrecreaterequests")));
        assert!(read(rule("apps.kruise.io", "*")));
        assert!(!read(rule("apps.kruise.io", "clonesets")));
        assert!(!read(rule("apps", "containerrecreaterequests")));
    }

    #[test]
    fn a_definition_tells_its_conversion_and_its_release() {
        let read = |object| definition(serde_json::from_value(object).unwrap());
        let ours = json!({"metadata": {"name": DEFINITION}, "spec": {"group": "apps.kruise.io"}});
        assert_eq!(read(ours), Definition::default());
        let none = json!({"metadata": {"name": DEFINITION}, "spec": {"conversion": {"strategy": "None"}}});
        assert_eq!(read(none), Definition::default());
        let theirs = json!({
            "metadata": {"name": DEFINITION, "annotations": {"meta.helm.sh/release-name": "kruise"}},
            "spec": {"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}},
        });
        assert_eq!(read(theirs), Definition { converted: true, helm_release: Some("kruise".to_owned()) });
    }

    #[test]
    fn the_last_word_of_a_watch_counts() {
        let mut seen = Seen::NotYet;
        update(&mut seen, Watch::list(vec![1]));
        assert_eq!(seen, Seen::Present(1));
        update(&mut seen, Watch::Gone(1));
        assert_eq!(seen, Seen::Absent);
        update(&mut seen, Watch::Upsert(2));
        update(&mut seen, Watch::list(Vec::new()));
        assert_eq!(seen, Seen::Absent);
    }
}
