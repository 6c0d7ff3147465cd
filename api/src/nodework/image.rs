//! Orders to pull an image, and what the daemon tells of images.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OrderAction, Unknown};
use crate::{id, is_false};

/// Longest pull, in seconds.
pub const MAX_PULL_SECONDS: i64 = 86_400;

/// Have the node have an image, and tell what runs of it. Stays in the book from the beginning of the pull to the end of its
/// request, and is answered again when something changes. It changes nothing about the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pull {
    /// The image, of the repository of the one that the named container has.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,
    /// When the registry is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PullPolicy>,
    /// Seconds for the whole: tries, and the wait for other pulls of the node, included.
    #[schemars(range(min = 1, max = MAX_PULL_SECONDS))]
    pub timeout_seconds: i64,
    /// What a newer version adds; no daemon has to heed it.
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

/// When the registry is asked, as a container's `imagePullPolicy` says: `Always` (so that a tag that has moved is found),
/// `IfNotPresent` (default: where the node has the image, it is not) or `Never` (the node has the image, or not).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PullPolicy {
    /// Always.
    Always,
    /// Where the node does not have the image.
    #[default]
    IfNotPresent,
    /// Never.
    Never,
}

/// What the daemon tells of a container's image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageAnswer {
    /// What the node has of the image that was ordered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pulled: Option<Pulled>,
    /// The newest container of that Pod and name, once it is another one than the order names and has been started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
}

/// An image that the node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pulled {
    /// The runtime's ID of the image, `Image.id` of the CRI: the digest of its configuration, which names its content. Only such
    /// IDs are compared.
    #[serde(rename = "imageID")]
    #[schemars(length(max = 256))]
    pub image_id: String,
    /// Digest of its index or manifest in the repository, `sha256:` and 64 hex digits, of `Image.repo_digests` of the CRI. Empty
    /// where the runtime knows none: an image that was loaded, not pulled.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub digest: String,
    /// Its size on the node, in bytes, as the runtime says.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub bytes: i64,
    /// Milliseconds that the pull took.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub milliseconds: i64,
    /// It was there already: nothing was pulled.
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
    /// Digest of its index or manifest; empty where the runtime knows none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub digest: String,
}
