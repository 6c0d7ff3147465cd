//! Results of rollouts of parked workloads.

use pitstop_api::condition;
use pitstop_api::rollout::{Phase, TagMeaning, Update, UpdateEnd, conditions};

use super::pods::active;
use super::workload::{agrees, all_have, desired, parked};
use super::{Child, Followed, Parks, status};
use crate::oracle::rules::Found;
use crate::server::Server;
use crate::world::plan::Step;

/// Time after the last change when nothing more is to come.
const QUIET: u64 = 75_000;

impl Followed {
    fn reason(&self) -> String {
        let status = status(&self.object);
        let last = condition::find(&status.conditions, conditions::COMPLETE);
        last.map(|last| last.reason.clone()).unwrap_or_default()
    }
}

impl Parks {
    fn there(&self) -> impl Iterator<Item = (&String, &Followed)> {
        self.followed.iter().filter(|(_, followed)| !followed.deleted)
    }

    fn children_of<'a>(&'a self, id: &'a str) -> impl Iterator<Item = &'a Child> {
        self.children.values().filter(move |child| child.rollout == id && !child.deleted)
    }

    /// Whether all rollouts have ended, or wait for a user.
    pub(in crate::oracle) fn over(&self, now: u64, led_since: u64) -> bool {
        let quiet = now > self.changed.max(led_since) + QUIET;
        (self.there().next().is_some() || !self.parked || quiet)
            && self.there().all(|(id, followed)| {
                let status = status(&followed.object);
                let seen = status.observed_generation == followed.object.metadata.generation;
                let rests = match status.phase {
                    Some(Phase::Idle | Phase::Complete) => self.children_of(id).next().is_none(),
                    Some(Phase::Paused | Phase::Stalled) => self.children_of(id).all(|child| !child.open()),
                    _ => false,
                };
                seen && rests && quiet
            })
    }

    /// Checks the state at the end.
    pub(in crate::oracle) fn converged(&self, server: &Server) -> Found {
        let mut found = Found::new();
        let Some(plan) = self.schedule.workload.as_ref().filter(|plan| plan.native) else { return found };
        let Some(workload) = server.object(&plan.kind, super::NAMESPACE, &plan.name) else { return found };
        for (id, followed) in self.there() {
            let (status, why) = (status(&followed.object), followed.reason());
            let over = matches!(status.phase, Some(Phase::Idle | Phase::Complete));
            if over && (parked(workload).is_some() || self.children_of(id).next().is_some()) {
                found.push(("W14", format!("{id} is over with {why}, and leaves {}", workload["metadata"])));
            }
            let back =
                why == "RolledBack" && parked(workload).is_some() && self.children_of(id).next().is_none();
            if !over && !back && !self.is_true(id, followed, &why) {
                found.push(("W14", format!("{id} comes to {why}, which is not so: {status:?}")));
            }
        }
        for child in self.children.values().filter(|child| !child.deleted) {
            if self.followed.get(&child.rollout).is_none_or(|followed| followed.deleted) {
                found.push(("W14", format!("a request for {} has lost its rollout", child.pod)));
            }
        }
        // The controller of a Deployment cannot learn of a Pod that has other images.
        let stuck = plan.kind == *"Deployment"
            && all_have(workload, &workload["spec"]["template"], self.partition(), server).is_err();
        if parked(workload).is_some() && self.there().next().is_none() && !stuck {
            found.push(("W14", format!("nobody looks after what is parked: {}", workload["metadata"])));
        }
        if parked(workload).is_none() && !self.left_parked {
            let pods = server.objects("Pod").filter(|pod| active(pod)).count();
            let template = &workload["spec"]["template"];
            // With Pods that are never ready, the native controllers never agree. A release in the middle of
            // a rollback may leave Pods with images of another revision, which their label never named.
            let agrees = if self.bad_image() { Ok(()) } else { agrees(workload, self.partition(), server) };
            let have = || all_have(workload, template, self.partition(), server);
            let fine = agrees.and_then(|()| if self.let_go { Ok(()) } else { have() });
            if let Err(why) = fine {
                found.push(("W14", format!("the workload is not parked, and {why}")));
            }
            if pods != desired(workload) {
                found.push(("W14", format!("{pods} Pods are there, and {} are wanted", desired(workload))));
            }
        }
        self.restarted_once(&mut found);
        self.one_digest(server, &mut found);
        found
    }

    /// Checks that Pods changed by one update have one digest for each tag, though the tag moves.
    fn one_digest(&self, server: &Server, found: &mut Found) {
        let once =
            self.schedule.steps.iter().filter(|step| matches!(step.what, Step::Template(_))).count() == 1;
        let updated = |status: &Update| once && status.ended == Some(UpdateEnd::Updated);
        let updates = self.there().filter_map(|(_, followed)| status(&followed.object).update);
        for TagMeaning { image, digest } in updates.filter(updated).flat_map(|update| update.images) {
            for pod in server.objects("Pod").filter(|pod| active(pod)) {
                let has = pod["spec"]["containers"].as_array().into_iter().flatten();
                let others = has.filter_map(|c| c["image"].as_str()?.strip_prefix(&image)?.strip_prefix('@'));
                for other in others.filter(|other| *other != digest) {
                    found.push(("W15", format!("a Pod has {other} of {image}, which is {digest}")));
                }
            }
        }
    }

    /// How many Pods may still be begun at rest: containers that end at once are available for a moment at
    /// each start, which makes room for the next Pod.
    pub(in crate::oracle) fn late(&self) -> usize {
        if self.bad_image() && self.there().next().is_some() { self.desired } else { 0 }
    }

    /// Whether a step wants an image whose containers end at once.
    fn bad_image(&self) -> bool {
        let bad =
            |step: &Step| matches!(step, Step::Template(tags) if tags.iter().any(|(_, tag)| tag == "crash"));
        self.schedule.steps.iter().any(|step| bad(&step.what))
    }

    /// Whether a step moves a tag.
    fn moves_tag(&self) -> bool {
        self.schedule.steps.iter().any(|step| matches!(step.what, Step::MoveTag(..)))
    }

    fn is_true(&self, id: &str, followed: &Followed, why: &str) -> bool {
        match why {
            "Paused" => followed.object.spec.paused,
            "ProgressDeadlineExceeded" => self.bad_image(),
            "PodsFailed" | "UntouchedPodsFailToo" => {
                let pods = status(&followed.object).pods_of_interest;
                let differs = pods.iter().any(|pod| pod.message.starts_with("TagMoved: "));
                self.children_of(id).any(|child| child.ended == Some(false)) || (differs && self.moves_tag())
            }
            _ => false,
        }
    }

    /// Checks that without a failure each container began once, and once more for each change of its image;
    /// and once more for each rollback from a tag that moved during an update. The rollout sees the move when
    /// each of its requests has succeeded.
    fn restarted_once(&self, found: &mut Found) {
        let ends = self.schedule.steps.iter().any(|step| matches!(step.what, Step::Crash(..)));
        let back = if self.moves_tag() { self.rollbacks.len() } else { 0 };
        for ((pod, name), began) in self.began.iter().filter(|_| !ends && !self.bad_image()) {
            let failed = self.children.values().any(|child| child.pod == *pod && child.ended != Some(true));
            if *began > self.changes.len() + back && !failed {
                let changes = self.changes.len() - 1;
                found.push(("W12", format!("{name} of {pod} began {began} times, with {changes} changes")));
            }
        }
    }
}
