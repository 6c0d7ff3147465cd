//! The kind `PodResize` for the engine.

use std::time::Duration;

use pitstop_api::resize::{KIND, Mechanism, PLURAL, Phase, PodResize};

use super::judge::desired;
use super::{Ahead, Memory, Observed, Resize, plan, repair, restart, review, shrink, status, turn};
use crate::blocker::Blocker;
use crate::change::Note;
use crate::deed::{Deed, Done};
use crate::hold::Claim;
use crate::key::{KindId, ObjectKey};
use crate::kind::{About, Course, Cx, Kind, PodWritten, Sharing, Sight, Target, WorkState, WriteNames};
use crate::lifecycle;
use crate::measure::Measure;
use crate::nodework::{OrderView, orders_of};
use crate::pod::Pod;
use crate::reduced::Reduced;
use crate::review::Review;
use crate::time::{Mono, seconds};

/// ID of the kind.
pub const ID: KindId = KindId::new(KIND);

impl Kind for Resize {
    type Object = PodResize;
    type Memory = Memory;
    const ABOUT: About = About {
        id: ID,
        api_version: "pitstop.dev/v1alpha1",
        plural: PLURAL,
        watch: PLURAL,
        synced: "PodResizes synced",
        metric: "resizes",
        noun: "Resizes",
        writes: WriteNames {
            status: "write_resize_status",
            metadata: "patch_resize_metadata",
            create: "create_resize",
            delete: "delete_resize",
        },
        action: "Resize",
        reasons: &status::REASONS,
        successes: &status::SUCCESSES,
        sharing: Sharing { patience: None, yields: true, stalls: true },
        many: false,
        deeds: 1,
        claims: true,
        review: Some(Review { path: "/mutate-podresize", begin: review::review }),
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
    fn changes_nothing(&self) -> bool {
        self.spec.dry_run
    }
    fn child(&self) -> Option<(KindId, ObjectKey)> {
        Some((restart::CHILD, restart::restart_key(self)))
    }
    fn claim(&self) -> Option<Claim<'_>> {
        let target = self.status.target.as_ref().filter(|_| self.in_force())?;
        Some(Claim {
            kind: ID,
            key: &self.key,
            uid: &self.uid,
            pod_uid: &target.pod_uid,
            turn: target.turn,
            created: self.created,
            completed: self.completed(),
            dormant: self.dormant_reason().is_some(),
            containers: self.status.containers.iter().map(|c| (c.name.as_str(), desired(c))).collect(),
            margin: shrink::margin(&self.spec).unwrap_or_default(),
            reclaims: shrink::reclaims(&self.spec),
        })
    }
    fn held(&self) -> bool {
        Self::held(self)
    }

    fn decide(cx: Cx<'_>, sight: Sight<'_, Self>, memory: &mut Memory) -> (super::Plan, Vec<Measure>) {
        let Cx { now, wall, config } = cx;
        let Sight { request: resize, pod: api_pod, lookup, writes, child, .. } = sight;
        let work = sight.book.and_then(|book| book.work);
        let (repairs, orders): (Vec<OrderView<'_>>, Vec<OrderView<'_>>) =
            orders_of(work, &resize.uid).partition(|view| repair::is_repair(view.order));
        let target = resize.status.target.as_ref().filter(|_| resize.by_daemon());
        let held = target.and_then(|target| work?.held(&target.pod_uid));
        let force = lookup.force();
        let applied = api_pod.filter(|_| target.is_some()).map(|pod| force.applied(pod, held));
        let pod = applied.as_ref().or(api_pod);
        let held: Vec<OrderView<'_>> =
            target.map(|target| orders_of(work, &target.pod_uid).collect()).unwrap_or_default();
        let given: Vec<OrderView<'_>> = held.iter().chain(&repairs).copied().collect();
        memory.see(now, resize, pod, &orders, &given);
        if sight.ahead.as_ref().is_some_and(|ahead| ahead.has_pod) {
            memory.reset_busy(now);
        }
        let ahead = sight.ahead.map(|ahead| {
            let in_queue = matches!(ahead.blocker, Blocker::Request(_));
            Ahead { blocker: ahead.blocker, gives_way: in_queue && turn::overtakes(resize, lookup) }
        });
        memory.see_restart(resize, child.as_ref());
        let newer = api_pod.filter(|_| !resize.spec.dry_run);
        let newer = newer.and_then(|pod| turn::newer(resize, lookup, pod, &force, config));
        let fresh = sight.survey.is_some_and(|last| resize.is_admitted_by(now, last));
        let observed = Observed {
            resize,
            pod,
            api_pod,
            force: &force,
            held,
            newer: newer.as_ref(),
            ahead,
            sizing_now: writes.resources_open,
            sizing: writes.resources,
            restart: child,
            deed: sight.deed,
            orders,
            repairs,
            recorded: api_pod.is_some_and(|pod| work.is_some_and(|work| work.held(&pod.uid).is_some())),
            last_attempt: work.map_or(0, |work| work.last_attempt(&resize.uid)),
            guarded: sight.guarded,
            survey: sight.survey,
            reinstated: sight.reinstated,
            usage: fresh.then(|| lookup.usage()).flatten(),
            pod_check: sight.pod_check,
            memory,
        };
        (plan(now, wall, config, &observed), Vec::new())
    }
    fn notes(&self, old: &Self::Status) -> Vec<Note> {
        status::notes(self, old)
    }

    /// Since when the request changes its Pod; `None` while it changes nothing.
    fn disturbs(&self, memory: &Memory, work: WorkState, _: Option<&Pod>) -> Option<Mono> {
        let since = if self.status.target.is_some() { memory.busy_since } else { work.begun };
        since.filter(|_| !work.lingers)
    }
    fn deed_done(memory: &mut Memory, now: Mono, deed: Deed, done: Done) {
        memory.deed_done(now, deed, done);
    }
    fn pod_written(&self, memory: &mut Memory, now: Mono, written: PodWritten) {
        match written {
            PodWritten::Images(_) => {}
            PodWritten::Resources(refused) => memory.sizing_written(now, refused),
            PodWritten::Trial { stored, refused } => {
                memory.dry_run_done(now, self.spec.dry_run, stored, refused);
            }
        }
    }
}

impl Resize {
    /// Whether the daemon should give the Pod the desired resources: the request is accepted with the mechanism CRI,
    /// and has neither been given up nor failed. A successful request stays in force until it is deleted.
    pub fn in_force(&self) -> bool {
        self.held()
            && !self.deleting
            && self.status.restoring.is_none()
            && (!self.completed() || self.status.phase == Some(Phase::Succeeded))
    }

    /// Whether the daemon carries the request out: mechanism CRI and no dry run.
    pub fn held(&self) -> bool {
        self.by_daemon() && !self.spec.dry_run
    }

    /// Whether the request was accepted with the mechanism CRI, as a dry run or not.
    pub fn by_daemon(&self) -> bool {
        self.status.target.is_some() && self.status.mechanism == Some(Mechanism::Cri)
    }
}
