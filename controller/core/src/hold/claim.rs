//! What requests want the daemon of a Pod's node to give the Pod.

use std::collections::BTreeMap;

use pitstop_api::nodework::Held;
use pitstop_api::quantity::Resources;

use super::force::{bounds, record};
use crate::key::{KindId, ObjectKey};
use crate::pod::Pod;

/// What one request wants. It counts from the request's acceptance until the request is given up, or deleted.
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
    /// Its place in the sequence of the requests that were accepted for the Pod.
    pub turn: i64,
    /// `metadata.creationTimestamp` of the request, in seconds.
    pub created: i64,
    /// The request has ended, so what admitted it may be another thing by now.
    pub completed: bool,
    /// Its status says that it is not in force at present.
    pub dormant: bool,
    /// All four amounts that each container is to have.
    pub containers: Vec<(&'a str, Resources)>,
    /// Bytes that a lower memory limit must leave free.
    pub margin: i64,
    /// The kernel is to reclaim memory first.
    pub reclaims: bool,
}

/// The claims on one Pod, in the order in which they were accepted.
#[derive(Clone, Debug, Default)]
pub struct Claims<'a> {
    all: Vec<Claim<'a>>,
    /// The place of the one that counts for each container, and what it says of it.
    counts: BTreeMap<&'a str, (usize, Resources)>,
}

/// What counts for one container, if it is granted.
#[derive(Clone, Copy, Debug)]
pub struct Counted<'a> {
    /// The claim.
    pub claim: &'a Claim<'a>,
    /// The container.
    pub container: &'a str,
    /// All four amounts that it is to have.
    pub resources: Resources,
}

impl<'a> Claims<'a> {
    /// Those that are for that Pod. Of two that name a container the later one counts.
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
    pub fn counted(&self) -> impl Iterator<Item = Counted<'_>> {
        self.counts.iter().filter_map(|(container, (at, resources))| {
            Some(Counted { claim: self.all.get(*at)?, container, resources: *resources })
        })
    }

    /// The last place in their sequence.
    pub fn turn(&self) -> i64 {
        self.all.last().map_or(0, |last| last.turn)
    }
}

impl Counted<'_> {
    /// By what is stored, the container was given just that, or is to have what its spec says.
    pub fn stands(&self, pod: &Pod, held: Option<&Held>) -> bool {
        let wanted = bounds(&self.resources);
        let given = record(held, self.container);
        given.is_some_and(|r| [r.given, r.before].contains(&Some(wanted)))
            || pod.container(self.container).is_some_and(|c| bounds(&c.resources) == wanted)
    }
}
