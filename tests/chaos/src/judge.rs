//! What is wrong about a run, judged from facts alone.
//!
//! A container was restarted when another instance than the one that the request was resolved to runs, by the IDs that
//! the containers wrote down. Nothing that pitstop says about its own work is taken as evidence for it. What is wrong about
//! image updates is in [`updates`].

mod updates;

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::image_update::Phase;

use crate::facts::{Facts, Outcome, Pod, Request, Update, Uptime};
use crate::plan::Victim;
use crate::trace::{Entry, Event};

/// Ends of a request without all of its restarts that are right while parts are away.
const LEGAL_FAILURES: [&str; 2] = ["DeadlineExceeded", "DaemonNotResponding"];
/// A hook that ended less than this before its caller was killed may not be on record yet: hooks run at least once.
const RECORD: Uptime = 100;
/// A hook's first line and a kill of who had asked for it are no further apart than this.
const ASKED: Uptime = 20;
/// A container's first line and a kill that broke its start off are no further apart than this.
const START: Uptime = 100;

/// What is wrong about a run, and how much was done.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) requests: usize,
    /// Requests that restarted all their containers.
    pub(crate) completed: usize,
    /// Requests that failed, by reason.
    pub(crate) failed: BTreeMap<String, usize>,
    pub(crate) updates: usize,
    /// Changes of the templates of workloads.
    pub(crate) rolls: usize,
    /// How image updates ended, as `PHASE REASON`.
    pub(crate) updated: BTreeMap<String, usize>,
    pub(crate) lost: Vec<Breach>,
    pub(crate) doubled: Vec<Breach>,
    pub(crate) stuck: Vec<Breach>,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Breach {
    /// The Pod that it is about, where it is about one.
    pub(crate) pod: Option<String>,
    /// The request that it is about, where it is about one.
    pub(crate) request: Option<String>,
    pub(crate) text: String,
}

impl Findings {
    /// The last line of the run.
    pub(crate) fn line(&self) -> String {
        let Self { requests, updates, rolls, lost, doubled, stuck, .. } = self;
        let (lost, doubled, stuck) = (lost.len(), doubled.len(), stuck.len());
        format!(
            "requests={requests} updates={updates} rolls={rolls} lost={lost} doubled={doubled} stuck={stuck}"
        )
    }

    /// Nothing is wrong, and something was shown.
    pub(crate) fn is_good(&self) -> bool {
        self.lost.is_empty() && self.doubled.is_empty() && self.stuck.is_empty() && !self.shows_nothing()
    }

    /// No request was carried out, or there were image updates and none was.
    pub(crate) fn shows_nothing(&self) -> bool {
        let is_success = |end: &String| end.starts_with(Phase::Succeeded.name());
        self.completed == 0 || (self.updates > 0 && !self.updated.keys().any(is_success))
    }
}

/// Judges a run that has come to rest.
pub(crate) fn judge(facts: &Facts) -> Findings {
    let (requests, updates) = (facts.requests.len(), facts.updates.len());
    let mut findings = Findings { requests, updates, stuck: stuck(facts), ..Findings::default() };
    for (name, request) in &facts.requests {
        match &request.outcome {
            Outcome::Open => {}
            Outcome::Complete => findings.completed += 1,
            Outcome::Failed(reason) => *findings.failed.entry(reason.clone()).or_default() += 1,
        }
        let breach = |text| Breach { pod: Some(request.pod.clone()), request: Some(name.clone()), text };
        findings.lost.extend(lost(facts, request).into_iter().map(breach));
    }
    for (name, update) in &facts.updates {
        if let Some(end) = &update.end {
            *findings.updated.entry(format!("{} {}", end.phase.name(), end.reason)).or_default() += 1;
        }
        let breach = |text| Breach { pod: Some(update.pod.clone()), request: Some(name.clone()), text };
        findings.lost.extend(updates::lost(facts, update).into_iter().map(breach));
    }
    for (name, pod) in &facts.pods {
        let breach = |text| Breach { pod: Some(name.clone()), request: None, text };
        let requests: Vec<&Request> = facts.requests.values().filter(|r| r.pod == *name).collect();
        let updates: Vec<&Update> = facts.updates.values().filter(|u| u.pod == *name).collect();
        findings.lost.extend(updates::left(pod, &updates).into_iter().map(breach));
        let ends = ends(facts, pod, &requests, &updates);
        findings.doubled.extend(restarts(facts, pod, &ends).into_iter().map(breach));
        findings.doubled.extend(hooks(facts, pod, &ends).into_iter().map(breach));
    }
    findings
}

