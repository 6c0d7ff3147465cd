//! The interface between the engine and a kind: a type of objects by which users request work on Pods.
//!
//! A kind is one folder and one line in [`crate::kinds`]. Kinds do not know each other: they meet through
//! [children](Kind::child) and through what the engine tells them about a Pod.

mod lookup;

use std::fmt::Debug;
use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::Resource;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::blocker::Blocker;
use crate::change::{ImageChange, Note, Sizing};
use crate::config::Config;
use crate::deed::{Deed, Done};
use crate::hold::Claim;
use crate::hold::admission::LastSurvey;
use crate::key::{KindId, ObjectKey};
use crate::measure::Measure;
use crate::nodework::{Acting, NodeWork};
pub use crate::owner::{Owner, owner};
use crate::plan::Plan;
use crate::pod::Pod;
use crate::pod_check::PodCheck;
use crate::readiness::Hold;
use crate::review::Review;
use crate::time::Mono;
use crate::tracked::Versioned;
pub use lookup::Lookup;

/// Constant facts of a kind, for its lists, watches, writes, metrics, logs and reviews.
#[derive(Debug)]
pub struct About {
    /// The kind.
    pub id: KindId,
    /// `apiVersion` of its objects.
    pub api_version: &'static str,
    /// Its resource name in URLs and in rights.
    pub plural: &'static str,
    /// Name of its watch in metrics.
    pub watch: &'static str,
    /// The readiness condition that holds from the first complete list on.
    pub synced: &'static str,
    /// Prefix of its metrics.
    pub metric: &'static str,
    /// Name of its objects in the help of metrics.
    pub noun: &'static str,
    /// Names of its writes in metrics.
    pub writes: WriteNames,
    /// Field `action` of Kubernetes events about its objects.
    pub action: &'static str,
    /// Every reason of an end.
    pub reasons: &'static [&'static str],
    /// The reasons that are successes.
    pub successes: &'static [&'static str],
    /// How it shares a Pod with other kinds.
    pub sharing: Sharing,
    /// Its objects are for many Pods: those of a workload. They stand in line for the workload, do nothing to a Pod
    /// themselves, and do not count as requests of their namespace.
    pub many: bool,
    /// How many [deeds](Deed) of one object may be under way.
    pub deeds: usize,
    /// Its requests may [claim](Kind::claim) resources that count for other Pods of their nodes and namespaces.
    pub claims: bool,
    /// How the webhook reviews its objects; `None` if it does not.
    pub review: Option<Review>,
}

impl About {
    /// Its API group.
    pub fn group(&self) -> &'static str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// Names of writes in metrics.
#[derive(Debug)]
pub struct WriteNames {
    /// Of the status.
    pub status: &'static str,
    /// Of labels and annotations.
    pub metadata: &'static str,
    /// Of the creation of an object, for an owner.
    pub create: &'static str,
    /// Of a deletion.
    pub delete: &'static str,
}

/// How requests of a kind share a Pod with those of other kinds.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// How long a request waits for a request of another kind that [disturbs](Kind::disturbs) the Pod and [may
    /// stall](Self::stalls); `None` for as long as it disturbs.
    pub patience: Option<Duration>,
    /// A request that has not begun waits for older requests of other kinds that have not begun either.
    pub yields: bool,
    /// A request may disturb the Pod for as long as it is open, without progress. Others then wait only for their
    /// patience; otherwise they wait until it is done.
    pub stalls: bool,
}

/// Metadata that every object has.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    /// Namespace and name.
    pub key: &'a ObjectKey,
    /// `metadata.creationTimestamp`, in seconds; only compared with other objects of the same API server.
    pub created: i64,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The request that made and manages it.
    pub owner: Option<&'a Owner>,
}

/// The Pod that a request was accepted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The Pod's UID.
    pub pod_uid: &'a str,
    /// Its node.
    pub node: &'a str,
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended<'a> {
    /// It succeeded.
    pub complete: bool,
    /// Its reason, one word.
    pub reason: &'a str,
    /// Its message.
    pub message: &'a str,
}

