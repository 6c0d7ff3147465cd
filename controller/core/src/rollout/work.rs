//! What a rollout does to Pods: a restart, or an update to the template of their workload.

use std::collections::BTreeMap;

use pitstop_api::rollout::{Restart, TargetKind};

use super::child::KINDS;
use super::selected::Wish;
use super::{Rollout, child};
use crate::deed::Deed;
use crate::hold::admission::qos_change;
use crate::key::{KindId, ObjectKey};
use crate::kind::{Lookup, Relative};
use crate::pod::{Container, Pod};
use crate::template::{Change, Delta, Image, Size, Wanted, same_image, same_repository};
use crate::workload::{Sets, Template, Workload, revision_hash};

/// The work of a rollout on its Pods.
pub struct Work<'a> {
    /// The names of all its requests contain it.
    pub(super) id: String,
    /// A restart or an update.
    pub(super) task: Task<'a>,
    /// Pods of a `StatefulSet` with lower ordinals are left alone.
    pub(super) partition: u32,
    /// Pods go back to what they had before.
    pub(super) back: bool,
}

/// A restart, or an update.
pub(super) enum Task<'a> {
    /// The containers are restarted.
    Restart(&'a Restart),
    /// The containers get what they lack.
    Update(Revisions<'a>),
}

/// What Pods lack, by their revisions.
pub(super) struct Revisions<'a> {
    /// The target revision, whose Pods lack nothing.
    pub(super) revision: &'a str,
    hash: u64,
    /// What selected Pods are to have: they have no template.
    wish: Option<Wish<'a>>,
    changes: BTreeMap<u64, &'a Change>,
    /// The `ReplicaSet`s of a `Deployment`; None for other kinds.
    sets: Option<&'a Sets>,
    /// The content of Pods without a revision is unknown: requests of another rollout may have changed them.
    unsure: bool,
}

impl<'a> Work<'a> {
    /// The work of a restart.
    pub(super) fn restart(rollout: &Rollout, restart: &'a Restart, workload: &Workload) -> Self {
        let id = child::work_id(rollout, &restart.restarted_at);
        Self { id, task: Task::Restart(restart), partition: workload.partition, back: false }
    }

    /// The work of an update to that revision. `partition`: that of the workload when it is not parked.
    pub(super) fn update(
        rollout: &Rollout,
        revision: &'a str,
        template: &'a Template,
        partition: u32,
    ) -> Self {
        let changes = template.changes.iter().map(|(label, change)| (revision_hash(label), change)).collect();
        let sets = (rollout.spec.kind() == Some(TargetKind::Deployment)).then_some(&template.sets);
        let unsure = rollout.status.update.as_ref().is_some_and(|update| update.from.is_none());
        let hash = revision_hash(revision);
        let revisions = Revisions { revision, hash, wish: None, changes, sets, unsure };
        Self { id: update_id(rollout, revision), task: Task::Update(revisions), partition, back: false }
    }

    /// The work that gives selected Pods what the spec says. `revision` identifies that.
    pub(super) fn selected(rollout: &'a Rollout, revision: &'a str) -> Self {
        let (hash, wish) = (revision_hash(revision), Some(Wish::of(&rollout.spec)));
        let revisions =
            Revisions { revision, hash, wish, changes: BTreeMap::new(), sets: None, unsure: false };
        Self { id: update_id(rollout, revision), task: Task::Update(revisions), partition: 0, back: false }
    }

