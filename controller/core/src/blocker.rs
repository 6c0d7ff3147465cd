//! What a request of any kind must wait for before it begins.

use std::fmt;

use pitstop_api::condition::{self, COMPLETE, Condition};

use crate::change::Named;

/// The message that `conditions` already have about a wait for `reason`. It is kept: otherwise each end of a request
/// would rewrite every request that waits for the Pod.
pub fn stored_message<'a>(conditions: &'a [Condition], reason: &str) -> Option<&'a str> {
    condition::find(conditions, COMPLETE)
        .filter(|condition| condition.reason == reason)
        .map(|condition| condition.message.as_str())
}

/// What a request waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// This request for the same Pod.
    Request(Named),
    /// This many requests of its kind that are open in its namespace.
    TooMany(usize),
}

impl Blocker {
    /// Every reason.
    pub const REASONS: [&str; 2] = ["Queued", "TooManyRequests"];

    /// One `CamelCase` word.
    pub fn reason(&self) -> &'static str {
        let [queued, too_many] = Self::REASONS;
        match self {
            Self::Request(_) => queued,
            Self::TooMany(_) => too_many,
        }
    }
}

/// As a sentence.
impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(named) => write!(f, "waits for its turn: {named} goes first"),
            Self::TooMany(most) => write!(
                f,
                "waits for its turn: {most} older requests of this kind fill the namespace's limit \
                 (--max-open-requests-per-namespace)"
            ),
        }
    }
}
