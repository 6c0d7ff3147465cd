//! Schedules that only update parked workloads.

use super::rollouts::alike;
use super::{BEGIN, near, pod};
use crate::rng::Rng;
use crate::world::imaging::Images;
use crate::world::plan::{Fault, Schedule, Step, Timed, Word};
use crate::world::rolling::{RolloutPlan, WorkloadPlan};
use crate::world::sizing::Size;

/// The name of the workload and of its rollout.
const WEB: &str = "web";
/// Indices of a controller's watches: Pods, updates, rollouts and parked workloads.
const WATCHES: [usize; 4] = [0, 5, 6, 7];

/// Turns one schedule in ten into such a schedule.
pub(super) fn draw(rng: &mut Rng, schedule: &mut Schedule) {
    if !rng.one_in(10) || schedule.workload.is_some() {
        return;
    }
    let kind = rng.pick(&["Deployment", "Deployment", "StatefulSet", "StatefulSet", "DaemonSet"]).unwrap();
    members(rng, schedule, kind);
    schedule.images = Images { pull_ms: rng.pick(&[100, 700, 4_000]).unwrap(), ..Images::default() };
    schedule.steps.clear();
    schedule.faults.clear();
    steps(rng, schedule);
    if !rng.one_in(3) {
        faults(rng, schedule);
    }
    if rng.one_in(6) {
        moved(rng, schedule);
    }
}

/// Moves the tag of an image after a change of the template.
fn moved(rng: &mut Rng, schedule: &mut Schedule) {
    let changes = schedule.steps.iter().filter_map(|step| match &step.what {
        Step::Template(tags) => Some((step.at, tags.clone())),
        _ => None,
    });
    let (at, tags) = rng.pick(&changes.collect::<Vec<_>>()).unwrap();
    let (name, tag) = rng.pick(&tags).unwrap();
    let of = |tag: &str| -> Word { format!("registry.example/{name}:{tag}").into() };
    schedule.steps.push(Timed { at: at + near(rng), what: Step::MoveTag(of(&tag), of("4")) });
}

/// The workload and its Pods, whose containers end only when they are stopped.
fn members(rng: &mut Rng, schedule: &mut Schedule, kind: &'static str) {
    let daemons = kind == "DaemonSet";
    if !daemons {
        for _ in 0..rng.below(3) {
            schedule.pods.push(pod(rng, WEB, schedule.nodes));
        }
    }
    alike(rng, &mut schedule.pods);
    for (at, pod) in schedule.pods.iter_mut().enumerate() {
        pod.name = format!("{WEB}-{at}");
        pod.restart_policy = "Always".into();
        if daemons {
            pod.node = at;
        }
        // Pods of one template have the same size.
        pod.containers.iter_mut().for_each(|one| one.size = Size::default());
        for one in pod.containers.iter_mut().filter(|one| one.behaviour.contains("runs")) {
            r#"{"start":200,"term":[50,143],"ready":200}"#.clone_into(&mut one.behaviour);
        }
    }
    schedule.workload = Some(WorkloadPlan {
        kind: kind.into(),
        name: WEB.to_owned(),
        max_unavailable: rng.pick(&[None, None, Some("1"), Some("50%")]).unwrap().map(Word::from),
        partition: i64::from(kind == "StatefulSet" && rng.one_in(6)),
        min_ready: rng.pick(&[0, 0, 0, 3]).unwrap(),
        native: true,
        spare: usize::from(!daemons && rng.one_in(2)),
        no_unpark: rng.one_in(3),
        ..WorkloadPlan::default()
    });
}

fn rollout(rng: &mut Rng) -> Step {
    let most = rng.pick(&[None, None, Some("1"), Some("2"), Some("100%")]).unwrap();
    Step::Rollout(Box::new(RolloutPlan {
        name: WEB.to_owned(),
        in_place: true,
        progress_deadline: Some(rng.pick(&[60, 600]).unwrap()),
        max_unavailable: most.map(Word::from),
        canary: rng.one_in(4).then_some(1),
        rolls_back: rng.one_in(2),
        soak: rng.pick(&[Some(0), Some(0), Some(1), Some(4)]).unwrap(),
        unready_grace: rng.pick(&[None, None, None, Some(1)]).unwrap(),
        ..RolloutPlan::default()
    }))
}