    /// The first step for the Pod whose request has not succeeded, made or not. None if each has. All requests for one
    /// Pod have the same name. Err: why the Pod cannot be updated.
    pub(super) fn step<'b>(
        &self,
        rollout: &Rollout,
        pod: &Pod,
        lookup: &'b dyn Lookup<Rollout>,
    ) -> Result<Option<Step<'b>>, String> {
        let key = child::key(&self.id, pod);
        let payloads = self.payloads(rollout, pod)?;
        let last = payloads.len().saturating_sub(1);
        let steps = payloads.into_iter().enumerate().map(|(i, payload)| {
            let request = lookup.relative(payload.kind(), &key);
            Step { payload, request, last: i == last }
        });
        let done = |step: &Step<'_>| {
            let request = step.request.as_ref().filter(|request| request.is_of(&rollout.uid));
            request.and_then(|request| request.ended).is_some_and(|ended| ended.complete)
        };
        let next = steps.into_iter().find(|step| !done(step));
        let open = match &self.task {
            Task::Restart(_) => None,
            Task::Update(_) => open(rollout, &key, lookup),
        };
        Ok(open.or(next))
    }

    /// What the requests for the Pod ask for, in order.
    fn payloads(&self, rollout: &Rollout, pod: &Pod) -> Result<Vec<Payload>, String> {
        let restarts = |but: &[Image]| {
            let left = child::containers(rollout, pod).map(|container| container.name.clone());
            let left = left.filter(|name| !but.iter().any(|image| image.container == *name));
            Payload::Restart(left.collect())
        };
        match &self.task {
            Task::Restart(_) => Ok(vec![restarts(&[])]),
            Task::Update(revisions) => {
                let Delta { sizes, images, restart } = revisions.lacks(pod)?;
                let restart = if restart { restarts(&images) } else { Payload::Restart(Vec::new()) };
                let payloads = [Payload::Resources(sizes), Payload::Images(images), restart];
                Ok(payloads.into_iter().filter(Payload::is_some).collect())
            }
        }
    }
}

/// The first own request of that name that has not succeeded. A Pod may have what it lacked before its request ends.
fn open<'a>(rollout: &Rollout, key: &ObjectKey, lookup: &'a dyn Lookup<Rollout>) -> Option<Step<'a>> {
    let requests = KINDS.into_iter().filter_map(|kind| lookup.relative(kind, key));
    let mut own = requests.filter(|request| request.is_of(&rollout.uid));
    let open = own.find(|request| !request.ended.is_some_and(|ended| ended.complete))?;
    // The request exists, so nothing more is asked.
    Some(Step { payload: Payload::Images(Vec::new()), request: Some(open), last: true })
}

/// What a request asks for.
pub(super) enum Payload {
    /// A restart of those containers.
    Restart(Vec<String>),
    /// New images.
    Images(Vec<Image>),
    /// New resources.
    Resources(Vec<Size>),
}

impl Payload {
    /// The kind of the request.
    pub(super) fn kind(&self) -> KindId {
        match self {
            Self::Restart(_) => child::RESTARTS,
            Self::Images(_) => child::UPDATES,
            Self::Resources(_) => child::RESIZES,
        }
    }

    fn is_some(&self) -> bool {
        match self {
            Self::Restart(containers) => !containers.is_empty(),
            Self::Images(images) => !images.is_empty(),
            Self::Resources(sizes) => !sizes.is_empty(),
        }
    }
}

/// A step for one Pod, and the request under its name.
pub(super) struct Step<'a> {
    pub(super) payload: Payload,
    pub(super) request: Option<Relative<'a>>,
    /// No step follows.
    pub(super) last: bool,
}

impl Work<'_> {
    /// Whether the Pod is of the revision of this work, whatever its requests say.
    pub(super) fn is_marked(&self, rollout: &Rollout, pod: &Pod) -> bool {
        matches!(&self.task, Task::Update(revisions) if revisions.is_target(revision_of(rollout, pod)))
    }

    /// Marks the Pod for the workload's controller. None for a restart.
    pub(super) fn mark(&self, rollout: &Rollout, pod: &Pod) -> Option<Deed> {
        let Task::Update(revisions) = &self.task else { return None };
        Some(mark(rollout, pod, revisions.revision))
    }
}

/// ID of the update to that revision.
pub(super) fn update_id(rollout: &Rollout, revision: &str) -> String {
    child::work_id(rollout, &format!("revision {revision}"))
}

/// Marks the Pod with that revision.
pub(super) fn mark(rollout: &Rollout, pod: &Pod, revision: &str) -> Deed {
    Deed::MarkPod {
        key: pod.key.clone(),
        uid: pod.uid.clone(),
        resource_version: pod.resource_version.clone(),
        revision: revision.to_owned(),
        kind: rollout.spec.kind(),
    }
}

