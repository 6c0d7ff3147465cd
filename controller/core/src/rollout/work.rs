//! What a rollout does to Pods: a restart, or an update to the template of their workload.

use std::collections::BTreeMap;

use pitstop_api::image::Reference;
use pitstop_api::rollout::Restart;

use super::{Rollout, child};
use crate::deed::Deed;
use crate::key::{KindId, ObjectKey};
use crate::pod::Pod;
use crate::template::{Change, Image};
use crate::workload::{Template, Workload, revision_hash};

/// What is done to Pods.
pub struct Work<'a> {
    /// What the names of its requests have in common.
    pub(super) mark: String,
    /// What of it.
    pub(super) what: What<'a>,
    /// Pods of a `StatefulSet` with lower ordinals are left alone.
    pub(super) partition: u32,
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
    changes: BTreeMap<u64, &'a Change>,
}

impl<'a> Work<'a> {
    /// That restart.
    pub(super) fn restart(rollout: &Rollout, restart: &'a Restart, workload: &Workload) -> Self {
        let mark = child::mark(rollout, &restart.restarted_at);
        Self { mark, what: What::Restart(restart), partition: workload.partition }
    }

    /// The update to that revision; `partition`: of the workload when it is not parked.
    pub(super) fn update(
        rollout: &Rollout,
        revision: &'a str,
        template: &'a Template,
        partition: u32,
    ) -> Self {
        let changes = template.changes.iter().map(|(label, change)| (revision_hash(label), change)).collect();
        let revisions = Revisions { revision, hash: revision_hash(revision), changes };
        Self {
            mark: child::mark(rollout, &format!("revision {revision}")),
            what: What::Update(revisions),
            partition,
        }
    }

    /// The kind of its requests.
    pub(super) fn kind(&self) -> KindId {
        match self.what {
            What::Restart(_) => child::RESTARTS,
            What::Update(_) => child::UPDATES,
        }
    }

    /// The request for that Pod.
    pub(super) fn request(&self, pod: &Pod) -> ObjectKey {
        child::key(&self.mark, pod)
    }
}

impl Work<'_> {
    /// What tells its controller of which revision the Pod is now.
    pub(super) fn tell(&self, pod: &Pod) -> Option<Deed> {
        let What::Update(revisions) = &self.what else { return None };
        Some(Deed::MarkPod {
            key: pod.key.clone(),
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
            revision: revisions.revision.to_owned(),
        })
    }
}

impl Revisions<'_> {
    /// The Pod has its mark, and its controller takes it for one of that revision.
    pub(super) fn marked(&self, pod: &Pod) -> bool {
        pod.revision == self.hash
    }

    /// The same of a Pod that was listed.
    pub(super) fn is(&self, revision: u64) -> bool {
        revision == self.hash
    }

    /// The images that the Pod is to get, those that its revision lacks and those that it has of yet another revision: an update
    /// to that one may have been given up. What admission has made of an image is never compared.
    pub(super) fn images(&self, pod: &Pod) -> Result<Vec<Image>, String> {
        let mut images = match self.changes.get(&pod.revision) {
            Some(Change::Images(images)) => images.clone(),
            Some(Change::Other(why)) => return Err(why.clone()),
            None if self.marked(pod) => Vec::new(),
            None => return Err(format!("the revision of Pod {} is not kept", pod.key.name)),
        };
        for change in self.changes.values() {
            let Change::Images(others) = change else { continue };
            for other in others {
                let has = pod.container(&other.container).is_some_and(|c| same(&c.image, &other.before));
                if has && !images.iter().any(|image| image.container == other.container) {
                    images.push(other.clone());
                }
            }
        }
        images.retain(|image| pod.container(&image.container).is_some());
        Ok(images)
    }
}

/// A Pod has the image that a template names: the digest that was pulled for it may stand behind.
fn same(has: &str, named: &str) -> bool {
    let (Ok(has), Ok(named)) = (Reference::parse(has), Reference::parse(named)) else { return false };
    let tag = |of: &Reference| of.tag.clone();
    let digest = named.digest.is_none() || named.digest == has.digest;
    digest && has.same_repository(&named) && (tag(&has) == tag(&named) || named.digest.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::container;

    const DIGEST: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";

    #[test]
    fn a_digest_that_was_pulled_for_a_tag_says_nothing_against_it() {
        let pinned = format!("shop/web:v1@{DIGEST}");
        for (has, named, is) in [
            ("shop/web:v1", "docker.io/shop/web:v1", true),
            (&*pinned, "shop/web:v1", true),
            (&*pinned, &*pinned, true),
            ("shop/web:v1", &*pinned, false),
            ("shop/web:v2", "shop/web:v1", false),
            ("mirror/web:v1", "shop/web:v1", false),
            ("", "shop/web:v1", false),
        ] {
            assert_eq!(same(has, named), is, "{has} {named}");
        }
    }

    fn image(before: &str) -> Image {
        Image { container: "app".into(), image: "web:v3".into(), before: before.into() }
    }

    #[test]
    fn a_pod_gets_what_its_revision_lacks_and_what_it_has_of_yet_another() {
        let (first, second) = (Change::Images(vec![image("web:v1")]), Change::Images(vec![image("web:v2")]));
        let other = Change::Other("spec.template.spec.x differs".into());
        let template = Template {
            changes: [("a", first), ("b", second), ("c", Change::Images(vec![])), ("d", other)]
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
            revisions
                .images(&pod(label, image))
                .map(|images| images.into_iter().map(|i| i.image).collect::<Vec<_>>())
        };
        let new = Ok(vec!["web:v3".to_owned()]);
        assert_eq!(gets("a", "web:v1"), new);
        assert_eq!(gets("a", "mirror/web:what-admission-made-of-it"), new);
        assert_eq!(gets("c", "mirror/web:what-admission-made-of-it"), Ok(vec![]));
        assert_eq!(gets("c", &format!("web:v2@{DIGEST}")), new, "of an update that was given up");
        assert_eq!(gets("d", "web:v1"), Err("spec.template.spec.x differs".into()));
        assert!(gets("e", "web:v1").unwrap_err().contains("is not kept"));
        let without = Pod { revision: revision_hash("a"), ..Pod::default() };
        assert_eq!(revisions.images(&without), Ok(vec![]), "it has no such container");
    }
}