/// Stands for a reason of an end that only another version of the controller knows.
pub const UNKNOWN: &str = "Unknown";

/// How far a request is, by its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course<'a> {
    /// The Pod that it was accepted for; `None` before.
    pub target: Option<Target<'a>>,
    /// How it ended; `None` before.
    pub ended: Option<Ended<'a>>,
}

/// What a kind sees of an object of another kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relative<'a> {
    /// Namespace and name.
    pub key: &'a ObjectKey,
    /// Its UID.
    pub uid: &'a str,
    /// UID of its controlling owner.
    pub owner_uid: Option<&'a str>,
    /// It is about to be deleted.
    pub deleting: bool,
    /// It waits to be released, and has done nothing to its Pod.
    pub suspended: bool,
    /// How it ended; `None` before.
    pub ended: Option<Ended<'a>>,
    /// Images that it asks for by tag only, each with the digest that a node has pulled for it.
    pub pulled: Vec<(&'a str, &'a str)>,
}

impl Relative<'_> {
    /// It was made by the request with this UID.
    pub fn is_of(&self, uid: &str) -> bool {
        self.owner_uid == Some(uid)
    }
}

/// What a request must wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// What goes first.
    pub blocker: Blocker,
    /// Latest end of the wait; `None` for no such limit.
    pub until: Option<Mono>,
    /// An accepted request of another kind has the Pod.
    pub has_pod: bool,
    /// So many requests wait that each writes its wait later: most waits end before that.
    pub crowded: bool,
}

/// How far a request is with its Pod, as the engine knows.
#[derive(Clone, Copy, Debug)]
pub struct WorkState {
    /// Since when its acceptance has been sent.
    pub begun: Option<Mono>,
    /// It has ended or is about to be deleted.
    pub lingers: bool,
    /// One of its orders may still stop a container of the Pod.
    pub stops: bool,
}

/// Result of a write of a Pod that the request wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodWritten {
    /// Of images: the refusal, or `None` for any other result.
    Images(Option<String>),
    /// Of resources: the refusal, or `None` for any other result.
    Resources(Option<String>),
    /// Of a dry run of resources. Without either field, the result is unknown.
    Trial {
        /// The API server would store them.
        stored: bool,
        /// The refusal.
        refused: Option<String>,
    },
}

/// Time and settings of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Cx<'a> {
    /// This process's clock.
    pub now: Mono,
    /// Written to the status, never compared.
    pub wall: DateTime<Utc>,
    /// The settings.
    pub config: &'a Config,
}

/// The node's order book.
#[derive(Clone, Copy, Debug)]
pub struct BookView<'a> {
    /// The object; `None` if it does not exist.
    pub work: Option<&'a NodeWork>,
    /// For how long the daemon has been carrying out the orders.
    pub acting: &'a Acting,
    /// The API server has no such node, so no daemon would read the book.
    pub missing: bool,
    /// A write that places orders of the request is under way, or its result is unknown.
    pub placing: bool,
}

/// Writes of the Pod that are under way or whose result is unknown.
#[derive(Clone, Copy, Debug)]
pub struct PodWrites<'a> {
    /// Of the images that the request wanted last.
    pub images: &'a [ImageChange],
    /// A write of images is being sent now, for this request or another.
    pub images_now: bool,
    /// Of the resources that the request wanted last, except dry runs.
    pub resources: Option<&'a Sizing>,
    /// A write of resources is open, for this request or another.
    pub resources_open: bool,
}

