//! `PodImageUpdate`: new images for the containers of one running Pod.
//!
//! Nothing of the Pod is stopped before the node has the images: its daemon pulls them, and tells what it has pulled and
//! later what runs. The kubelet would stop a container first and pull then. Images for which the registry wants credentials are
//! pulled by a [`puller`] Pod.

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
