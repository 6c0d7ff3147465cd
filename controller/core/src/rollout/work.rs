//! What a rollout does to Pods: a restart, or an update to the template of their workload.

use std::collections::BTreeMap;

use pitstop_api::rollout::{Restart, TargetKind};

use super::child::KINDS;
use super::selected::Wish;
use super::{Rollout, child};
use crate::deed::Deed;
use crate::hold::admission::other_class;
use crate::key::{KindId, ObjectKey};
use crate::kind::{Around, Relative};
use crate::pod::{Container, Pod};
use crate::template::{Change, Image, Lacks, Size, Wanted, same_image, same_repository};
use crate::workload::{Sets, Template, Workload, revision_hash};

/// What is done to Pods.
pub struct Work<'a> {
    /// What the names of its requests have in common.
    pub(super) mark: String,
    /// What of it.
    pub(super) what: What<'a>,
    /// Pods of a `StatefulSet` with lower ordinals are left alone.
    pub(super) partition: u32,
    /// Pods go back to what they had before.
    pub(super) back: bool,
}

/// A restart, or an update.
pub(super) enum What<'a> {
    /// The containers are restarted.
    Restart(&'a Restart),
    /// The containers get the images of the template.
    Update(Revisions<'a>),
}

/// What Pods lack, by their revisions.
pub(super) struct Revisions<'a> {
    /// The revision of Pods that lack nothing.
    pub(super) revision: &'a str,
    hash: u64,
    /// What a selector's Pods are to have, which have no template.
    wish: Option<Wish<'a>>,
    changes: BTreeMap<u64, &'a Change>,
    /// What only the template of a `Deployment` has.
    sets: Option<&'a Sets>,
    /// Nobody knows what Pods without a revision have: requests of another rollout may have changed them.
    unsure: bool,
}

impl<'a> Work<'a> {
    /// That restart.
    pub(super) fn restart(rollout: &Rollout, restart: &'a Restart, workload: &Workload) -> Self {
        let mark = child::mark(rollout, &restart.restarted_at);
        Self { mark, what: What::Restart(restart), partition: workload.partition, back: false }
    }

    /// The update to that revision; `partition`: of the workload when it is not parked.
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
        Self { mark: mark_of(rollout, revision), what: What::Update(revisions), partition, back: false }
    }

    /// Selected Pods get what the spec says, which is that revision.
    pub(super) fn selected(rollout: &'a Rollout, revision: &'a str) -> Self {
        let (hash, wish) = (revision_hash(revision), Some(Wish::of(&rollout.spec)));
        let revisions =
            Revisions { revision, hash, wish, changes: BTreeMap::new(), sets: None, unsure: false };
        Self { mark: mark_of(rollout, revision), what: What::Update(revisions), partition: 0, back: false }
    }

    /// The request for that Pod that is under way, or is to be made: the first that has not succeeded. Nothing where each has. All
    /// for one Pod have the same name.
    pub(super) fn step<'b>(
        &self,
        rollout: &Rollout,
        pod: &Pod,
        around: &'b dyn Around<Rollout>,
    ) -> Result<Option<Step<'b>>, String> {
        let key = child::key(&self.mark, pod);
        let asks = self.steps(rollout, pod)?;
        let last = asks.len().saturating_sub(1);
        let steps = asks.into_iter().enumerate().map(|(i, asks)| {
            let request = around.relative(asks.kind(), &key);
            Step { asks, request, last: i == last }
        });
        let done = |step: &Step<'_>| {
            let request = step.request.as_ref().filter(|request| request.is_of(&rollout.uid));
            request.and_then(|request| request.ended).is_some_and(|ended| ended.complete)
        };
        let next = steps.into_iter().find(|step| !done(step));
        let open = match &self.what {
            What::Restart(_) => None,
            What::Update(_) => open(rollout, &key, around),
        };
        Ok(open.or(next))
    }

    /// What the Pod is asked for, one after another.
    fn steps(&self, rollout: &Rollout, pod: &Pod) -> Result<Vec<Asks>, String> {
        let restarts = |but: &[Image]| {
            let left = child::containers(rollout, pod).map(|container| container.name.clone());
            let left = left.filter(|name| !but.iter().any(|image| image.container == *name));
            Asks::Restart(left.collect())
        };
        match &self.what {
            What::Restart(_) => Ok(vec![restarts(&[])]),
            What::Update(revisions) => {
                let Lacks { sizes, images, restart } = revisions.lacks(pod)?;
                let restart = if restart { restarts(&images) } else { Asks::Restart(Vec::new()) };
                let steps = [Asks::Resources(sizes), Asks::Images(images), restart];
                Ok(steps.into_iter().filter(Asks::is_some).collect())
            }
        }
    }
}

