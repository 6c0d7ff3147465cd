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
enum ContainerStage {
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
pub struct CurrentStages {
    /// Whether the drain lasts; `None` if none was requested.
    drains: Option<bool>,
    containers: BTreeMap<String, ContainerStage>,
}

/// Current stages; `None` while the request is not at work on its Pod.
pub fn current_stages(now: Mono, observed: &Observed<'_>) -> Option<CurrentStages> {
    let pod = observed.live_pod().filter(|pod| observed.request.started_for(pod))?;
    let drains = match drain::stage(now, observed, Some(pod)) {
        Drain::Unasked => None,
        Drain::Over => Some(false),
        Drain::Lasts(..) => Some(true),
    };
    let targets = observed.request.status.target.iter().flat_map(|t| &t.containers);
    let containers = targets.map(|t| (t.name.clone(), container_stage(observed, t, pod))).collect();
    Some(CurrentStages { drains, containers })
}

fn container_stage(observed: &Observed<'_>, target: &TargetContainer, pod: &Pod) -> ContainerStage {
    let order = observed.order(&target.name);
    let status = status_of(pod, &target.name);
    let new = status.filter(|status| replaced(target, status));
    if new.is_some_and(|status| status.ready && status.state == ContainerState::Running) {
        return ContainerStage::Ready;
    }
    let ended = new.is_some() || status.is_some_and(|status| over(target, status));
    if ended || order.is_some_and(|o| o.ended()) {
        return ContainerStage::Ended;
    }
    if order.is_some() || is_pinned(target, pod) { ContainerStage::Stops } else { ContainerStage::Waits }
}

/// Stages and their beginnings, as far as this process saw them begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    drains_since: Option<Mono>,
    containers: BTreeMap<String, (ContainerStage, Option<Mono>)>,
}

impl Stages {
    /// Notes the current stages; returns the durations of those that are over.
    pub fn update(&mut self, now: Mono, current: Option<CurrentStages>) -> Vec<Measure> {
        let Some(current) = current else {
            *self = Self::default();
            return Vec::new();
        };
        let mut measures = Vec::new();
        let mut over = |stage, since: Mono| {
            measures.push(Measure::Took { stage, duration: now.since(since) });
        };
        if current.drains == Some(true) {
            self.drains_since.get_or_insert(now);
        } else if let Some(since) = self.drains_since.take() {
            over(Stage::Drain, since);
        }
        for (name, stage) in current.containers {
            // The beginning of a stage that is seen first is unknown.
            let (before, since) = self.containers.entry(name).or_insert((stage, None));
            if stage <= *before {
                continue;
            }
            if let Some(begun) = *since {
                match (*before, stage) {
                    (ContainerStage::Stops, ContainerStage::Ended) => over(Stage::Stop, begun),
                    (ContainerStage::Stops, ContainerStage::Ready) => {
                        // The Pod's status showed end and start at once.
                        over(Stage::Stop, begun);
                        over(Stage::Start, now);
                    }
                    (ContainerStage::Ended, ContainerStage::Ready) => over(Stage::Start, begun),
                    _ => {}
                }
            }
            (*before, *since) = (stage, Some(now));
        }
        measures
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(stage: ContainerStage) -> CurrentStages {
        CurrentStages { drains: None, containers: BTreeMap::from([("app".to_owned(), stage)]) }
    }

    fn took(stage: Stage, millis: u64) -> Measure {
        Measure::Took { stage, duration: Duration::from_millis(millis) }
    }

    #[test]
    fn stop_and_start_are_told_when_they_are_over() {
        let mut stages = Stages::default();
        assert_eq!(stages.update(Mono(0), Some(at(ContainerStage::Waits))), []);
        assert_eq!(stages.update(Mono(10), Some(at(ContainerStage::Stops))), []);
        assert_eq!(stages.update(Mono(20), Some(at(ContainerStage::Stops))), []);
        assert_eq!(stages.update(Mono(40), Some(at(ContainerStage::Ended))), [took(Stage::Stop, 30)]);
        // An old status of the Pod.
        assert_eq!(stages.update(Mono(50), Some(at(ContainerStage::Stops))), []);
        assert_eq!(stages.update(Mono(90), Some(at(ContainerStage::Ready))), [took(Stage::Start, 50)]);
        assert_eq!(stages.update(Mono(95), Some(at(ContainerStage::Ready))), []);
    }

    #[test]
    fn what_is_seen_at_once_counts_as_the_stop() {
        let mut stages = Stages::default();
        stages.update(Mono(0), Some(at(ContainerStage::Waits)));
        stages.update(Mono(10), Some(at(ContainerStage::Stops)));
        assert_eq!(
            stages.update(Mono(40), Some(at(ContainerStage::Ready))),
            [took(Stage::Stop, 30), took(Stage::Start, 0)]
        );
    }

    #[test]
    fn what_began_unseen_is_not_told() {
        let mut stages = Stages::default();
        assert_eq!(stages.update(Mono(0), Some(at(ContainerStage::Stops))), []);
        assert_eq!(stages.update(Mono(30), Some(at(ContainerStage::Ended))), []);
        assert_eq!(stages.update(Mono(50), Some(at(ContainerStage::Ready))), [took(Stage::Start, 20)]);
        // It ended without being stopped.
        let mut stages = Stages::default();
        stages.update(Mono(0), Some(at(ContainerStage::Waits)));
        assert_eq!(stages.update(Mono(10), Some(at(ContainerStage::Ended))), []);
        // The request ended, and another attempt begins anew.
        assert_eq!(stages.update(Mono(20), None), []);
        assert_eq!(stages.update(Mono(30), Some(at(ContainerStage::Ready))), []);
    }

    #[test]
    fn a_drain_is_told_once_containers_may_be_stopped() {
        let drains = |drains| Some(CurrentStages { drains, containers: BTreeMap::new() });
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
