//! Annotation keys of a `ContainerRecreateRequest`, as `OpenKruise`'s clients of `v1alpha1` know them.
//!
//! They tell and decide nothing: what a user writes into them is dropped at admission and never read.

/// When the drain began, RFC 3339 in whole seconds of UTC; the controller's while the request is open.
pub const UNREADY_ACQUIRED: &str = "crr.apps.kruise.io/unready-acquired";
/// `OpenKruise`'s own record of the containers' statuses; pitstop does not write it, `containerStatusSnapshot` says
/// the same.
pub const SYNC_CONTAINER_STATUSES: &str = "crr.apps.kruise.io/sync-container-statuses";
/// Those that no user may set.
pub const INTERNAL: [&str; 2] = [UNREADY_ACQUIRED, SYNC_CONTAINER_STATUSES];