/// All that the engine tells a kind about one request.
pub struct Sight<'a, K: Kind> {
    /// The request.
    pub request: &'a K,
    /// The Pod with the name in the request.
    pub pod: Option<&'a Pod>,
    /// The book of the node that the request was accepted for.
    pub book: Option<BookView<'a>>,
    /// The request wants orders in it.
    pub wants_orders: bool,
    /// The API server is known to restrict each daemon to its own node, so orders may be placed.
    pub guarded: bool,
    /// What the request must wait for.
    pub ahead: Option<Ahead>,
    /// It belongs to another request that is no longer at work.
    pub owner_over: bool,
    /// The object with the name of its [child](Kind::child).
    pub child: Option<Relative<'a>>,
    /// The Pod with the name of [the one that it may have made](Kind::made_pod).
    pub made_pod: Option<&'a Pod>,
    /// Writes of the Pod that are open.
    pub writes: PodWrites<'a>,
    /// A deed of the request that is under way or whose result is unknown.
    pub deed: Option<&'a Deed>,
    /// All its deeds under way.
    pub doing: &'a [Deed],
    /// What is known of the Pod while the watch does not show it.
    pub pod_check: &'a PodCheck,
    /// Result of the last survey for the Pod.
    pub survey: Option<&'a LastSurvey>,
    /// Whether what it gave counts again, once the later claim that had its place is gone; `None` before that is
    /// decided.
    pub reinstated: Option<&'a Result<(), Dormant>>,
    /// Further questions about other objects.
    pub lookup: &'a dyn Lookup<K>,
}

/// Why the resources that a request gave are not given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dormant {
    /// When this was last decided.
    pub decided_at: Mono,
    /// The reason, one word.
    pub reason: &'static str,
    /// The reason, as a sentence.
    pub text: String,
}

/// What decisions need of every object of ours.
pub trait Head: Versioned {
    /// `status`.
    type Status;

    /// Its metadata.
    fn meta(&self) -> Meta<'_>;
    /// `status`.
    fn status(&self) -> &Self::Status;
}

