//! What a request has done beside writing itself, its Pod and its orders.

use crate::key::ObjectKey;

/// One such thing. It names what it relies on, and can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Make a recreate request that belongs to the resize.
    Restart(Box<NewRequest>),
    /// Delete that recreate request, if it still has that UID.
    Withdraw {
        /// The recreate request.
        key: ObjectKey,
        /// Its UID.
        uid: String,
    },
    /// Evict a Pod, if it still has that UID.
    Evict {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
    },
}

/// A recreate request to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRequest {
    /// Namespace and name.
    pub key: ObjectKey,
    /// The Pod, in that namespace.
    pub pod_name: String,
    /// The Pod's UID: another Pod of that name is left alone.
    pub pod_uid: String,
    /// The containers, in the order in which they are stopped.
    pub containers: Vec<String>,
    /// `activeDeadlineSeconds`; absent for the controller's default.
    pub deadline_seconds: Option<i64>,
}

/// How a deed ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// It took effect.
    Effected,
    /// What it is about does not exist.
    Gone,
    /// Its precondition failed, or what it makes exists.
    Conflict,
    /// It failed in these words, perhaps after it took effect; worth another try.
    Retry(String),
    /// It was refused in these words, so it had no effect. Worth another try all the same: an API server that has just
    /// started refuses what it does not know the roles for yet.
    Refused(String),
}
