//! Checks repeatedly whether the API server keeps each daemon to its own node, and tells the core.
//!
//! `pitstop_controller_core::guard` decides.

use kube::Client;
use kube::runtime::events::EventType;
use pitstop_controller_core::Event;
use pitstop_controller_core::guard::{POLICY, PolicyState, judge, probe};
use pitstop_kit::{client, describe};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::mpsc;
use tracing::{error, info, warn};

use crate::own_pod::OwnPod;

/// Reason of the event on the own Pod when no order is placed because the policy is missing.
pub const MISSING: &str = "DaemonPolicyMissing";
/// Reason of the event on the own Pod when orders are placed again.
pub const IN_FORCE: &str = "DaemonPolicyInForce";
/// Action of those events.
const ACTION: &str = "PlaceOrders";

/// The repeated check of the policy.
pub struct Guard {
    /// Kubernetes client.
    pub client: Client,
    /// Gets an event when the policy is missing, and when it is in force again.
    pub own_pod: OwnPod,
    /// 1 while the policy is in force.
    pub in_force: Gauge,
    /// Events for the core.
    pub events: mpsc::Sender<Event>,
}

impl Guard {
    /// Checks until the core ends.
    pub async fn run(self) {
        // The last state that was not `Unknown`.
        let mut before: Option<bool> = None;
        loop {
            let state = match probe() {
                Ok(request) => judge(&client::send(&self.client, request).await),
                Err(error) => PolicyState::Unknown(describe(&error)),
            };
            let now = match &state {
                PolicyState::InForce => Some(true),
                PolicyState::Missing(_) => Some(false),
                PolicyState::Unknown(why) => {
                    warn!(policy = POLICY, why, "cannot see whether the policy is in force");
                    before
                }
            };
            if let Some(in_force) = now.filter(|_| now != before) {
                self.in_force.set(i64::from(in_force));
                if self.events.send(Event::Guarded(in_force)).await.is_err() {
                    return;
                }
                self.report(&state, before).await;
                before = now;
            }
            tokio::time::sleep(state.look_again()).await;
        }
    }

    /// Reports a changed state in the log and as an event on the own Pod.
    async fn report(&self, state: &PolicyState, before: Option<bool>) {
        match state {
            PolicyState::Missing(why) => {
                error!(policy = POLICY, why, "no order is placed: the admission policy is not in force");
                let note = format!(
                    "No order is placed: the ValidatingAdmissionPolicy {POLICY}, which keeps each daemon to its own \
                     node, is not in force ({why}). Apply it and its binding."
                );
                self.own_pod.record(EventType::Warning, MISSING, ACTION, &note).await;
            }
            PolicyState::InForce if before == Some(false) => {
                info!(policy = POLICY, "orders are placed: the policy is in force");
                let note = format!("Orders are placed: the ValidatingAdmissionPolicy {POLICY} is in force");
                self.own_pod.record(EventType::Normal, IN_FORCE, ACTION, &note).await;
            }
            PolicyState::InForce => info!(policy = POLICY, "the policy is in force"),
            PolicyState::Unknown(_) => {}
        }
    }
}
