//! Image updates, each on its own path through the protocol. Pulls take 700 ms.

use super::{container, create, pod, scenario};
use crate::world::imaging::{Images, Rewriting, UpdatePlan};
use crate::world::plan::{ContainerPlan, Fault, PodPlan, Schedule, Step, Timed};

/// Registries of every scenario, and a webhook if a step switches it.
pub(super) fn images(steps: &[(u64, Step)]) -> Images {
    let switched = steps.iter().any(|(_, step)| matches!(step, Step::SwitchWebhook(_)));
    Images {
        pull_ms: 700,
        same: vec![("registry.example/app:same".into(), "registry.example/app:1".into())],
        webhook: switched.then_some(Rewriting::Mirror),
        ..Images::default()
    }
}

fn update(image: &'static str, change: impl FnOnce(&mut UpdatePlan)) -> Step {
    let mut plan = UpdatePlan {
        name: "piu".to_owned(),
        pod: "web".to_owned(),
        containers: vec![("app".into(), image.into())],
        ready_timeout: Some(25),
        observe: Some(3),
        ..UpdatePlan::default()
    };
    change(&mut plan);
    Step::Update(Box::new(plan))
}

/// The image of most updates, and a later one.
const NEW: &str = "registry.example/app:2";
const NEWER: &str = "registry.example/app:3";

/// Adds the scenarios of this file.
pub(super) fn add(add: &mut impl FnMut(String, PodPlan, Vec<(u64, Step)>)) {
    let mut one =
        |name: &str, pod: PodPlan, steps: Vec<(u64, Step)>| add(format!("update {name}"), pod, steps);
    one("one", pod(), vec![(0, update(NEW, |_| ()))]);
    let both =
        |r: &mut UpdatePlan| r.containers.push(("sidecar".into(), "registry.example/sidecar:2".into()));
    one("both", pod(), vec![(0, update(NEW, both))]);
    let sidecar = ContainerPlan { sidecar: true, ..container("proxy") };
    let native = PodPlan { containers: vec![sidecar, container("app")], ..pod() };
    let proxy = |r: &mut UpdatePlan| r.containers = vec![("proxy".into(), "registry.example/proxy:2".into())];
    one("native sidecar", native, vec![(0, update(NEW, proxy))]);
    one("drained", pod(), vec![(0, update(NEW, |r| r.unready_grace = Some(1)))]);
    let always = ContainerPlan { pulls: Some("Always".into()), ..container("app") };
    one("pulled always", PodPlan { containers: vec![always], ..pod() }, vec![(0, update(NEW, |_| ()))]);
    one(
        "never restarted",
        PodPlan { restart_policy: "Never".into(), ..pod() },
        vec![(0, update(NEW, |_| ()))],
    );
    one("dry run", pod(), vec![(0, update(NEW, |r| r.dry_run = true))]);
    one("time to live", pod(), vec![(0, update(NEW, |r| r.ttl = Some(2)))]);
    one("same content", pod(), vec![(0, update("registry.example/app:same", |_| ()))]);
    bad(&mut one);
    waiting(&mut one);
    beside(&mut one);
}

/// Images that cannot be used, or whose containers fail.
fn bad(one: &mut impl FnMut(&str, PodPlan, Vec<(u64, Step)>)) {
    let late = |r: &mut UpdatePlan| r.observe = Some(12);
    one("to one that crashes", pod(), vec![(0, update("registry.example/app:crash", |_| ()))]);
    one("to one that crashes later", pod(), vec![(0, update("registry.example/app:later", late))]);
    one(
        "to one that is never ready",
        pod(),
        vec![(
            0,
            update("registry.example/app:unready", |r| {
                r.ready_timeout = Some(6);
            }),
        )],
    );
    one("to one that does not start", pod(), vec![(0, update("registry.example/app:nostart", |_| ()))]);
    let stays = |r: &mut UpdatePlan| r.rollback = Some(false);
    one("to one that crashes, and stays", pod(), vec![(0, update("registry.example/app:crash", stays))]);
    one("to one that is missing", pod(), vec![(0, update("registry.example/app:missing", |_| ()))]);
    for pull in ["IfPossible", "Skip"] {
        let by_kubelet = |r: &mut UpdatePlan| r.pull = Some(pull.into());
        one(pull, pod(), vec![(0, update(NEW, by_kubelet))]);
        let missing = update("registry.example/app:missing", by_kubelet);
        one(&format!("{pull} to one that is missing"), pod(), vec![(0, missing)]);
    }
    one("to another repository", pod(), vec![(0, update("registry.example/other:2", |_| ()))]);
    let crash = (600, Step::Crash("web".to_owned(), "app".into(), 1));
    one("and the old one crashes", pod(), vec![(0, update(NEW, |r| r.observe = Some(0))), crash]);
}

