//! Keeping Pods not ready: the conditions behind readiness gates, and who holds them False.
//!
//! A Pod with a readiness gate is ready only while the condition of the gate's type is True. Several writers share
//! one condition: its message is the JSON list of those that hold it False, and it is True when the list is empty.
//! The format is `OpenKruise`'s (`KruisePodReady`), byte for byte; our own gate follows the same rules.

mod inject;
mod plan;

use serde::{Deserialize, Serialize};

pub use inject::{OPT_IN, inject};
pub use plan::plan;

/// The gate of `OpenKruise`.
pub const KRUISE_POD_READY: &str = "KruisePodReady";
/// Our own gate.
pub const PITSTOP_READY: &str = "pitstop.dev/ready";
/// The gates that pitstop serves.
pub const SERVED: [&str; 2] = [KRUISE_POD_READY, PITSTOP_READY];
/// The user agent of holds by `ContainerRecreateRequest`s.
pub const RECREATE_AGENT: &str = "ContainerRecreateRequest";
/// The user agent of holds by `PodImageUpdate`s.
pub const UPDATE_AGENT: &str = "PodImageUpdate";

/// One readiness gate of a Pod, of a type that pitstop serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// `spec.readinessGates[].conditionType`.
    pub type_: String,
    /// The condition of that type, once somebody has written it.
    pub condition: Option<GateCondition>,
}

/// The condition behind a gate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateCondition {
    /// Its status is True.
    pub open: bool,
    /// Its message: the list of holds as JSON.
    pub message: String,
}

/// One reason to keep a Pod not ready, as it stands in a condition's message.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hold {
    /// What kind of writer holds.
    #[serde(rename = "userAgent")]
    pub user_agent: String,
    /// Which one of that kind: `<namespace>/<name>`.
    pub key: String,
}

impl Hold {
    /// A request of ours holds, or held.
    pub fn is_ours(&self) -> bool {
        [RECREATE_AGENT, UPDATE_AGENT].contains(&self.user_agent.as_str())
    }
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
    /// The status is another one than before.
    pub transition: bool,
}

impl Gate {
    /// The condition's message is no list of holds: it belongs to somebody else, and pitstop leaves it alone.
    pub fn foreign(&self) -> bool {
        self.condition.as_ref().is_some_and(|c| plan::parse(&c.message).is_none())
    }

    /// Whether the condition says that this hold keeps the Pod not ready.
    pub fn held_by(&self, hold: &Hold) -> bool {
        self.condition
            .as_ref()
            .is_some_and(|c| !c.open && plan::parse(&c.message).is_some_and(|h| h.contains(hold)))
    }
}
