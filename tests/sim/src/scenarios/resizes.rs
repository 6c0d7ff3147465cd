//! Resizes, each on its own path through the protocol.

use super::pod;
use crate::world::plan::{PodPlan, Step};
use crate::world::sizing::{Amounts, ResizePlan, Size};

fn amounts(all: &[(&'static str, &'static str)]) -> Amounts {
    all.iter().map(|(name, amount)| ((*name).into(), (*amount).into())).collect()
}

/// A Pod with room to grow; its first container uses 100 MiB.
fn sized(restarts: &[&'static str]) -> PodPlan {
    let mut pod = pod();
    for container in &mut pod.containers {
        container.size = Size {
            requests: amounts(&[("cpu", "100m"), ("memory", "128Mi")]),
            limits: amounts(&[("cpu", "200m"), ("memory", "256Mi")]),
            restarts: restarts.iter().map(|r| (*r).into()).collect(),
        };
    }
    let first = &mut pod.containers[0].behaviour;
    *first = first.replacen('{', r#"{"uses":100,"#, 1);
    pod
}

fn resize(limits: &[(&'static str, &'static str)], change: impl FnOnce(&mut ResizePlan)) -> Step {
    let mut plan = ResizePlan {
        name: "prs".to_owned(),
        pod: "web".to_owned(),
        containers: vec![("app".into(), amounts(&[]), amounts(limits))],
        ..ResizePlan::default()
    };
    change(&mut plan);
    Step::Resize(Box::new(plan))
}

/// Adds the scenarios of this file.
pub(super) fn add(add: &mut impl FnMut(String, PodPlan, Vec<(u64, Step)>)) {
    let grow = [("cpu", "400m")];
    let mut one =
        |name: &str, pod: PodPlan, steps: Vec<(u64, Step)>| add(format!("resize {name}"), pod, steps);
    one("grows", sized(&[]), vec![(0, resize(&grow, |_| ()))]);
    one("grows both", sized(&[]), vec![(0, resize(&grow, |r| r.containers.push(second())))]);
    one("restarts", sized(&["cpu"]), vec![(0, resize(&grow, |_| ()))]);
    one(
        "restarts, and must not",
        sized(&["cpu"]),
        vec![(0, resize(&grow, |r| r.restart = Some("Never".into())))],
    );
    one("dry run", sized(&[]), vec![(0, resize(&grow, |r| r.dry_run = true))]);
    one("time to live", sized(&[]), vec![(0, resize(&grow, |r| r.ttl = Some(2)))]);
    let shrink = |r: &mut ResizePlan| {
        r.containers[0].1 = amounts(&[("memory", "-50%")]);
        r.deadline = Some(15);
    };
    one("shrinks", sized(&[]), vec![(0, resize(&[("memory", "-50%")], shrink))]);
    one("shrinks below what is in use", sized(&[]), vec![(0, resize(&[("memory", "x0.3")], shrink))]);
    let watched = |r: &mut ResizePlan| r.observe = Some(8);
    one("watched", sized(&[]), vec![(0, resize(&grow, watched))]);
    let bloated = (3000, Step::Bloat("web".to_owned(), "app".into(), 600));
    one("out of memory", sized(&[]), vec![(0, resize(&grow, watched)), bloated]);
    one(
        "never ends up small",
        sized(&["memory"]),
        vec![(
            0,
            resize(&[("memory", "x0.3")], |r| {
                shrink(r);
                watched(r);
            }),
        )],
    );
    for (what, at) in [("at once", 3), ("soon", 40), ("late", 600)] {
        let cancelled = vec![(0, resize(&grow, watched)), (at, Step::CancelResize("prs".to_owned()))];
        one(&format!("cancelled {what}"), sized(&[]), cancelled);
        let deleted = vec![(0, resize(&grow, watched)), (at, Step::DeleteResize("prs".to_owned()))];
        one(&format!("deleted {what}"), sized(&[]), deleted);
        let later = resize(&[("cpu", "300m")], |r| "later".clone_into(&mut r.name));
        one(&format!("superseded {what}"), sized(&[]), vec![(0, resize(&grow, watched)), (1000 + at, later)]);
        let foreign =
            Step::SetSize("web".to_owned(), "app".into(), amounts(&[]), amounts(&[("cpu", "250m")]));
        one(&format!("foreign {what}"), sized(&[]), vec![(0, resize(&grow, watched)), (at, foreign)]);
        let gone = vec![(0, resize(&grow, watched)), (at, Step::DeletePod("web".to_owned()))];
        one(&format!("Pod deleted {what}"), sized(&[]), gone);
    }
    let busy = |r: &mut ResizePlan| {
        r.containers[0].1 = amounts(&[("cpu", "300m")]);
        r.deferred = Some(12);
    };
    let full = |free: Option<u64>| {
        let mut steps = vec![(0, Step::Crowd(0, 15_900)), (1000, resize(&grow, busy))];
        steps.extend(free.map(|at| (at, Step::Crowd(0, 0))));
        steps
    };
    // The kubelet of this node leaves the Pod's group unchanged while a container is down, here in its back-off.
    let crash = |at| (at, Step::Crash("web".to_owned(), "app".into(), 1));
    let down = vec![crash(0), crash(3000), (10_000, resize(&[("memory", "512Mi")], |_| ()))];
    one("while its container is down", sized(&[]), down);
    one("waits for room", sized(&[]), full(Some(6000)));
    one("waits for room in vain", sized(&[]), full(None));
}

fn second() -> (crate::world::plan::Word, Amounts, Amounts) {
    ("sidecar".into(), amounts(&[("cpu", "x2")]), amounts(&[("cpu", "x2")]))
}
