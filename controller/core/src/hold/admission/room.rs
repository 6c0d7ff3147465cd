//! Whether a node has room for what a Pod asks for, in the kubelet's words.

use pitstop_api::quantity::{Resource, Resources};

use super::{Amounts, Sizes, pair};

/// Whether there is room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// There is.
    Enough,
    /// Not now.
    Later(String),
    /// Not even on the empty node.
    Never(String),
}

/// Whether there is room for what a Pod asks for, beside what the others of its node do. Only what grows takes any.
pub(super) fn room(sizes: &Sizes, others: &Resources, allocatable: Amounts) -> Room {
    let request = |of: &Resources, resource: Resource| pair(of, resource).0.unwrap_or_default();
    let grows = |r: &Resource| request(&sizes.after, *r) > request(&sizes.before, *r);
    // As the kubelet shows them: bare millicores, bytes.
    let checks = Resource::ALL.into_iter().filter(grows).map(|resource| {
        let (requested, used) = (request(&sizes.after, resource), request(others, resource));
        match allocatable.of(resource) {
            None => Room::Later(format!("the node does not say how much {resource} it has")),
            Some(capacity) if requested > capacity => Room::Never(format!(
                "Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}"
            )),
            Some(capacity) if used.saturating_add(requested) > capacity => Room::Later(format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
            )),
            Some(_) => Room::Enough,
        }
    });
    checks.max_by_key(Room::weight).unwrap_or(Room::Enough)
}

impl Room {
    fn weight(&self) -> u8 {
        match self {
            Self::Enough => 0,
            Self::Later(_) => 1,
            Self::Never(_) => 2,
        }
    }
}
