//! The conditions behind readiness gates, and who holds them False.
//!
//! A Pod with a readiness gate is ready only while the condition of the gate's type is True. Several writers share
//! one condition: its message is the JSON list of those that hold it False, and it is True when the list is empty.
//! The format is `OpenKruise`'s (`KruisePodReady`), byte for byte; our own gate follows the same rules.

use serde::{Deserialize, Serialize};

/// `OpenKruise`'s gate.
pub const KRUISE_POD_READY: &str = "KruisePodReady";
/// pitstop's gate.
pub const PITSTOP_READY: &str = "pitstop.dev/ready";
/// The gates that pitstop serves.
pub const SERVED: [&str; 2] = [KRUISE_POD_READY, PITSTOP_READY];
/// Label that gives new Pods pitstop's gate: `enabled` on a namespace or Pod. `disabled` on a Pod: no gate.
pub const OPT_IN: &str = "pitstop.dev/readiness-gate";
/// User agent of `ContainerRecreateRequest` holds.
pub const RECREATE_AGENT: &str = "ContainerRecreateRequest";
/// User agent of `PodImageUpdate` holds.
pub const UPDATE_AGENT: &str = "PodImageUpdate";

/// Most holds of other writers in one condition; a longer list is left alone. Own holds are not counted: pitstop must
/// be able to remove them.
pub const MAX_HOLDS: usize = 256;

/// An entry in a gate's condition message that keeps the Pod not ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hold {
    /// Kind of the writer.
    #[serde(rename = "userAgent")]
    pub user_agent: String,
    /// The writer: `<namespace>/<name>`.
    pub key: String,
}

impl Hold {
    /// The hold is of a kind of request that pitstop serves.
    pub fn is_ours(&self) -> bool {
        [RECREATE_AGENT, UPDATE_AGENT].contains(&self.user_agent.as_str())
    }
}

/// The holds in a condition's message; none if it is empty. Absent: no list of holds, so another writer's message.
pub fn holds(message: &str) -> Option<Vec<Hold>> {
    if message.is_empty() {
        return Some(Vec::new());
    }
    let others = |holds: &[Hold]| holds.iter().filter(|hold| !hold.is_ours()).count();
    serde_json::from_str::<Vec<Hold>>(message).ok().filter(|holds| others(holds) <= MAX_HOLDS)
}
