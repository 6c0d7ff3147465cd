//! Nodes whose kubelet does not resize. Their daemons do, for as long as the requests exist.

use super::{near, resize};
use crate::draw::BEGIN;
use crate::rng::Rng;
use crate::world::plan::{Failing, Fault, Schedule, Step, Timed, Word};
use crate::world::sizing::ResizePlan;

const FAILING: [Failing; 6] =
    [Failing::Before, Failing::Before, Failing::After, Failing::After, Failing::Never, Failing::Lies];

/// Makes such nodes in a third of the schedules with resizes.
pub(super) fn draw(rng: &mut Rng, schedule: &mut Schedule) {
    if !rng.one_in(3) {
        return;
    }
    let node = schedule.pods[0].node;
    schedule.room.fixed = if rng.one_in(4) { vec![node] } else { (0..schedule.nodes).collect() };
    if rng.one_in(5) {
        schedule.steps.retain(|s| matches!(s.what, Step::Resize(_)));
        schedule.steps.truncate(1);
    } else {
        more(rng, schedule);
    }
    for step in &mut schedule.steps {
        if let Step::Resize(plan) = &mut step.what {
            let all =
                [None, None, Some("Auto"), Some("CRI"), Some("CRI"), Some("CRI"), Some("CRI"), Some("API")];
            plan.mechanism = rng.pick(&all).unwrap().map(Word::from);
        }
    }
    if rng.one_in(10) {
        let at = BEGIN + 2000 + rng.below(30_000);
        schedule.faults = vec![Timed { at, what: Fault::DeleteBook(node) }];
    } else if !schedule.faults.is_empty() {
        faults(rng, schedule, node);
    }
}

/// Overlapping requests, and events that hit held Pods.
fn more(rng: &mut Rng, schedule: &mut Schedule) {
    let mut at = BEGIN + rng.below(5_000);
    let pod = schedule.pods[0].clone();
    for n in 0..rng.below(4) {
        at += 500 + rng.below(15_000);
        // Names that sort before those of earlier requests.
        let name = format!("late-{}", 9 - n);
        let plan = ResizePlan { name: name.clone(), ..resize(rng, &pod, n) };
        schedule.steps.push(Timed { at, what: Step::Resize(Box::new(plan)) });
        if rng.one_in(3) {
            let at = at + 3_000 + near(rng);
            schedule.steps.push(Timed { at, what: Step::DeleteResize(name) });
        }
    }
    for _ in 0..rng.below(4) {
        let container = rng.pick(&pod.containers).unwrap().name;
        let what = match rng.below(8) {
            0 => Step::DeletePod(pod.name.clone()),
            1 => {
                let number = rng.below(3);
                let early = rng.one_in(2);
                Step::DeleteResize(if early {
                    format!("prs-{number}")
                } else {
                    format!("late-{}", 9 - number)
                })
            }
            _ => Step::Crash(pod.name.clone(), container, i32::from(!rng.one_in(4))),
        };
        schedule.steps.push(Timed { at: BEGIN + 1000 + rng.below(40_000), what });
    }
}

fn faults(rng: &mut Rng, schedule: &mut Schedule, node: usize) {
    for _ in 0..rng.below(4) {
        let at = (rng.pick(&schedule.steps).map_or(BEGIN, |s| s.at) + near(rng)).saturating_sub(300);
        let what = match rng.below(10) {
            0..=2 => Fault::KillDaemon(node, 50 + rng.below(4000)),
            3 | 4 => Fault::FailWrite(node, rng.pick(&FAILING).unwrap()),
            5 => Fault::DeleteBook(node),
            6 | 7 => Fault::RuntimeHangs(node, 500 + rng.below(15_000)),
            8 => Fault::PauseDaemon(node, 500 + rng.below(15_000)),
            _ => Fault::KillController(usize::from(rng.one_in(3)), 100 + rng.below(4000)),
        };
        schedule.faults.push(Timed { at, what });
    }
}
