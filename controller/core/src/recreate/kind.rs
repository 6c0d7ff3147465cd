//! The kind `ContainerRecreateRequest` for the engine.

use std::time::Duration;

use pitstop_api::labels;
use pitstop_api::recreate::{ContainerRecreateRequest, KIND, PLURAL};

use super::{Memory, Observed, Request, admission, current_stages, judge, object, plan, status};
use crate::change::Note;
use crate::key::{KindId, ObjectKey};
use crate::kind::{About, Course, Cx, Kind, PodWritten, Sharing, Sight, Target, WorkState, WriteNames};
use crate::lifecycle;
use crate::measure::Measure;
use crate::nodework::{Acting, OrderView, may_run, orders_of, views};
use crate::pod::Pod;
use crate::readiness::Hold;
use crate::review::Review;
use crate::time::{Mono, earliest, seconds};

/// ID of the kind.
pub const ID: KindId = KindId::new(KIND);

/// How long a restart waits for another request that stalls on the Pod. Memory in use may delay a resize for hours, and
/// a restart may free it.
const PATIENCE: Duration = Duration::from_mins(1);

impl Kind for Request {
    type Object = ContainerRecreateRequest;
    type Memory = Memory;
    const ABOUT: About = About {
        id: ID,
        api_version: "apps.kruise.io/v1alpha1",
        plural: PLURAL,
        watch: "requests",
        synced: "ContainerRecreateRequests synced",
        metric: "requests",
        noun: "Requests",
        writes: WriteNames {
            status: "write_status",
            metadata: "patch_metadata",
            create: "create_request",
            delete: "delete_request",
        },
        action: "Recreate",
        reasons: &status::REASONS,
        successes: &[status::COMPLETE],
        sharing: Sharing { patience: Some(PATIENCE), yields: false, stalls: false },
        many: false,
        deeds: 1,
        claims: false,
        review: Some(Review { path: "/mutate-containerrecreaterequest", begin: admission::review }),
    };

    fn observe(object: Self::Object) -> Self {
        object::request(object)
    }
    fn remember(now: Mono) -> Memory {
        Memory::new(now)
    }

    fn pod_key(&self) -> ObjectKey {
        Self::pod_key(self)
    }
    fn pod_uid(&self) -> Option<&str> {
        let target = self.status.target.as_ref().map(|target| &target.pod_uid);
        target.or_else(|| self.more.labels.get(labels::POD_UID)).map(String::as_str)
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
    fn gate(&self) -> Option<Hold> {
        self.hold()
    }

    fn decide(
        Cx { now, wall, config }: Cx<'_>,
        sight: Sight<'_, Self>,
        memory: &mut Memory,
    ) -> (super::Plan, Vec<Measure>) {
        let Sight { request, pod, book, .. } = sight;
        let work = book.and_then(|book| book.work);
        let orders: Vec<OrderView<'_>> = orders_of(work, &request.uid).collect();
        let target = request.status.target.as_ref();
        // An overdue order keeps no request waiting.
        let overdue_at = |o: &OrderView<'_>| book?.acting.overdue_at(o.order, config.daemon_silent_after);
        let busy_until = views(work)
            .filter(|o| target.is_some_and(|t| t.pod_uid == o.order.pod.uid))
            .filter(|o| o.acting() && may_run(o.order, pod))
            .filter_map(|o| overdue_at(&o).filter(|at| *at > now))
            .max();
        let unread = book.is_some_and(|book| book.missing) && sight.wants_orders;
        memory.update(now, request.completed(), busy_until.is_some(), unread, &orders);
        memory.see(now, request, pod);
        let idle = Acting::default();
        let observed = Observed {
            request,
            pod,
            ahead: sight.ahead,
            owner_over: sight.owner_over,
            orders,
            pinning: sight.writes.images,
            pinned_now: sight.writes.images_now,
            guarded: sight.guarded,
            placing: book.is_some_and(|book| book.placing),
            acting: book.map_or(&idle, |book| book.acting),
            pod_check: sight.pod_check,
            memory,
        };
        let mut plan = plan(now, wall, config, &observed);
        plan.wake_at = earliest(plan.wake_at, busy_until.filter(|_| !request.completed()));
        let stages = current_stages(now, &observed);
        (plan, memory.stages.update(now, stages))
    }
    fn notes(&self, old: &Self::Status) -> Vec<Note> {
        status::notes(self, old)
    }

    /// A stop may outlive its request.
    fn disturbs(&self, memory: &Memory, work: WorkState, pod: Option<&Pod>) -> Option<Mono> {
        let stops = |pod: &Pod| judge::stops_yet(self, memory, pod);
        let disturbs = if work.lingers {
            work.stops
        } else {
            (work.begun.is_some() || self.status.target.is_some())
                && (self.status.target.is_none() || pod.is_some_and(stops))
        };
        disturbs.then(|| work.begun.unwrap_or(memory.first_seen))
    }
    fn pod_written(&self, memory: &mut Memory, _: Mono, written: PodWritten) {
        if let PodWritten::Images(refused) = written {
            memory.pin_written(refused);
        }
    }
    fn placed(memory: &mut Memory, now: Mono, all: bool, none: bool) -> bool {
        memory.placed(now, all, none)
    }
    fn lost(memory: &mut Memory, container: &str) {
        memory.begun.insert(container.to_owned());
    }
}
