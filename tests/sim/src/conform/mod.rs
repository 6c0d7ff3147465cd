//! Scripts of requests and calls that keep the models honest: they run against a model and against the real thing, and
//! the results must be equal.

pub mod api;
pub mod runtime;
