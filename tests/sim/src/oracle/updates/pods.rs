//! Writes of Pods: for which request a container gets an image.

use pitstop_api::image_update::{ContainerStatus, PodImageUpdateStatus};
use pitstop_controller_core::readiness::SERVED;
use serde_json::Value;

use super::{Updates, status};
use crate::node::image::split;
use crate::oracle::Writer;
use crate::oracle::Wrote;
use crate::oracle::pods::images;
use crate::oracle::rules::{Found, bare, millis};
use crate::world::plan::{Fault, Step, Timed};

/// Time in which a daemon finds that an image is gone, and the controller learns it.
const LOOKED_AT: u64 = 5_000;
/// Maximum time between the dry run of a write and the write.
const BETWEEN: u64 = 2_000;
/// Ways to restore the old image: by its tag, and by three strings with its digest.
const WAYS_BACK: u32 = 4;

/// Containers whose image changed: name, old and new image.
pub(super) fn changed(old: &Value, new: &Value) -> Vec<(String, String, String)> {
    let before = images(old);
    let other = |(name, image): (&str, &str)| {
        let (_, was) = before.iter().find(|(n, i)| *n == name && *i != image)?;
        Some((name.to_owned(), (*was).to_owned(), image.to_owned()))
    };
    images(new).into_iter().filter_map(other).collect()
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// The digest of a reference.
pub(super) fn digest(text: &str) -> Option<&str> {
    split(text).2
}

/// Whether the image is the container's old one.
pub(super) fn is_old(container: &ContainerStatus, image: &str) -> bool {
    let same = digest(image).is_some_and(|named| digest(&container.before.image_id) == Some(named));
    image == container.before.image || same
}

fn of<'a>(status: &'a PodImageUpdateStatus, name: &str) -> Option<&'a ContainerStatus> {
    status.containers.iter().find(|c| c.name == name)
}

impl Updates {
    /// Takes a write of a Pod: changes by other writers, and the Pod's state.
    pub(super) fn see_pod(&mut self, wrote: &Wrote<'_>) {
        let Wrote { writer, before, after, .. } = *wrote;
        let Some(new) = after else { return };
        let pod = uid(new);
        let lists = ["containerStatuses", "initContainerStatuses"];
        let statuses = lists.into_iter().filter_map(|list| new["status"][list].as_array()).flatten();
        let ids = statuses.filter_map(|s| s["containerID"].as_str()).map(|id| bare(id).to_owned());
        self.shown.extend(ids);
        let conditions = new["status"]["conditions"].as_array();
        let ready = conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True");
        if ready {
            self.out_since.remove(&pod);
        } else {
            self.out_since.entry(pod.clone()).or_insert(self.now);
        }
        let others = before.is_some_and(|old| !changed(old, new).is_empty());
        if others && writer != Writer::Controller {
            self.foreign.insert(pod, self.now);
        }
    }

    /// Checks a change of a Pod's images by the controller. Returns the containers that got them for an
    /// update, and broken rules.
    pub(in crate::oracle) fn changes(&mut self, old: &Value, new: &Value) -> (Vec<String>, Found) {
        let (pod, now) = (uid(new), self.now);
        let mut all = changed(old, new);
        for (name, _, image) in &mut all {
            *image = self.asked_as(&pod, name, image).unwrap_or_else(|| image.clone());
        }
        let (mut explained, mut found) = (Vec::new(), Found::new());
        for (name, was, image) in &all {
            if split(was).0 != split(image).0 {
                found.push(("U6", format!("container {name} of {pod} gets {image} instead of {was}")));
            }
        }
        let forth = |s: &PodImageUpdateStatus, name: &str, image: &str| {
            of(s, name).is_some_and(|c| c.written == image)
        };
        let back = |s: &PodImageUpdateStatus, name: &str, image: &str| {
            s.restoring.is_some() && of(s, name).is_some_and(|c| c.restored == image)
        };
        // A request that is over or gone counts only if no other fits.
        let mut ids: Vec<String> = self.followed.keys().cloned().collect();
        ids.sort_by_key(|id| self.followed.get(id).is_some_and(|f| !f.open()));
        for id in ids {
            let Some(followed) = self.followed.get(&id).filter(|f| f.is_for(&pod)) else { continue };
            let status = status(&followed.object);
            let leads = |way: &dyn Fn(&PodImageUpdateStatus, &str, &str) -> bool| {
                !all.is_empty() && all.iter().all(|(name, _, image)| way(&status, name, image))
            };
            if leads(&back) {
                self.goes_back(&id, &pod, &all, &mut found);
            } else if leads(&forth) && followed.ended.is_none() {
                self.goes_forth(&id, &pod, new, &all, &mut found);
                if let Some(followed) = self.followed.get_mut(&id) {
                    followed.forth = Some(now);
                }
            } else if !(leads(&forth) && self.unsure()) {
                // With a stale list, a request that is over may be at work.
                continue;
            }
            explained = all.iter().map(|(name, ..)| name.clone()).collect();
            break;
        }
        if self.off { (explained, Found::new()) } else { (explained, found) }
    }

    /// The requested image, if a webhook that was switched on between the dry run and the write has changed
    /// it to that image.
    fn asked_as(&self, pod: &str, name: &str, image: &str) -> Option<String> {
        let does = self.schedule.images.webhook?;
        let between = |at: u64| (at..at + BETWEEN).contains(&self.now);
        let switched = |s: &Timed<Step>| matches!(s.what, Step::SwitchWebhook(true)) && between(s.at);
        if !self.schedule.steps.iter().any(switched) {
            return None;
        }
        let statuses = self.followed.values().filter(|f| f.is_for(pod)).map(|f| status(&f.object));
        let asked = statuses.filter_map(|s| of(&s, name).map(|c| [c.written.clone(), c.restored.clone()]));
        asked.flatten().find(|asked| does.of(asked).as_deref() == Some(image))
    }

