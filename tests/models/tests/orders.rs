//! The order protocol within small bounds, and planted bugs of the model's glue.

use std::sync::Arc;

use pitstop_models::check::{Options, Report, run};
use pitstop_models::graph::{Graph, Shape};
use pitstop_models::orders::{Bounds, Bug, Faults, Orders, promise};

fn explore(bounds: Bounds) -> Report {
    let planted = bounds.bug.is_some();
    let graph = Arc::new(Graph::default());
    let report = run(Orders::new(bounds, Arc::clone(&graph)), Options::default());
    println!("{}", report.line());
    if !planted {
        report.assert_holds();
        assert!(matches!(graph.shape(), Shape::Ends(_)), "{} has a cycle", report.title);
    }
    report
}

const NONE: Faults = Faults {
    total: 0,
    lost: 0,
    refused: 0,
    controller: 0,
    daemon: 0,
    ends: 0,
    late: 0,
    breaks: 0,
    meddling: 0,
    deleted: 0,
    replaced: 0,
};

#[test]
fn nothing_goes_wrong() {
    explore(Bounds::new("plain"));
}

/// Each way to restart, with immediate answers.
#[test]
fn every_way() {
    let coarse = |name| Bounds { coarse: true, ..Bounds::new(name) };
    explore(Bounds { drain: Some(1), ..coarse("drain") });
    explore(Bounds { hook: true, slow: true, ..coarse("hook") });
    explore(Bounds { containers: 2, ordered: true, ..coarse("ordered") });
    let late = Faults { total: 2, late: 2, ..NONE };
    explore(Bounds { kubelet: true, faults: late, ..coarse("kubelet") });
    explore(Bounds { deadline: Some(3), faults: late, ..coarse("deadline") });
}

#[test]
fn two_daemons() {
    explore(Bounds { daemons: 2, coarse: true, ..Bounds::new("plain") });
}

#[test]
fn the_daemon_is_killed() {
    explore(Bounds { faults: Faults { total: 1, daemon: 1, ..NONE }, ..Bounds::new("plain") });
}

#[test]
fn a_request_is_deleted() {
    explore(Bounds { faults: Faults { total: 1, deleted: 1, ..NONE }, ..Bounds::new("plain") });
}

/// The answer to a write that adds orders may be lost. The controller must find out whether the orders were added
/// before it ends a request.
#[test]
fn no_answer_to_what_adds_orders() {
    let lost = Faults { total: 2, lost: 2, ..NONE };
    for book in [false, true] {
        explore(Bounds { book, coarse: true, deadline: Some(3), faults: lost, ..Bounds::new("unknown") });
    }
}

/// A model that cannot fail proves nothing.
#[test]
fn planted_faults_are_found() {
    let plain = || Bounds::new("plain");
    let lost = Faults { total: 3, lost: 3, ..NONE };
    let unanswered = || Bounds { coarse: true, deadline: Some(3), faults: lost, ..plain() };
    for (bug, bounds, promise) in [
        (Bug::ActsUnacknowledged, plain(), promise::ACKNOWLEDGED),
        (Bug::StatusOnce, plain(), promise::ENDS),
        (
            Bug::StopsByName,
            Bounds { faults: Faults { total: 1, ends: 1, ..NONE }, ..plain() },
            promise::TARGET,
        ),
        (
            Bug::DeletionDropped,
            Bounds { faults: Faults { total: 1, deleted: 1, ..NONE }, ..plain() },
            promise::IN_TIME,
        ),
        (
            Bug::HooksForgotten,
            Bounds { hook: true, faults: Faults { total: 1, daemon: 1, ..NONE }, ..plain() },
            promise::HOOK_ONCE,
        ),
        (Bug::LostIsRefused, Bounds { book: true, ..unanswered() }, promise::NOT_AFTER_END),
        (
            Bug::NoPrecondition,
            Bounds {
                coarse: true,
                deadline: Some(3),
                faults: Faults { total: 1, late: 1, ..NONE },
                ..plain()
            },
            promise::REPORT,
        ),
        (Bug::LostIsRefused, unanswered(), promise::NOT_AFTER_END),
    ] {
        let report = explore(Bounds { bug: Some(bug), ..bounds });
        assert!(report.breaks(promise), "{bug:?}: {:?}", report.violations);
    }
}
