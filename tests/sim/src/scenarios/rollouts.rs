//! Rollouts, each on its own path. They soak for two seconds.

use super::{container, pod, scenario};
use crate::world::plan::{PodPlan, Schedule, Step};
use crate::world::rolling::{RolloutPlan, WorkloadPlan};

fn rollout(change: impl FnOnce(&mut RolloutPlan)) -> Step {
    let mut plan = RolloutPlan {
        name: "web".to_owned(),
        restarted_at: Some("one".into()),
        soak: Some(2),
        progress_deadline: Some(60),
        ..RolloutPlan::default()
    };
    change(&mut plan);
    Step::Rollout(Box::new(plan))
}

fn restart(at: u64, value: &'static str) -> (u64, Step) {
    (at, Step::RestartAt("web".to_owned(), value.into()))
}

fn paused(at: u64, paused: bool) -> (u64, Step) {
    (at, Step::PauseRollout("web".to_owned(), paused))
}

/// A workload with `pods` Pods of one container each.
fn one(name: &str, kind: &'static str, pods: usize, steps: Vec<(u64, Step)>) -> Schedule {
    let member = |at| PodPlan { name: format!("web-{at}"), containers: vec![container("app")], ..pod() };
    let workload = WorkloadPlan { kind: kind.into(), name: "web".to_owned(), ..WorkloadPlan::default() };
    let pods = (0..pods).map(member).collect();
    Schedule { workload: Some(workload), ..scenario(&format!("rollout {name}"), pods, steps) }
}

/// All scenarios of this file.
pub(super) fn all() -> Vec<Schedule> {
    let plain = || (0, rollout(|_| ()));
    let deleted = |at, pod: &str| (at, Step::DeletePod(pod.to_owned()));
    let mut all = vec![
        one("of a Deployment", "Deployment", 2, vec![plain()]),
        one("of a StatefulSet", "StatefulSet", 2, vec![plain()]),
        one("of a DaemonSet", "DaemonSet", 2, vec![plain()]),
        one(
            "of two at a time",
            "Deployment",
            3,
            vec![(0, rollout(|r| r.max_unavailable = Some("2".into())))],
        ),
        one(
            "with a canary",
            "StatefulSet",
            3,
            vec![(0, rollout(|r| (r.canary, r.max_unavailable) = (Some(1), Some("100%".into()))))],
        ),
        one("drained", "Deployment", 2, vec![(0, rollout(|r| r.unready_grace = Some(1)))]),
        one("paused", "Deployment", 2, vec![plain(), paused(600, true), paused(9_000, false)]),
        one("paused for good", "Deployment", 2, vec![plain(), paused(600, true)]),
        one("again", "Deployment", 2, vec![plain(), restart(30_000, "two")]),
        one("again in between", "StatefulSet", 2, vec![plain(), restart(1_000, "two")]),
        one("and back", "Deployment", 2, vec![plain(), restart(1_000, "two"), restart(1_200, "one")]),
        one("deleted", "Deployment", 2, vec![plain(), (700, Step::DeleteRollout("web".to_owned()))]),
        one("of which a Pod is deleted", "Deployment", 2, vec![plain(), deleted(700, "web-1")]),
        one("of which another Pod is deleted", "StatefulSet", 2, vec![plain(), deleted(700, "web-0")]),
        one(
            "beside another",
            "Deployment",
            2,
            vec![plain(), (2_000, rollout(|r| "second".clone_into(&mut r.name)))],
        ),
        one("of nothing", "Deployment", 1, vec![(0, rollout(|r| r.restarted_at = None))]),
    ];
    // Its only Pod crashes for the whole hour. Each instance ends sooner than the soak, and sooner than a kubelet
    // reports it.
    let mut failing = one("that fails", "Deployment", 1, vec![(0, rollout(|r| r.soak = Some(10)))]);
    let crashes = r#"{"term":[100,143],"runs":[[1000,1]],"repeat":true}"#;
    failing
        .pods
        .iter_mut()
        .flat_map(|pod| &mut pod.containers)
        .for_each(|c| crashes.clone_into(&mut c.behaviour));
    all.push(failing);
    let most = |r: &mut RolloutPlan| r.max_unavailable = Some("100%".into());
    let mut budgeted = one("within a disruption budget", "Deployment", 3, vec![(0, rollout(most))]);
    budgeted.workload.iter_mut().for_each(|workload| workload.budget = Some(2));
    all.push(budgeted);
    all
}
