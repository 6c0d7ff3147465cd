//! The model of the API server: laws that scripts cannot express.
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

mod laws;
