//! Exhaustive models: the production decisions, and every order of what may happen around them within a bound.
//!
//! [`lease`] is the election of the leading controller. A model holds no decision of its own: it delivers events to
//! the production cores, carries their actions out on a small store, and checks what no order of events may break.
//! `docs/design/testing.md` says what is promised and how to read a counterexample.
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
