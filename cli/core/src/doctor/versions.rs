//! Whether the two programs and this one have the same version (docs/upgrade.md#versions-side-by-side).

use std::collections::BTreeSet;

use pitstop_api::image::Reference;

use super::programs::of_component;
use super::{Facts, Finding, name_list};
use crate::known::Known;
use crate::plain;

const CHECK: &str = "versions";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if let Known::Unread(why) = &facts.pods {
        return vec![Finding::unknown(CHECK, "the Pods of pitstop", why)];
    }
    let (controllers, daemons) = (running(facts, "controller"), running(facts, "daemon"));
    if controllers.is_empty() || daemons.is_empty() {
        // Another check reports missing Pods.
        return Vec::new();
    }
    let list = |all: &BTreeSet<Version>| name_list(&all.iter().map(ToString::to_string).collect::<Vec<_>>());
    let text = format!(
        "controller {}, daemons {}, this program {}",
        list(&controllers),
        list(&daemons),
        facts.version
    );
    let all: BTreeSet<&Version> = controllers.union(&daemons).collect();
    if all.iter().any(|it| matches!(it, Version::Unnamed(_))) {
        return vec![Finding::warning(
            CHECK,
            text,
            "The tags of the images name no version: compare the images with those that you built.",
        )];
    }
    let own = Version::Named(facts.version.clone());
    let finding = match (all.len(), all.contains(&own)) {
        (1, true) => Finding::ok(CHECK, text),
        (1, false) => Finding::warning(CHECK, text, "Use kubectl-pitstop of the installed version."),
        _ => Finding::warning(
            CHECK,
            text,
            "Two versions work together only during an upgrade. Bring all to one version: docs/upgrade.md.",
        ),
    };
    vec![finding]
}

/// The version that an image's tag names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Named(String),
    /// The image, whose tag has no recognizable version.
    Unnamed(String),
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Named(version) => f.write_str(version),
            Self::Unnamed(image) => f.write_str(&plain::line(image, 80)),
        }
    }
}

/// The versions of a program's Pods.
fn running(facts: &Facts, component: &str) -> BTreeSet<Version> {
    let images = of_component(facts, component).filter_map(|pod| {
        let containers = &pod.spec.as_ref()?.containers;
        containers.iter().find(|it| it.name == component)?.image.clone()
    });
    images.map(|image| version(&image)).collect()
}

/// A tag is a version, or a version and digits of the image's digest: `0.1.0-3c14e7f0a9d2` (docs/install.md#images).
fn version(image: &str) -> Version {
    let tag = Reference::parse(image).ok().and_then(|it| it.tag).unwrap_or_default();
    let tag = tag.trim_start_matches('v');
    let is_digest = |end: &str| end.len() == 12 && end.chars().all(|c| c.is_ascii_hexdigit());
    let version = tag.rsplit_once('-').filter(|(_, end)| is_digest(end)).map_or(tag, |(version, _)| version);
    let numbers = version.split(['-', '+']).next().unwrap_or_default().split('.');
    let is_number = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
    if numbers.clone().count() == 3 && numbers.clone().all(is_number) {
        Version::Named(version.to_owned())
    } else {
        Version::Unnamed(image.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::fixtures::{healthy, program};
    use super::*;

    fn with(controller: &str, daemon: &str) -> Finding {
        let pods = vec![program("controller", "node1", controller), program("daemon", "node1", daemon)];
        check(&Facts { pods: Known::Is(pods), version: "0.2.0".into(), ..healthy() }).remove(0)
    }

    #[test]
    fn one_version_is_well_and_two_are_for_the_time_of_an_update() {
        let same =
            with("pitstop.dev/controller:0.2.0-3c14e7f0a9d2", "registry.example.com:5000/daemon:v0.2.0");
        assert_eq!(same, Finding::ok(CHECK, "controller 0.2.0, daemons 0.2.0, this program 0.2.0"));
        let skew = with("pitstop.dev/controller:0.2.0", "pitstop.dev/daemon:0.1.0");
        assert!(skew.verdict == Level::Warning && skew.to_do.contains("docs/upgrade.md"), "{skew:?}");
        let older = with("pitstop.dev/controller:0.1.0", "pitstop.dev/daemon:0.1.0");
        assert!(older.to_do.starts_with("Use kubectl-pitstop"), "{older:?}");
    }

    #[test]
    fn an_image_without_a_version_is_named() {
        let digest = format!("pitstop.dev/daemon@sha256:{}", "0".repeat(64));
        let found = with("pitstop.dev/controller:0.2.0", &digest);
        assert!(
            found.verdict == Level::Warning && found.text.contains("daemons pitstop.dev/daemon@"),
            "{found:?}"
        );
        assert_eq!(version("x:latest"), Version::Unnamed("x:latest".into()));
        assert_eq!(version("x:0.2.0-rc1"), Version::Named("0.2.0-rc1".into()));
    }
}
