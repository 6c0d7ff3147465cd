//! How a request ends: with the wanted or the previous images, and with a true reason.

use std::collections::BTreeSet;

use pitstop_api::image_update::{ContainerStatus, Phase, PodImageUpdateStatus};
use serde_json::Value;

use super::pods::{digest, is_old};
use super::{Followed, Instance, KNOWN, Updates, is_named, status};
use crate::node::image::{digest_of, id_of, split};
use crate::oracle::pods::images;
use crate::oracle::rules::{Found, millis};
use crate::server::Server;
use crate::world::plan::{Fault, Step};

/// Time that is added to a wait, in milliseconds.
const SLACK: u64 = 10_000;
/// Reasons of ends without a change, if the node must have the image.
const NOT_PULLED: [&str; 4] = ["PullFailed", "CannotProvePull", "NoDiskRoom", "DaemonNotResponding"];

/// Whether the Pod may still run.
fn lives(pod: &Value) -> bool {
    let over = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
    !over && pod["metadata"]["deletionTimestamp"].is_null()
}

/// The image that the Pod's spec has for a container.
fn image<'a>(pod: &'a Value, name: &str) -> &'a str {
    images(pod).into_iter().find(|(n, _)| *n == name).map_or("", |(_, image)| image)
}

impl Updates {
    pub(super) fn ended(&self, id: &str, reason: &str, server: &Server, found: &mut Found) {
        let Some(followed) = self.followed.get(id) else { return };
        let status = status(&followed.object);
        if status.phase.is_none_or(|phase| !phase.is_end()) || reason.is_empty() {
            found.push(("L1", format!("{id} ends as {:?} without a reason", status.phase)));
        }
        let target = status.target.as_ref().map(|t| t.pod_uid.clone()).unwrap_or_default();
        let pod =
            server.objects("Pod").find(|pod| pod["metadata"]["uid"] == *target).map(|pod| (**pod).clone());
        let succeeded = status.phase == Some(Phase::Succeeded);
        if followed.object.spec.dry_run {
            if followed.forth.is_some() || (succeeded && reason != "WouldUpdate") {
                found.push(("U4", format!("the dry run {id} ends with {reason}")));
            }
        } else if succeeded {
            self.succeeded(id, followed, &status, pod.as_ref(), found);
        } else if let Some(pod) = pod.filter(lives) {
            self.left(id, followed, &status, reason, &pod, found);
        }
        self.is_true(id, followed, reason, found);
        self.in_time(id, followed, found);
    }

    /// Checks that each container runs the wanted image.
    fn succeeded(
        &self,
        id: &str,
        followed: &Followed,
        status: &PodImageUpdateStatus,
        pod: Option<&Value>,
        found: &mut Found,
    ) {
        let target = status.target.as_ref().map(|t| t.pod_uid.clone()).unwrap_or_default();
        for container in &status.containers {
            let name = &container.name;
            let mut wrong = |text: String| found.push(("U2", format!("{id} has succeeded, and {text}")));
            if let Some(pod) =
                pod.filter(|_| self.changed_since(&target).is_none_or(|at| self.now > self.seen_by(at)))
            {
                let has = image(pod, name);
                if has != container.written {
                    wrong(format!("the Pod has {has} for {name}, not {}", container.written));
                }
            }
            // The Pod had that very string before: nothing is replaced, and no daemon must report it.
            let unchanged = container.written == container.before.image;
            if unchanged && container.running.is_none() {
                continue;
            }
            let instances = self.instances.get(&(target.clone(), name.clone()));
            let instances = instances.map_or(&[][..], Vec::as_slice);
            let wanted = self.wanted(followed, name);
            // No order can name a container that never ran: the kubelet's report of a digest is enough.
            if container.before.container_id.is_empty() && container.running.is_none() {
                if instances.last().is_none_or(|newest| !wanted.contains(&newest.image_id)) {
                    wrong(format!("{name} does not run what was asked for"));
                }
                continue;
            }
            let Some(running) = &container.running else {
                wrong(format!("nobody has reported what {name} runs"));
                continue;
            };
            let Some(instance) = instances.iter().find(|i| i.id == running.container_id) else {
                wrong(format!("{running:?} never ran"));
                continue;
            };
            if is_named(instance, &container.before.container_id) && !unchanged {
                wrong(format!("{name} is the instance that was there before"));
            }
            if instance.image_id != running.image_id || !wanted.contains(&instance.image_id) {
                wrong(format!("{name} runs {}, which is not what was asked for", instance.image_id));
            }
            if container.pulled.as_ref().is_some_and(|pulled| pulled.image_id != instance.image_id) {
                wrong(format!("{name} runs {}, which is not {:?}", instance.image_id, container.pulled));
            }
            let watched = self.clocks.least(millis(followed.object.spec.observe()));
            if self.now < instance.started + watched {
                wrong(format!("{name} runs since {}", instance.started));
            }
            // The controller cannot know an end of a moment ago.
            if self.schedule.leaves_controllers_alone()
                && instance.ended.is_some_and(|at| self.now > at + KNOWN)
            {
                wrong(format!("the new {name} has ended at {:?}", instance.ended));
            }
        }
    }

