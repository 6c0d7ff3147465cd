//! The leader lease within small bounds, and planted bugs of the model's glue.

use pitstop_models::check::{Options, Report, run};
use pitstop_models::lease::{Bounds, Bug, Clock, FILLED, Faults, IN_TIME, Lease, NO_STORM, ONE_LEADER};

fn explore(bounds: Bounds) -> Report {
    let report = run(Lease(bounds), Options::default());
    println!("{}", report.line());
    report
}

#[test]
fn two_processes_and_any_fault() {
    explore(Bounds::new(2, 2, Faults::any(1, 0))).assert_holds();
}

#[test]
fn two_processes_and_late_messages() {
    explore(Bounds::new(2, 2, Faults::any(0, 2))).assert_holds();
}

/// The deadline is two thirds of the term, so a clock may run at most 1.5 times as fast as another.
#[test]
fn rates_of_clocks() {
    let with = |ticks, per| {
        let mut bounds = Bounds::new(2, 4, Faults { total: 1, pauses: 1, ..Faults::default() });
        bounds.clocks[1] = Clock { ticks, per, ..bounds.clocks[1] };
        explore(bounds)
    };
    with(5, 4).assert_holds();
    assert!(with(2, 1).breaks(ONE_LEADER));
}

/// A model that cannot fail proves nothing.
#[test]
fn planted_faults_are_found() {
    for (bug, delays, promise) in [
        (Bug::NoPrecondition, 1, ONE_LEADER),
        (Bug::ShortTerm, 0, ONE_LEADER),
        (Bug::SharedIdentity, 1, ONE_LEADER),
        (Bug::AnsweredEarly, 1, ONE_LEADER),
        (Bug::NeverLooks, 1, IN_TIME),
        (Bug::NoWait, 0, NO_STORM),
        (Bug::StandbySleeps, 0, FILLED),
    ] {
        let report = explore(Bounds { bug: Some(bug), ..Bounds::new(2, 2, Faults::any(1, delays)) });
        assert!(report.breaks(promise), "{bug:?}: {:?}", report.violations);
    }
}
