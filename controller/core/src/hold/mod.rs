//! What the daemon of a node holds Pods at, where their kubelet does not resize: the decisions, by Pod.
//!
//! `claim` is what requests of any kind want of a Pod, `force` what comes of all of them together, `admission` whether a Pod
//! may have it, `settle` which orders for the daemon follow.

pub mod admission;
mod claim;
mod force;
mod settle;
#[cfg(test)]
mod tests;

pub use claim::{Claim, Claims, Counted};
pub use force::{Force, Wish, bounds, of_pod};
pub(crate) use settle::room;
pub use settle::{Holding, Settled, pod_wants, settle};