/// [Hash](revision_hash) of the Pod's revision that the rollout goes by.
pub(super) fn revision_of(rollout: &Rollout, pod: &Pod) -> u64 {
    if rollout.spec.selector.is_some() { pod.marked } else { pod.revision }
}

impl Revisions<'_> {
    /// Whether a Pod of that revision lacks nothing. A `Deployment` makes Pods without a revision.
    pub(super) fn is_target(&self, revision: u64) -> bool {
        revision == self.hash || (revision == 0 && self.swapped())
    }

    /// Whether a Pod of that revision lacks nothing once it was given what it lacks. A Pod without a mark follows its
    /// `ReplicaSet`, which gets the new template when all Pods are updated.
    pub(super) fn becomes_target(&self, revision: u64) -> bool {
        self.is_target(revision) || (revision == 0 && self.sets.is_some())
    }

    /// Whether new Pods have the new template. A Pod without a revision may still be older.
    pub(super) fn swapped(&self) -> bool {
        self.sets.is_some_and(Sets::swapped)
    }

    /// What the Pod lacks: what its revision lacks, and replacements for what it has of another revision. An update to
    /// that one may have been given up. Changes by admission are never compared. Err: why the Pod cannot get it.
    fn lacks(&self, pod: &Pod) -> Result<Delta, String> {
        let lacks = match &self.wish {
            Some(_) if pod.marked == self.hash => Delta::default(),
            Some(wish) => wish.lacks(pod)?,
            None => self.lacks_of_template(pod)?,
        };
        let of = |container: &Container| {
            let size = lacks.sizes.iter().find(|size| size.container == container.name);
            let own = container.resources.effective();
            size.map_or(own, |size| size.resources.over(own))
        };
        match qos_change(pod, of).filter(|_| !lacks.sizes.is_empty()) {
            Some(why) => Err(why),
            None => Ok(lacks),
        }
    }

    /// The same, by the templates that are kept.
    fn lacks_of_template(&self, pod: &Pod) -> Result<Delta, String> {
        Ok(match (self.changes.get(&pod.revision), self.sets) {
            (Some(Change::InPlace(lacks)), Some(sets)) if pod.revision == 0 && self.unsure => {
                // Resources that admission gave the Pod are left alone.
                let images = self.compared(pod, sets).images;
                self.with_others(Delta { images, ..lacks.clone() }, pod)
            }
            (Some(Change::InPlace(lacks)), _) => self.with_others(lacks.clone(), pod),
            (Some(Change::Other(why)), _) => return Err(why.clone()),
            (None, _) if pod.revision == self.hash => self.with_others(Delta::default(), pod),
            (None, Some(sets)) => self.compared(pod, sets),
            (None, None) => return Err(format!("the revision of Pod {} is not kept", pod.key.name)),
        })
    }

    /// Adds replacements for what the Pod has of another revision.
    fn with_others(&self, lacks: Delta, pod: &Pod) -> Delta {
        let Delta { mut sizes, mut images, restart } = lacks;
        let others = self.changes.values().filter_map(|change| match change {
            Change::InPlace(lacks) => Some(lacks),
            Change::Other(_) => None,
        });
        for other in others {
            for image in &other.images {
                if image.was_in(pod) && !images.iter().any(|known| known.container == image.container) {
                    images.push(image.clone());
                }
            }
            for size in &other.sizes {
                if size.was_in(pod) && !sizes.iter().any(|known| known.container == size.container) {
                    sizes.push(size.clone());
                }
            }
        }
        images.retain(|image| pod.container(&image.container).is_some());
        sizes.retain(|size| pod.container(&size.container).is_some());
        Delta { sizes, images, restart }
    }

    /// The same for a Pod that an update left in an unknown state.
    fn compared(&self, pod: &Pod, sets: &Sets) -> Delta {
        let none = Delta::default();
        let change = match self.changes.get(&0) {
            Some(Change::InPlace(lacks)) => lacks,
            Some(Change::Other(_)) | None => &none,
        };
        let mut lacks = Delta { restart: change.restart, ..Delta::default() };
        for (name, Wanted { image, resources }) in &sets.wanted {
            let Some(has) = pod.container(name) else { continue };
            let changes = change.images.iter().any(|image| image.container == *name);
            if !same_image(&has.image, image) && (changes || same_repository(&has.image, image).is_ok()) {
                let (container, image) = (name.clone(), image.clone());
                lacks.images.push(Image { container, image, before: has.image.clone() });
            }
            let own = has.resources.effective();
            if resources.over(own) != own {
                let (container, resources) = (name.clone(), *resources);
                lacks.sizes.push(Size { container, resources, before: own });
            }
        }
        lacks
    }
}

