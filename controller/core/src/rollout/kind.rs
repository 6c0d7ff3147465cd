//! Rollouts as a kind of the engine.

use std::time::Duration;

use pitstop_api::rollout::{ARMED, InPlaceRollout, KIND, PLURAL};

use super::{Memory, Rollout, plan, status};
use crate::change::Note;
use crate::deed::{Deed, Done};
use crate::key::{KindId, ObjectKey};
use crate::kind::{About, Course, Cx, Kind, Sharing, Sight, WorkState, WriteNames};
use crate::measure::Measure;
use crate::pod::Pod;
use crate::reduced::Reduced;
use crate::time::Mono;
use crate::workload::queue_key;

/// Identifies the kind.
pub const ID: KindId = KindId::new(KIND);

impl Kind for Rollout {
    type Object = InPlaceRollout;
    type Memory = Memory;
    const ABOUT: About = About {
        id: ID,
        api_version: "pitstop.dev/v1alpha1",
        plural: PLURAL,
        watch: PLURAL,
        synced: "InPlaceRollouts synced",
        metric: "rollouts",
        noun: "Rollouts",
        writes: WriteNames {
            status: "write_rollout_status",
            metadata: "patch_rollout_metadata",
            create: "create_rollout",
            delete: "delete_rollout",
        },
        action: "Rollout",
        reasons: &status::REASONS,
        successes: &status::SUCCESSES,
        sharing: Sharing { patience: None, yields: false, stalls: false },
        many: true,
        deeds: 8,
        claims: false,
        review: None,
    };

    fn observe(object: Self::Object) -> Self {
        let armed = object.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(ARMED));
        Reduced::of(object.metadata, object.spec, object.status, armed)
    }
    fn remember(_: Mono) -> Memory {
        Memory::default()
    }

    /// Key of its workload, or of its selector.
    fn pod_key(&self) -> ObjectKey {
        match &self.spec.target_ref {
            Some(target) => queue_key(target.kind, &ObjectKey::new(&self.key.namespace, &target.name)),
            None => ObjectKey::new(&self.key.namespace, self.spec.target()),
        }
    }
    fn pod_uid(&self) -> Option<&str> {
        None
    }
    /// A rollout has no single Pod, and never ends.
    fn course(_: &Self::Status) -> Course<'_> {
        Course::default()
    }
    fn ttl(&self) -> Option<Duration> {
        None
    }
    fn completed_seen(memory: &mut Memory) -> &mut Option<Mono> {
        &mut memory.completed_seen
    }

    fn decide(cx: Cx<'_>, sight: Sight<'_, Self>, memory: &mut Memory) -> (super::Plan, Vec<Measure>) {
        let plan = plan::plan(cx, &sight, memory);
        let gaps = memory.gaps.take_fresh().into_iter();
        (plan, gaps.map(|duration| Measure::RolloutGap { duration }).collect())
    }
    fn notes(&self, old: &Self::Status) -> Vec<Note> {
        status::notes(self, old)
    }
    fn measure(&self, old: &Self::Status) -> Option<Measure> {
        status::measure(self, old)
    }

    fn keeps_park(&self) -> bool {
        self.spec.changes_in_place()
    }
    fn changes_selected(&self) -> bool {
        self.spec.wants_something()
    }
    fn fails_park(&self) -> bool {
        status::has_failed(&self.status)
    }

    fn succeeded_on(&self, memory: &Memory, node: &str) -> Option<ObjectKey> {
        memory.succeeded_on(node)
    }

    fn disturbs(&self, _: &Memory, _: WorkState, _: Option<&Pod>) -> Option<Mono> {
        None
    }
    fn member_changed(memory: &mut Memory, pod: &ObjectKey) {
        memory.changed(pod);
    }
    fn deed_done(memory: &mut Memory, now: Mono, deed: Deed, done: Done) {
        memory.deed_done(now, &deed, done);
    }
}
