//! Image updates as a kind of the engine.

use std::time::Duration;

use pitstop_api::image_update::{KIND, PLURAL, PodImageUpdate};

use super::proof::{Proof, proven};
use super::{ImageUpdate, Memory, Observed, plan, puller, review, status};
use crate::blocker::Blocker;
use crate::change::{Named, Note};
use crate::deed::{Deed, Done};
use crate::key::{KindId, ObjectKey};
use crate::kind::{
    About, Ahead, Course, Cx, Kind, Lookup, PodWritten, Sharing, Sight, Target, WorkState, WriteNames,
};
use crate::lifecycle;
use crate::measure::Measure;
use crate::nodework::{OrderView, orders_of};
use crate::pod::Pod;
use crate::readiness::Hold;
use crate::reduced::Reduced;
use crate::review::Review;
use crate::time::{Mono, note_since, seconds};

/// The kind.
pub const ID: KindId = KindId::new(KIND);

impl Kind for ImageUpdate {
    type Object = PodImageUpdate;
    type Memory = Memory;
    const ABOUT: About = About {
        id: ID,
        api_version: "pitstop.dev/v1alpha1",
        plural: PLURAL,
        watch: PLURAL,
        synced: "PodImageUpdates synced",
        metric: "image_updates",
        noun: "Image updates",
        writes: WriteNames {
            status: "write_image_update_status",
            metadata: "patch_image_update_metadata",
            create: "create_image_update",
            delete: "delete_image_update",
        },
        action: "UpdateImage",
        reasons: &status::REASONS,
        successes: &status::SUCCESSES,
        sharing: Sharing { patience: None, yields: false, stalls: false },
        many: false,
        deeds: 1,
        claims: false,
        review: Some(Review { path: "/mutate-podimageupdate", begin: review::review }),
    };

    fn observe(object: Self::Object) -> Self {
        Reduced::of(object.metadata, object.spec, object.status, ())
    }
    fn remember(now: Mono) -> Memory {
        Memory::new(now)
    }

    fn pod_key(&self) -> ObjectKey {
        Self::pod_key(self)
    }
    fn pod_uid(&self) -> Option<&str> {
        let target = self.status.target.as_ref().map(|target| &target.pod_uid);
        target.or(self.spec.pod_ref.uid.as_ref()).map(String::as_str)
    }
    fn course(status: &Self::Status) -> Course<'_> {
        let target = status.target.as_ref();
        let target = target.map(|target| Target { pod_uid: &target.pod_uid, node: &target.node_name });
        Course { target, ended: lifecycle::ended(status.completion_time.is_some(), &status.conditions) }
    }
    fn ttl(&self) -> Option<Duration> {
        self.spec.ttl_seconds_after_finished.map(|ttl| seconds(ttl.into()))
    }
    fn completed_seen(memory: &mut Memory) -> &mut Option<Mono> {
        &mut memory.completed_seen
    }
    /// A suspended request neither blocks others nor is blocked.
    fn changes_nothing(&self) -> bool {
        self.spec.dry_run || self.suspended()
    }
    fn suspended(&self) -> bool {
        Self::suspended(self)
    }
    fn pulled(&self) -> Vec<(&str, &str)> {
        let pulled = self.status.containers.iter().filter_map(|status| {
            let asked = self.spec.containers.iter().find(|asked| asked.name == status.name)?;
            Some((asked.image.as_str(), status.pulled.as_ref()?.digest.as_str()))
        });
        pulled.filter(|(image, digest)| !image.contains('@') && !digest.is_empty()).collect()
    }
    fn made_pod(key: &ObjectKey, uid: &str) -> Option<ObjectKey> {
        Some(puller::key(key, uid))
    }
    fn gate(&self) -> Option<Hold> {
        self.hold()
    }

    fn decide(
        Cx { now, wall, config }: Cx<'_>,
        sight: Sight<'_, Self>,
        memory: &mut Memory,
    ) -> (super::Plan, Vec<Measure>) {
        let Sight { request, pod, lookup, writes, .. } = sight;
        let work = sight.book.and_then(|book| book.work);
        let orders: Vec<OrderView<'_>> = orders_of(work, &request.uid).collect();
        memory.see(now, request, pod, sight.made_pod, &orders);
        let proof = proof(now, request, pod, lookup).unwrap_or_default();
        memory.stores(now, proof.stored);
        let before = lookup.begun().into_iter().filter(|other| goes_before(other, request));
        let earlier = before.min_by_key(|other| other.rank());
        let observed = Observed {
            now,
            update: request,
            pod,
            ahead: sight.ahead,
            earlier: earlier.map(|other| Named { kind: ID, key: other.key.clone() }),
            puller: sight.made_pod,
            proven: proof.images,
            orders,
            guarded: sight.guarded,
            writing: writes.images,
            written_now: writes.images_now,
            deed: sight.deed,
            pod_check: sight.pod_check,
            memory,
        };
        let plan = plan(wall, config, &observed);
        // From now on, other requests wait for it.
        let begins = plan.status.as_ref().is_some_and(|write| status::has_begun(&write.status));
        if begins && !request.has_begun() {
            memory.busy_since.get_or_insert(now);
        }
        (plan, Vec::new())
    }
    fn notes(&self, old: &Self::Status) -> Vec<Note> {
        status::notes(self, old)
    }

    /// Since when it takes its Pod out of service or changes it. Its pulls disturb no other request.
    fn disturbs(&self, memory: &Memory, work: WorkState, _: Option<&Pod>) -> Option<Mono> {
        // The stored status counts before this process looks at the request: it may plan others first.
        let stored = (self.has_begun() && !self.completed()).then_some(memory.first_seen);
        memory.busy_since.or(stored).filter(|_| !work.lingers)
    }
    fn deed_done(memory: &mut Memory, now: Mono, deed: Deed, done: Done) {
        memory.deed_done(now, &deed, done);
    }
    fn pod_written(&self, memory: &mut Memory, _: Mono, written: PodWritten) {
        if let PodWritten::Images(refused) = written {
            memory.images_written(refused);
        }
    }
    fn placed(memory: &mut Memory, now: Mono, _: bool, none: bool) -> bool {
        let before = memory.crowded_since.is_some();
        note_since(&mut memory.crowded_since, now, none);
        before != none
    }
}

/// What another update of the same rollout proves, as long as this Pod is unchanged.
fn proof(
    now: Mono,
    request: &ImageUpdate,
    pod: Option<&Pod>,
    lookup: &dyn Lookup<ImageUpdate>,
) -> Option<Proof> {
    let pod = pod.filter(|_| !request.completed() && !request.changes())?;
    let (other, remembered) = lookup.sibling_on(pod.node.as_deref()?)?;
    let runs = lookup.pod(&other.pod_key())?;
    Some(proven(request, pod, (other, &*runs), remembered.ended_just(now)))
}

/// The other update goes first: it is older, or has begun while the request was suspended.
pub(super) fn goes_before(other: &ImageUpdate, request: &ImageUpdate) -> bool {
    let open = !other.completed() && !other.deleting && !other.changes_nothing() && other.uid != request.uid;
    open && (other.has_begun() || other.rank() < request.rank())
}

/// A request waits for this even before it is accepted: for others of its kind or of its namespace. Requests of other
/// kinds on the Pod do not prevent the pull.
pub(super) fn keeps_unaccepted(ahead: &Ahead) -> bool {
    match &ahead.blocker {
        Blocker::Request(named) => named.kind == ID,
        Blocker::TooMany(_) => true,
    }
}
