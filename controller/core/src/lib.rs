//! What the controller decides, as pure functions.
//!
//! [`engine::Engine`] owns the state of the world as it was last observed. Every event changes it and gives back
//! [`action::Action`]s as data; the program around it carries them out and tells the outcome as further
//! events. There is no clock, no I/O and no randomness here: time comes in as [`time::Mono`].
#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test tells one story"))]

pub mod action;
#[cfg(test)]
#[path = "agree_tests.rs"]
mod agree;
pub mod blocker;
pub mod change;
pub mod coexist;
pub mod config;
pub mod deed;
pub mod drain;
pub mod engine;
pub mod fair;
#[cfg(test)]
mod fixtures;
pub mod guard;
pub mod hold;
pub mod image;
pub mod key;
pub mod kind;
pub mod kinds;
pub mod lease;
mod lifecycle;
pub mod measure;
pub mod nodework;
pub mod outcome;
mod owner;
pub mod plan;
pub mod pod;
pub mod pod_check;
mod pod_ref;
#[cfg(test)]
mod probe;
pub mod readiness;
pub mod recreate;
pub mod reduced;
pub mod resize;
pub mod review;
pub mod rollout;
pub mod template;
pub mod wire;
pub mod workload;

pub use pitstop_api::logic::{backoff, time, tracked};

pub use action::{Action, Basis, Event, Object, Watch, Write};
pub use config::Config;
pub use deed::{Deed, Done};
pub use engine::Engine;
pub use key::{KindId, ObjectKey};
pub use kinds::{Status, Watched, Written};
pub use outcome::Outcome;
pub use time::Mono;
