//! Questions of a decision about the surroundings of its object.

use std::borrow::Cow;

use pitstop_api::rollout::TargetKind;

use super::{Kind, Relative};
use crate::hold::Force;
use crate::hold::admission::Usage;
use crate::key::{KindId, ObjectKey};
use crate::pod::Pod;
use crate::workload::Parking;

/// Answers that cost more than most plans need.
pub trait Lookup<K: Kind> {
    /// What requests want the node's daemon to hold the Pod at.
    fn force(&self) -> Force;
    /// What other Pods use of what the survey found. `None` without a survey, and while the acceptance of another
    /// request that counts is being written.
    fn usage(&self) -> Option<Usage<'_>>;
    /// The other requests of its kind that have begun with the Pod.
    fn begun(&self) -> Vec<&K>;
    /// The first request of its kind that waits for the Pod, unless it is that itself.
    fn first_waiting(&self) -> Option<&K>;
    /// The others among the last 16 of its kind that wait for the Pod.
    fn last_waiting(&self) -> Vec<&K>;
    /// It is one of these 16.
    fn is_last(&self) -> bool;
    /// A Pod of the cluster.
    fn pod(&self, key: &ObjectKey) -> Option<Cow<'_, Pod>>;
    /// Whether its workload, which is of this kind, is parked.
    fn parking(&self, kind: TargetKind) -> Parking<'_>;
    /// An object of this kind.
    fn relative(&self, kind: KindId, key: &ObjectKey) -> Option<Relative<'_>>;
    /// The Pod that such an object is for.
    fn pod_of(&self, kind: KindId, key: &ObjectKey) -> Option<ObjectKey>;
    /// An object of this kind that it has not made has begun with the Pod.
    fn others_begun(&self, kind: KindId, pod: &ObjectKey) -> bool;
    /// As many objects as allowed select Pods of the namespace by labels, and it is none of them.
    fn selects_too_many(&self) -> bool;
    /// An older object of its kind that also selects the Pod and [gives](Kind::gives) it something.
    fn older_rival(&self, pod: &Pod) -> Option<ObjectKey>;
    /// An object of its kind that its owner has made for another Pod of this node and that has succeeded, and the
    /// memory of it.
    fn sibling_on(&self, _node: &str) -> Option<(&K, &K::Memory)> {
        None
    }
    /// The objects of this kind that it has made.
    fn children(&self, kind: KindId) -> Box<dyn Iterator<Item = Relative<'_>> + '_>;
}
