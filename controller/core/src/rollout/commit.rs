//! When a workload's controller takes existing Pods for Pods of the new template.
//!
//! A `Deployment` judges by the templates of its `ReplicaSet`s. Once every Pod is updated, the one with Pods gets the
//! new template. Before that, another one keeps the old template, for `kubectl rollout history` and `undo`.

use pitstop_api::rollout::TargetKind;

use crate::deed::CommitStep;
use crate::template::Change;
use crate::workload::{Set, Template};

/// What is left to do when all Pods are updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// This write into a `ReplicaSet`. The second value is the one with Pods.
    Step(CommitStep, Box<Set>),
    /// The workload's controller has something to do.
    Controller,
    /// Nothing: the workload can be released.
    Nothing,
}

/// What is left to do. `partition`: the user's, below which the controller keeps making Pods of the old revision.
/// `of_revision`: how many Pods have the new one. When released, a `StatefulSet`'s controller deletes each of these
/// whose mark it has not seen.
pub(super) fn left(kind: TargetKind, template: &Template, partition: u32, of_revision: usize) -> Left {
    let counted = match kind {
        TargetKind::StatefulSet => {
            let all = usize::try_from(template.updated).is_ok_and(|updated| updated >= of_revision);
            all && (template.committed || partition > 0)
        }
        TargetKind::Deployment | TargetKind::DaemonSet => template.committed,
    };
    let counted = if counted { Left::Nothing } else { Left::Controller };
    if kind != TargetKind::Deployment {
        return counted;
    }
    let sets = &template.sets;
    let Some(active) = sets.active.first() else { return Left::Controller };
    let step = |step| Left::Step(step, Box::new(active.clone()));
    let older = |set: &&Set| (set.created, &set.version.name) < (active.created, &active.version.name);
    match (sets.others.iter().find(|set| set.new), active.new) {
        // Among those with its template, a Deployment gives the Pods to the oldest.
        (Some(set), true) if older(&set) => step(CommitStep::Void(set.clone())),
        (_, true) if active.seen => counted,
        (_, true) => Left::Controller,
        (Some(set), false) => step(CommitStep::Keep(set.clone())),
        (None, false) if sets.kept && !sets.others.iter().any(|set| set.old) => step(CommitStep::Make),
        (None, false) => step(CommitStep::Swap),
    }
}

/// Why a `Deployment` cannot be updated in place. None if it can, or for other kinds.
pub(super) fn why_not_in_place(kind: TargetKind, template: &Template) -> Option<String> {
    // The revision of a Deployment does not include such changes.
    if let (TargetKind::Deployment, Some(Change::Other(why))) = (kind, template.changes.get("")) {
        return Some(why.clone());
    }
    let mut names = template.sets.active.iter().map(|set| &set.version.name);
    match (kind, names.next(), names.next()) {
        (TargetKind::Deployment, None, _) => Some("no ReplicaSet of it has Pods".to_owned()),
        (_, Some(one), Some(other)) => {
            Some(format!("ReplicaSets {one} and {other} have Pods: a rolling update is under way"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Sets, Version};

    fn set(name: &str, created: i64) -> Set {
        let version = Version { name: name.into(), uid: name.into(), resource_version: "1".into() };
        Set { created, version, seen: true, ..Set::default() }
    }

    fn with(active: &[Set], others: &[Set]) -> Template {
        let (active, others) = (active.to_vec(), others.to_vec());
        let sets = Sets { active, others, kept: true, ..Sets::default() };
        Template { committed: true, sets, ..Template::default() }
    }

    fn of(active: &Set, others: &[Set]) -> Left {
        left(TargetKind::Deployment, &with(std::slice::from_ref(active), others), 0, 1)
    }

    #[test]
    fn the_old_template_is_kept_before_the_new_one_is_written() {
        let active = Set { old: true, ..set("a", 2) };
        let step = |step| Left::Step(step, Box::new(active.clone()));
        assert_eq!(of(&active, &[]), step(CommitStep::Make));
        let new = Set { new: true, ..set("b", 1) };
        assert_eq!(of(&active, &[set("c", 0), new.clone()]), step(CommitStep::Keep(new)));
        let kept = Set { old: true, ..set("b", 3) };
        assert_eq!(of(&active, &[kept]), step(CommitStep::Swap));
        let mut none_kept = with(std::slice::from_ref(&active), &[]);
        none_kept.sets.kept = false;
        assert_eq!(left(TargetKind::Deployment, &none_kept, 0, 1), step(CommitStep::Swap));
    }

    #[test]
    fn it_is_over_once_both_controllers_have_seen_it() {
        let active = Set { old: true, new: true, ..set("a", 2) };
        let others = [set("b", 1)];
        assert_eq!(of(&active, &others), Left::Nothing);
        assert_eq!(of(&Set { seen: false, ..active.clone() }, &others), Left::Controller);
        let uncounted = Template { committed: false, ..with(&[active], &others) };
        assert_eq!(left(TargetKind::Deployment, &uncounted, 0, 1), Left::Controller);
        let without = with(&[], &others);
        assert_eq!(left(TargetKind::Deployment, &without, 0, 1), Left::Controller, "it has no Pods");
    }

    #[test]
    fn a_stateful_set_has_to_have_counted_every_mark() {
        let left = |committed, partition, updated| {
            let template = Template { committed, updated, ..Template::default() };
            left(TargetKind::StatefulSet, &template, partition, 3)
        };
        assert_eq!(left(true, 0, 3), Left::Nothing);
        assert_eq!(left(false, 0, 3), Left::Controller, "it makes Pods of the old revision");
        assert_eq!(left(false, 2, 3), Left::Nothing, "its user wants that of some");
        // The template went to another revision and back, so the previous revision is this one.
        assert_eq!(left(true, 0, 2), Left::Controller);
        assert_eq!(left(false, 2, 2), Left::Controller);
    }

    /// The template goes back to the old one between the two writes.
    #[test]
    fn an_older_one_of_the_same_template_would_get_the_pods() {
        let active = Set { old: true, new: true, ..set("a", 2) };
        let same = |created| Set { old: true, new: true, ..set("b", created) };
        let void = Left::Step(CommitStep::Void(same(1)), Box::new(active.clone()));
        assert_eq!(of(&active, &[same(1)]), void);
        assert_eq!(of(&active, &[same(2)]), Left::Nothing, "by its name, it comes later");
        assert_eq!(of(&active, &[same(3)]), Left::Nothing);
    }

    #[test]
    fn of_two_that_have_pods_none_is_the_one() {
        let (one, two) = (set("a", 1), set("b", 2));
        let why = why_not_in_place(TargetKind::Deployment, &with(&[one.clone(), two.clone()], &[])).unwrap();
        assert_eq!(why, "ReplicaSets a and b have Pods: a rolling update is under way");
        assert!(why_not_in_place(TargetKind::Deployment, &with(&[], std::slice::from_ref(&one))).is_some());
        assert_eq!(why_not_in_place(TargetKind::Deployment, &with(&[one], &[two])), None);
        assert_eq!(why_not_in_place(TargetKind::StatefulSet, &Template::default()), None);
    }
}
