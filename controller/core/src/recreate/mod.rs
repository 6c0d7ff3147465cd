//! Decisions about requests to restart containers.
//!
//! `resolve` finds the container instances, `mechanism` chooses how to restart them, `observe` holds the inputs of a
//! decision. `plan` decides, `orders` makes orders and image changes, `judge` finds how far each container is. `drain`
//! tells whether the Pod is out of service, `silence` handles orders that are not taken up, `status` writes the status.
//! `stages` measures durations, `admission` answers the webhook by the same rules, `object` reads the API object,
//! `kind` connects the kind to the engine.

mod admission;
mod drain;
mod hooks;
mod judge;
mod kind;
mod mechanism;
pub mod object;
mod observe;
mod orders;
mod plan;
mod resolve;
mod restore;
mod silence;
mod stages;
mod status;
#[cfg(test)]
mod tests;

pub use kind::ID;
pub use observe::{Memory, Metadata, Observed, Request};
pub use plan::{Plan, plan};
pub use resolve::{Moment, Refusal, resolve};
pub use stages::current_stages;
pub use status::{REASONS, all_reasons, notes};
