//! IDs of Pods' sandboxes.

use std::fmt;

use pitstop_api::id::{ContainerId, IdError};

/// The full ID of a Pod's sandbox. It has the form of a container ID: for a runtime, a sandbox is a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxId(ContainerId);

impl SandboxId {
    /// Accepts the form of a [`ContainerId`].
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
