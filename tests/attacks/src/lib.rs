//! Attacks on a real cluster of two nodes: what the token of a daemon's Pod is good for, and what a user can do.
//!
//! Every probe says before it is sent which code it must be answered with, and by whom: by the rights of the API server
//! (RBAC), by the admission policy of the daemon, by the schema. Nothing here is learned from the answers.
//! `docs/design/testing.md` tells how to read the table and how to add a probe.
//!
//! - [`probe`]: what a probe is and how an answer is judged
//! - [`stage`]: the cluster with pitstop in it, as all probes find it
//! - [`families`]: the probes
//! - [`report`]: the table
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    reason = "test code"
)]

pub mod ask;
pub mod families;
pub mod probe;
pub mod report;
pub mod stage;
pub mod who;