    /// IDs of all images that the name has meant; a name with a digest means one.
    fn wanted(&self, followed: &Followed, name: &str) -> BTreeSet<String> {
        let asked = followed.object.spec.containers.iter().find(|c| c.name == *name);
        let asked = asked.map_or("", |c| c.image.as_str());
        if let Some(digest) = digest(asked) {
            return BTreeSet::from([id_of(digest)]);
        }
        let (repository, tag, _) = split(asked);
        let asked = format!("{repository}:{}", tag.unwrap_or("latest"));
        let moved = self.schedule.steps.iter().filter_map(|s| match &s.what {
            Step::MoveTag(name, content) if *name == asked => Some(content.to_string()),
            _ => None,
        });
        let same = self.schedule.images.same.iter().find(|(name, _)| *name == asked);
        let first = same.map_or(asked.clone(), |(_, content)| content.to_string());
        moved.chain([first]).map(|name| id_of(&digest_of(&name))).collect()
    }

    /// When another writer last changed the Pod's images.
    fn changed_since(&self, pod: &str) -> Option<u64> {
        self.foreign.get(pod).copied()
    }

    /// Checks that the previous images are restored, or that a reason excuses it.
    fn left(
        &self,
        id: &str,
        followed: &Followed,
        status: &PodImageUpdateStatus,
        reason: &str,
        pod: &Value,
        found: &mut Found,
    ) {
        let target = status.target.as_ref().map(|t| t.pod_uid.clone()).unwrap_or_default();
        let foreign = self.changed_since(&target);
        if foreign.is_some_and(|at| Some(at) > followed.forth) || self.unsure() {
            return;
        }
        let spec = &followed.object.spec;
        let old = |c: &ContainerStatus| is_old(c, image(pod, &c.name));
        // A webhook that is switched on meanwhile may deny the rollback.
        let denied = !self.calm() || self.schedule.images.webhook.is_some();
        // A controller that has not seen the change has nothing to restore.
        let unseen = followed.forth.is_some_and(|at| self.now <= self.seen_by(at))
            && !self.schedule.leaves_controllers_alone();
        let excused = reason == "Superseded" || (reason == "RollbackFailed" && denied) || unseen;
        if followed.forth.is_some() && spec.rolls_back() && !status.containers.iter().all(old) && !excused {
            found.push(("U5", format!("{id} ends with {reason}, and the Pod keeps its new images")));
        }
        if status.phase != Some(Phase::RolledBack) {
            return;
        }
        if followed.forth.is_none() {
            found.push(("U5", format!("{id} is rolled back, and never changed its Pod")));
        }
        for container in &status.containers {
            let all = self.instances.get(&(target.clone(), container.name.clone()));
            let all = all.map_or(&[][..], Vec::as_slice);
            let before = all.iter().find(|i| is_named(i, &container.before.container_id));
            let Some(before) = before.filter(|_| container.before.running) else { continue };
            let alive = |i: &&Instance| i.ended.is_none_or(|at| self.now < at + KNOWN);
            let back = all.iter().filter(alive).any(|i| i.image_id == before.image_id);
            // The controller cannot know an end while the kubelet or runtime is away.
            let unseen = self.faults(|f| {
                matches!(
                    f,
                    Fault::KubeletDown(..)
                        | Fault::NodeLost(..)
                        | Fault::RuntimeDown(..)
                        | Fault::RuntimeHangs(..)
                )
            });
            if !back && self.schedule.leaves_controllers_alone() && !unseen {
                found.push((
                    "U5",
                    format!("{id} is rolled back, and {} does not run its old image", container.name),
                ));
            }
        }
    }