/// A kind of objects by which users request work on one Pod.
pub trait Kind:
    Head<Status: Clone + PartialEq + Debug + Send> + Clone + Debug + Sized + Send + 'static
{
    /// The API object.
    type Object: Resource<DynamicType = ()>
        + HasStatus<Status = Self::Status>
        + Clone
        + Debug
        + Default
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;
    /// What this process remembers of one object.
    type Memory: Clone + Debug + Send;
    /// Its constant facts.
    const ABOUT: About;

    /// Reduces the API object to what decisions need: small and bounded, whatever the object holds.
    fn observe(object: Self::Object) -> Self;
    /// The memory of an object that is first seen now.
    fn remember(now: Mono) -> Self::Memory;

    /// The name that it stands in line for: its Pod; for [many](About::many) its workload, under a name that no Pod
    /// has.
    fn pod_key(&self) -> ObjectKey;
    /// The UID of its Pod, once known.
    fn pod_uid(&self) -> Option<&str>;
    /// How far an object with this status is.
    fn course(status: &Self::Status) -> Course<'_>;
    /// How long it stays after its end; `None` for ever.
    fn ttl(&self) -> Option<Duration>;
    /// When this process first saw it completed.
    fn completed_seen(memory: &mut Self::Memory) -> &mut Option<Mono>;

    /// What the request needs next, and what to count.
    fn decide(
        cx: Cx<'_>,
        sight: Sight<'_, Self>,
        memory: &mut Self::Memory,
    ) -> (Plan<Self::Status>, Vec<Measure>);
    /// The events for a change of its status.
    fn notes(&self, old: &Self::Status) -> Vec<Note>;

    /// Since when it does something to its Pod that excludes requests of other kinds.
    fn disturbs(&self, memory: &Self::Memory, work: WorkState, pod: Option<&Pod>) -> Option<Mono>;

    /// What to count once a change of its status is stored.
    fn measure(&self, old: &Self::Status) -> Option<Measure> {
        let end = self.ended().filter(|_| Self::course(old).ended.is_none())?;
        let About { id, reasons, .. } = Self::ABOUT;
        let reason = reasons.iter().find(|known| **known == end.reason).unwrap_or(&UNKNOWN);
        Some(Measure::Ended { kind: id, complete: end.complete, reason })
    }
    /// The Pod that it was accepted for; `None` before.
    fn target(&self) -> Option<Target<'_>> {
        Self::course(self.status()).target
    }
    /// How it ended; `None` before.
    fn ended(&self) -> Option<Ended<'_>> {
        Self::course(self.status()).ended
    }
    /// It has ended.
    fn completed(&self) -> bool {
        self.ended().is_some()
    }
    /// It changes nothing, such as a dry run.
    fn changes_nothing(&self) -> bool {
        false
    }
    /// It waits to be [released](crate::deed::Deed::Resume), and has done nothing to its Pod.
    fn suspended(&self) -> bool {
        false
    }
    /// Images that it asks for by tag only, each with the digest that a node has pulled for it.
    fn pulled(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }
    /// The object that it makes and manages.
    fn child(&self) -> Option<(KindId, ObjectKey)> {
        None
    }
    /// The Pod that the request with this name and UID may have made. It is deleted once the request is over.
    fn made_pod(_key: &ObjectKey, _uid: &str) -> Option<ObjectKey> {
        None
    }
    /// The hold by which it keeps its Pod not ready while it is at work.
    fn gate(&self) -> Option<Hold> {
        None
    }
    /// What it wants the daemon of the Pod's node to hold the Pod at; `None` if that does not count.
    fn claim(&self) -> Option<Claim<'_>> {
        None
    }
    /// The node's daemon holds its Pod for it, or may do so.
    fn held(&self) -> bool {
        false
    }

    /// It manages its workload while that is parked.
    fn keeps_park(&self) -> bool {
        false
    }
    /// It changes Pods that it selects by labels, and another object of its kind could undo the change.
    fn changes_selected(&self) -> bool {
        false
    }
    /// The change that its workload was parked for has failed.
    fn fails_park(&self) -> bool {
        false
    }

    /// A request that it made for a Pod of this node, and that has succeeded.
    fn succeeded_on(&self, _memory: &Self::Memory, _node: &str) -> Option<ObjectKey> {
        None
    }

    /// Takes in the result of a deed.
    fn deed_done(_memory: &mut Self::Memory, _now: Mono, _deed: Deed, _done: Done) {}
    /// Notes that one of its many Pods changed, or its request for that Pod.
    fn member_changed(_memory: &mut Self::Memory, _pod: &ObjectKey) {}
    /// Takes in the result of a write of its Pod.
    fn pod_written(&self, _memory: &mut Self::Memory, _now: Mono, _written: PodWritten) {}
    /// Notes whether all or none of its orders have a place in the node's book. Returns whether that is news.
    fn placed(_memory: &mut Self::Memory, _now: Mono, _all: bool, _none: bool) -> bool {
        false
    }
    /// The book disappeared without a final answer to an order for this container that was, or may have been,
    /// acknowledged.
    fn lost(_memory: &mut Self::Memory, _container: &str) {}
}

/// The event for a change of status that ends the request; its reason is `completed` or `failed`.
pub fn end_note<K: Kind>(
    request: &K,
    old: &K::Status,
    [completed, failed]: [&'static str; 2],
) -> Option<Note> {
    let Ended { complete, reason, message } = request.ended().filter(|_| K::course(old).ended.is_none())?;
    let text = format!("Request {} ended ({reason}): {message}", request.meta().key);
    Some(note(request, !complete, if complete { completed } else { failed }, text))
}

/// An event about the request and the Pod that it was accepted for.
pub fn note<K: Kind>(request: &K, warning: bool, reason: &'static str, message: String) -> Note {
    Note {
        kind: K::ABOUT.id,
        request: request.meta().key.clone(),
        request_uid: request.uid().to_owned(),
        pod: request.target().map(|target| (request.pod_key(), target.pod_uid.to_owned())),
        owned: false,
        warning,
        reason,
        message,
    }
}
