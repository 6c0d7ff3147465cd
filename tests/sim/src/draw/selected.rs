//! Schedules that only have rollouts that select Pods by label.

use super::parks::faults;
use super::rollouts::alike;
use super::{BEGIN, near, pod};
use crate::rng::Rng;
use crate::world::imaging::Images;
use crate::world::plan::{Schedule, Step, Timed, Word};
use crate::world::rolling::{RolloutPlan, WorkloadPlan};
use crate::world::sizing::Size;

/// The name of the owner of the Pods, and of the first rollout.
const WEB: &str = "web";

/// Turns one schedule in sixteen into such a schedule.
pub(super) fn draw(rng: &mut Rng, schedule: &mut Schedule) {
    if !rng.one_in(16) || schedule.workload.is_some() {
        return;
    }
    for _ in 0..rng.below(3) {
        schedule.pods.push(pod(rng, WEB, schedule.nodes));
    }
    alike(rng, &mut schedule.pods);
    for (at, pod) in schedule.pods.iter_mut().enumerate() {
        pod.name = format!("{WEB}-{at}");
        pod.restart_policy = "Always".into();
        pod.controlled = true;
        for one in &mut pod.containers {
            one.size = Size::default();
            if one.behaviour.contains("runs") {
                r#"{"start":200,"term":[50,143],"ready":200}"#.clone_into(&mut one.behaviour);
            }
        }
    }
    let kind = rng.pick(&["Deployment", "StatefulSet"]).unwrap().into();
    schedule.workload = Some(WorkloadPlan { kind, name: WEB.to_owned(), ..WorkloadPlan::default() });
    schedule.images = Images { pull_ms: rng.pick(&[100, 700, 4_000]).unwrap(), ..Images::default() };
    schedule.steps.clear();
    schedule.faults.clear();
    let wishes = !rng.one_in(3);
    steps(rng, schedule, wishes);
    if !rng.one_in(3) {
        faults(rng, schedule);
    }
}

fn images(rng: &mut Rng, schedule: &Schedule) -> Vec<(Word, Word)> {
    let names = schedule.pods.iter().take(1).flat_map(|pod| &pod.containers).map(|c| c.name.clone());
    let tag = rng.pick(&["1", "2", "2", "3", "3", "2", "3", "crash"]).unwrap();
    let mut tags: Vec<(Word, Word)> = names.map(|name| (name, tag.into())).collect();
    if rng.one_in(2) {
        let at = usize::try_from(rng.below(tags.len() as u64)).unwrap();
        tags = vec![tags.swap_remove(at)];
    }
    tags
}

fn rollout(rng: &mut Rng, schedule: &Schedule, wishes: bool) -> Step {
    let most = rng.pick(&[None, None, Some("1"), Some("2"), Some("3")]).unwrap();
    Step::Rollout(Box::new(RolloutPlan {
        name: WEB.to_owned(),
        selects: true,
        images: if wishes { images(rng, schedule) } else { Vec::new() },
        restarted_at: (!wishes || rng.one_in(4)).then(|| "one".into()),
        progress_deadline: Some(rng.pick(&[60, 600]).unwrap()),
        max_unavailable: most.map(Word::from),
        canary: rng.one_in(4).then_some(1),
        soak: rng.pick(&[Some(0), Some(0), Some(1), Some(4)]).unwrap(),
        unready_grace: rng.pick(&[None, None, None, Some(1)]).unwrap(),
        ..RolloutPlan::default()
    }))
}

fn steps(rng: &mut Rng, schedule: &mut Schedule, wishes: bool) {
    let first = BEGIN + rng.below(3_000);
    let mut steps = vec![Timed { at: first, what: rollout(rng, schedule, wishes) }];
    for _ in 0..rng.below(5) {
        let at = first + if rng.one_in(3) { near(rng) } else { rng.below(25_000) };
        let mut add = |at: u64, what: Step| steps.push(Timed { at, what });
        let pod = rng.pick(&schedule.pods).unwrap().name;
        match rng.below(14) {
            0..=3 if wishes => add(at, Step::Wish(WEB.to_owned(), images(rng, schedule))),
            0..=3 => add(at, Step::RestartAt(WEB.to_owned(), "two".into())),
            4..=6 => add(at, Step::DeletePod(pod)),
            7 => add(at, Step::ForceDeletePod(pod)),
            8 | 9 => add(at, Step::RestartAt(WEB.to_owned(), "three".into())),
            10 | 11 => {
                add(at, Step::PauseRollout(WEB.to_owned(), true));
                add(at + rng.below(20_000), Step::PauseRollout(WEB.to_owned(), false));
            }
            12 => {
                add(at, Step::DeleteRollout(WEB.to_owned()));
                let later = rng.pick(&[None, Some(0), Some(0), Some(25_000)]).unwrap();
                if let Some(later) = later {
                    let again = rollout(rng, schedule, wishes);
                    add(at + later + near(rng), again);
                }
            }
            _ => add(at + rng.below(60_000), Step::RetryRollout(WEB.to_owned())),
        }
    }
    schedule.steps = steps;
}