    /// Checks that the reason of the end is true.
    fn is_true(&self, id: &str, followed: &Followed, reason: &str, found: &mut Found) {
        let spec = &followed.object.spec;
        if NOT_PULLED.contains(&reason) && followed.forth.is_some() {
            found.push(("U9", format!("{id} ends with {reason}, and has changed its Pod")));
        }
        let does = |what: &dyn Fn(&Step) -> bool| self.schedule.steps.iter().any(|s| what(&s.what));
        let missing = spec.containers.iter().any(|c| split(&c.image).1 == Some("missing"));
        let holds = match reason {
            "PullFailed" => {
                let timed = spec.pull_timeout_seconds.is_some();
                let refuses = |f: &Fault| matches!(f, Fault::RegistryRefuses(..));
                missing || timed || self.faults(refuses) || self.odd_node()
            }
            "CannotProvePull" => {
                self.schedule.images.private || self.faults(|f| matches!(f, Fault::RegistryRefuses(..)))
            }
            "NoDiskRoom" => self.faults(|f| matches!(f, Fault::DiskFull(..))),
            "DeadlineExceeded" => {
                let since = followed.released.unwrap_or(followed.created);
                self.now >= since + self.clocks.least(followed.deadline(&self.schedule))
            }
            "Cancelled" => spec.cancel,
            "Superseded" => {
                let of_pod = followed.object.spec.pod_ref.name.as_str();
                let set = |s: &Step| match s {
                    Step::SetImage(pod, _) => pod == of_pod,
                    Step::Create(_) | Step::Update(_) => true,
                    _ => false,
                };
                let others = self.schedule.steps.iter().filter(|s| set(&s.what)).count();
                // Until a deleted rollout's requests are gone, they exist beside those of the next rollout.
                let of_rollouts = does(&|s| matches!(s, Step::DeleteRollout(_)));
                others > 1 || of_rollouts || self.schedule.images.webhook.is_some()
            }
            "Refused" => {
                self.schedule.images.webhook.is_some() || self.faults(|f| matches!(f, Fault::Refuse(..)))
            }
            "CrashLoopBackOff" | "ContainerExited" | "Restarted" => self.may_end(followed) || !self.calm(),
            "OtherImage" => {
                spec.pull().ne(&pitstop_api::image_update::Pull::Required)
                    || self.may_end(followed)
                    || !self.calm()
                    // A stop of a deleted rollout may continue.
                    || does(&|s| matches!(s, Step::Create(_) | Step::DeleteRollout(_)))
            }
            _ => true,
        };
        if !holds && !self.unsure() {
            found.push(("U9", format!("{id} ends with {reason}, and that is not so")));
        }
    }

    /// Whether the container of an order may be gone before the daemon looks.
    fn odd_node(&self) -> bool {
        let ends = |s: &Step| {
            matches!(
                s,
                Step::Crash(..) | Step::SetImage(..) | Step::Create(_) | Step::Update(_) | Step::DeletePod(_)
            )
        };
        !self.calm() || self.schedule.steps.iter().filter(|s| ends(&s.what)).count() > 1 || self.crashes()
    }

    /// Whether instances end by themselves, whatever their image.
    fn crashes(&self) -> bool {
        let pods = self.schedule.pods.iter().flat_map(|p| &p.containers);
        pods.clone().any(|c| c.behaviour.contains("runs"))
    }

    /// Whether a container may end by itself.
    fn may_end(&self, followed: &Followed) -> bool {
        let bad = ["crash", "later", "nostart", "greedy"];
        let named = |image: &str| split(image).1.is_some_and(|tag| bad.iter().any(|b| tag.starts_with(b)));
        let steps = self.schedule.steps.iter().any(|s| match &s.what {
            Step::Crash(..) => true,
            Step::MoveTag(_, content) => named(content),
            Step::Template(tags) | Step::Wish(_, tags) => {
                tags.iter().any(|(_, tag)| bad.iter().any(|b| tag.starts_with(b)))
            }
            Step::Rollout(plan) => plan.images.iter().any(|(_, tag)| bad.iter().any(|b| tag.starts_with(b))),
            _ => false,
        });
        let same = self.schedule.images.same.iter().any(|(_, content)| named(content));
        steps || same || self.crashes() || followed.object.spec.containers.iter().any(|c| named(&c.image))
    }

    fn in_time(&self, id: &str, followed: &Followed, found: &mut Found) {
        let spec = &followed.object.spec;
        let age = self.now - followed.released.unwrap_or(followed.created);
        let most = followed.deadline(&self.schedule) + millis(spec.ready_timeout());
        if self.calm() && age > self.clocks.most(most) + SLACK {
            found.push(("L1", format!("{id} ends {age} ms after it could begin")));
        }
        let all = self.now - followed.created;
        let bound = 16 + all / 2_500;
        if self.schedule.leaves_controllers_alone() && followed.writes > bound {
            found.push(("I12", format!("{id} takes {} writes in {all} ms", followed.writes)));
        }
    }
}
