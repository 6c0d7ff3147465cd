//! `InPlaceRollout`: a standing object for one workload, whose Pods are restarted and updated in place, in order and within a
//! budget.
//!
//! It never touches a container itself: each Pod is restarted by a `ContainerRecreateRequest`, or gets new images by a
//! `PodImageUpdate`, that belongs to the rollout. What is done is read from those and from the Pods; what this process remembers
//! is only sorted from them.

mod arm;
mod child;
mod choose;
mod commit;
mod gaps;
mod history;
mod kind;
mod pins;
mod plan;
mod roll;
mod selected;
mod sorted;
mod stage;
mod status;
mod sweep;
#[cfg(test)]
mod tests;
mod told;
mod unshown;
mod update;
mod work;

pub use kind::ID;
pub use roll::Memory;
pub use status::all_reasons;

use pitstop_api::rollout::{InPlaceRolloutSpec, InPlaceRolloutStatus};

use crate::reduced::Reduced;

/// An `InPlaceRollout`, reduced to what decisions need.
/// Beside: it is armed.
pub type Rollout = Reduced<InPlaceRolloutSpec, InPlaceRolloutStatus, bool>;

/// What one needs.
pub type Plan = crate::plan::Plan<InPlaceRolloutStatus>;
