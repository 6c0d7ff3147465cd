//! What requests want a node's daemon to give a Pod.

use std::collections::BTreeMap;

use pitstop_api::nodework::Held;
use pitstop_api::quantity::Resources;

use super::force::{bounds, record};
use crate::key::{KindId, ObjectKey};
use crate::pod::Pod;

/// What one request wants. It counts from the request's acceptance until the request is given up or deleted.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// Kind of the request.
    pub kind: KindId,
    /// The request.
    pub key: &'a ObjectKey,
    /// Its UID.
    pub uid: &'a str,
    /// The Pod that it was accepted for.
    pub pod_uid: &'a str,
    /// Its position in the order in which the Pod's requests were accepted.
    pub turn: i64,
    /// `metadata.creationTimestamp` of the request, in seconds.
    pub created: i64,
    /// The request has ended, so what it was admitted by may have changed.
    pub completed: bool,
    /// Its status says that it is not in force now.
    pub dormant: bool,
    /// The four amounts for each container, by name.
    pub containers: Vec<(&'a str, Resources)>,
    /// Bytes that a lower memory limit must leave free.
    pub margin: i64,
    /// The kernel must reclaim memory first.
    pub reclaims: bool,
}

/// The claims on one Pod, in the order in which they were accepted.
#[derive(Clone, Debug, Default)]
pub struct Claims<'a> {
    all: Vec<Claim<'a>>,
    /// By container: the index of the claim that counts, and its amounts.
    counts: BTreeMap<&'a str, (usize, Resources)>,
}

/// What counts for one container, if granted.
#[derive(Clone, Copy, Debug)]
pub struct CountedClaim<'a> {
    /// The claim.
    pub claim: &'a Claim<'a>,
    /// The container.
    pub container: &'a str,
    /// The four amounts for the container.
    pub resources: Resources,
}

impl<'a> Claims<'a> {
    /// The claims on that Pod. If two name a container, the later one counts.
    pub fn of(pod: &Pod, claims: impl Iterator<Item = Claim<'a>>) -> Self {
        let mut all: Vec<Claim<'a>> = claims.filter(|claim| claim.pod_uid == pod.uid).collect();
        all.sort_by(|one, other| {
            (one.turn, one.created, one.key).cmp(&(other.turn, other.created, other.key))
        });
        let named = all.iter().enumerate();
        let counts = named
            .flat_map(|(at, claim)| claim.containers.iter().map(move |(name, wanted)| (*name, (at, *wanted))))
            .collect();
        Self { all, counts }
    }

    /// What counts for each container.
    pub fn counted(&self) -> impl Iterator<Item = CountedClaim<'_>> {
        self.counts.iter().filter_map(|(container, (at, resources))| {
            Some(CountedClaim { claim: self.all.get(*at)?, container, resources: *resources })
        })
    }

    /// The last position in their order.
    pub fn turn(&self) -> i64 {
        self.all.last().map_or(0, |last| last.turn)
    }
}

impl CountedClaim<'_> {
    /// Whether, by what is stored, the container was given exactly that, or its spec says so.
    pub fn was_given(&self, pod: &Pod, held: Option<&Held>) -> bool {
        let wanted = bounds(&self.resources);
        let given = record(held, self.container);
        given.is_some_and(|r| [r.given, r.before].contains(&Some(wanted)))
            || pod.container(self.container).is_some_and(|c| bounds(&c.resources) == wanted)
    }
}
