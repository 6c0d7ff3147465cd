//! Rollouts, in a share of the schedules: beside other requests for the same Pods, or alone.

use super::{BEGIN, container, fault, near, pod};
use crate::rng::Rng;
use crate::world::plan::{Fault, PodPlan, Schedule, Step, Timed, Word};
use crate::world::rolling::{RolloutPlan, WorkloadPlan};

/// The name of the workload, and of the first rollout for it.
const WEB: &str = "web";

/// Gives every eighth schedule a workload that owns its Pods. Unless it is a `DaemonSet`, adds up to two Pods.
pub(super) fn workload(rng: &mut Rng, schedule: &mut Schedule) {
    if !rng.one_in(8) {
        return;
    }
    let kind = rng.pick(&["Deployment", "Deployment", "StatefulSet", "StatefulSet", "DaemonSet"]).unwrap();
    if kind != "DaemonSet" {
        for _ in 0..rng.below(3) {
            schedule.pods.push(pod(rng, WEB, schedule.nodes));
        }
    }
    for (at, pod) in schedule.pods.iter_mut().enumerate() {
        pod.name = format!("{WEB}-{at}");
        pod.restart_policy = "Always".into();
        pod.controlled = true;
        if kind == "DaemonSet" {
            pod.node = at;
        }
    }
    alike(rng, &mut schedule.pods);
    let pods = schedule.pods.len() as u64;
    schedule.workload = Some(WorkloadPlan {
        kind: kind.into(),
        name: WEB.to_owned(),
        max_unavailable: most(rng, &[None, None, Some("1"), Some("0"), Some("50%")]),
        partition: i64::from(kind == "StatefulSet" && rng.one_in(6)),
        min_ready: rng.pick(&[0, 0, 0, 3]).unwrap(),
        budget: rng.one_in(3).then(|| i64::try_from(rng.below(pods + 1)).unwrap()),
        ..WorkloadPlan::default()
    });
}

/// Pods of one template have the same containers, which may behave differently. Few crash for ever: each of those takes
/// an hour.
pub(super) fn alike(rng: &mut Rng, pods: &mut [PodPlan]) {
    let Some((first, others)) = pods.split_first_mut() else { return };
    for other in others {
        other.containers =
            first.containers.iter().map(|c| container(rng, named(&c.name), c.sidecar)).collect();
        (other.grace, other.gates) = (first.grace, first.gates.clone());
    }
    for one in pods.iter_mut().flat_map(|pod| &mut pod.containers) {
        if one.behaviour.contains("repeat") && !rng.one_in(3) {
            r#"{"start":200,"term":[50,143],"ready":200}"#.clone_into(&mut one.behaviour);
        }
    }
}

fn named(name: &str) -> &'static str {
    ["sidecar", "proxy"].into_iter().find(|other| *other == name).unwrap_or("app")
}

