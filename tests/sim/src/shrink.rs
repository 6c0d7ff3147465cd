//! Reduces a failing schedule to a smaller one that violates the same invariant.

use crate::world::plan::Schedule;
use crate::world::run;

/// Leaves out faults, steps and settings while the same invariant is violated. Returns the smallest schedule found.
pub fn shrink(schedule: &Schedule) -> Schedule {
    let mut best = schedule.clone();
    let Some(wanted) = run(&best, false).violation.map(|v| v.invariant) else { return best };
    loop {
        let smaller = candidates(&best)
            .into_iter()
            .find(|candidate| run(candidate, false).violation.is_some_and(|v| v.invariant == wanted));
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

/// Every schedule with one fault, step or setting less.
fn candidates(schedule: &Schedule) -> Vec<Schedule> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Schedule)| {
        let mut candidate = schedule.clone();
        change(&mut candidate);
        all.push(candidate);
    };
    for at in 0..schedule.faults.len() {
        add(&|s| drop(s.faults.remove(at)));
    }
    for at in (0..schedule.steps.len()).rev() {
        add(&|s| drop(s.steps.remove(at)));
    }
    if schedule
        .clocks
        .nodes
        .iter()
        .chain(&schedule.clocks.controllers)
        .any(|c| c.percent != 100 || c.wrong_by != 0)
    {
        add(&|s| {
            s.clocks.server.wrong_by = 0;
            for clock in s.clocks.nodes.iter_mut().chain(&mut s.clocks.controllers) {
                (clock.percent, clock.wrong_by) = (100, 0);
            }
        });
    }
    if schedule.workload.as_ref().is_some_and(|workload| workload.budget.is_some()) {
        add(&|s| s.workload.iter_mut().for_each(|workload| workload.budget = None));
    }
    if schedule.replicas > 1 {
        add(&|s| s.replicas = 1);
    }
    all
}
