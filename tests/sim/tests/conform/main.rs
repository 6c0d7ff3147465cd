//! What the models alone can say about the conformance scripts; the real ones answer in `tests/e2e`.
#![cfg(test)]

mod api;