#[cfg(test)]
mod tests {
    use pitstop_api::quantity::Resources;

    use super::*;
    use crate::fixtures::container;

    fn image(before: &str) -> Image {
        Image { container: "app".into(), image: "web:v3".into(), before: before.into() }
    }

    #[test]
    fn a_pod_gets_what_its_revision_lacks_and_what_it_has_of_yet_another() {
        let images =
            |before: &str| Change::InPlace(Delta { images: vec![image(before)], ..Delta::default() });
        let (first, second) = (images("web:v1"), images("web:v2"));
        let other = Change::Other("spec.template.spec.x differs".into());
        let template = Template {
            changes: [("a", first), ("b", second), ("c", Change::InPlace(Delta::default())), ("d", other)]
                .map(|(label, change)| (label.to_owned(), change))
                .into(),
            ..Template::default()
        };
        let rollout = super::super::tests::rollout("StatefulSet", &serde_json::json!({}));
        let work = Work::update(&rollout, "c", &template, 0);
        let Task::Update(revisions) = &work.task else { panic!() };
        let pod = |label: &str, image: &str| Pod {
            revision: revision_hash(label),
            containers: vec![crate::pod::Container { image: image.into(), ..container("app") }],
            ..Pod::default()
        };
        let gets = |label: &str, image: &str| {
            let lacks = revisions.lacks(&pod(label, image));
            lacks.map(|lacks| lacks.images.into_iter().map(|i| i.image).collect::<Vec<_>>())
        };
        let new = Ok(vec!["web:v3".to_owned()]);
        assert_eq!(gets("a", "web:v1"), new);
        assert_eq!(gets("a", "mirror/web:what-admission-made-of-it"), new);
        assert_eq!(gets("c", "mirror/web:what-admission-made-of-it"), Ok(vec![]));
        assert_eq!(
            gets("c", &format!("web:v2@sha256:{}", "1".repeat(64))),
            new,
            "of an update that was given up"
        );
        assert_eq!(gets("d", "web:v1"), Err("spec.template.spec.x differs".into()));
        assert!(gets("e", "web:v1").unwrap_err().contains("is not kept"));
        let without = Pod { revision: revision_hash("a"), ..Pod::default() };
        assert_eq!(revisions.lacks(&without), Ok(Delta::default()), "it has no such container");
    }

    #[test]
    fn resources_that_a_pod_has_already_are_not_lacking() {
        let cpu = |cpu| Resources { cpu_request: Some(cpu), ..Resources::default() };
        let sized = |before, resources| {
            let size = Size { container: "app".into(), resources, before };
            Change::InPlace(Delta { sizes: vec![size], ..Delta::default() })
        };
        // Revision `a` had no resources, and `b` had less.
        let changes = [("a", sized(Resources::default(), cpu(300))), ("b", sized(cpu(200), cpu(300)))];
        let template = Template {
            changes: changes.map(|(label, change)| (label.to_owned(), change)).into(),
            ..Template::default()
        };
        let rollout = super::super::tests::rollout("StatefulSet", &serde_json::json!({}));
        let work = Work::update(&rollout, "c", &template, 0);
        let Task::Update(revisions) = &work.task else { panic!() };
        let lacks = |label: &str, has| {
            let containers = vec![Container { resources: cpu(has), ..container("app") }];
            let pod = Pod { revision: revision_hash(label), containers, ..Pod::default() };
            revisions.lacks(&pod).unwrap().sizes.len()
        };
        assert_eq!([lacks("a", 100), lacks("b", 200)], [1, 1]);
        assert_eq!(lacks("c", 300), 0);
        assert_eq!(lacks("c", 200), 1, "of an update that was given up");
        assert_eq!(lacks("c", 150), 0, "of somebody else");
    }
}
