//! How far a request is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far the request is: the reason of the condition `Reconciling`. `Pending`: the API server checks the change, or
/// other requests go first. `Pulling`: the node pulls. `Pulled`: the request is suspended, or waits for its turn.
/// `Draining`: the Pod is taken out of service. `Updating`: the Pod is changed; not all new containers are ready.
/// `Observing`: they are ready and watched. `RollingBack`: the old images are being restored. Final: `Succeeded`,
/// `Failed`, `Cancelled`, and `RolledBack` (the new containers failed; the old images are restored).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Nothing is pulled yet.
    Pending,
    /// The node pulls.
    Pulling,
    /// It is suspended, or waits for its turn.
    Pulled,
    /// The Pod is taken out of service.
    Draining,
    /// The Pod is changed.
    Updating,
    /// The new containers are watched.
    Observing,
    /// The old images are being restored.
    RollingBack,
    /// The update succeeded.
    Succeeded,
    /// The update failed.
    Failed,
    /// The old images are restored.
    RolledBack,
    /// The user cancelled the update.
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
