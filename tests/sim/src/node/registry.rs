//! Registries as one node sees them. Every node has its own copy; the world changes all alike.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::image::{Content, digest_of, split};
use super::runtime::{Code, Failure};

/// Why a registry refuses a pull.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusing {
    /// It has no such image.
    Missing,
    /// It rejects all credentials.
    Denied,
    /// It is overloaded.
    Busy,
}

/// All registries.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// Milliseconds of a pull; None: pulls take no time, and fail only if the image does not exist.
    pull_ms: Option<u64>,
    /// Whether it requires credentials, which only kubelets have.
    private: bool,
    /// Names for content that first appeared under another name.
    tags: BTreeMap<String, String>,
    /// Content by repository and manifest.
    made: BTreeMap<String, Content>,
    away_until: u64,
    slow: (u64, u64),
    refusing: Option<(Refusing, u64)>,
}

impl Registry {
    /// Registries whose pulls take this long.
    pub fn new(pull_ms: u64, private: bool) -> Self {
        Self { pull_ms: Some(pull_ms), private, ..Self::default() }
    }

    /// Whether pulls take no time.
    pub fn at_once(&self) -> bool {
        self.pull_ms.is_none()
    }

    /// From now on `name` means the content that first appeared as `content`.
    pub fn tag(&mut self, name: &str, content: &str) {
        self.tags.insert(name.to_owned(), content.to_owned());
    }

    /// Does not answer until that time.
    pub fn away(&mut self, until: u64) {
        self.away_until = until;
    }

    /// Pulls that begin before `until` take `by` milliseconds longer.
    pub fn slow(&mut self, until: u64, by: u64) {
        self.slow = (until, by);
    }

    /// Refuses all pulls until that time.
    pub fn refuse(&mut self, why: Refusing, until: u64) {
        self.refusing = Some((why, until));
    }

    /// When a pull that begins now ends.
    pub fn pulled_at(&self, now: u64) -> u64 {
        let more = if now < self.slow.0 { self.slow.1 } else { 0 };
        now + self.pull_ms.unwrap_or(0) + more
    }

    /// The content that a name means now. None if the image does not exist: the tag `missing`.
    pub fn means(&mut self, reference: &str) -> Option<Content> {
        let (repository, tag, digest) = split(reference);
        if let Some(digest) = digest {
            let known = self.made.get(&format!("{repository}@{digest}")).cloned();
            let unknown = || Content { name: reference.to_owned(), manifest: digest.to_owned() };
            return Some(known.unwrap_or_else(unknown));
        }
        let name = format!("{repository}:{}", tag.unwrap_or("latest"));
        if tag == Some("missing") {
            return None;
        }
        let name = self.tags.get(&name).cloned().unwrap_or(name);
        let content = Content { manifest: digest_of(&name), name };
        self.made.insert(format!("{repository}@{}", content.manifest), content.clone());
        Some(content)
    }

    /// The result of a pull.
    pub fn pull(&mut self, now: u64, reference: &str, credentials: bool) -> Result<Content, Failure> {
        let failure = |code: Code, why: &str| {
            let message = format!("failed to pull and unpack image \"{reference}\": {why}");
            Err(Failure { code, message })
        };
        let missing = format!("failed to resolve reference \"{reference}\": {reference}: not found");
        if now < self.away_until {
            return failure(Code::Unknown, "dial tcp 10.0.0.9:443: connect: connection refused");
        }
        match self.refusing.filter(|(_, until)| now < *until) {
            Some((Refusing::Missing, _)) => return failure(Code::NotFound, &missing),
            Some((Refusing::Denied, _)) => {
                return failure(Code::Unknown, "unexpected status from HEAD request: 401 Unauthorized");
            }
            Some((Refusing::Busy, _)) => {
                return failure(
                    Code::Unknown,
                    "unexpected status from HEAD request: 503 Service Unavailable",
                );
            }
            None if self.private && !credentials => {
                return failure(Code::Unknown, "unexpected status from HEAD request: 401 Unauthorized");
            }
            None => {}
        }
        match self.means(reference) {
            Some(content) => Ok(content),
            None => failure(Code::NotFound, &missing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::image::Image;

    #[test]
    fn a_digest_in_the_name_rules() {
        let mut registry = Registry::default();
        let mut image = |name: &str| Image::of(registry.means(name).unwrap(), name);
        let by_tag = image("reg:5000/app:1");
        let (repository, digest) = by_tag.reference().split_once('@').unwrap();
        assert_eq!((repository, digest.len()), ("reg:5000/app", 71));
        for name in [format!("reg:5000/app:2@{digest}"), format!("reg:5000/app@{digest}")] {
            let by_digest = image(&name);
            assert_eq!((&by_digest.id, &by_digest.content), (&by_tag.id, &by_tag.content));
            assert!(by_tag.is_named(&name) && by_digest.tags.is_empty());
        }
        assert_ne!(image("reg:5000/app:2").id, by_tag.id);
        assert_eq!(image("app"), image("app:latest"));
        assert!(image("local/app:1").reference().starts_with("sha256:"));
        assert_eq!(registry.means("app:missing"), None);
    }

    #[test]
    fn a_name_means_what_it_was_last_given_to() {
        let mut registry = Registry::new(500, true);
        let first = registry.means("app:2").unwrap();
        registry.tag("app:same", "app:2");
        assert_eq!(registry.means("app:same"), Some(first.clone()));
        registry.tag("app:2", "app:3");
        assert_ne!(registry.means("app:2"), Some(first.clone()));
        assert_eq!(registry.means(&format!("app@{}", first.manifest)), Some(first));
    }

    #[test]
    fn a_registry_that_is_away_is_not_one_that_refuses() {
        let mut registry = Registry::new(500, true);
        assert!(registry.pull(0, "app:1", false).unwrap_err().message.contains("401"));
        assert!(registry.pull(0, "app:1", true).is_ok());
        registry.refuse(Refusing::Missing, 10);
        assert_eq!(registry.pull(9, "app:1", true).unwrap_err().code, Code::NotFound);
        registry.away(8);
        assert_eq!(registry.pull(7, "app:1", true).unwrap_err().code, Code::Unknown);
        registry.slow(5, 700);
        assert_eq!((registry.pulled_at(4), registry.pulled_at(5)), (1204, 505));
    }
}
