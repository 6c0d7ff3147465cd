//! What goes before a request that has not begun, whatever its kind.

use std::fmt;

use crate::change::Named;

/// What goes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// That request for the same Pod.
    Request(Named),
    /// So many requests of its kind in its namespace.
    TooMany(usize),
}

impl Before {
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
impl fmt::Display for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(named) => write!(f, "waits for its turn: {named} goes first"),
            Self::TooMany(most) => write!(
                f,
                "waits for its turn: {most} requests of this kind are open in the namespace, which is as many as are \
                 carried out there at a time"
            ),
        }
    }
}
