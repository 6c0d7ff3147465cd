//! What one node's daemon decides, as pure functions.
//!
//! [`Daemon`] owns what is known of the node's order book and of the containers that it names. Every event
//! changes it and gives back [`Action`]s as data. There is no clock, no I/O and no randomness here.

pub mod action;
pub mod cgroup;
mod daemon;
pub mod hook;
mod image;
mod order;
pub mod resize;
pub mod search;
#[cfg(test)]
mod tests;
mod verdict;
pub mod wire;

pub use action::{Action, Book, CallFailure, ContainerState, Event, Facts, Outcome, Watch};
pub use action::{Image, Look, Named, Newest, PullFailure};
pub use daemon::{Daemon, EndedHooks, Identity, MAX_ENDED_HOOKS};
pub use hook::{Hook, HttpGet};
pub use search::{Search, SocketId};

/// Seconds of grace when neither the order nor the runtime's annotation names any; Kubernetes' own default.
pub const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Least seconds between the stop signal and the kill, also for a grace of 0; the kubelet's own minimum.
pub const MIN_GRACE_SECONDS: i64 = 2;
