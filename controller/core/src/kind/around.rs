//! What a decision may ask of the surroundings of its object.

use std::borrow::Cow;

use pitstop_api::rollout::TargetKind;

use super::{Kind, Relative};
use crate::hold::Force;
use crate::hold::admission::Crowd;
use crate::key::{KindId, ObjectKey};
use crate::pod::Pod;
use crate::workload::Parking;

/// What costs more to find out than most plans need.
pub trait Around<K: Kind> {
    /// What requests want the node's daemon to hold the Pod at.
    fn force(&self) -> Force;
    /// What other Pods take of what the survey found. Absent without a survey, and while the acceptance of another request
    /// that counts is being written.
    fn crowd(&self) -> Option<Crowd<'_>>;
    /// The other requests of its kind that have begun with the Pod.
    fn begun(&self) -> Vec<&K>;
    /// The first one of its kind that waits for the Pod, if it is another.
    fn first_waiting(&self) -> Option<&K>;
    /// The other ones among the last sixteen of its kind that wait for the Pod.
    fn last_waiting(&self) -> Vec<&K>;
    /// It is among those itself.
    fn is_last(&self) -> bool;
    /// A Pod of the cluster.
    fn pod(&self, key: &ObjectKey) -> Option<Cow<'_, Pod>>;
    /// Whether the workload of that kind is parked that it stands by.
    fn parking(&self, kind: TargetKind) -> Parking<'_>;
    /// An object of that kind.
    fn relative(&self, kind: KindId, key: &ObjectKey) -> Option<Relative<'_>>;
    /// The Pod that such an object is for.
    fn pod_of(&self, kind: KindId, key: &ObjectKey) -> Option<ObjectKey>;
    /// An object of that kind has begun with the Pod, and it has not made that.
    fn others_begun(&self, kind: KindId, pod: &ObjectKey) -> bool;
    /// As many select Pods of the namespace by labels as may, and it does not.
    fn selects_too_many(&self) -> bool;
    /// An older one of its kind that selects the Pod, too, and [gives](Kind::gives) it something.
    fn given_by(&self, pod: &Pod) -> Option<ObjectKey>;
    /// One of its kind that its owner has made for another Pod of that node, and that has succeeded; and what is remembered of it.
    fn sibling_at(&self, _node: &str) -> Option<(&K, &K::Memory)> {
        None
    }
    /// The objects of that kind that it has made.
    fn children(&self, kind: KindId) -> Box<dyn Iterator<Item = Relative<'_>> + '_>;
}
