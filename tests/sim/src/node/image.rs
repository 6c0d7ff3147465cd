//! Images: what their names mean, and how their containers behave.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::runtime::{KILLED, Process};

/// Content that a registry has under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// `repository:tag` under which it first appeared; for an unknown digest, the reference.
    pub name: String,
    /// Digest of its manifest.
    pub manifest: String,
}

/// An image that a node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Digest of its configuration: identifies the content.
    pub id: String,
    /// The registry's name of the content.
    pub content: String,
    /// Its `repository:tag` names.
    pub tags: BTreeSet<String>,
    /// Its `repository@digest` names; empty if it was loaded, not pulled.
    pub digests: BTreeSet<String>,
}

/// How containers of an image behave. The tag under which its content first appeared says it, up to a dash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quality {
    /// As the Pod says.
    Good,
    /// They end soon after each start.
    Crash,
    /// They end some seconds after each start.
    CrashLater,
    /// They are never ready.
    Unready,
    /// They cannot be started.
    NoStart,
    /// The kernel kills them for their memory use.
    Greedy,
}

/// Milliseconds that a container runs if it ends soon, and if it ends later.
const SOON: u64 = 300;
const LATER: u64 = 6_000;

/// Repository, tag and digest of a reference. Without tag and digest, the tag is `latest`.
pub fn split(reference: &str) -> (&str, Option<&str>, Option<&str>) {
    let (named, digest) = match reference.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (reference, None),
    };
    match named.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, Some(tag), digest),
        _ => (named, Some("latest").filter(|_| digest.is_none()), digest),
    }
}

/// Prefix of the repositories whose images were loaded, not pulled.
const LOADED: &str = "local/";

impl Image {
    /// The image of a content after a pull by this name. A name with a digest leaves no tag.
    pub fn of(content: Content, reference: &str) -> Self {
        let (repository, tag, digest) = split(reference);
        let loaded = repository.starts_with(LOADED);
        let id = if loaded { content.manifest.clone() } else { id_of(&content.manifest) };
        let tag = tag.filter(|_| digest.is_none()).map(|tag| format!("{repository}:{tag}"));
        let pulled = (!loaded).then(|| format!("{repository}@{}", content.manifest));
        Self {
            id,
            content: content.name,
            tags: tag.into_iter().collect(),
            digests: pulled.into_iter().collect(),
        }
    }

    /// The runtime's name for it in a container's status.
    pub fn reference(&self) -> &str {
        self.digests.first().unwrap_or(&self.id)
    }

    /// Whether the reference names it.
    pub fn is_named(&self, reference: &str) -> bool {
        match split(reference) {
            _ if reference == self.id => true,
            (repository, _, Some(digest)) => self.digests.contains(&format!("{repository}@{digest}")),
            (repository, tag, None) => {
                self.tags.contains(&format!("{repository}:{}", tag.unwrap_or("latest")))
            }
        }
    }

    /// How its containers behave.
    pub fn quality(&self) -> Quality {
        let tag = split(&self.content).1.unwrap_or_default();
        Quality::ALL
            .into_iter()
            .find(|(name, _)| tag.split('-').next() == Some(name))
            .map_or(Quality::Good, |q| q.1)
    }
}

impl Quality {
    const ALL: [(&str, Self); 5] = [
        ("crash", Self::Crash),
        ("later", Self::CrashLater),
        ("unready", Self::Unready),
        ("nostart", Self::NoStart),
        ("greedy", Self::Greedy),
    ];

    /// Gives a process this behaviour.
    pub fn apply(self, process: &mut Process) {
        match self {
            Self::Good | Self::Unready => {}
            Self::Crash => process.runs = Some((SOON, 1)),
            Self::CrashLater => process.runs = Some((LATER, 1)),
            Self::NoStart => process.start_fails = true,
            Self::Greedy => (process.runs, process.out_of_memory) = (Some((SOON, KILLED)), true),
        }
    }
}

/// The ID of the image of a manifest.
pub fn id_of(manifest: &str) -> String {
    digest_of(&format!("config {manifest}"))
}

/// A digest of a name, always the same.
pub fn digest_of(name: &str) -> String {
    let mut state = 0xcbf2_9ce4_8422_2325_u64;
    let mut text = "sha256:".to_owned();
    for round in 0..4_u8 {
        for byte in name.bytes().chain([round]) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        let _ = write!(text, "{state:016x}");
    }
    text
}
