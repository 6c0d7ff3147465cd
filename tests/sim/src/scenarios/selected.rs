//! Rollouts that select Pods by their label, and give them images.

use super::{container, pod, scenario};
use crate::world::plan::{PodPlan, Schedule, Step};
use crate::world::rolling::{RolloutPlan, WorkloadPlan};

fn images(tag: &'static str) -> Vec<(crate::world::plan::Word, crate::world::plan::Word)> {
    vec![("app".into(), tag.into())]
}

fn wish(at: u64, tag: &'static str) -> (u64, Step) {
    (at, Step::Wish("web".to_owned(), images(tag)))
}

/// Two Pods of one container each, and a rollout that selects them.
fn one(name: &str, change: impl FnOnce(&mut RolloutPlan), steps: Vec<(u64, Step)>) -> Schedule {
    let member = |at| PodPlan { name: format!("web-{at}"), containers: vec![container("app")], ..pod() };
    let workload =
        WorkloadPlan { kind: "Deployment".into(), name: "web".to_owned(), ..WorkloadPlan::default() };
    let mut rollout = RolloutPlan {
        name: "web".to_owned(),
        selects: true,
        images: images("2"),
        soak: Some(1),
        progress_deadline: Some(60),
        ..RolloutPlan::default()
    };
    change(&mut rollout);
    let mut all = vec![(0, Step::Rollout(Box::new(rollout)))];
    all.extend(steps);
    Schedule {
        workload: Some(workload),
        ..scenario(&format!("selected Pods{name}"), (0..2).map(member).collect(), all)
    }
}

/// All scenarios of this file.
pub(super) fn all() -> Vec<Schedule> {
    let deleted = |at, pod: &str| (at, Step::DeletePod(pod.to_owned()));
    let plain = |_: &mut RolloutPlan| ();
    vec![
        one("", plain, Vec::new()),
        one(", both at once", |rollout| rollout.max_unavailable = Some("2".into()), Vec::new()),
        one(", a Pod made anew meanwhile", plain, vec![deleted(1_200, "web-1")]),
        one(", a Pod made anew later", plain, vec![deleted(40_000, "web-0")]),
        one(", another image meanwhile", plain, vec![wish(2_500, "3")]),
        one(", another image and back", plain, vec![wish(2_500, "3"), wish(5_000, "2")]),
        one(", another image later", plain, vec![wish(40_000, "3")]),
        one(", an image that crashes", |rollout| rollout.images = images("crash"), vec![wish(60_000, "2")]),
        one(", deleted meanwhile", plain, vec![(1_500, Step::DeleteRollout("web".to_owned()))]),
        one(", restarted, too", plain, vec![(40_000, Step::RestartAt("web".to_owned(), "one".into()))]),
        one(
            ", nothing but a restart",
            |rollout| (rollout.images, rollout.restarted_at) = (Vec::new(), Some("one".into())),
            Vec::new(),
        ),
    ]
}
