//! Decisions about resizes: requests to change CPU and memory of a running Pod.
//!
//! `resolve` computes the resources of each container, `observe` holds the inputs of a decision, `judge` finds how far
//! the Pod is. `verify` compares the kernel's values; `repair` and `nudge` fix a Pod cgroup that the kubelet left
//! unchanged. `rollback` detects failures of the Pod, `refusal` interprets refusals, `review` answers the webhook,
//! `turn` orders resizes of one Pod. `plan` decides, `status` writes the status, `kind` connects the kind to the
//! engine. [`crate::hold`] has the rest of the mechanism CRI.

mod evict;
mod judge;
mod kind;
mod mechanism;
mod nudge;
mod observe;
mod plan;
mod refusal;
mod repair;
mod resolve;
mod restart;
mod review;
mod rollback;
mod shrink;
mod status;
#[cfg(test)]
mod tests;
mod turn;
mod verify;

pub use kind::ID;
pub use observe::{Ahead, Deeds, Memory, Observed, Resize};
pub use plan::{Plan, plan};
pub use repair::is_repair;
pub use status::{REASONS, SUCCESSES, all_reasons, notes};