/// An instance that was to end.
struct Ending<'a> {
    container: &'a str,
    id: &'a str,
    /// The kubelet stops it.
    by_kubelet: bool,
}

/// Every instance that was to end, once for each request or update that it was to end by.
fn ends<'a>(facts: &Facts, pod: &'a Pod, requests: &[&'a Request], updates: &[&Update]) -> Vec<Ending<'a>> {
    let targets = requests.iter().flat_map(|request| &request.target);
    let targets =
        targets.map(|(container, target)| Ending { container, id: &target.id, by_kubelet: target.is_pinned });
    let replaced = updates.iter().flat_map(|update| updates::ends(facts, pod, update));
    let replaced =
        replaced.map(|entry| Ending { container: &entry.container, id: &entry.id, by_kubelet: true });
    targets.chain(replaced).collect()
}

/// What has not come to its end.
pub(crate) fn stuck(facts: &Facts) -> Vec<Breach> {
    let mut stuck = Vec::new();
    for (name, request) in facts.requests.iter().filter(|(_, request)| !request.is_gone) {
        let breach = |text: &str| Breach {
            pod: Some(request.pod.clone()),
            request: Some(name.clone()),
            text: text.into(),
        };
        if request.outcome == Outcome::Open {
            stuck.push(breach("has not ended"));
        } else if request.is_active {
            stuck.push(breach("has ended and has the label active"));
        }
    }
    for (name, update) in facts.updates.iter().filter(|(_, update)| update.end.is_none() && !update.is_gone) {
        let text = "has not ended".to_owned();
        stuck.push(Breach { pod: Some(update.pod.clone()), request: Some(name.clone()), text });
    }
    for (name, pod) in &facts.pods {
        let breach = |text: String| Breach { pod: Some(name.clone()), request: None, text };
        if !pod.is_ready {
            stuck.push(breach("is not ready".to_owned()));
        }
        stuck.extend(pod.holds.iter().map(|hold| breach(format!("is held not ready by {hold}"))));
    }
    let order = |order: &String| Breach { pod: None, request: None, text: format!("order {order} is left") };
    stuck.extend(facts.orders.iter().map(order));
    stuck
}

/// Why the request did not do what it says that it did.
fn lost(facts: &Facts, request: &Request) -> Vec<String> {
    let pod = facts.pods.get(&request.pod);
    let why_not = |container: &String| {
        let ids = pod.map(|pod| instances(pod, container)).unwrap_or_default();
        not_restarted(request, container, &ids)
    };
    // The end of one whose time to live is over may have come and gone while the watch was away: the lines tell.
    let end_missed = request.expires && request.outcome == Outcome::Open;
    let vanished =
        !request.expires || (end_missed && request.containers.iter().any(|c| why_not(c).is_some()));
    if request.is_gone && vanished {
        return vec!["vanished".to_owned()];
    }
    if let Outcome::Failed(reason) = &request.outcome
        && !LEGAL_FAILURES.contains(&reason.as_str())
    {
        return vec![format!("failed with {reason}, which no crash is a reason for")];
    }
    let reported =
        |container: &&String| request.outcome == Outcome::Complete || request.succeeded.contains(*container);
    let wrong = request.containers.iter().filter(reported);
    wrong.filter_map(|container| Some(format!("container {container}: {}", why_not(container)?))).collect()
}

/// Why the container, which the request says it restarted, was not: `ids` are its instances in order.
fn not_restarted(request: &Request, container: &str, ids: &[&str]) -> Option<String> {
    let Some(target) = request.target.get(container) else {
        return Some("reported as restarted, and no instance was resolved".to_owned());
    };
    let position = |id: &str| ids.iter().position(|known| *known == id);
    if ids.last() == Some(&target.id.as_str()) {
        return Some(format!("reported as restarted, and {} is still the last instance", target.id));
    }
    let before = request.before.get(container)?;
    if position(&target.id)? < position(before)? {
        return Some(format!("was resolved to {}, which had been replaced by {before} before", target.id));
    }
    None
}

/// The instances of a container that were started, in order.
fn instances<'a>(pod: &'a Pod, container: &str) -> Vec<&'a str> {
    let started = |entry: &&Entry| entry.event == Event::Started && entry.container == container;
    pod.trace.iter().filter(started).map(|entry| entry.id.as_str()).collect()
}

