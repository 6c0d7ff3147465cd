//! Exhaustive models: the production decisions with every order of events around them, within bounds.
//!
//! [`lease`] is the election of the leading controller. A model makes no decisions: it delivers events to the
//! production cores, carries out their actions on a small store, and checks promises. `docs/design/testing.md`
//! describes the promises and how to read a counterexample.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::struct_excessive_bools,
    clippy::too_many_lines,
    reason = "a test program: what cannot be is a failure of the model"
)]

pub mod canon;
pub mod check;
pub mod graph;
pub mod lease;
pub mod orders;
