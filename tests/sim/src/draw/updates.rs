//! Updates of images, in a share of the schedules: beside restarts and resizes, or alone.

use super::{BEGIN, fault, near};
use crate::node::registry::Refusing;
use crate::rng::Rng;
use crate::world::imaging::{Images, Rewriting, UpdatePlan};
use crate::world::plan::{Fault, PodPlan, Schedule, Step, Timed, Word};

/// Adds image updates to every fifth schedule.
pub(super) fn draw(rng: &mut Rng, schedule: &mut Schedule) {
    if !rng.one_in(5) {
        return;
    }
    if rng.one_in(2) {
        schedule.steps.clear();
    }
    let calm = schedule.faults.is_empty();
    for pod in &mut schedule.pods {
        for container in &mut pod.containers {
            container.pulls = rng.pick(&[None, None, None, Some("Always")]).unwrap().map(Word::from);
        }
    }
    schedule.images = images(rng, &schedule.steps);
    let first = schedule.steps.len();
    steps(rng, schedule);
    if !calm {
        faults(rng, schedule, first);
    }
}

fn images(rng: &mut Rng, steps: &[Timed<Step>]) -> Images {
    // Restarts by pin do not expect a webhook that rewrites images.
    let webhook = steps.is_empty() && rng.one_in(6);
    let does = rng.pick(&[Rewriting::Mirror, Rewriting::Tag, Rewriting::Deny]);
    let same = ["app", "sidecar", "proxy"].map(|name| {
        let of = |tag: &str| Word::from(format!("registry.example/{name}:{tag}"));
        (of("same"), of("1"))
    });
    Images {
        pull_ms: rng.pick(&[100, 700, 700, 4_000]).unwrap(),
        private: rng.one_in(16),
        same: same.to_vec(),
        webhook: does.filter(|_| webhook),
    }
}

fn steps(rng: &mut Rng, schedule: &mut Schedule) {
    let mut at = BEGIN;
    for n in 0..=rng.below(3) {
        at += if rng.one_in(3) { rng.below(200) } else { rng.below(12_000) };
        let pod = schedule.pods[usize::from(rng.one_in(4))].clone();
        let plan = update(rng, &pod, n);
        let mut add = |at: u64, what: Step| schedule.steps.push(Timed { at, what });
        let name = plan.name.clone();
        if plan.suspend {
            let released = at + 500 + near(rng);
            add(released, Step::ReleaseUpdate(name.clone()));
            if rng.one_in(2) {
                add(released.saturating_sub(near(rng)), Step::CollectImages(pod.node));
            }
        }
        if plan.kept {
            add(at + 60_000, Step::FreeUpdate(name.clone()));
        }
        let images: Vec<Word> = plan.containers.iter().map(|(_, image)| image.clone()).collect();
        add(at, Step::Update(Box::new(plan)));
        let soon = at + near(rng);
        match rng.below(14) {
            0 => add(soon, Step::CancelUpdate(name)),
            1 => add(soon, Step::DeleteUpdate(name)),
            2 => add(soon, Step::CollectImages(pod.node)),
            3 => {
                let image = images[0].clone();
                let (repository, _) = image.split_once(':').unwrap();
                let content = rng.pick(&["7", "crash-7", "unready-7"]).unwrap();
                add(soon, Step::MoveTag(image.clone(), format!("{repository}:{content}").into()));
            }
            4 => add(soon, Step::SetImage(pod.name.clone(), rng.pick(&pod.containers).unwrap().name)),
            5 | 6 => {
                let container = rng.pick(&pod.containers).unwrap().name;
                add(at + rng.below(3_000), Step::Crash(pod.name.clone(), container, 1));
            }
            7 => add(soon, Step::DeletePod(pod.name.clone())),
            _ => {}
        }
    }
    if schedule.images.webhook.is_some() {
        let from = if rng.one_in(2) { BEGIN - 1000 } else { BEGIN + rng.below(12_000) };
        schedule.steps.push(Timed { at: from, what: Step::SwitchWebhook(true) });
    }
}

fn update(rng: &mut Rng, pod: &PodPlan, n: u64) -> UpdatePlan {
    let mut names: Vec<Word> = pod.containers.iter().map(|c| c.name.clone()).collect();
    match rng.below(3) {
        0 => names.truncate(1),
        1 => names.reverse(),
        _ => {}
    }
    if rng.one_in(3) {
        names.truncate(1);
    }
    let tags =
        ["2", "2", "3", "2", "4", "same", "1", "crash", "later", "unready", "nostart", "greedy", "missing"];
    let mut containers: Vec<(Word, Word)> = Vec::new();
    for name in names {
        let tag = if rng.one_in(2) { "2" } else { rng.pick(&tags).unwrap() };
        let repository = if rng.one_in(40) { "other" } else { &*name };
        let image = format!("registry.example/{repository}:{tag}");
        containers.push((name, image.into()));
    }
    UpdatePlan {
        name: format!("piu-{n}"),
        pod: pod.name.clone(),
        containers,
        suspend: rng.one_in(4),
        pull: rng
            .pick(&[None, None, None, Some("Required"), Some("IfPossible"), Some("Skip")])
            .unwrap()
            .map(Word::from),
        pull_timeout: rng.pick(&[None, None, None, Some(2), Some(15)]).unwrap(),
        unready_grace: rng.pick(&[None, None, Some(0), Some(1), Some(4)]).unwrap(),
        ready_timeout: rng.pick(&[Some(8), Some(20), Some(40)]).unwrap(),
        observe: rng.pick(&[Some(0), Some(1), Some(3), Some(9)]).unwrap(),
        rollback: rng.pick(&[None, None, None, Some(false)]).unwrap(),
        deadline: rng.one_in(4).then(|| 3 + i64::try_from(rng.below(50)).unwrap()),
        ttl: rng.one_in(5).then(|| i32::try_from(rng.below(20)).unwrap()),
        dry_run: rng.one_in(16),
        kept: rng.one_in(20),
        unasked: rng.one_in(8),
    }
}

/// Faults close to the steps from index `first` on.
fn faults(rng: &mut Rng, schedule: &mut Schedule, first: usize) {
    for _ in 0..=rng.below(2) {
        let near_by = rng.pick(&schedule.steps[first..]).map_or(BEGIN, |s| s.at);
        let mut at = (near_by + near(rng)).saturating_sub(300);
        let short = 200 + rng.below(9000);
        let what = match rng.below(12) {
            0 => Fault::KillController(usize::from(rng.one_in(3)), 100 + rng.below(4000)),
            1 => Fault::HoldWatch(usize::from(rng.one_in(2)), 5, 1000 + rng.below(20_000)),
            2 => Fault::LoseEvents(usize::from(rng.one_in(2)), 5, 200 + rng.below(9000)),
            3 => Fault::RegistryAway(short),
            4 => Fault::RegistrySlow(short, rng.pick(&[2_000, 8_000, 30_000]).unwrap()),
            5 => {
                let why = rng.pick(&[Refusing::Missing, Refusing::Denied, Refusing::Busy]).unwrap();
                Fault::RegistryRefuses(why, short)
            }
            6 => Fault::DiskFull(schedule.pods[0].node, short),
            7..=9 => {
                // About when new containers start.
                at = near_by + schedule.images.pull_ms + rng.below(4_000);
                Fault::NodeLost(schedule.pods[0].node, rng.pick(&[short, 20_000, 45_000, 70_000]).unwrap())
            }
            _ => fault(rng, schedule),
        };
        schedule.faults.push(Timed { at, what });
    }
}
