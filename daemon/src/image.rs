//! Images, through the runtime: what the node has, what runs, and pulls without credentials.

use std::time::Duration;

use pitstop_cri::{ContainerId, Error, Runtime, keys, v1};
use pitstop_daemon_core::{CallFailure, Image, Look, NamedContainer, NewestContainer, PullFailure};
use pitstop_kit::describe;

use crate::disk::Disk;
use crate::runtime::{facts_from, failure};

/// What the runtime knows about a container, its new image, and the newest container of its name; with a disk, also the
/// free bytes.
pub(crate) async fn look(
    runtime: &Runtime,
    container_id: &ContainerId,
    pod_uid: &str,
    container: &str,
    image: &str,
    disk: Option<&Disk>,
) -> Result<Look, CallFailure> {
    let named = named(runtime, container_id).await?;
    let image = find(runtime, image).await?;
    let newest = newest(runtime, pod_uid, container).await?;
    let free = match disk {
        Some(disk) => disk.free(runtime).await,
        None => None,
    };
    let heir = match (&named, &newest) {
        (None, Some(newest)) => self::named(runtime, &newest.id).await?,
        _ => None,
    };
    Ok(Look { named, heir, image, newest, free })
}

async fn named(runtime: &Runtime, id: &ContainerId) -> Result<Option<NamedContainer>, CallFailure> {
    let status = match runtime.container_status(id).await {
        Ok(status) if status.id == id.as_str() => status,
        Ok(_) | Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(failure(&error)),
    };
    let spec = status.image.clone().unwrap_or_default();
    let known = status_of(runtime, first([&status.image_id, &status.image_ref, &spec.image])).await?;
    let tags = known.iter().flat_map(|image| image.repo_tags.iter().chain(&image.repo_digests));
    // The name that the runtime was told to run counts, even if the image is gone from its list.
    let references = tags.cloned().chain([status.image_ref.clone(), spec.image]).collect();
    let facts = facts_from(id, Ok(status))?.unwrap_or_default();
    Ok(Some(NamedContainer { facts, asked: spec.user_specified_image, references }))
}

/// The newest container of that name in the Pod: the kubelet numbers them.
async fn newest(runtime: &Runtime, uid: &str, name: &str) -> Result<Option<NewestContainer>, CallFailure> {
    let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let filter = v1::ContainerFilter {
        label_selector: [label(keys::POD_UID, uid), label(keys::CONTAINER_NAME, name)].into(),
        ..v1::ContainerFilter::default()
    };
    let all = runtime.list_containers(filter).await.map_err(|error| failure(&error))?;
    let number = |container: &v1::Container| {
        (container.metadata.as_ref().map_or(0, |metadata| metadata.attempt), container.created_at)
    };
    let Some(container) = all.into_iter().max_by_key(number) else { return Ok(None) };
    let Ok(id) = ContainerId::parse(&container.id) else { return Ok(None) };
    let state = v1::ContainerState::try_from(container.state).unwrap_or(v1::ContainerState::ContainerUnknown);
    let spec = container.image.unwrap_or_default();
    let known = first([&container.image_id, &container.image_ref, &spec.image]);
    let image = find(runtime, known).await?;
    // If its image is no longer listed, the container may know the image ID; a reference is no ID.
    let is_id = |name: &&&String| !name.is_empty() && !name.contains('@');
    let own = [&container.image_id, &container.image_ref];
    let unlisted = || Image {
        id: own.iter().find(is_id).map(ToString::to_string).unwrap_or_default(),
        ..Image::default()
    };
    let Image { id: image_id, digests, .. } = image.unwrap_or_else(unlisted);
    Ok(Some(NewestContainer {
        id,
        runs: state == v1::ContainerState::ContainerRunning,
        started: state != v1::ContainerState::ContainerCreated,
        image_id,
        digests,
    }))
}

/// The image, if the node has it.
async fn find(runtime: &Runtime, reference: &str) -> Result<Option<Image>, CallFailure> {
    let image = status_of(runtime, reference).await?;
    Ok(image.map(|image| Image {
        id: image.id,
        digests: image.repo_digests,
        bytes: i64::try_from(image.size).unwrap_or(i64::MAX),
    }))
}

async fn status_of(runtime: &Runtime, reference: &str) -> Result<Option<v1::Image>, CallFailure> {
    if reference.is_empty() {
        return Ok(None);
    }
    match runtime.image_status(named_image(reference)).await {
        Ok(image) => Ok(image),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(failure(&error)),
    }
}

fn named_image(reference: &str) -> v1::ImageSpec {
    v1::ImageSpec { image: reference.to_owned(), ..v1::ImageSpec::default() }
}

/// The first name that is not empty: runtimes fill in different fields.
fn first(names: [&String; 3]) -> &str {
    names.into_iter().find(|name| !name.is_empty()).map_or("", String::as_str)
}

/// Size in bytes of an image on the node; 0 if the runtime does not report it.
pub(crate) async fn size(runtime: &Runtime, image: &str) -> u64 {
    let image = find(runtime, image).await.ok().flatten();
    image.map_or(0, |image| u64::try_from(image.bytes).unwrap_or_default())
}

/// Pulls an image with the runtime's own configuration.
pub(crate) async fn pull(runtime: &Runtime, image: &str, limit: Duration) -> Result<(), PullFailure> {
    let pulling = runtime.pull_image(named_image(image), None, None);
    match tokio::time::timeout(limit, pulling).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => {
            let missing = matches!(error, Error::NotFound { .. });
            Err(PullFailure { missing, message: describe(&error) })
        }
        Err(_) => {
            let message = format!("the pull did not end within {} s", limit.as_secs());
            Err(PullFailure { missing: false, message })
        }
    }
}

#[cfg(test)]
#[path = "image/containerd_tests.rs"]
mod containerd_tests;
