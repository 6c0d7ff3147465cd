//! What bounds Pods that are resized where nobody else admits that, and what other Pods take of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pitstop_api::quantity::Resources;

use super::store::{Admission, Entry, object};
use super::stores::Stored;
use super::{Engine, remove};
use crate::action::{Action, Object};
use crate::hold::admission::{Crowd, Granted, Survey, Surveyed, asks, beyond, most};
use crate::key::ObjectKey;
use crate::outcome::Outcome;
use crate::pod::Pod;
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

    /// They are.
    pub(super) fn are_kept(&self) -> bool {
        self.0.is_some()
    }

    fn of(&self, node: &str) -> impl Iterator<Item = &ObjectKey> {
        self.0.iter().filter_map(|by_node| by_node.get(node)).flatten()
    }
}

impl Engine {
    /// The survey that a request wants, unless one is under way; else when it may begin.
    pub(super) fn begin_survey<K: Stored>(
        &self,
        now: Mono,
        entry: &mut Entry<K>,
    ) -> Result<Option<Action>, Mono> {
        let request = entry.request.get();
        let by = object(request);
        self.survey(now, by, &request.pod_key(), &mut entry.admission)
    }

    /// The same of what is known of it.
    pub(super) fn survey(
        &self,
        now: Mono,
        by: Object,
        pod: &ObjectKey,
        known: &mut Admission,
    ) -> Result<Option<Action>, Mono> {
        let pod = self.pods.get(pod).map(|e| e.pod.get());
        let Some(node) = pod.and_then(|pod| pod.node.clone()).filter(|_| !known.surveying) else {
            return Ok(None);
        };
        if let Some(at) = known.survey.as_ref().map(|last| last.at.after(SPACING))
            && at > now
        {
            return Err(at);
        }
        known.surveying = true;
        Ok(Some(Action::Survey { by, node }))
    }

    pub(super) fn surveyed(&mut self, now: Mono, by: &Object, outcome: Outcome<Survey>) {
        let result = match outcome {
            Outcome::Written(survey) => Ok(survey),
            Outcome::Gone => Err("the Pod's node does not exist any more".to_owned()),
            Outcome::Refused(text) => Err(text),
            Outcome::Retry | Outcome::Conflict => Err("the API server has not answered".to_owned()),
        };
        let Some(store) = self.stores.named_mut(by.kind.name()) else { return };
        if !store.surveyed(&by.key, &by.uid, Surveyed { at: now, result }) {
            return;
        }
        self.dirty_nodes.extend(store.node(&by.key).map(str::to_owned));
        if self.neighbours.0.is_none() {
            self.neighbours.0 = Some(BTreeMap::new());
            for key in self.pods.keys() {
                let node = self.pods.read(key).and_then(|pod| pod.node.clone());
                self.neighbours.moved(key, None, node.as_deref());
            }
        }
    }

    /// What other Pods take of what bounds that Pod. Absent while the acceptance of a request that counts is being written:
    /// what it grants is not known yet.
    pub(super) fn crowd(&self, own: &ObjectKey) -> Option<Crowd<'_>> {
        let node = self.pods.get(own)?.pod.get().node.as_deref()?;
        let claiming = || self.stores.each().filter(|store| store.about().claims);
        let open = |pod: &ObjectKey| claiming().any(|store| store.being_accepted(pod));
        let mut crowd = Crowd::default();
        for key in self.neighbours.of(node).filter(|key| *key != own) {
            let Some(pod) = self.pods.read(key).filter(|pod| !pod.finished) else { continue };
            if open(&pod.key) {
                return None;
            }
            let force = self.force(&pod);
            let asked = asks(&pod, |c| most(&c.resources, &force.wants(c)));
            crowd.asked = plus(&crowd.asked, &asked);
        }
        let pods: BTreeSet<&ObjectKey> = claiming().flat_map(|store| store.pods_of(&own.namespace)).collect();
        for key in pods.into_iter().filter(|pod| *pod != own) {
            if open(key) {
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
        self.pods.get(pod).map(|e| e.pod.get()).filter(|pod| !pod.finished)
    }
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
