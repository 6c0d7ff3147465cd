//! What the controller decides, as pure functions.
//!
//! [`index::Index`] owns the state of the world as it was last observed. Every event changes it and gives back
//! [`action::Action`]s as data; the program around it carries them out and tells the outcome as further
//! events. There is no clock, no I/O and no randomness here: time comes in as [`time::Mono`].

pub mod action;
#[cfg(test)]
mod agree;
pub mod before;
pub mod coexist;
pub mod deed;
pub mod guard;
pub mod index;
pub mod key;
pub mod lease;
pub mod look;
pub mod measure;
pub mod nodework;
pub mod plan;
pub mod pod;
pub mod readiness;
pub mod recreate;
pub mod resize;
pub mod review;
pub mod wire;

pub use pitstop_api::logic::{backoff, time, tracked};

pub use action::{Action, Event, Outcome, Watch};
pub use deed::{Deed, Done};
pub use index::{Config, Index};
pub use key::ObjectKey;
pub use time::Mono;