/// A change of the image tag of one or all containers of the template. Earlier tags may return.
fn template(rng: &mut Rng, schedule: &Schedule) -> Step {
    let names = schedule.pods.iter().take(1).flat_map(|pod| &pod.containers).map(|c| c.name.clone());
    let tag = rng.pick(&["1", "2", "2", "3", "3", "2", "3", "1", "crash", "crash"]).unwrap();
    let mut tags: Vec<(Word, Word)> = names.map(|name| (name, tag.into())).collect();
    if rng.one_in(2) {
        let at = usize::try_from(rng.below(tags.len() as u64)).unwrap();
        tags = vec![tags.swap_remove(at)];
    }
    Step::Template(tags)
}

/// The rollout exists, the template changes, and mostly more happens while Pods are updated.
fn steps(rng: &mut Rng, schedule: &mut Schedule) {
    let begin = BEGIN + 6_000;
    let mut steps = vec![Timed { at: begin + rng.below(4_000), what: rollout(rng) }];
    let first = begin + 2_000 + near(rng);
    steps.push(Timed { at: first, what: template(rng, schedule) });
    for _ in 0..rng.below(5) {
        let at = first + if rng.one_in(3) { near(rng) } else { rng.below(25_000) };
        let mut add = |at: u64, what: Step| steps.push(Timed { at, what });
        let pod = rng.pick(&schedule.pods).unwrap().name;
        match rng.below(14) {
            0..=3 => add(at, template(rng, schedule)),
            4..=6 => add(at, Step::DeletePod(pod)),
            7 => add(at, Step::ForceDeletePod(pod)),
            8 | 9 => add(at, Step::Scale(1 + usize::try_from(rng.below(4)).unwrap())),
            10 => add(at, Step::Release),
            11 => {
                add(at, Step::PauseRollout(WEB.to_owned(), true));
                add(at + rng.below(20_000), Step::PauseRollout(WEB.to_owned(), false));
            }
            12 => {
                add(at, Step::DeleteRollout(WEB.to_owned()));
                let later = rng.pick(&[None, Some(0), Some(0), Some(25_000)]).unwrap();
                if let Some(later) = later {
                    add(at + later + near(rng), rollout(rng));
                }
            }
            _ => add(at + rng.below(60_000), Step::RetryRollout(WEB.to_owned())),
        }
    }
    schedule.steps = steps;
}

/// Faults that touch no node or container, close to the steps.
pub(super) fn faults(rng: &mut Rng, schedule: &mut Schedule) {
    for _ in 0..=rng.below(3) {
        let near_by = rng.pick(&schedule.steps).map_or(BEGIN, |step| step.at);
        let at = near_by + if rng.one_in(2) { near(rng) } else { rng.below(12_000) };
        let controller = usize::from(rng.one_in(3));
        let watch = rng.pick(&WATCHES).unwrap();
        let node = usize::from(rng.one_in(2));
        let what = match rng.below(12) {
            0..=2 => Fault::KillController(controller, 100 + rng.below(4_000)),
            3 => Fault::PauseController(controller, 2_000 + rng.below(20_000)),
            4..=6 => Fault::HoldWatch(controller, watch, 1_000 + rng.below(20_000)),
            7 => Fault::LoseEvents(controller, watch, 200 + rng.below(9_000)),
            8 => Fault::LoseAnswers(30 + rng.below(50), 500 + rng.below(9_000)),
            9 => Fault::KillDaemon(node, 100 + rng.below(4_000)),
            10 => Fault::Refuse(rng.pick(&[403, 409, 429, 500]).unwrap(), 500 + rng.below(9_000)),
            _ => Fault::ApiDown(500 + rng.below(9_000)),
        };
        schedule.faults.push(Timed { at, what });
    }
}
