//! Whether a node has room for a Pod's requests, with the kubelet's messages.

use pitstop_api::quantity::{Resource, Resources};

use super::{Amounts, Sizes, pair};

/// Whether the node has room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It has enough.
    Enough,
    /// Not now.
    Later(String),
    /// Not even on the empty node.
    Never(String),
}

/// Whether the node has room for a Pod's requests beside its other Pods. Only what grows needs room.
pub(super) fn fit(sizes: &Sizes, others: &Resources, allocatable: Amounts) -> Fit {
    let request = |of: &Resources, resource: Resource| pair(of, resource).0.unwrap_or_default();
    let grows = |r: &Resource| request(&sizes.after, *r) > request(&sizes.before, *r);
    // Units as in the kubelet's messages: bare millicores, bytes.
    let checks = Resource::ALL.into_iter().filter(grows).map(|resource| {
        let (requested, used) = (request(&sizes.after, resource), request(others, resource));
        match allocatable.of(resource) {
            None => Fit::Later(format!("the node's status has no allocatable {resource}")),
            Some(capacity) if requested > capacity => Fit::Never(format!(
                "Node didn't have enough capacity: {resource}, requested: {requested}, capacity: {capacity}"
            )),
            Some(capacity) if used.saturating_add(requested) > capacity => Fit::Later(format!(
                "Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, capacity: {capacity}"
            )),
            Some(_) => Fit::Enough,
        }
    });
    checks.max_by_key(Fit::weight).unwrap_or(Fit::Enough)
}

impl Fit {
    fn weight(&self) -> u8 {
        match self {
            Self::Enough => 0,
            Self::Later(_) => 1,
            Self::Never(_) => 2,
        }
    }
}
