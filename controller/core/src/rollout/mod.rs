//! `InPlaceRollout`: a standing object that restarts and updates the Pods of one workload in place, in order and within
//! a budget.
//!
//! A rollout never touches a container. For each Pod it makes requests that it owns: `ContainerRecreateRequest`,
//! `PodImageUpdate` or `PodResize`. Progress is read from these requests and the Pods; this process only remembers them
//! sorted.

mod arm;
mod child;
mod choose;
mod commit;
mod gaps;
mod history;
mod kind;
mod pins;
mod plan;
mod report;
mod roll;
mod selected;
mod sorted;
mod stage;
mod status;
mod sweep;
#[cfg(test)]
mod tests;
mod unshown;
mod update;
mod work;

pub use kind::ID;
pub use roll::Memory;
pub use status::all_reasons;

use pitstop_api::rollout::{InPlaceRolloutSpec, InPlaceRolloutStatus};

use crate::reduced::Reduced;

/// An `InPlaceRollout`, reduced to what decisions need. `more`: whether it is armed.
pub type Rollout = Reduced<InPlaceRolloutSpec, InPlaceRolloutStatus, bool>;

/// What a rollout needs next.
pub type Plan = crate::plan::Plan<InPlaceRolloutStatus>;
