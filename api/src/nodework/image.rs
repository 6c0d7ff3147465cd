//! Orders to pull an image, and what the daemon tells of images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OrderAction, Unknown};
use crate::{id, is_false};

/// Longest pull, in seconds.
pub const MAX_PULL_SECONDS: i64 = 86_400;

/// Gets the node an image. Stays in the book until its request ends, and is answered again when something changes.
/// Changes nothing about the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pull {
    /// The image, of the same repository as the named container's.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// When the daemon asks the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PullPolicy>,
    /// Seconds to get the image, with retries and the wait for other pulls of the node.
    #[schemars(range(min = 1, max = MAX_PULL_SECONDS))]
    pub timeout_seconds: i64,
    /// Members of a newer version. Daemons may ignore them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

impl Pull {
    /// To have that image within so many seconds.
    pub fn new(image: String, policy: PullPolicy, timeout_seconds: i64) -> Self {
        Self { image, policy: Some(policy), timeout_seconds, unknown: Unknown::new() }
    }
}

impl From<Pull> for OrderAction {
    fn from(pull: Pull) -> Self {
        Self { pull: Some(pull), ..Self::default() }
    }
}

/// When the daemon asks the registry, as with `imagePullPolicy`. `Always`: always, to find a tag that has moved.
/// `IfNotPresent` (default): if the node does not have the image. `Never`: never; without the image the order fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Always.
    Always,
    /// If the node does not have the image.
    #[default]
    IfNotPresent,
    /// Never.
    Never,
}

/// The daemon's report about an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageAnswer {
    /// The ordered image on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulled: Option<Pulled>,
    /// The newest container of that Pod and name, if it has started and is not the one that the order names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
}

/// An image that the node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pulled {
    /// The runtime's ID of the image (CRI `Image.id`): the digest of its configuration, which names its content.
    #[serde(rename = "imageID")]
    #[schemars(length(max = 256))]
    pub image_id: String,
    /// Digest of its index or manifest in the repository (CRI `Image.repo_digests`): `sha256:` and 64 hex digits. Empty
    /// if the runtime knows none: the image was loaded, not pulled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub digest: String,
    /// Its size on the node in bytes, from the runtime.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub bytes: i64,
    /// Duration of the pull in milliseconds.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub milliseconds: i64,
    /// The node had it already: nothing was pulled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub present: bool,
}

/// A container that runs, or ran, and its image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// Its ID.
    #[serde(rename = "containerID")]
    #[schemars(regex(pattern = id::PATTERN))]
    pub container_id: String,
    /// The runtime's ID of its image.
    #[serde(rename = "imageID")]
    #[schemars(length(max = 256))]
    pub image_id: String,
    /// Digest of its index or manifest. Empty if the runtime knows none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub digest: String,
}
