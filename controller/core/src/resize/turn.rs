//! Order of the resizes of one Pod: a later one replaces an earlier one once it was seen to be possible.

use super::Resize;
use super::resolve::is_possible;
use crate::config::Config;
use crate::hold::Force;
use crate::key::ObjectKey;
use crate::kind::Lookup;
use crate::pod::Pod;

/// The last later resize of the Pod that has begun or was seen to be possible, and that the Pod allows.
pub(super) fn newer(
    own: &Resize,
    lookup: &dyn Lookup<Resize>,
    pod: &Pod,
    force: &Force,
    config: &Config,
) -> Option<ObjectKey> {
    let (begun, last) = (lookup.begun(), lookup.last_waiting());
    begun
        .iter()
        .chain(&last)
        .copied()
        .filter(|other| !other.spec.cancel && rank(other) > rank(own))
        .filter(|other| is_possible(&other.spec, pod, force, config))
        .max_by_key(|other| rank(other))
        .map(|other| other.key.clone())
}

/// Whether this resize is among the last that wait for their Pod, and an earlier one would give way to it.
pub(super) fn overtakes(own: &Resize, lookup: &dyn Lookup<Resize>) -> bool {
    let gives_way = |other: &Resize| other.status.restoring.is_none() && rank(other) < rank(own);
    let begun = || lookup.begun().into_iter().chain(lookup.first_waiting()).any(gives_way);
    lookup.is_last() && begun()
}

/// Sort key of resizes. In the same second, a resize that has begun comes first.
fn rank(resize: &Resize) -> (i64, bool, &ObjectKey) {
    (resize.created, !resize.started(), &resize.key)
}
