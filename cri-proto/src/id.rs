//! IDs of Pods' sandboxes.

use std::fmt;

use pitstop_api::id::{ContainerId, IdError};

/// The full ID of one Pod's sandbox, which has the form of a container's: to a runtime it is one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxId(ContainerId);

impl SandboxId {
    /// Accepts what is the form of a [`ContainerId`].
    pub fn parse(text: &str) -> Result<Self, IdError> {
        ContainerId::parse(text).map(Self)
    }

    /// The 64 digits.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