/// Events between the pull and the change of the Pod.
fn waiting(one: &mut impl FnMut(&str, PodPlan, Vec<(u64, Step)>)) {
    let suspended = || (0, update(NEW, |r| r.suspend = true));
    let released = || (6000, Step::ReleaseUpdate("piu".to_owned()));
    let collected = |at| (at, Step::CollectImages(0));
    let moved = || (3000, Step::MoveTag(NEW.into(), NEWER.into()));
    one("suspended", pod(), vec![suspended(), released()]);
    one("suspended, collected", pod(), vec![suspended(), collected(4000), released()]);
    one("suspended, collected late", pod(), vec![suspended(), collected(5900), released()]);
    one("suspended, moved", pod(), vec![suspended(), moved(), released()]);
    one("suspended, moved and collected", pod(), vec![suspended(), moved(), collected(4000), released()]);
    let cancelled = (4000, Step::CancelUpdate("piu".to_owned()));
    one("suspended, cancelled", pod(), vec![suspended(), cancelled]);
    let drains = || (0, update(NEW, |r| r.unready_grace = Some(5)));
    one("drained, collected", pod(), vec![drains(), collected(3000)]);
    one("webhook", pod(), vec![(0, Step::SwitchWebhook(true)), (10, update(NEW, |_| ()))]);
    one("suspended, webhook", pod(), vec![suspended(), (3000, Step::SwitchWebhook(true)), released()]);
}

/// Other requests and writers of the same Pod.
fn beside(one: &mut impl FnMut(&str, PodPlan, Vec<(u64, Step)>)) {
    for (what, at) in [("soon", 400), ("late", 1300)] {
        let made = || (0, update(NEW, |_| ()));
        one(&format!("cancelled {what}"), pod(), vec![made(), (at, Step::CancelUpdate("piu".to_owned()))]);
        one(&format!("deleted {what}"), pod(), vec![made(), (at, Step::DeleteUpdate("piu".to_owned()))]);
        one(&format!("Pod deleted {what}"), pod(), vec![made(), (at, Step::DeletePod("web".to_owned()))]);
        let foreign = Step::SetImage("web".to_owned(), "app".into());
        one(&format!("foreign {what}"), pod(), vec![made(), (at, foreign)]);
        let restart = create(|r| r.mechanism = Some("Kubelet".into()));
        one(&format!("restarted {what}"), pod(), vec![made(), (at, restart)]);
    }
    let later = |image| update(image, |r| "later".clone_into(&mut r.name));
    one("one after another", pod(), vec![(0, update(NEW, |_| ())), (100, later(NEWER))]);
    one("again", pod(), vec![(0, update(NEW, |_| ())), (15_000, later(NEW))]);
    one("back", pod(), vec![(0, update(NEW, |_| ())), (15_000, later("registry.example/app:1"))]);
    let restart = create(|r| r.mechanism = Some("Runtime".into()));
    one("after a restart", pod(), vec![(0, restart), (20, update(NEW, |_| ()))]);
}

/// The node is lost for longer than `readyTimeoutSeconds`. This begins before the new containers are ready, whether the
/// Pod shows it or not, or during their observation.
pub(super) fn lost() -> Vec<Schedule> {
    let one = |at: u64| {
        let update = update(NEW, |r| r.observe = Some(12));
        let schedule = scenario(&format!("update, node lost after {at} ms"), vec![pod()], vec![(0, update)]);
        Schedule { faults: vec![Timed { at: 20_000 + at, what: Fault::NodeLost(0, 40_000) }], ..schedule }
    };
    [500, 1_000, 1_400, 1_800, 4_000, 10_000].map(one).into()
}
