//! The kinds that pitstop serves: their schema, defaults and static validation.
//!
//! No I/O and no clock. Checks that need only the object are here; `pitstop-controller-core` has those that need the
//! Pod.
#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test tells one story"))]

pub mod annotations;
pub mod condition;
pub mod crds;
pub mod id;
pub mod image;
pub mod image_update;
mod invalid;
pub mod labels;
pub mod logic;
pub mod nodework;
pub mod quantity;
pub mod readiness;
pub mod recreate;
pub mod resize;
pub mod rollout;
mod schema;
pub mod text;

pub use condition::{Condition, ConditionStatus};
pub use crds::crds;
pub use invalid::Invalid;

/// API group of pitstop's own kinds.
pub const GROUP: &str = "pitstop.dev";

/// Most orders that one node's [`nodework::NodeWork`] may hold; the controller queues the rest.
pub const MAX_ORDERS: usize = 64;

/// Most seconds of any duration: 365 days. Longer than any useful duration, and far below 9223372036 s. Above that,
/// containerd's nanoseconds overflow (int64), and it kills at once.
pub const MAX_SECONDS: i64 = 31_536_000;

/// Why a number of seconds above [`MAX_SECONDS`] is refused; `None` for others.
fn too_long(seconds: i64) -> Option<String> {
    (seconds > MAX_SECONDS).then(|| format!("must be at most {MAX_SECONDS} (365 days), not {seconds}"))
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}
