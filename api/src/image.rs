//! References of images, by the rules of the OCI distribution specification and of the runtimes, which complete short ones as
//! Docker does (<https://github.com/distribution/reference>).

use std::fmt;

use crate::text::quoted;

/// Longest path of a repository in full, in bytes.
const MAX_PATH: usize = 255;
/// Longest tag, in bytes.
const MAX_TAG: usize = 128;
/// The registry of references without one.
const DEFAULT_REGISTRY: &str = "docker.io";
/// Another name of the default registry.
const INDEX: &str = "index.docker.io";
/// Path prefix of a one-word repository there.
const LIBRARY: &str = "library/";

/// An image reference, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Host and port. Absent: the default registry.
    pub registry: Option<String>,
    /// Path of the repository.
    pub path: String,
    /// The tag.
    pub tag: Option<String>,
    /// The digest, with its algorithm.
    pub digest: Option<String>,
}

/// Suffix of a tag that gives the same image another string: a kubelet's back-off is for one string. The digest beside
/// it names the image.
const BACK: &str = ".back";

impl Reference {
    /// Reads a reference; else says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |what: &str| format!("{} is no reference of an image: {what}", quoted(text));
        if is_hash(text) {
            return Err(wrong("64 hex digits are an image's ID, of no repository"));
        }
        let (named, digest) = match text.split_once('@') {
            Some((named, digest)) if is_digest(digest) => (named, Some(digest)),
            Some(_) => return Err(wrong("what follows @ must be sha256: and 64 hex digits")),
            None => (text, None),
        };
        let (name, tag) = split_tag(named);
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(wrong("a tag has at most 128 letters, digits, points, dashes and underscores"));
        }
        let (registry, path) = match name.split_once('/') {
            Some((host, path)) if is_host(host) => (Some(host), path),
            _ => (None, name),
        };
        if !path.split('/').all(is_component) {
            return Err(wrong("a repository has lower-case letters, digits and separators"));
        }
        if registry.is_some_and(|host| !is_authority(host)) {
            return Err(wrong("a registry is a host name or an address, perhaps with a port"));
        }
        let reference = Self {
            registry: registry.map(str::to_owned),
            path: path.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        };
        if reference.repository().1.len() > MAX_PATH {
            return Err(wrong("the repository has more than 255 bytes"));
        }
        Ok(reference)
    }

    /// Registry and path in full. Host names know no case.
    pub fn repository(&self) -> (String, String) {
        let registry = self.registry.as_deref().unwrap_or(DEFAULT_REGISTRY).to_ascii_lowercase();
        if registry != DEFAULT_REGISTRY && registry != INDEX {
            return (registry, self.path.clone());
        }
        let library = if self.path.contains('/') { "" } else { LIBRARY };
        (DEFAULT_REGISTRY.to_owned(), format!("{library}{}", self.path))
    }

    /// Both are of one repository.
    pub fn same_repository(&self, other: &Self) -> bool {
        self.repository() == other.repository()
    }

    /// The same image by the digest, beside a tag that only tells which one was there; absent for what is no digest, or has no tag that
    /// can be longer.
    pub fn back_form(&self, digest: &str) -> Option<String> {
        let tag = format!("{}{BACK}", self.own_tag()?);
        let other = Self { tag: Some(tag), ..self.clone() };
        other.with_digest(digest).filter(|_| other.tag.as_deref().is_some_and(is_tag))
    }

    /// The tag that its user has named, if that is known.
    pub fn own_tag(&self) -> Option<&str> {
        let tag = self.tag.as_deref()?;
        Some(self.digest.as_ref().and_then(|_| tag.strip_suffix(BACK)).unwrap_or(tag))
    }

    /// The same image as the digest names it, beside the tag; absent for what is no digest.
    pub fn with_digest(&self, digest: &str) -> Option<String> {
        is_digest(digest).then(|| Self { digest: Some(digest.to_owned()), ..self.clone() }.to_string())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(registry) = &self.registry {
            write!(f, "{registry}/")?;
        }
        f.write_str(&self.path)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

/// `host:5000/path:tag` -> `host:5000/path`, `tag`. A colon before the last slash belongs to a port.
pub fn split_tag(named: &str) -> (&str, Option<&str>) {
    match named.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (named, None),
    }
}

/// `sha256:` and 64 hexadecimal digits in lower case: what all runtimes use.
pub fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(is_hash)
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let first = text.bytes().next().is_some_and(word);
    first && text.len() <= MAX_TAG && text.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

/// The first part of a name is a registry, and not of the path: it has a point, a port or an upper-case letter, or is the
/// machine itself.
fn is_host(text: &str) -> bool {
    text.contains(['.', ':']) || text == "localhost" || text.bytes().any(|b| b.is_ascii_uppercase())
}

/// Host, and perhaps a port.
fn is_authority(text: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let hex = |b: u8| b.is_ascii_hexdigit() || b == b':';
        return !address.is_empty()
            && address.bytes().all(hex)
            && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    host.split('.').all(label) && port.is_none_or(is_port)
}