fn most(rng: &mut Rng, of: &[Option<&'static str>]) -> Option<Word> {
    rng.pick(of).unwrap().map(Word::from)
}

/// Adds the rollouts.
pub(super) fn draw(rng: &mut Rng, schedule: &mut Schedule) {
    if schedule.workload.is_none() {
        return;
    }
    if !rng.one_in(3) {
        schedule.steps.clear();
    }
    let calm = schedule.faults.is_empty();
    let first = schedule.steps.len();
    let at = BEGIN + rng.below(3_000);
    let plan = rollout(rng, WEB);
    schedule.steps.push(Timed { at, what: Step::Rollout(Box::new(plan)) });
    if rng.one_in(12) {
        let second = rollout(rng, "second");
        schedule.steps.push(Timed { at: at + 2_000 + near(rng), what: Step::Rollout(Box::new(second)) });
    }
    for n in 0..rng.below(4) {
        let at = at + soon(rng);
        later(rng, schedule, at, n);
    }
    if !calm {
        faults(rng, schedule, first);
    }
}

/// A delay in milliseconds after which a Pod may be restarting.
fn soon(rng: &mut Rng) -> u64 {
    if rng.one_in(3) { near(rng) } else { rng.below(25_000) }
}

fn rollout(rng: &mut Rng, name: &str) -> RolloutPlan {
    let named = rng.one_in(4).then(|| "app".into());
    RolloutPlan {
        name: name.to_owned(),
        restarted_at: (!rng.one_in(8)).then(|| "one".into()),
        containers: named.into_iter().collect(),
        paused: rng.one_in(12),
        progress_deadline: Some(rng.pick(&[20, 60, 200]).unwrap()),
        max_unavailable: most(rng, &[None, Some("1"), Some("1"), Some("2"), Some("50%"), Some("100%")]),
        canary: rng.one_in(4).then(|| 1 + i64::try_from(rng.below(2)).unwrap()),
        soak: rng.pick(&[Some(0), Some(0), Some(1), Some(3), Some(6), None]).unwrap(),
        unready_grace: rng.pick(&[None, None, None, Some(0), Some(2)]).unwrap(),
        failure_threshold: rng.pick(&[None, None, Some(2), Some(5)]).unwrap(),
        ignores_budgets: rng.one_in(5),
        ..RolloutPlan::default()
    }
}

/// What users do while Pods are restarted.
fn later(rng: &mut Rng, schedule: &mut Schedule, at: u64, n: u64) {
    let web = || WEB.to_owned();
    let steps = &mut schedule.steps;
    let mut add = |at: u64, what: Step| steps.push(Timed { at, what });
    match rng.below(12) {
        0..=2 => add(at, Step::RestartAt(web(), format!("{n} again").into())),
        // Return to an earlier `restartedAt`.
        3 => {
            add(at, Step::RestartAt(web(), "two".into()));
            add(at + near(rng), Step::RestartAt(web(), "one".into()));
        }
        4 => {
            add(at, Step::PauseRollout(web(), true));
            if !rng.one_in(3) {
                add(at + near(rng), Step::PauseRollout(web(), false));
            }
        }
        5 => {
            add(at, Step::DeleteRollout(web()));
            if rng.one_in(2) {
                let plan = rollout(rng, WEB);
                add(at + near(rng), Step::Rollout(Box::new(plan)));
            }
        }
        // A Pod that keeps crashing has failed after an hour.
        6 => {
            let badly = |pod: &PodPlan| pod.containers.iter().any(|c| c.behaviour.contains("repeat"));
            let failed = if schedule.pods.iter().any(badly) { 3_650_000 } else { 0 };
            let at = at + failed + rng.below(100_000);
            add(at, Step::RetryRollout(web()));
        }
        other => {
            let pod = rng.pick(&schedule.pods).unwrap();
            let what = match other {
                7 | 8 => Step::DeletePod(pod.name.clone()),
                9 => Step::ForceDeletePod(pod.name.clone()),
                _ => Step::Crash(pod.name.clone(), rng.pick(&pod.containers).unwrap().name, 1),
            };
            add(at, what);
        }
    }
}

/// Faults close to the steps from index `first` on.
fn faults(rng: &mut Rng, schedule: &mut Schedule, first: usize) {
    for _ in 0..=rng.below(3) {
        let near_by = rng.pick(&schedule.steps[first..]).map_or(BEGIN, |s| s.at);
        let at = near_by + if rng.one_in(2) { near(rng) } else { rng.below(12_000) };
        let controller = usize::from(rng.one_in(3));
        // The watch of requests or of rollouts.
        let kind = rng.pick(&[1, 6]).unwrap();
        let what = match rng.below(8) {
            0 | 1 => Fault::KillController(controller, 100 + rng.below(4_000)),
            2 => Fault::HoldWatch(controller, kind, 1_000 + rng.below(20_000)),
            3 => Fault::LoseEvents(controller, kind, 200 + rng.below(9_000)),
            4 => Fault::LoseAnswers(30 + rng.below(50), 500 + rng.below(9_000)),
            _ => fault(rng, schedule),
        };
        schedule.faults.push(Timed { at, what });
    }
}
