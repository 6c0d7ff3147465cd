//! The conditions behind readiness gates, and who holds them False.
//!
//! A Pod with a readiness gate is ready only while the condition of the gate's type is True. Several writers share
//! one condition: its message is the JSON list of those that hold it False, and it is True when the list is empty.
//! The format is `OpenKruise`'s (`KruisePodReady`), byte for byte; our own gate follows the same rules.

use serde::{Deserialize, Serialize};

/// The gate of `OpenKruise`.
pub const KRUISE_POD_READY: &str = "KruisePodReady";
/// Our own gate.
pub const PITSTOP_READY: &str = "pitstop.dev/ready";
/// The gates that pitstop serves.
pub const SERVED: [&str; 2] = [KRUISE_POD_READY, PITSTOP_READY];
/// Label of a namespace or of a Pod whose new Pods get our own gate: `enabled`, or of a Pod `disabled`.
pub const OPT_IN: &str = "pitstop.dev/readiness-gate";
/// The user agent of holds by `ContainerRecreateRequest`s.
pub const RECREATE_AGENT: &str = "ContainerRecreateRequest";
/// The user agent of holds by `PodImageUpdate`s.
pub const UPDATE_AGENT: &str = "PodImageUpdate";

/// Most holds of others in one condition; a longer list is left alone. Ours are not counted: what we write we must be
/// able to take back.
pub const MAX_HOLDS: usize = 256;

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

/// The holds in a condition's message; an empty message is an empty list. Absent: the message is no list of holds, and the
/// condition belongs to another writer.
pub fn holds(message: &str) -> Option<Vec<Hold>> {
    if message.is_empty() {
        return Some(Vec::new());
    }
    let others = |holds: &[Hold]| holds.iter().filter(|hold| !hold.is_ours()).count();
    serde_json::from_str::<Vec<Hold>>(message).ok().filter(|holds| others(holds) <= MAX_HOLDS)
}
