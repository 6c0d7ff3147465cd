//! Changing CPU and memory of a running Pod on request: the decisions.
//!
//! `resolve` finds what a request means for its Pod, `observe` is what a decision sees, `judge` how far the Pod is,
//! `verify` whether the kernel has it, `repair` and `nudge` what the kubelet leaves undone, `rollback` whether the Pod does badly,
//! `refusal` what the API server's no means, `review` what the webhook says of a request, `admission` whether the Pod may
//! have it where the API server does not ask, `plan` decides, `status` writes it down.

pub mod admission;
mod evict;
mod force;
mod judge;
mod mechanism;
mod nudge;
mod observe;
mod plan;
mod refusal;
mod repair;
mod resolve;
mod restart;
pub mod review;
mod rollback;
mod settle;
mod shrink;
mod status;
#[cfg(test)]
mod tests;
mod verify;

pub use force::{Claim, Force, claims};
pub use observe::{Ahead, Deeds, Dormant, Memory, Observed, Resize};
pub use plan::{Plan, plan};
pub use repair::is_repair;
pub use resolve::can_be;
pub use restart::{may_be_restart, restart_key};
pub use settle::{Holding, Settled, settle};
pub use status::{ADMITTING, NODE_BUSY, REASONS, SUCCESSES, all_reasons, measure, notes};