    fn goes_back(&mut self, id: &str, pod: &str, all: &[(String, String, String)], found: &mut Found) {
        let (now, unsure) = (self.now, self.unsure());
        let Some(followed) = self.followed.get_mut(id) else { return };
        let status = status(&followed.object);
        followed.backs += 1;
        followed.back = Some(now);
        let most = WAYS_BACK * u32::try_from(status.containers.len()).unwrap();
        if followed.backs > most {
            found.push(("U7", format!("{id} changes {pod} back {} times", followed.backs)));
        }
        for (name, was, image) in all {
            let Some(container) = of(&status, name) else { continue };
            if !is_old(container, image) {
                found.push(("U5", format!("{id} puts {image} back, which {name} never had")));
            }
            // It may replace only what it has written itself.
            if *was != container.written && !is_old(container, was) && !unsure {
                found.push(("U7", format!("{id} puts {image} in the place of {was}, which is not its own")));
            }
        }
    }

    fn goes_forth(
        &self,
        id: &str,
        pod: &str,
        new: &Value,
        all: &[(String, String, String)],
        found: &mut Found,
    ) {
        let Some(followed) = self.followed.get(id) else { return };
        let spec = &followed.object.spec;
        let status = status(&followed.object);
        if spec.dry_run || spec.suspend {
            found.push(("U4", format!("{id} changes {pod}, and is only to look")));
        }
        if status.restoring.is_some() && !self.unsure() {
            found.push(("U4", format!("{id} changes {pod}, and is to put back what was there")));
        }
        let meddled = self.foreign.get(pod).copied() > followed.forth;
        if followed.forth.is_some() && followed.back.is_none() && !meddled && !self.unsure() {
            found.push(("U7", format!("{id} changes {pod} once more")));
        }
        for (name, was, image) in all {
            let Some(container) = of(&status, name) else { continue };
            if !is_old(container, was) && !self.unsure() {
                found.push(("U7", format!("{id} puts {image} in the place of {was}, which it did not find")));
            }
            self.has_it(id, followed.requires(), container, &status, found);
        }
        let beside = self.followed.iter().find(|(other, f)| {
            *other != id && f.is_for(pod) && f.open() && f.forth.is_some() && !f.object.spec.dry_run
        });
        if let Some((other, _)) = beside.filter(|_| !self.unsure()) {
            found.push(("U8", format!("{id} changes {pod} while {other} is at work on it")));
        }
        self.was_drained(id, pod, new, found);
    }

    /// Checks that the node has the container's new image.
    fn has_it(
        &self,
        id: &str,
        requires: bool,
        container: &ContainerStatus,
        status: &PodImageUpdateStatus,
        found: &mut Found,
    ) {
        // A container that never ran can lose nothing.
        if !requires || container.before.container_id.is_empty() {
            return;
        }
        let name = &container.name;
        let Some(pulled) = &container.pulled else {
            found.push(("U1", format!("{id} changes {name}, and has pulled nothing")));
            return;
        };
        let node = status.target.as_ref().map(|t| t.node_name.clone()).unwrap_or_default();
        match self.images.get(&(node.clone(), pulled.image_id.clone())) {
            Some((true, _)) => {}
            // It went a moment ago, or a fault hides that.
            Some((false, gone)) if self.now < gone + LOOKED_AT || !self.calm() => {}
            Some((false, gone)) => {
                let ago = self.now - gone;
                found.push((
                    "U1",
                    format!("{id} changes {name}, and the image is gone from {node} for {ago} ms"),
                ));
            }
            None => found.push(("U1", format!("{id} changes {name} to {pulled:?}, which {node} never had"))),
        }
        if !pulled.digest.is_empty() && digest(&container.written) != Some(&pulled.digest) {
            let text = format!("{id} changes {name} to {}, and has pulled {pulled:?}", container.written);
            found.push(("U1", text));
        }
    }

    /// Checks that a Pod that can be drained was out of service for the requested time.
    fn was_drained(&self, id: &str, pod: &str, new: &Value, found: &mut Found) {
        let Some(followed) = self.followed.get(id) else { return };
        let Some(grace) = followed.object.spec.unready_grace_period_seconds.map(millis) else { return };
        let gates = new["spec"]["readinessGates"].as_array().into_iter().flatten();
        let served = gates.filter_map(|g| g["conditionType"].as_str()).any(|gate| SERVED.contains(&gate));
        // Other writers of the same conditions may open them. A restarted controller counts again, and so
        // waits longer.
        let meddled = self
            .schedule
            .steps
            .iter()
            .any(|s| matches!(s.what, Step::Meddle(_) | Step::Occupy(_) | Step::Open(_)));
        let blind =
            self.faults(|f| matches!(f, Fault::KubeletDown(..) | Fault::NodeLost(..) | Fault::Reboot(..)));
        if !served || meddled || blind || !self.schedule.leaves_controllers_alone() {
            return;
        }
        let least = self.clocks.least(grace);
        if self.out_since.get(pod).is_none_or(|since| self.now < since + least) {
            let since = self.out_since.get(pod);
            found.push(("U10", format!("{id} changes {pod}, which is out of service since {since:?}")));
        }
    }
}
