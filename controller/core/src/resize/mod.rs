//! Changing CPU and memory of a running Pod on request: the decisions.
//!
//! `resolve` finds what a request means for its Pod, `observe` is what a decision sees, `judge` how far the Pod is,
//! `verify` whether the kernel has it, `repair` and `nudge` what the kubelet leaves undone, `rollback` whether the Pod does badly,
//! `refusal` what the API server's no means, `review` what the webhook says of a request, `turn` which of two resizes goes
//! first, `plan` decides, `status` writes it down. `kind` is what the engine knows of it.
//! Where the node's daemon does it in place of the kubelet, the rest is in [`crate::hold`].

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
