//! The admission webhook: convenience and compatibility, never the security boundary.

pub mod handler;
mod http;
pub mod server;

pub use http::{Refused, parse};
