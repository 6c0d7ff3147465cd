//! How long the stages of a request take: drain, stop, start.

use std::collections::BTreeMap;

use pitstop_api::recreate::TargetContainer;

use super::drain::{self, Drain};
use super::judge::{is_pinned, over, replaced, status_of};
use super::observe::Observed;
use crate::measure::{Measure, Stage};
use crate::pod::{ContainerState, Pod};
use crate::time::Mono;

/// Stage of a container; never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// No stop is ordered.
    Waits,
    /// Its stop is ordered, or its image is pinned.
    Stops,
    /// It has ended, and the new one is not ready.
    Ended,
    /// The new one is ready.
    Ready,
}

/// Stages of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Whether the drain lasts; `None` if none was requested.
    drains: Option<bool>,
    containers: BTreeMap<String, Place>,
}

/// Current stages; `None` while the request is not at work on its Pod.
pub fn places(now: Mono, observed: &Observed<'_>) -> Option<Places> {
    let pod = observed.live_pod().filter(|pod| observed.request.started_for(pod))?;
    let drains = match drain::stage(now, observed, Some(pod)) {
        Drain::Unasked => None,
        Drain::Over => Some(false),
        Drain::Lasts(..) => Some(true),
    };
    let targets = observed.request.status.target.iter().flat_map(|t| &t.containers);
    let containers = targets.map(|t| (t.name.clone(), place(observed, t, pod))).collect();
    Some(Places { drains, containers })
}

fn place(observed: &Observed<'_>, target: &TargetContainer, pod: &Pod) -> Place {
    let order = observed.order(&target.name);
    let status = status_of(pod, &target.name);
    let new = status.filter(|status| replaced(target, status));
    if new.is_some_and(|status| status.ready && status.state == ContainerState::Running) {
        return Place::Ready;
    }
    let ended = new.is_some() || status.is_some_and(|status| over(target, status));
    if ended || order.is_some_and(|o| o.ended()) {
        return Place::Ended;
    }
    if order.is_some() || is_pinned(target, pod) { Place::Stops } else { Place::Waits }
}

/// Stages and their beginnings, as far as this process saw them begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    drains_since: Option<Mono>,
    containers: BTreeMap<String, (Place, Option<Mono>)>,
}

impl Stages {
    /// Notes the current stages; returns the durations of those that are over.
    pub fn update(&mut self, now: Mono, places: Option<Places>) -> Vec<Measure> {
        let Some(places) = places else {
            *self = Self::default();
            return Vec::new();
        };
        let mut measures = Vec::new();
        let mut over = |stage, since: Mono| {
            measures.push(Measure::Took { stage, duration: now.since(since) });
        };
        if places.drains == Some(true) {
            self.drains_since.get_or_insert(now);
        } else if let Some(since) = self.drains_since.take() {
            over(Stage::Drain, since);
        }
        for (name, place) in places.containers {
            // The beginning of a stage that is seen first is unknown.
            let (before, since) = self.containers.entry(name).or_insert((place, None));
            if place <= *before {
                continue;
            }
            if let Some(begun) = *since {
                match (*before, place) {
                    (Place::Stops, Place::Ended) => over(Stage::Stop, begun),
                    (Place::Stops, Place::Ready) => {
                        // The Pod's status showed end and start at once.
                        over(Stage::Stop, begun);
                        over(Stage::Start, now);
                    }
                    (Place::Ended, Place::Ready) => over(Stage::Start, begun),
                    _ => {}
                }
            }
            (*before, *since) = (place, Some(now));
        }
        measures
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(place: Place) -> Places {
        Places { drains: None, containers: BTreeMap::from([("app".to_owned(), place)]) }
    }

    fn took(stage: Stage, millis: u64) -> Measure {
        Measure::Took { stage, duration: Duration::from_millis(millis) }
    }

    #[test]
    fn stop_and_start_are_told_when_they_are_over() {
        let mut stages = Stages::default();
        assert_eq!(stages.update(Mono(0), Some(at(Place::Waits))), []);
        assert_eq!(stages.update(Mono(10), Some(at(Place::Stops))), []);
        assert_eq!(stages.update(Mono(20), Some(at(Place::Stops))), []);
        assert_eq!(stages.update(Mono(40), Some(at(Place::Ended))), [took(Stage::Stop, 30)]);
        // An old status of the Pod.
        assert_eq!(stages.update(Mono(50), Some(at(Place::Stops))), []);
        assert_eq!(stages.update(Mono(90), Some(at(Place::Ready))), [took(Stage::Start, 50)]);
        assert_eq!(stages.update(Mono(95), Some(at(Place::Ready))), []);
    }

    #[test]
    fn what_is_seen_at_once_counts_as_the_stop() {
        let mut stages = Stages::default();
        stages.update(Mono(0), Some(at(Place::Waits)));
        stages.update(Mono(10), Some(at(Place::Stops)));
        assert_eq!(
            stages.update(Mono(40), Some(at(Place::Ready))),
            [took(Stage::Stop, 30), took(Stage::Start, 0)]
        );
    }

    #[test]
    fn what_began_unseen_is_not_told() {
        let mut stages = Stages::default();
        assert_eq!(stages.update(Mono(0), Some(at(Place::Stops))), []);
        assert_eq!(stages.update(Mono(30), Some(at(Place::Ended))), []);
        assert_eq!(stages.update(Mono(50), Some(at(Place::Ready))), [took(Stage::Start, 20)]);
        // It ended without being stopped.
        let mut stages = Stages::default();
        stages.update(Mono(0), Some(at(Place::Waits)));
        assert_eq!(stages.update(Mono(10), Some(at(Place::Ended))), []);
        // The request ended, and another attempt begins anew.
        assert_eq!(stages.update(Mono(20), None), []);
        assert_eq!(stages.update(Mono(30), Some(at(Place::Ready))), []);
    }

    #[test]
    fn a_drain_is_told_once_containers_may_be_stopped() {
        let drains = |drains| Some(Places { drains, containers: BTreeMap::new() });
        let mut stages = Stages::default();
        assert_eq!(stages.update(Mono(5), drains(Some(true))), []);
        assert_eq!(stages.update(Mono(9), drains(Some(true))), []);
        assert_eq!(stages.update(Mono(25), drains(Some(false))), [took(Stage::Drain, 20)]);
        assert_eq!(stages.update(Mono(30), drains(Some(false))), []);
        assert_eq!(Stages::default().update(Mono(30), drains(None)), []);
        // The request ended before the drain was over.
        stages.update(Mono(40), drains(Some(true)));
        assert_eq!(stages.update(Mono(50), None), []);
    }
}
