//! The other objects that a rollout sees.

use std::borrow::Cow;

use pitstop_api::rollout::TargetKind;
use pitstop_controller_core::hold::Force;
use pitstop_controller_core::hold::admission::Usage;
use pitstop_controller_core::key::{KindId, ObjectKey};
use pitstop_controller_core::kind::{Ended, Lookup, Relative};
use pitstop_controller_core::pod::Pod;
use pitstop_controller_core::rollout::Rollout;
use pitstop_controller_core::workload::Parking;

use super::world::{Asked, World, is_suspended};

/// The other objects of a world.
pub(super) struct Surroundings<'a>(pub(super) &'a World);

impl Surroundings<'_> {
    fn relative_of<'a>(key: &'a ObjectKey, asked: &'a Asked) -> Relative<'a> {
        let ended =
            asked.ended.map(|complete| Ended { complete, reason: "R", message: "it did not come up" });
        let pulled = asked.pulled.iter().map(|(image, digest)| (image.as_str(), digest.as_str()));
        Relative {
            key,
            uid: &asked.uid,
            owner_uid: Some("ipr-1"),
            deleting: false,
            suspended: is_suspended(asked),
            ended,
            pulled: pulled.collect(),
        }
    }
}

impl Lookup<Rollout> for Surroundings<'_> {
    fn force(&self) -> Force {
        Force::default()
    }
    fn usage(&self) -> Option<Usage<'_>> {
        None
    }
    fn begun(&self) -> Vec<&Rollout> {
        Vec::new()
    }
    fn first_waiting(&self) -> Option<&Rollout> {
        None
    }
    fn last_waiting(&self) -> Vec<&Rollout> {
        Vec::new()
    }
    fn is_last(&self) -> bool {
        false
    }
    fn pod(&self, key: &ObjectKey) -> Option<Cow<'_, Pod>> {
        self.0.pods.get(key).map(Cow::Borrowed)
    }
    fn parking(&self, _: TargetKind) -> Parking<'_> {
        self.0.parked.as_ref().map_or(Parking::No, Parking::Yes)
    }
    fn relative(&self, kind: KindId, key: &ObjectKey) -> Option<Relative<'_>> {
        let found = self.0.asked.get_key_value(&(kind, key.clone()));
        found.map(|((_, key), asked)| Self::relative_of(key, asked))
    }
    fn pod_of(&self, kind: KindId, key: &ObjectKey) -> Option<ObjectKey> {
        self.0.asked.get(&(kind, key.clone())).map(|asked| ObjectKey::new("shop", &asked.pod))
    }
    fn others_begun(&self, _: KindId, _: &ObjectKey) -> bool {
        false
    }
    fn selects_too_many(&self) -> bool {
        false
    }
    fn older_rival(&self, _: &Pod) -> Option<ObjectKey> {
        None
    }
    fn children(&self, kind: KindId) -> Box<dyn Iterator<Item = Relative<'_>> + '_> {
        let of = self.0.asked.iter().filter(move |((own, _), _)| *own == kind);
        Box::new(of.map(|((_, key), asked)| Self::relative_of(key, asked)))
    }
}
