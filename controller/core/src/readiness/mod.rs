//! Keeping Pods not ready: the conditions of readiness gates, and the holds that keep them False.
//!
//! The format of a condition is in [`pitstop_api::readiness`].

mod inject;
mod plan;

use serde::{Deserialize, Serialize};

pub use inject::inject;
use pitstop_api::readiness::holds;
pub use pitstop_api::readiness::{
    Hold, KRUISE_POD_READY, OPT_IN, PITSTOP_READY, RECREATE_AGENT, SERVED, UPDATE_AGENT,
};
pub use plan::plan;

/// One readiness gate of a Pod, of a type that pitstop serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// `spec.readinessGates[].conditionType`.
    pub type_: String,
    /// The condition of this type; `None` before it is written.
    pub condition: Option<GateCondition>,
}

/// The condition of a gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateCondition {
    /// Its status is True.
    pub open: bool,
    /// Its message: the list of holds as JSON.
    pub message: String,
}

/// A condition to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateChange {
    /// Type of the condition.
    pub type_: String,
    /// True or False.
    pub open: bool,
    /// The list of holds as JSON.
    pub message: String,
    /// The status changes.
    pub transition: bool,
}

impl Gate {
    /// The condition's message is not a list of holds: it belongs to another writer, and pitstop does not change it.
    pub fn foreign(&self) -> bool {
        self.condition.as_ref().is_some_and(|c| holds(&c.message).is_none())
    }

    /// Whether the condition says that this hold keeps the Pod not ready.
    pub fn held_by(&self, hold: &Hold) -> bool {
        self.condition
            .as_ref()
            .is_some_and(|c| !c.open && holds(&c.message).is_some_and(|h| h.contains(hold)))
    }
}
