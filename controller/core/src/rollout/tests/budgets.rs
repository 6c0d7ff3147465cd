//! Disruption budgets.

use super::updates::of;
use super::*;
use crate::workload::Budget;

const FOUR: [&str; 4] = ["web-0", "web-1", "web-2", "web-3"];

/// A budget that selects only this workload's Pods.
fn budget(desired: u32) -> Budget {
    Budget { name: "web".into(), desired_healthy: Some(desired), healthy: 4, expected: 4, partial: false }
}

fn world(budgets: &[Budget]) -> World {
    let mut world = World::new("Deployment", &json!({}), &FOUR, 3);
    world.workload.as_mut().unwrap().budgets = Some(budgets.to_vec());
    world
}

/// The budget's controller updates its status.
fn looks(world: &mut World, change: impl FnOnce(&mut Budget)) {
    change(&mut world.workload.as_mut().unwrap().budgets.as_mut().unwrap()[0]);
    world.later(10);
}

#[test]
fn no_more_pods_are_unavailable_than_every_budget_lets_be() {
    for (budgets, expected) in [
        (vec![], 3),
        (vec![budget(2)], 2),
        (vec![budget(3)], 1),
        (vec![budget(0)], 3),
        (vec![budget(2), budget(3)], 1),
    ] {
        let mut world = world(&budgets);
        assert_eq!((world.run(), world.phase()), (expected, Some(Phase::Complete)), "{budgets:?}");
    }
}

#[test]
fn a_budget_that_is_used_up_is_named() {
    let mut world = world(&[budget(4)]);
    world.settle();
    assert_eq!((world.open().len(), world.phase()), (0, Some(Phase::Progressing)));
    let text =
        "0 of 4 Pods restarted, 0 in progress: PodDisruptionBudget web needs 4 healthy Pods, and 4 are";
    assert_eq!(world.report(), ("DisruptionBudget", text));
    let before = world.readings;
    looks(&mut world, |budget| budget.desired_healthy = Some(3));
    assert_eq!((world.readings, world.open().len()), (before + 1, 1), "it is read again after 10 s");
    // If the budget stays used up, it is reported like any other wait for Pods.
    looks(&mut world, |budget| budget.desired_healthy = Some(4));
    world.end("web-0", true);
    world.later(611);
    assert_eq!((world.report().0, world.phase()), ("ProgressDeadlineExceeded", Some(Phase::Stalled)));
}

#[test]
fn a_budget_that_its_controller_has_not_looked_at_lets_nothing_be() {
    let mut world = world(&[Budget { desired_healthy: None, ..budget(0) }]);
    world.settle();
    assert_eq!(world.open().len(), 0);
    assert!(world.report().1.ends_with("PodDisruptionBudget web has no status for its present spec yet"));
    looks(&mut world, |budget| budget.desired_healthy = Some(3));
    assert_eq!(world.run(), 1);
}

#[test]
fn pods_that_are_not_ready_need_no_budget_and_use_it() {
    let mut world = world(&[budget(3)]);
    world.put(Pod { ready: false, ..pod("web-2") });
    world.settle();
    assert_eq!(world.open(), ["web-2"]);
    // It is ready again, but the budget's controller has not counted it yet.
    looks(&mut world, |budget| budget.healthy = 3);
    world.put(pod("web-2"));
    world.end("web-2", true);
    assert_eq!(world.open(), ["web-0"]);
}

/// The budget's controller has not seen that the Pod is gone. The Pod must not count as a healthy Pod of another
/// workload.
#[test]
fn a_pod_that_is_gone_uses_the_budget() {
    let mut world = world(&[budget(3)]);
    let gone = ObjectKey::new("shop", "web-3");
    world.pods.remove(&gone);
    world.changed(&gone);
    world.settle();
    assert_eq!((world.open().len(), world.report().0), (0, "DisruptionBudget"));
}

#[test]
fn a_budget_counts_pods_of_other_workloads_too() {
    let other = |healthy| Budget { healthy, expected: 6, ..budget(5) };
    let mut world = world(&[other(6)]);
    world.settle();
    assert_eq!(world.open().len(), 1);
    // A Pod of another workload fails.
    looks(&mut world, |budget| budget.healthy = 5);
    world.end("web-0", true);
    assert_eq!((world.open().len(), world.report().0), (0, "DisruptionBudget"));
}

#[test]
fn budgets_are_not_asked_where_the_rollout_says_so() {
    let mut world = world(&[budget(4)]);
    world.rollout.spec.respect_disruption_budgets = Some(false);
    assert_eq!(world.run(), 3);
}

/// Budgets are not read while no Pod waits.
#[test]
fn budgets_are_read_before_a_pod_that_comes_at_the_end_is_begun_with() {
    let mut world = World::deployment();
    let workload = world.workload.as_mut().unwrap();
    workload.budgets = Some(vec![Budget { healthy: 3, expected: 3, ..budget(2) }]);
    workload.template.as_mut().unwrap().committed = false;
    world.settle();
    for pod in ["a", "b", "c"] {
        world.updated(pod, "shop/web:v2");
    }
    assert_eq!(world.report().0, "WaitingForController");
    let budgets = world.workload.as_mut().unwrap().budgets.as_mut().unwrap();
    budgets[0].desired_healthy = Some(4);
    world.put(of("", "shop/web:v1", "e"));
    world.later(1);
    assert_eq!((world.open().len(), world.report().0), (0, "DisruptionBudget"));
}
