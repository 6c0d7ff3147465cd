//! How a request ends: with a true reason, and with the Pod as it should be.

use pitstop_api::condition::ConditionStatus;
use pitstop_api::quantity::Resources;
use pitstop_api::resize::{Phase, PodResizeStatus, conditions};
use serde_json::Value;

use super::pods::{returned, sizes};
use super::{Followed, Resizes, status};
use crate::oracle::rules::{Found, millis};
use crate::server::Server;
use crate::world::plan::{Fault, Step};

/// Time that watches, writes and the kubelet's own pace add to a wait, in milliseconds.
const SLACK: u64 = 10_000;
/// How long a request waits for the kernel, in milliseconds.
const KERNEL: u64 = 120_000;
/// How long a request restores the original resources, in milliseconds.
const PATIENCE: u64 = 60_000;
/// A change of the Pod that is younger (milliseconds) may not have been seen.
pub(super) const KNOWN: u64 = 8_000;

impl Resizes {
    pub(super) fn ended(&self, id: &str, reason: &str, server: &Server, found: &mut Found) {
        let Some(followed) = self.followed.get(id) else { return };
        let status = status(&followed.object);
        let succeeded = status.phase == Some(Phase::Succeeded);
        let pod = self.pod_of(&status, server);
        let pod = pod.as_ref();
        if status.phase.is_none_or(|phase| !phase.is_end()) || reason.is_empty() {
            found.push(("L1", format!("{id} ends as {:?} without a reason", status.phase)));
        }
        if followed.object.spec.dry_run {
            let untouched = followed.forth.is_none() && followed.back.is_none();
            if !untouched || (succeeded && reason != "WouldResize") {
                found.push(("R1", format!("the dry run {id} ends with {reason}")));
            }
        } else if succeeded && !followed.by_daemon() {
            self.succeeded(id, followed, &status, found);
        } else if let Some(pod) = pod.filter(|pod| lives(pod)) {
            self.left(id, followed, &status, pod, found);
        }
        self.is_true(id, followed, reason, pod, found);
        self.in_time(id, followed, found);
    }

    /// Checks that the Pod, its kubelet and the kernel had the wanted size.
    fn succeeded(&self, id: &str, followed: &Followed, status: &PodResizeStatus, found: &mut Found) {
        if followed.sized.is_none() {
            found.push(("R2", format!("{id} has succeeded, and its Pod never had what it means")));
        }
        let verified = status.conditions.iter().find(|c| c.type_ == conditions::VERIFIED);
        let Some(verified) = verified else {
            found.push(("R2", format!("{id} has succeeded, and does not say what the kernel has")));
            return;
        };
        if followed.stepped.is_some() && self.foreign_to(status) <= followed.stepped {
            found.push(("R11", format!("{id} has succeeded, and its Pod is at a step beyond what it means")));
        }
        if verified.status == ConditionStatus::False {
            self.gives_up_on_the_kernel(id, followed, &verified.message, status, found);
        }
        if verified.status != ConditionStatus::True {
            return;
        }
        let pod = status.target.as_ref().map(|t| t.pod_uid.clone()).unwrap_or_default();
        for container in &status.containers {
            let desired = Resources::from(&container.desired);
            // A quota that the kubelet does not set is in no group.
            let unset = verified.reason == "CPUQuotaNotSet";
            let limits = |r: &Resources| (limits(r).0.filter(|_| !unset), limits(r).1);
            let changed = limits(&desired) != limits(&Resources::from(&container.original));
            let instances = followed.reported.iter().filter(|(name, _)| *name == container.name);
            let ids: Vec<&str> = instances.map(|(_, id)| id.as_str()).collect();
            // The sizes of a group that was written are known.
            let held = |id: &&str| {
                let Some(all) = self.groups.get(*id) else { return true };
                let until = all.iter().skip(1).map(|(from, _)| *from).chain([u64::MAX]);
                all.iter().zip(until).any(|((from, size), until)| {
                    let at_work = *from <= self.now && followed.accepted.is_none_or(|at| until > at);
                    at_work && limits(size) == limits(&desired)
                })
            };
            if changed && !ids.iter().any(held) {
                found.push(("R2", format!("{id}: the kernel never had what {} should have", container.name)));
            }
            let Some((shown, since)) = self.shown.get(&(pod.clone(), container.name.clone())) else {
                continue;
            };
            if self.schedule.leaves_controllers_alone()
                && self.now > since + KNOWN
                && !ids.contains(&shown.as_str())
            {
                let text = format!("{id} has reports of {ids:?}, and {} runs as {shown}", container.name);
                found.push(("R7", text));
            }
        }
    }

    /// Checks a request that says that the kernel has another value: it has waited, and the kubelet does set
    /// that value.
    fn gives_up_on_the_kernel(
        &self,
        id: &str,
        followed: &Followed,
        message: &str,
        status: &PodResizeStatus,
        found: &mut Found,
    ) {
        let waited = followed.sized.is_some_and(|at| self.now >= at + self.clocks.least(KERNEL));
        let late = self.now >= followed.created + self.clocks.least(followed.deadline(&self.schedule));
        if !waited && !late {
            found.push(("R2", format!("{id} does not wait for the kernel: {message}")));
        }
        let node = status.target.as_ref().map(|t| t.node_name.clone()).unwrap_or_default();
        let sets_none = self.schedule.room.no_quota.iter().any(|at| node == format!("node{at}"));
        let added = |c: &pitstop_api::resize::ContainerStatus| c.original.limits.cpu.is_none();
        let known = sets_none && !status.containers.iter().any(added);
        if known && ["cpu.max", "cpu.cfs_quota_us"].iter().any(|file| message.contains(file)) {
            found.push(("R5", format!("{id} misses a quota that nobody sets: {message}")));
        }
    }

