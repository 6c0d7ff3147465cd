//! What bounds Pods that are resized where nobody else admits that, and what other Pods take of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pitstop_api::quantity::Resources;

use super::asked::{Entry, UserRequest as _};
use super::queue::Standing;
use super::{Index, remove};
use crate::action::{Action, Outcome};
use crate::key::ObjectKey;
use crate::pod::Pod;
use crate::resize::admission::{Crowd, Granted, Survey, Surveyed, asks, beyond, most};
use crate::resize::{Memory, Resize};
use crate::time::Mono;

/// Least time from the end of one survey for a request to the next one.
const SPACING: Duration = Duration::from_secs(5);

/// Pods by their nodes, kept from when they are first asked for: most clusters never do.
#[derive(Clone, Debug, Default)]
pub(super) struct Neighbours(Option<BTreeMap<String, BTreeSet<ObjectKey>>>);

impl Neighbours {
    /// A Pod appeared, was bound to a node, or is gone.
    pub(super) fn moved(&mut self, pod: &ObjectKey, from: Option<&str>, to: Option<&str>) {
        let Some(by_node) = self.0.as_mut().filter(|_| from != to) else { return };
        if let Some(from) = from {
            remove(by_node, &from.to_owned(), pod);
        }
        if let Some(to) = to {
            by_node.entry(to.to_owned()).or_default().insert(pod.clone());
        }
    }

    fn of(&self, node: &str) -> impl Iterator<Item = &ObjectKey> {
        self.0.iter().filter_map(|by_node| by_node.get(node)).flatten()
    }
}

impl Index {
    /// The survey that a resize wants, unless one is under way; else when it may begin.
    pub(super) fn begin_survey(&self, now: Mono, entry: &mut Entry<Resize>) -> Result<Option<Action>, Mono> {
        let resize = entry.request.get();
        let pod = self.pods.objects.get(&resize.pod_key()).map(|e| e.pod.get());
        let Some(node) = pod.and_then(|pod| pod.node.clone()).filter(|_| !entry.memory.surveying) else {
            return Ok(None);
        };
        if let Some(at) = entry.memory.survey.as_ref().map(|last| last.at.after(SPACING))
            && at > now
        {
            return Err(at);
        }
        entry.memory.surveying = true;
        Ok(Some(Action::Survey { key: resize.key.clone(), uid: resize.uid.clone(), node }))
    }

    pub(super) fn surveyed(&mut self, now: Mono, key: &ObjectKey, uid: &str, outcome: Outcome<Survey>) {
        // An answer for a request that was deleted says nothing to another one of that name.
        let entry = self.resizes.objects.get_mut(key).filter(|e| e.request.get().uid == uid);
        let Some(entry) = entry else { return };
        let result = match outcome {
            Outcome::Written(survey) => Ok(survey),
            Outcome::Gone => Err("the Pod's node does not exist any more".to_owned()),
            Outcome::Refused(text) => Err(text),
            Outcome::Retry | Outcome::Conflict => Err("the API server has not answered".to_owned()),
        };
        entry.memory.surveying = false;
        entry.memory.survey = Some(Surveyed { at: now, result });
        self.resizes.dirty.insert(key.clone());
        self.dirty_nodes.extend(entry.request.get().node().map(str::to_owned));
        let pods = &self.pods.objects;
        if self.neighbours.0.is_none() {
            self.neighbours.0 = Some(BTreeMap::new());
            for (key, entry) in pods {
                self.neighbours.moved(key, None, entry.pod.get().node.as_deref());
            }
        }
    }

    /// What other Pods take of what bounds the Pod of a resize. Absent without a survey, and while the acceptance of
    /// another resize that counts is being written: what it grants is not known yet.
    pub(super) fn crowd(&self, resize: &Resize, memory: &Memory) -> Option<Crowd<'_>> {
        memory.survey.as_ref().filter(|last| last.result.is_ok())?;
        let own = resize.pod_key();
        let node = self.pods.objects.get(&own)?.pod.get().node.as_deref()?;
        let mut crowd = Crowd::default();
        for pod in self.neighbours.of(node).filter(|key| **key != own).filter_map(|key| self.unfinished(key))
        {
            if self.resizes.of(&pod.key, Standing::Begun).any(being_accepted) {
                return None;
            }
            let force = self.force(pod);
            let asked = asks(pod, |c| most(&c.resources, &force.wants(c)));
            crowd.asked = plus(&crowd.asked, &asked);
        }
        for key in self.resizes.queues.pods_of(&own.namespace).filter(|pod| **pod != own) {
            if self.resizes.of(key, Standing::Begun).any(being_accepted) {
                return None;
            }
            let Some(pod) = self.unfinished(key) else { continue };
            let force = self.force(pod);
            let beyond = beyond(&asks(pod, |c| force.wants(c)), &asks(pod, |c| c.resources));
            if beyond != Resources::default() {
                crowd.granted.push(Granted { pod, beyond });
            }
        }
        Some(crowd)
    }

    fn unfinished(&self, pod: &ObjectKey) -> Option<&Pod> {
        self.pods.objects.get(pod).map(|e| e.pod.get()).filter(|pod| !pod.finished)
    }
}

/// Its acceptance is being written.
fn being_accepted(entry: &Entry<Resize>) -> bool {
    let resize = entry.request.get();
    entry.turn.begun().is_some()
        && entry.request.in_flight()
        && resize.status.target.is_none()
        && !resize.completed()
}

/// What is asked for together.
fn plus(one: &Resources, other: &Resources) -> Resources {
    let plus = |one: Option<i64>, other: Option<i64>| {
        Some(one.unwrap_or_default().saturating_add(other.unwrap_or_default()))
    };
    Resources {
        cpu_request: plus(one.cpu_request, other.cpu_request),
        memory_request: plus(one.memory_request, other.memory_request),
        ..Resources::default()
    }
}
