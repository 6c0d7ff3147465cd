//! Condition types of a `PodResize`.

pub use crate::condition::{COMPLETE, FAILED, RECONCILING, STALLED};

/// True once the request was found valid and what it means was resolved; False with the reason when not.
pub const ACCEPTED: &str = "Accepted";
/// True when the node's daemon has found the resources in the kernel, but for a CPU quota where the kubelet sets none;
/// False, with what it has found, when the kernel has something else than the kubelet says; Unknown, with the reason,
/// when it cannot tell.
pub const VERIFIED: &str = "Verified";
/// False, with the reason, where what the daemon gave is not admitted anew once a later request is gone; else True.
pub const IN_FORCE: &str = "InForce";
