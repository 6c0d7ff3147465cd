//! Request scripts that keep the models honest: they run against a model and against the real thing, and the results
//! must be equal.

pub mod api;