/// Lower-case letters and digits, between them one point, one or two underscores, or any number of dashes.
fn is_component(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut separator = String::new();
    let mut ends = false;
    for b in text.bytes() {
        if word(b) {
            let fits =
                matches!(separator.as_str(), "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-');
            if !fits {
                return false;
            }
            separator.clear();
            ends = true;
        } else if matches!(b, b'.' | b'_' | b'-') && ends {
            separator.push(char::from(b));
        } else {
            return false;
        }
    }
    ends && separator.is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest() -> String {
        format!("sha256:{}", "0123456789abcdef".repeat(4))
    }

    #[test]
    fn what_is_written_is_read_and_written_again() {
        let d = digest();
        for (text, registry, path, tag) in [
            ("nginx", "docker.io", "library/nginx", None),
            ("nginx:1.25", "docker.io", "library/nginx", Some("1.25")),
            ("team/web", "docker.io", "team/web", None),
            ("docker.io/nginx", "docker.io", "library/nginx", None),
            ("index.docker.io/team/web:v1", "docker.io", "team/web", Some("v1")),
            ("localhost/web", "localhost", "web", None),
            ("localhost:5000/web", "localhost:5000", "web", None),
            ("registry.example.com:5000/shop/web:v2", "registry.example.com:5000", "shop/web", Some("v2")),
            ("Registry.Example.com/web", "registry.example.com", "web", None),
            ("HOST/web", "host", "web", None),
            ("[fe80::1]:5000/web:a", "[fe80::1]:5000", "web", Some("a")),
            ("10.0.0.1:5000/a/b/c", "10.0.0.1:5000", "a/b/c", None),
            ("a.b/c__d/e---f/g.h_i:T_1.x-y", "a.b", "c__d/e---f/g.h_i", Some("T_1.x-y")),
        ] {
            for suffix in [String::new(), format!("@{d}")] {
                let text = format!("{text}{suffix}");
                let reference = Reference::parse(&text).unwrap();
                assert_eq!(reference.repository(), (registry.to_owned(), path.to_owned()), "{text}");
                assert_eq!(reference.tag.as_deref(), tag);
                assert_eq!(reference.digest.is_some(), !suffix.is_empty());
                assert_eq!(reference.to_string(), text);
            }
        }
    }

    #[test]
    fn what_is_no_reference_says_why() {
        let long = "a".repeat(256);
        for (text, why) in [
            ("", "a repository has"),
            ("Web", "a repository has"),
            ("web/", "a repository has"),
            ("/web", "a repository has"),
            ("a//b", "a repository has"),
            ("a..b", "a repository has"),
            ("a___b", "a repository has"),
            ("-a", "a repository has"),
            ("a-", "a repository has"),
            ("web:", "a tag has"),
            ("web:.a", "a tag has"),
            (&format!("web:{}", "t".repeat(129)), "a tag has"),
            ("web@sha256:12", "what follows @"),
            ("web@", "what follows @"),
            (&format!("web@sha512:{}", "0".repeat(128)), "what follows @"),
            ("user@host/web", "what follows @"),
            ("ho_st:5000/web", "a registry is"),
            ("host:port/web", "a registry is"),
            ("[fe80::1/web", "a registry is"),
            (&long, "more than 255"),
            (&digest()[7..], "an image's ID"),
            ("web:v1 ", "a tag has"),
            ("https://host/web", "a re"),
        ] {
            let error = Reference::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn repositories_are_compared_in_full() {
        let same =
            |a: &str, b: &str| Reference::parse(a).unwrap().same_repository(&Reference::parse(b).unwrap());
        let d = digest();
        assert!(same("nginx:1", &format!("docker.io/library/nginx@{d}")));
        assert!(same("REGISTRY.example.com/a:1", "registry.example.com/a:2"));
        assert!(!same("registry.example.com/a", "registry.example.com:443/a"));
        assert!(!same("team/web", "web"));
        assert!(!same("localhost/web", "web"));
    }

    #[test]
    fn a_digest_goes_beside_the_tag() {
        let d = digest();
        let with = |text: &str| Reference::parse(text).unwrap().with_digest(&d);
        assert_eq!(with("web:v2"), Some(format!("web:v2@{d}")));
        assert_eq!(with("localhost:5000/web"), Some(format!("localhost:5000/web@{d}")));
        assert_eq!(with(&format!("web@sha256:{}", "f".repeat(64))), Some(format!("web@{d}")));
        assert_eq!(Reference::parse("web").unwrap().with_digest("latest"), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it_and_what_is_read_stays(text in "[-a-zA-Z0-9.:/@_\\[\\]]{0,60}") {
            if let Ok(reference) = Reference::parse(&text) {
                prop_assert_eq!(reference.to_string(), text);
                prop_assert!(reference.same_repository(&reference));
            }
        }
    }
}
