//! What limits resizes that the API server and the kubelet never see, and how much of it other Pods take.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pitstop_api::quantity::Resources;

use super::room::Turn;
use super::{Engine, Subject, remove};
use crate::action::{Action, Object};
use crate::hold::admission::{FRESH, Granted, LastSurvey, Survey, Usage, beyond, most, totals};
use crate::key::ObjectKey;
use crate::outcome::Outcome;
use crate::pod::Pod;
use crate::time::Mono;

/// Least time from the end of a survey of a namespace and a node to the next one.
const SPACING: Duration = FRESH;

/// Surveys by namespace and node. All requests for Pods there share a survey that began after they were known.
#[derive(Clone, Debug, Default)]
pub(super) struct Surveys(BTreeMap<ObjectKey, SurveyState>);

/// The survey of one namespace and one node.
#[derive(Clone, Debug, Default)]
struct SurveyState {
    /// Result of the last survey.
    last: Option<LastSurvey>,
    /// When the survey under way began, or the last one.
    began: Mono,
    /// Requests to plan when the survey under way ends; empty: none is under way.
    wanted_by: BTreeSet<Object>,
}

impl Surveys {
    /// Forgets surveys that are too old.
    fn forget_old(&mut self, now: Mono) {
        let fresh = |last: &LastSurvey| last.ended.after(FRESH) >= now;
        self.0.retain(|_, known| !known.wanted_by.is_empty() || known.last.as_ref().is_some_and(fresh));
    }
}

/// Pods by node; None before the first survey, which most clusters never need.
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

    /// Whether Pods are kept by node.
    pub(super) fn are_kept(&self) -> bool {
        self.0.is_some()
    }

    fn of(&self, node: &str) -> impl Iterator<Item = &ObjectKey> {
        self.0.iter().filter_map(|by_node| by_node.get(node)).flatten()
    }
}

impl Engine {
    /// Begins the survey that a request for the Pod wants, unless one is under way or the room is full. The error is
    /// when it may begin. `since`: a survey that began before does not count. `subject`: what is planned, with its
    /// `turn`.
    pub(super) fn survey(
        &mut self,
        now: Mono,
        by: Object,
        pod: &ObjectKey,
        since: Mono,
        (subject, turn): (&Subject, Turn<'_>),
    ) -> Result<Option<Action>, Mono> {
        let Some(key) = self.survey_key(pod) else { return Ok(None) };
        let known = self.surveys.0.entry(key.clone()).or_default();
        let under_way = !known.wanted_by.is_empty();
        if !under_way {
            let counts = known.last.as_ref().filter(|last| last.began >= since);
            if let Some(at) = counts.map(|last| last.ended.after(SPACING)).filter(|at| *at > now) {
                return Err(at);
            }
            if !self.room.start(now, subject, turn) {
                return Ok(None);
            }
            known.began = now;
        }
        // A request that came too late for the survey under way is planned when it ends, and then wants the next one.
        known.wanted_by.insert(by);
        Ok((!under_way).then_some(Action::Survey { key }))
    }

    /// Result of the last survey for the Pod, if it began at `since` or later.
    pub(super) fn last_survey(&self, pod: &ObjectKey, since: Mono) -> Option<&LastSurvey> {
        let last = self.surveys.0.get(&self.survey_key(pod)?)?.last.as_ref()?;
        (last.began >= since).then_some(last)
    }

    /// The Pod's namespace, and its node.
    fn survey_key(&self, pod: &ObjectKey) -> Option<ObjectKey> {
        let node = self.pods.get(pod)?.pod.get().node.as_ref()?;
        Some(ObjectKey::new(&pod.namespace, node))
    }

    pub(super) fn surveyed(&mut self, now: Mono, key: &ObjectKey, outcome: Outcome<Survey>) {
        let result = match outcome {
            Outcome::Written(survey) => Ok(survey),
            Outcome::Gone => Err("the Pod's node does not exist any more".to_owned()),
            Outcome::Refused(text) => Err(text),
            Outcome::Retry | Outcome::Conflict => Err("the API server has not answered".to_owned()),
        };
        self.surveys.forget_old(now);
        // A survey that was wanted while another process led is of no use.
        let known = self.surveys.0.get_mut(key).filter(|known| !known.wanted_by.is_empty());
        let Some(known) = known else { return };
        known.last = Some(LastSurvey { began: known.began, ended: now, result });
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

    /// What other Pods take of the limits for that Pod. None while the acceptance of a request with a claim is being
    /// written: its grant is not known yet.
    pub(super) fn usage(&self, own: &ObjectKey) -> Option<Usage<'_>> {
        let node = self.pods.get(own)?.pod.get().node.as_deref()?;
        let claiming = || self.stores.each().filter(|store| store.about().claims);
        let open = |pod: &ObjectKey| claiming().any(|store| store.being_accepted(pod));
        let mut usage = Usage::default();
        for key in self.neighbours.of(node).filter(|key| *key != own) {
            let Some(pod) = self.pods.read(key).filter(|pod| !pod.finished) else { continue };
            if open(&pod.key) {
                return None;
            }
            let force = self.force(&pod);
            let asked = totals(&pod, |c| most(&c.resources, &force.wants(c)));
            usage.asked = plus(&usage.asked, &asked);
        }
        let pods: BTreeSet<&ObjectKey> = claiming().flat_map(|store| store.pods_of(&own.namespace)).collect();
        for key in pods.into_iter().filter(|pod| *pod != own) {
            if open(key) {
                return None;
            }
            let Some(pod) = self.unfinished(key) else { continue };
            let force = self.force(pod);
            let beyond = beyond(&totals(pod, |c| force.wants(c)), &totals(pod, |c| c.resources));
            if beyond != Resources::default() {
                usage.granted.push(Granted { pod, beyond });
            }
        }
        Some(usage)
    }

    fn unfinished(&self, pod: &ObjectKey) -> Option<&Pod> {
        self.pods.get(pod).map(|e| e.pod.get()).filter(|pod| !pod.finished)
    }
}

/// The sum of the requests for CPU and memory.
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