/// Instances that ended though nothing was to end them. A container of these Pods never ends by itself, and a kill ends one only
/// in its start.
fn restarts(facts: &Facts, pod: &Pod, ends: &[Ending<'_>]) -> Vec<String> {
    let names: BTreeSet<&str> = pod.trace.iter().map(|entry| entry.container.as_str()).collect();
    let mut wrong = Vec::new();
    for name in names {
        let ids = instances(pod, name);
        let Some((_, earlier)) = ids.split_last() else { continue };
        for id in earlier {
            if !ends.iter().any(|end| end.id == *id) && !is_broken_off(facts, pod, id) {
                wrong.push(format!("container {name}: {id} ended, and no request was resolved to it"));
            }
        }
    }
    wrong
}

/// Whether the instance's start was broken off: the runtime kills a container when who called for its start is gone
/// before the call returns (containerd: `failed to start containerd task: context canceled`). It gets no stop signal.
fn is_broken_off(facts: &Facts, pod: &Pod, id: &str) -> bool {
    let lines = || pod.trace.iter().filter(|entry| entry.id == id);
    let Some(start) = lines().find(|entry| entry.event == Event::Started) else { return false };
    lines().all(|entry| entry.event == Event::Started)
        && facts.kills.iter().any(|kill| match kill.victim {
            Victim::Kubelet(node) | Victim::Containerd(node) => {
                node == pod.node && kill.time.abs_diff(start.time) <= START
            }
            _ => false,
        })
}

/// preStop hooks that ran more often for an instance than there is a reason for.
fn hooks(facts: &Facts, pod: &Pod, ends: &[Ending<'_>]) -> Vec<String> {
    let mut runs: BTreeMap<(&str, &str), Vec<Run>> = BTreeMap::new();
    for entry in &pod.trace {
        let runs = runs.entry((&entry.container, &entry.id));
        match entry.event {
            Event::HookBegan => runs.or_default().push(Run { began: entry.time, ended: None }),
            Event::HookEnded => {
                if let Some(run) = runs.or_default().iter_mut().rev().find(|run| run.ended.is_none()) {
                    run.ended = Some(entry.time);
                }
            }
            Event::Started | Event::Asked => {}
        }
    }
    let mut wrong = Vec::new();
    for ((container, id), runs) in runs {
        let about: Vec<_> = ends.iter().filter(|end| end.container == container && end.id == id).collect();
        let by_kubelet = about.iter().any(|end| end.by_kubelet);
        let pairs = runs.iter().zip(runs.iter().skip(1));
        let excused = pairs.filter(|(run, next)| is_cut(facts, &pod.node, run, next, by_kubelet)).count();
        let most = about.len().max(1) + excused;
        if runs.len() > most {
            wrong.push(format!("container {container}: the hook of {id} ran {} times: {runs:?}", runs.len()));
        }
    }
    wrong
}

/// One run of a hook.
#[derive(Debug)]
struct Run {
    began: Uptime,
    ended: Option<Uptime>,
}

/// Whether who ran the hook was killed after it was asked for and before its end was on record, so that it had to run
/// again: the daemon or the runtime; or the kubelet, which keeps no record and so may run it again until the container
/// is gone.
fn is_cut(facts: &Facts, node: &str, run: &Run, next: &Run, by_kubelet: bool) -> bool {
    let recorded = run.ended.map_or(next.began, |ended| ended + RECORD);
    facts.kills.iter().any(|kill| {
        let until = match kill.victim {
            Victim::Daemon(of) | Victim::Containerd(of) if of == node => recorded,
            Victim::Kubelet(of) if of == node && by_kubelet => next.began,
            _ => return false,
        };
        (run.began.saturating_sub(ASKED)..=until.min(next.began)).contains(&kill.time)
    })
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
