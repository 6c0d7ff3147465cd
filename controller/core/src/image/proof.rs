//! What another update of the same rollout proves. The node has an image, because a container runs it there: its daemon
//! is not asked. And the API server would store the change, because it did for that Pod: no dry run is made.

use pitstop_api::image::Reference;
use pitstop_api::nodework::{PullPolicy, Pulled};

use super::judge::is_pulled;
use super::observe::ImageUpdate;
use super::resolve::{change, written};
use crate::change::ImageChange;
use crate::pod::{ContainerState, Pod};

/// What is proven.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Proof {
    /// The images that the node has, by the names of the containers that get them.
    pub(super) images: Vec<(String, Pulled)>,
    /// The changes of the Pod that the API server would store: all of them, or none.
    pub(super) stored: Vec<ImageChange>,
}

/// What `other` proves for the request: it had the images pulled on the node, and `other_pod` is its Pod now. Only a
/// digest always names the same image. A kubelet that asks the registry at every start needs the daemon's report that
/// it can ask. `recent`: the other update ended a short while ago, so admission is what it was. The Pods of a rollout
/// have one template, so admission treats them alike.
pub(super) fn proven(
    request: &ImageUpdate,
    pod: &Pod,
    (other, other_pod): (&ImageUpdate, &Pod),
    recent: bool,
) -> Proof {
    if other_pod.node != pod.node || !other.is_for(other_pod) || other_pod.gone() {
        return Proof::default();
    }
    // A kubelet also looks for an image by its repository.
    let has = |wanted: &Reference| {
        other.status.containers.iter().find_map(|status| {
            let asked = other.spec.containers.iter().find(|asked| asked.name == status.name)?;
            let same = Reference::parse(&asked.image).is_ok_and(|asked| asked.same_repository(wanted));
            let pulled =
                status.pulled.as_ref().filter(|it| same && wanted.digest.as_ref() == Some(&it.digest))?;
            let now = other_pod.container(&status.name)?.status.as_ref()?;
            (now.state == ContainerState::Running && is_pulled(&now.image_id, pulled)).then_some(pulled)
        })
    };
    let wanted = request.spec.containers.iter().filter_map(|wanted| {
        let own = pod.container(&wanted.name).filter(|own| own.pull_policy != PullPolicy::Always)?;
        let has = has(&Reference::parse(&wanted.image).ok()?)?;
        let pulled = Pulled { milliseconds: 0, present: true, ..has.clone() };
        Some((own.name.clone(), pulled))
    });
    let images: Vec<_> = wanted.collect();
    let stored = images.iter().filter_map(|(name, pulled)| {
        let wanted = request.spec.containers.iter().find(|wanted| wanted.name == *name)?;
        let image = written(&wanted.image, Some(&pulled.digest));
        let stored = other_pod.container(name).is_some_and(|container| container.image == image);
        change(pod, name, &image).filter(|_| stored)
    });
    let all = |stored: &Vec<_>| stored.len() == request.spec.containers.len();
    let stored = Some(stored.collect()).filter(|stored| recent && !request.spec.dry_run && all(stored));
    Proof { images, stored: stored.unwrap_or_default() }
}
