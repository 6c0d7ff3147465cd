//! Changing CPU and memory of a running Pod on request: the decisions.
//!
//! `resolve` finds what a request means for its Pod, `observe` is what a decision sees, `judge` how far the Pod is,
//! `verify` whether the kernel has it, `rollback` whether the Pod does badly, `refusal` what the API server's no means, `plan` decides, `status` writes it down.

mod evict;
mod judge;
mod observe;
mod plan;
mod refusal;
mod resolve;
mod restart;
mod rollback;
mod shrink;
mod status;
#[cfg(test)]
mod tests;
mod verify;

pub use observe::{Deeds, Memory, Observed, Resize};
pub use plan::{Plan, plan};
pub use resolve::can_be;
pub use restart::restart_key;
pub use status::{REASONS, SUCCESSES, all_reasons, measure, notes};
