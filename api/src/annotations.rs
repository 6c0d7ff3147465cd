//! Annotation keys of a `ContainerRecreateRequest`, as `OpenKruise`'s clients of `v1alpha1` know them.
//!
//! For information only: admission drops what a user writes into them, and pitstop never reads it.

/// When the drain began: RFC 3339, UTC, whole seconds. The controller owns it while the request is open.
pub const UNREADY_ACQUIRED: &str = "crr.apps.kruise.io/unready-acquired";
/// `OpenKruise`'s record of container statuses. pitstop writes `status.containerStatusSnapshot` instead.
pub const SYNC_CONTAINER_STATUSES: &str = "crr.apps.kruise.io/sync-container-statuses";
/// Annotations that no user may set.
pub const INTERNAL: [&str; 2] = [UNREADY_ACQUIRED, SYNC_CONTAINER_STATUSES];
