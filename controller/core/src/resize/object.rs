//! From the API object to what decisions need.

use pitstop_api::resize::PodResize;

use super::Resize;
use crate::key::ObjectKey;
use crate::kind::owner;

/// The resize as the core sees it.
pub fn resize(object: PodResize) -> Resize {
    let PodResize { metadata, spec, status } = object;
    let (key, owner) = (ObjectKey::of(&metadata), owner(&metadata));
    Resize {
        key,
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation,
        created: metadata.creation_timestamp.map_or(0, |t| t.0.as_second()),
        deleting: metadata.deletion_timestamp.is_some(),
        owner,
        spec,
        status: status.unwrap_or_default(),
    }
}
