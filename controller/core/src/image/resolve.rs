//! What a request means for its Pod.

use pitstop_api::Invalid;
use pitstop_api::image::Reference;
use pitstop_api::image_update::{Before, ContainerImage, ContainerStatus, MAX_IMAGE, PodImageUpdateSpec};
use pitstop_api::text::quoted;

use crate::change::ImageChange;
use crate::pod::{Container, ContainerKind, ContainerState, Pod};

/// The state of the named containers in the Pod. Fails if the Pod cannot have the wanted images.
pub(super) fn resolve(spec: &PodImageUpdateSpec, pod: &Pod) -> Result<Vec<ContainerStatus>, Invalid> {
    if pod.mirror {
        let text =
            format!("Pod {} is a static Pod's mirror: change the static Pod's file on its node", pod.key);
        return Err(Invalid::new("spec.podRef", text));
    }
    if pod.node.is_none() {
        let text = format!("Pod {} is not scheduled yet: nothing of it runs", pod.key);
        return Err(Invalid::new("spec.podRef", text));
    }
    let each = spec.containers.iter().enumerate();
    each.map(|(i, wanted)| {
        let of = |(field, text): (&str, String)| Invalid::new(format!("spec.containers[{i}].{field}"), text);
        container(wanted, pod).map_err(of)
    })
    .collect()
}

/// The state of one container. Fails with the wrong field, and why.
fn container(wanted: &ContainerImage, pod: &Pod) -> Result<ContainerStatus, (&'static str, String)> {
    let found = pod
        .container(&wanted.name)
        .ok_or_else(|| ("name", format!("Pod {} has no container {}", pod.key, quoted(&wanted.name))))?;
    match found.kind {
        ContainerKind::Main | ContainerKind::Sidecar => {}
        ContainerKind::Init => {
            return Err(("name", format!("{} is an init container, which has run already", wanted.name)));
        }
        ContainerKind::Ephemeral => {
            let text = format!("{} is an ephemeral container, whose image cannot change", wanted.name);
            return Err(("name", text));
        }
    }
    let new = Reference::parse(&wanted.image).map_err(|why| ("image", why))?;
    let old = Reference::parse(&found.image).map_err(|why| {
        ("image", format!("the container's own image {} cannot be read: {why}", quoted(&found.image)))
    })?;
    if !new.same_repository(&old) {
        let text = format!(
            "{} is of another repository than the container's own image {}: only its tag and digest can change",
            wanted.image, found.image
        );
        return Err(("image", text));
    }
    Ok(ContainerStatus { name: wanted.name.clone(), before: snapshot(found), ..ContainerStatus::default() })
}

/// The state of a container, noted when a request is accepted, and again before its Pod is changed. So a restart in
/// between is not mistaken for the new image, and a rollback restores what another request has written.
pub(super) fn snapshot(container: &Container) -> Before {
    let image = container.image.clone();
    container.status.as_ref().map_or_else(
        || Before { image: image.clone(), ..Before::default() },
        |now| Before {
            image: image.clone(),
            image_id: now.image_id.clone(),
            container_id: now.container_id.clone(),
            restart_count: now.restart_count,
            running: now.state == ContainerState::Running,
            ready: now.ready,
        },
    )
}

/// The image strings of the request, as changes of the Pod.
pub(super) fn asked(spec: &PodImageUpdateSpec, pod: &Pod) -> Vec<ImageChange> {
    let of = |name: &str| spec.containers.iter().find(|wanted| wanted.name == *name);
    changes(pod, |name| of(name).map(|wanted| wanted.image.as_str()))
}

/// The changes that give containers the images that `of` names, in the Pod's order, which a patch must not change.
pub(super) fn changes<'a>(pod: &Pod, of: impl Fn(&str) -> Option<&'a str>) -> Vec<ImageChange> {
    pod.containers.iter().filter_map(|container| change(pod, &container.name, of(&container.name)?)).collect()
}

/// The change that gives a container this image; `None` if it has it, or does not exist.
pub(super) fn change(pod: &Pod, name: &str, image: &str) -> Option<ImageChange> {
    let container = pod.container(name).filter(|container| container.image != image)?;
    let init = container.kind != ContainerKind::Main;
    Some(ImageChange { container: name.to_owned(), init, image: image.to_owned(), tried: false })
}

/// Image strings that give a container its old image back. The kubelet keeps a container in back-off that it started
/// with the same string a short while ago; each of these is another string for the same image.
pub(super) fn ways_back(before: &Before) -> Vec<String> {
    let reference = Reference::parse(&before.image).ok();
    let digest = before.image_id.rsplit_once('@').map(|(_, digest)| digest);
    let forms = reference.zip(digest).map(|(reference, digest)| {
        let with = |tag: Option<String>| Reference { tag, ..reference.clone() }.with_digest(digest);
        [
            with(reference.own_tag().map(str::to_owned)),
            reference.back_form(digest),
            with(None),
            with(Some("back".to_owned())),
        ]
    });
    let mut ways = vec![before.image.clone()];
    for form in forms.into_iter().flatten().flatten() {
        if form.len() <= MAX_IMAGE && !ways.contains(&form) {
            ways.push(form);
        }
    }
    ways
}

/// The image string to write: with the digest that the node has pulled, so that the container gets exactly that.
pub(super) fn written(image: &str, digest: Option<&str>) -> String {
    let reference = Reference::parse(image).ok();
    let pinned = reference.zip(digest).and_then(|(reference, digest)| reference.with_digest(digest));
    pinned.unwrap_or_else(|| image.to_owned())
}
