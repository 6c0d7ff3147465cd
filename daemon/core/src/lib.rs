//! The decisions of one node's daemon, as pure functions.
//!
//! [`Daemon`] owns the known state of the node's order book and of the containers that it names. Every event changes
//! that state and returns [`Action`]s as data. No clock, no I/O and no randomness.

pub mod action;
pub mod cgroup;
mod daemon;
mod decision;
pub mod hook;
mod image;
mod order;
pub mod resize;
pub mod search;
#[cfg(test)]
mod tests;
pub mod wire;

pub use action::{Action, Book, CallFailure, ContainerState, Event, Facts, Outcome, Watch};
pub use action::{Image, Look, NamedContainer, NewestContainer, PullFailure};
pub use daemon::{Daemon, EndedHooks, Identity, MAX_ENDED_HOOKS};
pub use hook::{Hook, HttpGet};
pub use search::{Search, SocketId};

/// Grace period in seconds if neither the order nor the runtime's annotation names one; the default of Kubernetes.
pub const DEFAULT_GRACE_SECONDS: i64 = 30;

/// Least seconds between the stop signal and the kill, also for a grace period of 0; the kubelet's own minimum.
pub const MIN_GRACE_SECONDS: i64 = 2;
