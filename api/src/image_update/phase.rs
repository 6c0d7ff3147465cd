//! How far a request is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far a request is. A phase that tells of an end is never left again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// It is checked whether the Pod can have the images, or other requests go first.
    Pending,
    /// The node pulls them.
    Pulling,
    /// The node has them; the request is suspended, or waits for its turn with the Pod.
    Pulled,
    /// The Pod is taken out of service.
    Draining,
    /// The Pod is changed; the new containers are not all ready yet.
    Updating,
    /// The new containers are ready, and are watched.
    Observing,
    /// The old images are put back.
    RollingBack,
    /// Over: the Pod runs the images.
    Succeeded,
    /// Over: it does not, or not well.
    Failed,
    /// Over: it did badly with them, and has the old ones again.
    RolledBack,
    /// Over: by the user's wish.
    Cancelled,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Pending,
        Self::Pulling,
        Self::Pulled,
        Self::Draining,
        Self::Updating,
        Self::Observing,
        Self::RollingBack,
        Self::Succeeded,
        Self::Failed,
        Self::RolledBack,
        Self::Cancelled,
    ];

    /// Nothing follows.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::RolledBack | Self::Cancelled)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Pulling => "Pulling",
            Self::Pulled => "Pulled",
            Self::Draining => "Draining",
            Self::Updating => "Updating",
            Self::Observing => "Observing",
            Self::RollingBack => "RollingBack",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::RolledBack => "RolledBack",
            Self::Cancelled => "Cancelled",
        }
    }
}