/// The first request of that name that has not succeeded. Where what a Pod lacks is told by what it has, it has that before the
/// request is over.
fn open<'a>(rollout: &Rollout, key: &ObjectKey, around: &'a dyn Around<Rollout>) -> Option<Step<'a>> {
    let requests = KINDS.into_iter().filter_map(|kind| around.relative(kind, key));
    let mut own = requests.filter(|request| request.is_of(&rollout.uid));
    let open = own.find(|request| !request.ended.is_some_and(|ended| ended.complete))?;
    // It was asked for already.
    Some(Step { asks: Asks::Images(Vec::new()), request: Some(open), last: true })
}

/// What a request asks for.
pub(super) enum Asks {
    /// A restart of those containers.
    Restart(Vec<String>),
    /// Those images.
    Images(Vec<Image>),
    /// Those resources.
    Resources(Vec<Size>),
}

impl Asks {
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

/// One of them, and what is there under its name.
pub(super) struct Step<'a> {
    pub(super) asks: Asks,
    pub(super) request: Option<Relative<'a>>,
    /// Nothing follows it.
    pub(super) last: bool,
}

impl Work<'_> {
    /// The Pod is of the revision that the work gives it, whatever its requests say.
    pub(super) fn is_marked(&self, rollout: &Rollout, pod: &Pod) -> bool {
        matches!(&self.what, What::Update(revisions) if revisions.is(revision_of(rollout, pod)))
    }

    /// What tells its controller of which revision the Pod is now.
    pub(super) fn tell(&self, rollout: &Rollout, pod: &Pod) -> Option<Deed> {
        let What::Update(revisions) = &self.what else { return None };
        Some(mark(rollout, pod, revisions.revision))
    }
}

/// What the names of the requests of an update to that revision have in common.
pub(super) fn mark_of(rollout: &Rollout, revision: &str) -> String {
    child::mark(rollout, &format!("revision {revision}"))
}

/// Writes down of which revision the Pod is.
pub(super) fn mark(rollout: &Rollout, pod: &Pod, revision: &str) -> Deed {
    Deed::MarkPod {
        key: pod.key.clone(),
        uid: pod.uid.clone(),
        resource_version: pod.resource_version.clone(),
        revision: revision.to_owned(),
        of: rollout.spec.kind(),
    }
}

/// [Hash](revision_hash) of the revision of the Pod, as far as the rollout goes by it.
pub(super) fn revision_of(rollout: &Rollout, pod: &Pod) -> u64 {
    if rollout.spec.selector.is_some() { pod.marked } else { pod.revision }
}

