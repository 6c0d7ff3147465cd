//! Condition types of a `PodResize`.

pub use crate::condition::{COMPLETE, FAILED, RECONCILING, STALLED};

/// True once the request is accepted; False, with the reason, if it is not.
pub const ACCEPTED: &str = "Accepted";
/// True: the kernel has the resources, except a CPU quota that the kubelet does not set. False: it has the values in
/// the message instead. Unknown: the daemon could not tell; the reason says why.
pub const VERIFIED: &str = "Verified";
/// `CRI`: False, with the reason, if admission refuses to give the resources again after a later request is gone. True
/// once they are given again.
pub const IN_FORCE: &str = "InForce";
