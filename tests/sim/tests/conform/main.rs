//! Tests of the conformance scripts on the models alone; `tests/e2e` runs them on the real programs.
#![cfg(test)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::too_many_lines,
    clippy::similar_names,
    reason = "tests, and what they share"
)]

mod api;