impl Revisions<'_> {
    /// A Pod of that revision lacks nothing. A `Deployment` makes Pods without one.
    pub(super) fn is(&self, revision: u64) -> bool {
        revision == self.hash || (revision == 0 && self.swapped())
    }

    /// A Pod of that revision that has been given what it lacks will lack nothing: without a mark, it is what its `ReplicaSet` is, and
    /// that gets the new template when all Pods are updated.
    pub(super) fn will_be(&self, revision: u64) -> bool {
        self.is(revision) || (revision == 0 && self.sets.is_some())
    }

    /// New Pods are made of the new template. One without a revision may be older than that all the same.
    pub(super) fn swapped(&self) -> bool {
        self.sets.is_some_and(Sets::swapped)
    }

    /// What the Pod is to get. Images and resources are those that its revision lacks, and those that it has of yet another
    /// revision: an update to that one may have been given up. What admission has made of a Pod is never compared.
    fn lacks(&self, pod: &Pod) -> Result<Lacks, String> {
        let lacks = match &self.wish {
            Some(_) if pod.marked == self.hash => Lacks::default(),
            Some(wish) => wish.lacks(pod)?,
            None => self.lacks_of_template(pod)?,
        };
        let of = |container: &Container| {
            let size = lacks.sizes.iter().find(|size| size.container == container.name);
            let own = container.resources.effective();
            size.map_or(own, |size| size.resources.over(own))
        };
        match other_class(pod, of).filter(|_| !lacks.sizes.is_empty()) {
            Some(why) => Err(why),
            None => Ok(lacks),
        }
    }

    /// The same by the templates that are kept.
    fn lacks_of_template(&self, pod: &Pod) -> Result<Lacks, String> {
        Ok(match (self.changes.get(&pod.revision), self.sets) {
            (Some(Change::InPlace(lacks)), Some(sets)) if pod.revision == 0 && self.unsure => {
                // Resources that admission has given it are left alone.
                let images = self.compared(pod, sets).images;
                self.with_others(Lacks { images, ..lacks.clone() }, pod)
            }
            (Some(Change::InPlace(lacks)), _) => self.with_others(lacks.clone(), pod),
            (Some(Change::Other(why)), _) => return Err(why.clone()),
            (None, _) if pod.revision == self.hash => self.with_others(Lacks::default(), pod),
            (None, Some(sets)) => self.compared(pod, sets),
            (None, None) => return Err(format!("the revision of Pod {} is not kept", pod.key.name)),
        })
    }

    /// With what the Pod has of another revision.
    fn with_others(&self, lacks: Lacks, pod: &Pod) -> Lacks {
        let Lacks { mut sizes, mut images, restart } = lacks;
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
        Lacks { sizes, images, restart }
    }

    /// The same of a Pod of which nobody knows what an update has left it with.
    fn compared(&self, pod: &Pod, sets: &Sets) -> Lacks {
        let none = Lacks::default();
        let change = match self.changes.get(&0) {
            Some(Change::InPlace(lacks)) => lacks,
            Some(Change::Other(_)) | None => &none,
        };
        let mut lacks = Lacks { restart: change.restart, ..Lacks::default() };
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
            |before: &str| Change::InPlace(Lacks { images: vec![image(before)], ..Lacks::default() });
        let (first, second) = (images("web:v1"), images("web:v2"));
        let other = Change::Other("spec.template.spec.x differs".into());
        let template = Template {
            changes: [("a", first), ("b", second), ("c", Change::InPlace(Lacks::default())), ("d", other)]
                .map(|(label, change)| (label.to_owned(), change))
                .into(),
            ..Template::default()
        };
        let rollout = super::super::tests::rollout("StatefulSet", &serde_json::json!({}));
        let work = Work::update(&rollout, "c", &template, 0);
        let What::Update(revisions) = &work.what else { panic!() };
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
        assert_eq!(revisions.lacks(&without), Ok(Lacks::default()), "it has no such container");
    }

    #[test]
    fn resources_that_a_pod_has_already_are_not_lacking() {
        let cpu = |cpu| Resources { cpu_request: Some(cpu), ..Resources::default() };
        let sized = |before, resources| {
            let size = Size { container: "app".into(), resources, before };
            Change::InPlace(Lacks { sizes: vec![size], ..Lacks::default() })
        };
        // One revision had none of them, and one had less.
        let changes = [("a", sized(Resources::default(), cpu(300))), ("b", sized(cpu(200), cpu(300)))];
        let template = Template {
            changes: changes.map(|(label, change)| (label.to_owned(), change)).into(),
            ..Template::default()
        };
        let rollout = super::super::tests::rollout("StatefulSet", &serde_json::json!({}));
        let work = Work::update(&rollout, "c", &template, 0);
        let What::Update(revisions) = &work.what else { panic!() };
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
