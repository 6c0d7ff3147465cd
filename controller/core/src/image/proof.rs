//! What proves that a node has an image without its daemon being asked: a container that runs it there.

use pitstop_api::image::Reference;
use pitstop_api::nodework::{PullPolicy, Pulled};

use super::judge::is_pulled;
use super::observe::ImageUpdate;
use crate::pod::{ContainerState, Pod};

/// The images that the request asks for and that the node has, by the names of the containers that are to get them. `other` has had
/// them pulled there, and `runs` is its Pod as it is now. Only a digest names the same image twice; and a kubelet that asks the registry
/// at every start needs the daemon's word that it can be asked.
pub(super) fn proven(
    request: &ImageUpdate,
    pod: &Pod,
    (other, runs): (&ImageUpdate, &Pod),
) -> Vec<(String, Pulled)> {
    if runs.node != pod.node || !other.is_for(runs) || runs.gone() {
        return Vec::new();
    }
    // A kubelet looks for an image by its repository, too.
    let has = |wanted: &Reference| {
        other.status.containers.iter().find_map(|told| {
            let asked = other.spec.containers.iter().find(|asked| asked.name == told.name)?;
            let same = Reference::parse(&asked.image).is_ok_and(|asked| asked.same_repository(wanted));
            let pulled =
                told.pulled.as_ref().filter(|it| same && wanted.digest.as_ref() == Some(&it.digest))?;
            let now = runs.container(&told.name)?.status.as_ref()?;
            (now.state == ContainerState::Running && is_pulled(&now.image_id, pulled)).then_some(pulled)
        })
    };
    let wanted = request.spec.containers.iter().filter_map(|wanted| {
        let own = pod.container(&wanted.name).filter(|own| own.pull_policy != PullPolicy::Always)?;
        let has = has(&Reference::parse(&wanted.image).ok()?)?;
        let pulled = Pulled { milliseconds: 0, present: true, ..has.clone() };
        Some((own.name.clone(), pulled))
    });
    wanted.collect()
}
