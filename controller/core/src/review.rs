//! What the webhook answers to admission reviews.

use serde_json::Value;

/// The answer to an admission review.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Allowed, with these JSON Patch operations (RFC 6902).
    Allow(Vec<Value>),
    /// Refused.
    Deny {
        /// HTTP status code.
        code: u16,
        /// Names the object, the field, and what would be right.
        message: String,
    },
}

/// The code of a request that makes no sense.
pub(crate) const BAD_REQUEST: u16 = 400;
/// The code of a change that is not allowed.
pub(crate) const FORBIDDEN: u16 = 403;
