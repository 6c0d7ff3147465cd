//! What the models alone can say about the conformance scripts; the real ones answer in `tests/e2e`.
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
