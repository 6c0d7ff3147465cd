//! Restarting containers on request: the decisions.
//!
//! `resolve` finds what a request means on its Pod, `mechanism` by which means its containers can be restarted,
//! `observe` is what a decision sees, `plan` decides, `orders` what it wants of the node, `judge` how far each container is, `drain` whether the Pod is
//! out of service, `silence` what orders come to that nobody takes up, `status` writes it down, `stages` measures how
//! long all that takes, `admission` answers the webhook with the same rules. `object` reads the API object, `kind` is what the
//! engine knows of it.

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
pub use observe::{Marks, Memory, Observed, Request};
pub use plan::{Plan, plan};
pub use resolve::{Refusal, Tense, resolve};
pub use stages::places;
pub use status::{REASONS, all_reasons, notes};
