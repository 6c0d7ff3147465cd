//! `PodImageUpdate`: new images for the containers of one running Pod.
//!
//! No container stops before the node has the images. Its daemon pulls them, and reports what it has pulled and later
//! what runs. The kubelet would stop a container first and then pull. A [`puller`] Pod pulls images for which the
//! registry requires credentials.

mod judge;
mod kind;
mod node;
mod observe;
mod orders;
mod plan;
mod proof;
mod puller;
mod resolve;
mod review;
mod status;
#[cfg(test)]
mod tests;

pub use kind::ID;
pub use observe::{ImageUpdate, Memory, Observed};
pub use plan::{Plan, plan};
pub use status::{REASONS, all_reasons};
