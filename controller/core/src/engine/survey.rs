//! What bounds Pods that are resized where nobody else admits that, and what other Pods take of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pitstop_api::quantity::Resources;

use super::room::Turn;
use super::{Engine, Subject, remove};
use crate::action::{Action, Object};
use crate::hold::admission::{Crowd, FRESH, Granted, Survey, Surveyed, asks, beyond, most};
use crate::key::ObjectKey;
use crate::outcome::Outcome;
use crate::pod::Pod;
use crate::time::Mono;

/// Least time from the end of one survey of a namespace and a node to the next one.
const SPACING: Duration = FRESH;

/// What was read by namespace and node: all requests for Pods there share what was begun after they were known.
#[derive(Clone, Debug, Default)]
pub(super) struct Surveys(BTreeMap<ObjectKey, Known>);

/// Of one namespace and one node.
#[derive(Clone, Debug, Default)]
struct Known {
    /// What came of the last survey.
    last: Option<Surveyed>,
    /// When the one under way began, or the last one.
    began: Mono,
    /// One is under way, and these are planned when it is over.
    wanted_by: BTreeSet<Object>,
}

impl Surveys {
    /// What is too old to be relied on need not be kept.
    fn forget_old(&mut self, now: Mono) {
        let fresh = |last: &Surveyed| last.at.after(FRESH) >= now;
        self.0.retain(|_, known| !known.wanted_by.is_empty() || known.last.as_ref().is_some_and(fresh));
    }
}

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
    /// The survey that a request for the Pod wants, unless one is under way or there is no room for it; else when it may
    /// begin. `since`: none that was begun before counts for it. `subject`: what is planned, and
    /// has its `turn`.
    pub(super) fn survey(
        &mut self,
        now: Mono,
        by: Object,
        pod: &ObjectKey,
        since: Mono,
        (subject, turn): (&Subject, Turn<'_>),
    ) -> Result<Option<Action>, Mono> {
        let Some(place) = self.place(pod) else { return Ok(None) };
        let known = self.surveys.0.entry(place.clone()).or_default();
        let under_way = !known.wanted_by.is_empty();
        if !under_way {
            let counts = known.last.as_ref().filter(|last| last.began >= since);
            if let Some(at) = counts.map(|last| last.at.after(SPACING)).filter(|at| *at > now) {
                return Err(at);
            }
            if !self.room.start(now, subject, turn) {
                return Ok(None);
            }
            known.began = now;
        }
        // Whoever came too late for one that is under way is planned when it is over, and then wants the next one.
        known.wanted_by.insert(by);
        Ok((!under_way).then_some(Action::Survey { place }))
    }

    /// What came of the last survey of what bounds the Pod, if that was begun then or later.
    pub(super) fn last_survey(&self, pod: &ObjectKey, since: Mono) -> Option<&Surveyed> {
        let last = self.surveys.0.get(&self.place(pod)?)?.last.as_ref()?;
        (last.began >= since).then_some(last)
    }

    /// The Pod's namespace, and its node.
    fn place(&self, pod: &ObjectKey) -> Option<ObjectKey> {
        let node = self.pods.get(pod)?.pod.get().node.as_ref()?;
        Some(ObjectKey::new(&pod.namespace, node))
    }

    pub(super) fn surveyed(&mut self, now: Mono, place: &ObjectKey, outcome: Outcome<Survey>) {
        let result = match outcome {
            Outcome::Written(survey) => Ok(survey),
            Outcome::Gone => Err("the Pod's node does not exist any more".to_owned()),
            Outcome::Refused(text) => Err(text),
            Outcome::Retry | Outcome::Conflict => Err("the API server has not answered".to_owned()),
        };
        self.surveys.forget_old(now);
        // What was wanted while another process led is of no use.
        let known = self.surveys.0.get_mut(place).filter(|known| !known.wanted_by.is_empty());
        let Some(known) = known else { return };
        known.last = Some(Surveyed { began: known.began, at: now, result });
        for by in std::mem::take(&mut known.wanted_by) {
            let Some(store) = self.stores.named_mut(by.kind.name()) else { continue };
            store.mark(&by.key);
            self.dirty_nodes.extend(store.node(&by.key).map(str::to_owned));
        }
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
