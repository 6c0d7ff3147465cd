//! Scripts of requests and calls that run against a model and against the real system: the results must be
//! equal.

#![allow(
    clippy::missing_panics_doc,
    clippy::result_large_err,
    clippy::too_many_lines,
    clippy::needless_pass_by_value,
    reason = "scripts are long lists of JSON; answers are HTTP responses"
)]

pub mod api;
pub mod runtime;
