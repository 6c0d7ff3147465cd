//! What a node's daemon holds Pods at, if their kubelet does not resize: the decisions, by Pod.
//!
//! `claim`: what requests of any kind want of a Pod. `force`: the combined result. `admission`: whether a Pod may have
//! it. `settle`: the orders for the daemon.

pub mod admission;
mod claim;
mod force;
mod settle;
#[cfg(test)]
mod tests;

pub use claim::{Claim, Claims, CountedClaim};
pub use force::{Force, Wish, bounds, of_pod};
pub(crate) use settle::usable;
pub use settle::{HoldPlan, Holding, pod_wants, settle};
