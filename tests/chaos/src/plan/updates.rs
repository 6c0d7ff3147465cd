//! New images, drawn: versions that do well, that crash, and that no registry has.

use std::time::Duration;

use pitstop_api::image_update::{ContainerImage, PodImageUpdateSpec};
use pitstop_api::resize::PodRef;
use pitstop_e2e::images::REPOSITORY;
use pitstop_sim::rng::Rng;

use super::{PodPlan, any};

/// Tags of images that do well.
const GOOD: [&str; 5] = ["1", "2", "2-again", "away", "big"];
/// Tag and version of an image whose containers end as soon as they are started.
pub(crate) const CRASHING: &str = "crash";
/// A tag that the registry does not have.
const MISSING: &str = "no-such-tag";
/// How long the kubelets and the runtimes may be away and an image that crashes still be noticed, in seconds.
const OBSERVED: i64 = 10;
/// The same, until a container is up.
const READY: i64 = 30;
/// The deadlines that are drawn: one that has passed is followed by the way back, which takes up to `READY`.
const DEADLINES: [i64; 2] = [60, 90];

/// An update of images.
#[derive(Debug, PartialEq)]
pub(crate) struct UpdatePlan {
    /// Since the beginning; it is made later where its Pod has an open one already.
    pub(crate) offset: Duration,
    pub(crate) name: String,
    pub(crate) spec: PodImageUpdateSpec,
}

/// The images of an update, by what becomes of a Pod that gets them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Images {
    #[default]
    Good,
    /// They are pulled, and a container ends at once.
    Crashing,
    /// One of them cannot be pulled.
    Missing,
}

impl Images {
    pub(crate) fn of(spec: &PodImageUpdateSpec) -> Self {
        let has = |wanted: &str| spec.containers.iter().any(|container| tag(container) == wanted);
        match (has(MISSING), has(CRASHING)) {
            (true, _) => Self::Missing,
            (_, true) => Self::Crashing,
            _ => Self::Good,
        }
    }
}

fn tag(container: &ContainerImage) -> &str {
    container.image.rsplit(':').next().unwrap_or_default()
}

/// What a container with that image writes down as its version.
pub(crate) fn version(container: &ContainerImage) -> &str {
    match tag(container) {
        "2-again" => "2",
        tag => tag,
    }
}

/// One every four to ten seconds for some Pod.
pub(super) fn updates(rng: &mut Rng, pods: &[PodPlan], length: Duration) -> Vec<UpdatePlan> {
    let mut updates: Vec<UpdatePlan> = Vec::new();
    let mut offset = 0;
    loop {
        offset += 4000 + rng.below(6000);
        let pod = usize::try_from(rng.below(pods.len() as u64)).ok().and_then(|i| pods.get(i));
        let Some(pod) = pod.filter(|_| Duration::from_millis(offset) < length) else { return updates };
        let name = format!("u{:04}", updates.len() + 1);
        updates.push(UpdatePlan { offset: Duration::from_millis(offset), name, spec: spec(rng, pod) });
    }
}

fn spec(rng: &mut Rng, pod: &PodPlan) -> PodImageUpdateSpec {
    let mut names: Vec<_> = pod.containers.iter().map(|container| container.name).collect();
    let count = 1 + rng.below(names.len() as u64);
    let bad = any(rng, &[None, None, None, Some(CRASHING), Some(MISSING)], None);
    let mut containers = Vec::new();
    for i in 0..count {
        let good = any(rng, &GOOD, "1");
        let tag = bad.filter(|_| i == 0).unwrap_or(good);
        let image = format!("{REPOSITORY}:{tag}");
        containers.push(ContainerImage { name: rng.take(&mut names).to_owned(), image });
    }
    let short = any(rng, &[0, 0, 1, 3], 0);
    PodImageUpdateSpec {
        pod_ref: PodRef { name: pod.name.clone(), uid: None },
        containers,
        unready_grace_period_seconds: any(rng, &[None, None, Some(0), Some(2)], None),
        ready_timeout_seconds: Some(READY),
        observe_seconds: Some(if bad == Some(CRASHING) { OBSERVED } else { short }),
        active_deadline_seconds: Some(any(rng, &DEADLINES, 60)),
        ..PodImageUpdateSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::Plan;

    fn drawn(seed: u64) -> Vec<UpdatePlan> {
        Plan::draw(seed, Duration::from_hours(1)).updates
    }

    #[test]
    fn every_update_makes_sense() {
        for update in drawn(3) {
            assert_eq!(pitstop_api::image_update::validate(&update.spec), Ok(()), "{update:?}");
        }
    }

    #[test]
    fn images_of_every_worth_are_drawn() {
        let drawn = drawn(1);
        for images in [Images::Good, Images::Crashing, Images::Missing] {
            let some = drawn.iter().filter(|update| Images::of(&update.spec) == images).count();
            assert!(some > drawn.len() / 10, "{images:?}: {some}");
        }
        let containers = || drawn.iter().flat_map(|update| &update.spec.containers);
        let tags: BTreeSet<&str> = containers().map(tag).collect();
        assert_eq!(
            tags.into_iter().collect::<Vec<_>>(),
            ["1", "2", "2-again", "away", "big", CRASHING, MISSING]
        );
        let versions: BTreeSet<&str> = containers().map(version).collect();
        assert!(!versions.contains("2-again"));
        for update in drawn.iter().filter(|update| Images::of(&update.spec) == Images::Crashing) {
            assert!(update.spec.observe() >= OBSERVED, "what crashes may seem to do well at first");
        }
    }
}