    /// Checks that the original resources are restored, or that the end says why not.
    fn left(&self, id: &str, followed: &Followed, status: &PodResizeStatus, pod: &Value, found: &mut Found) {
        let now = sizes(pod);
        let is = |to: fn(&pitstop_api::resize::ContainerStatus) -> Resources| {
            status.containers.iter().all(|c| now.get(&c.name) == Some(&to(c)))
        };
        if self.stale() || followed.forth.is_none() || is(returned) || !is(|c| (&c.desired).into()) {
            return;
        }
        let later = followed.forth.max(followed.back);
        if self.foreign_to(status) > later {
            return;
        }
        let text = &status.message;
        let explained = text.contains("could not be put back");
        // Nothing refuses or delays the restore.
        let roomy = self.schedule.room.millicores.is_none() && self.schedule.room.quota.is_none();
        // While no container runs, it is unknown that the kubelet does not resize.
        let unknown = followed.blind && !self.schedule.room.fixed.is_empty();
        if !explained || (roomy && self.calm() && !unknown) {
            found.push(("R3", format!("{id} ends, and its Pod keeps what it has got: {text}")));
        }
    }

    /// Checks that the reason of the end is true.
    fn is_true(&self, id: &str, followed: &Followed, reason: &str, pod: Option<&Value>, found: &mut Found) {
        let spec = &followed.object.spec;
        let age = self.now - followed.created;
        let does = |what: fn(&Step) -> bool| self.schedule.steps.iter().any(|s| what(&s.what));
        let holds = match reason {
            "DeadlineExceeded" => age >= self.clocks.least(followed.deadline(&self.schedule)),
            "Cancelled" => spec.cancel,
            "PodGone" => {
                let since = followed.accepted.unwrap_or(followed.created);
                pod.is_none_or(|pod| !lives(pod)) || self.now < since + SLACK
            }
            // A dry run that the daemon would carry out ends at once.
            "NodeBusy" if spec.dry_run => {
                self.schedule.room.millicores.is_some() && !self.schedule.room.fixed.is_empty()
            }
            "NodeBusy" => {
                let wait = spec.on_deferred.as_ref().map(|d| millis(d.wait_seconds));
                let since = followed.deferred;
                wait.zip(since).is_some_and(|(wait, since)| self.now >= since + self.clocks.least(wait))
            }
            "Superseded" => self.others(id, followed) || self.foreign_to(&status(&followed.object)).is_some(),
            "OOMKilled" => {
                does(|s| matches!(s, Step::Bloat(..) | Step::Resize(_))) && followed.observes() > 0
            }
            "Restarted" | "NotReady" => followed.observes() > 0,
            "Quota" => self.schedule.room.quota.is_some(),
            "NodeCapacity" => {
                let fixed = !self.schedule.room.fixed.is_empty();
                self.schedule.room.millicores.is_some() || fixed || followed.infeasible
            }
            // A refusal in unknown words: a right is lost, or amounts do not fit together.
            "Refused" => {
                let refuses = |f: &Fault| matches!(f, Fault::Refuse(..));
                let text = &followed.object.status.as_ref().map_or("", |s| &s.message);
                text.contains(" is invalid: ") || self.schedule.faults.iter().any(|f| refuses(&f.what))
            }
            _ => true,
        };
        if !holds && !self.stale() {
            found.push(("R5", format!("{id} ends with {reason}, and that is not so")));
        }
    }

    /// When another writer last changed the resources of the request's Pod.
    fn foreign_to(&self, status: &PodResizeStatus) -> Option<u64> {
        self.foreign.get(&status.target.as_ref()?.pod_uid).copied()
    }

    /// Whether lists may be older than facts seen before: they may show a Pod before its change, or before
    /// its creation.
    pub(super) fn stale(&self) -> bool {
        self.schedule.faults.iter().any(|f| matches!(f.what, Fault::StaleLists(..)))
    }

    /// Whether another request wants the same Pod.
    fn others(&self, id: &str, followed: &Followed) -> bool {
        let name = &followed.object.spec.pod_ref.name;
        self.followed.iter().any(|(other, f)| {
            // Which is later depends on the API server's clock, which may jump.
            other != id && !f.object.spec.dry_run && f.object.spec.pod_ref.name == *name
        })
    }

    fn in_time(&self, id: &str, followed: &Followed, found: &mut Found) {
        let age = self.now - followed.created;
        let most = followed.deadline(&self.schedule) + followed.observes() + PATIENCE;
        if self.calm() && age > self.clocks.most(most) + SLACK {
            found.push(("L1", format!("{id} ends {age} ms after its creation")));
        }
        // Each wait is reported once, and at least three seconds after the previous one.
        let bound = 7 + age / 2_500;
        if self.schedule.leaves_controllers_alone() && followed.writes > bound {
            found.push(("I12", format!("{id} takes {} writes in {age} ms", followed.writes)));
        }
    }
}

/// The parts of a size that a control group holds unchanged.
fn limits(size: &Resources) -> (Option<i64>, Option<i64>) {
    (size.cpu_limit, size.memory_limit)
}

/// Whether the Pod may still run.
fn lives(pod: &Value) -> bool {
    let over = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
    !over && pod["metadata"]["deletionTimestamp"].is_null()
}
