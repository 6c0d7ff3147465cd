//! Updates of parked workloads, each on its own path. The rollout exists from the beginning and soaks for one second.

use super::{container, pod, scenario};
use crate::world::plan::{Fault, PodPlan, Schedule, Step, Timed};
use crate::world::rolling::{RolloutPlan, WorkloadPlan};

/// Changes the image tag in the template.
fn to(at: u64, tag: &'static str) -> (u64, Step) {
    (at, Step::Template(vec![("app".into(), tag.into())]))
}

/// A workload with `pods` Pods of one container each. Unless it is a `DaemonSet`, the plan has one spare Pod.
fn one(name: &str, kind: &'static str, pods: usize, steps: Vec<(u64, Step)>) -> Schedule {
    let member = |at| PodPlan { name: format!("web-{at}"), containers: vec![container("app")], ..pod() };
    let spare = usize::from(kind != "DaemonSet");
    let workload = WorkloadPlan {
        kind: kind.into(),
        name: "web".to_owned(),
        native: true,
        spare,
        ..WorkloadPlan::default()
    };
    let rollout = RolloutPlan {
        name: "web".to_owned(),
        in_place: true,
        soak: Some(1),
        progress_deadline: Some(60),
        ..RolloutPlan::default()
    };
    let mut all = vec![(0, Step::Rollout(Box::new(rollout)))];
    all.extend(steps);
    let pods = (0..pods + spare).map(member).collect();
    Schedule { workload: Some(workload), ..scenario(&format!("parked {kind}{name}"), pods, all) }
}

/// The second Pod's node has no room for images: its update fails, and the first Pod is rolled back.
fn rolled_back(kind: &'static str) -> Schedule {
    let mut schedule = one(", rolled back", kind, 2, vec![to(3_000, "2"), to(90_000, "1")]);
    schedule.nodes = 2;
    schedule.clocks.nodes.push(schedule.clocks.nodes[0].clone());
    schedule.pods[1].node = 1;
    let second = usize::from(kind != "StatefulSet");
    schedule.faults = vec![Timed { at: 20_000, what: Fault::DiskFull(second, 60_000) }];
    for step in &mut schedule.steps {
        if let Step::Rollout(rollout) = &mut step.what {
            rollout.rolls_back = true;
        }
    }
    schedule
}

/// All scenarios of this file.
pub(super) fn all() -> Vec<Schedule> {
    let mut all = vec![rolled_back("StatefulSet"), rolled_back("Deployment"), rolled_back("DaemonSet")];
    for kind in ["StatefulSet", "Deployment", "DaemonSet"] {
        let mut before = one(", no admission releases it", kind, 1, vec![to(3_000, "2")]);
        before.workload.as_mut().unwrap().no_unpark = true;
        all.push(before);
        let deleted = |at, pod: &str| (at, Step::DeletePod(pod.to_owned()));
        all.extend([
            one("", kind, 2, vec![to(3_000, "2")]),
            one(", a Pod deleted", kind, 2, vec![to(3_000, "2"), deleted(4_500, "web-0")]),
            one(", an updated Pod deleted", kind, 2, vec![to(3_000, "2"), deleted(7_500, "web-1")]),
            one(", changed again", kind, 2, vec![to(3_000, "2"), to(5_500, "3")]),
            one(", changed back", kind, 2, vec![to(3_000, "2"), to(5_500, "1")]),
            one(", and later back", kind, 2, vec![to(3_000, "2"), to(40_000, "1")]),
            one(", released by its user", kind, 2, vec![to(3_000, "2"), (5_500, Step::Release)]),
            one(
                ", its rollout deleted",
                kind,
                2,
                vec![to(3_000, "2"), (5_500, Step::DeleteRollout("web".into()))],
            ),
        ]);
        if kind != "DaemonSet" {
            let scaled = |at, replicas| (at, Step::Scale(replicas));
            all.extend([
                one(", scaled up", kind, 2, vec![to(3_000, "2"), scaled(5_500, 3)]),
                one(", scaled up late", kind, 1, vec![to(3_000, "2"), scaled(5_800, 2)]),
                one(", scaled down", kind, 2, vec![to(3_000, "2"), scaled(5_500, 1)]),
            ]);
        }
    }
    all
}
