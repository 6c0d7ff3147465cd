//! What the engine must know of a kind of objects by which users ask for something to be done to Pods, and what a kind is
//! told by the engine.
//!
//! A kind is one folder and one line in [`crate::kinds`]. Kinds do not know each other: they meet through [children](Kind::child)
//! and through what the engine tells of a Pod.

mod around;

use std::fmt::Debug;
use std::time::Duration;

use chrono::{DateTime, Utc};
use kube::Resource;
use kube::core::object::HasStatus;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::before::Before;
use crate::change::{ImageChange, Note, Sizing};
use crate::config::Config;
use crate::deed::{Deed, Done};
use crate::hold::Claim;
use crate::hold::admission::Surveyed;
use crate::key::{KindId, ObjectKey};
use crate::look::Look;
use crate::measure::Measure;
use crate::nodework::{Acting, NodeWork};
pub use crate::owner::{Owner, owner};
use crate::plan::Plan;
use crate::pod::Pod;
use crate::readiness::Hold;
use crate::review::Review;
use crate::time::Mono;
use crate::tracked::Versioned;
pub use around::Around;

/// What is fixed of a kind: by these facts it is listed, watched, written, counted, logged and reviewed.
#[derive(Debug)]
pub struct About {
    /// The kind.
    pub id: KindId,
    /// `apiVersion` of what is told of its objects to people.
    pub api_version: &'static str,
    /// As its resource is called in URLs and in rights.
    pub plural: &'static str,
    /// Its watch, as metrics name it.
    pub watch: &'static str,
    /// The readiness condition that holds from the first complete list on.
    pub synced: &'static str,
    /// What its metrics begin with.
    pub metric: &'static str,
    /// Its objects, as the help of metrics calls them.
    pub noun: &'static str,
    /// Its writes, as metrics name them.
    pub writes: WriteNames,
    /// What an event about one of its objects tells of (`action` of a Kubernetes event).
    pub action: &'static str,
    /// Every reason of an end.
    pub reasons: &'static [&'static str],
    /// Those of them that are successes.
    pub successes: &'static [&'static str],
    /// How it shares a Pod with other kinds.
    pub sharing: Sharing,
    /// It is for many Pods: those of a workload. Its objects stand by that, do nothing to a Pod themselves, and are not counted
    /// as requests of their namespace.
    pub many: bool,
    /// How many [deeds](Deed) of one object may be under way.
    pub deeds: usize,
    /// Its requests may [claim](Kind::claim) what counts for other Pods of their nodes and namespaces.
    pub claims: bool,
    /// How the webhook reviews its objects; absent where it is not asked.
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
    /// That makes one, for an owner.
    pub create: &'static str,
    /// That deletes one.
    pub delete: &'static str,
}

/// How requests of a kind share a Pod with those of other kinds.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// How long one waits for what another kind's request [disturbs](Kind::disturbs), where that [may stall](Self::stalls); absent
    /// for as long as it does.
    pub patience: Option<Duration>,
    /// One that has not begun waits for those of other kinds that were made earlier and have not begun either.
    pub yields: bool,
    /// What one disturbs it may disturb for as long as it is open, without getting on with it: others wait for as long as they
    /// have patience. Else they wait until it is done.
    pub stalls: bool,
}

/// What every object has.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    /// Namespace and name.
    pub key: &'a ObjectKey,
    /// `metadata.creationTimestamp`, in seconds; only compared with other objects' of the same API server.
    pub created: i64,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The request that made it, and looks after it.
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
    /// It did what it was made for.
    pub complete: bool,
    /// In one word.
    pub reason: &'a str,
    /// What it says of that.
    pub message: &'a str,
}

/// A reason of an end that another version of the controller has called otherwise.
pub const UNKNOWN: &str = "Unknown";

/// How far a request is, by its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Course<'a> {
    /// The Pod that it was accepted for, once it was.
    pub target: Option<Target<'a>>,
    /// How it ended, once it has.
    pub ended: Option<Ended<'a>>,
}

/// What is told of an object of another kind.
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
    /// How it ended, once it has.
    pub ended: Option<Ended<'a>>,
    /// Images that it asks for by their tags alone, and the digests that a node has pulled for them.
    pub pulled: Vec<(&'a str, &'a str)>,
}

impl Relative<'_> {
    /// The request of that UID has made it.
    pub fn is_of(&self, uid: &str) -> bool {
        self.owner_uid == Some(uid)
    }
}

/// What goes before a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// It.
    pub by: Before,
    /// Until when it does so at the most; absent where that is for as long as it is open.
    pub until: Option<Mono>,
    /// It is another kind's request that has been accepted, and has the Pod.
    pub has_pod: bool,
    /// So many wait for the Pod that each tells of it later: most waits are over before they need to be told.
    pub crowded: bool,
}

/// How far a request is with its Pod, as the engine knows.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Since when its acceptance has been sent.
    pub begun: Option<Mono>,
    /// It has ended or is about to be deleted.
    pub lingers: bool,
    /// An order of its own may have a container of the Pod to stop yet.
    pub stops: bool,
}

/// A write of a Pod that the request wanted came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodWritten {
    /// Of images: refused in these words, or else.
    Images(Option<String>),
    /// Of resources: refused in these words, or else.
    Resources(Option<String>),
    /// A dry run of resources: they would be stored; refused in these words; or nobody knows.
    Trial {
        /// They would be stored.
        stored: bool,
        /// They are refused.
        refused: Option<String>,
    },
}

/// The time and the settings that a decision is made by.
#[derive(Clone, Copy, Debug)]
pub struct Cx<'a> {
    /// This process's clock.
    pub now: Mono,
    /// Written down, never compared.
    pub wall: DateTime<Utc>,
    /// The settings.
    pub config: &'a Config,
}

/// The node's order book.
#[derive(Clone, Copy, Debug)]
pub struct BookView<'a> {
    /// The object; absent while there is none.
    pub work: Option<&'a NodeWork>,
    /// For how long the daemon has been carrying the orders out.
    pub acting: &'a Acting,
    /// The API server has no such node, so nobody reads what would be in the book.
    pub missing: bool,
    /// A write that places orders of the request is under way, or nobody knows yet how it ended.
    pub placing: bool,
}

/// Writes of the Pod that are under way, or of which nobody knows yet how they ended.
#[derive(Clone, Copy, Debug)]
pub struct PodWrites<'a> {
    /// Of the images that the request wanted last.
    pub images: &'a [ImageChange],
    /// Of images, for this request or another, and being written this moment.
    pub images_now: bool,
    /// Of the resources that the request wanted last, and not as a dry run.
    pub resources: Option<&'a Sizing>,
    /// Of resources, for this request or another.
    pub resources_open: bool,
}

/// All that the engine tells of the surroundings of one request.
pub struct Sight<'a, K: Kind> {
    /// The request.
    pub request: &'a K,
    /// The Pod under the name that the request gives.
    pub pod: Option<&'a Pod>,
    /// The book of the node that the request was accepted for.
    pub book: Option<BookView<'a>>,
    /// The request wants orders in it.
    pub wants_orders: bool,
    /// The API server is known to keep each daemon to its own node, so that orders may be placed.
    pub guarded: bool,
    /// What goes first for the same Pod.
    pub ahead: Option<Ahead>,
    /// It belongs to another request that is not at work any more.
    pub owner_over: bool,
    /// What is there under the name of its [child](Kind::child).
    pub child: Option<Relative<'a>>,
    /// The Pod under the name of the one that it [may have made](Kind::made_pod).
    pub made_pod: Option<&'a Pod>,
    /// Writes of the Pod that are open.
    pub writes: PodWrites<'a>,
    /// What the request has done that is under way, or of which nobody knows yet how it ended.
    pub deed: Option<&'a Deed>,
    /// All that is under way.
    pub doing: &'a [Deed],
    /// What is known of the Pod while the watch does not show it.
    pub look: &'a Look,
    /// What came of the last reading of what bounds the Pod.
    pub survey: Option<&'a Surveyed>,
    /// By its claim, which came back: whether what it gave counts again. Absent while nobody has asked.
    pub anew: Option<&'a Result<(), Dormant>>,
    /// What this process knows of the surroundings beside.
    pub around: &'a dyn Around<K>,
}

/// What a request gave is not given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dormant {
    /// When that was seen last.
    pub at: Mono,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, as a sentence.
    pub text: String,
}

/// What every object of ours has, as far as decisions need it.
pub trait Head: Versioned {
    /// `status`.
    type Status;

    /// Of its metadata.
    fn meta(&self) -> Meta<'_>;
    /// `status`.
    fn status(&self) -> &Self::Status;
}

/// A kind of objects by which users ask for something to be done to one Pod.
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
    /// What this process remembers of one.
    type Memory: Clone + Debug + Send;
    /// What is fixed of it.
    const ABOUT: About;

    /// From the API object to what decisions need, which is bounded and small whatever the object holds.
    fn observe(object: Self::Object) -> Self;
    /// First seen now.
    fn remember(now: Mono) -> Self::Memory;

    /// What it stands in line for: the Pod that it names; for [many](About::many) the workload, under a name that no Pod has.
    fn pod_key(&self) -> ObjectKey;
    /// The UID of the Pod that it means, once that is known.
    fn pod_uid(&self) -> Option<&str>;
    /// How far one with that status is.
    fn course(status: &Self::Status) -> Course<'_>;
    /// How long it stays once it has ended; absent for ever.
    fn ttl(&self) -> Option<Duration>;
    /// When this process first saw it completed.
    fn completed_seen(memory: &mut Self::Memory) -> &mut Option<Mono>;

    /// What it needs, and what is worth a number.
    fn decide(
        cx: Cx<'_>,
        sight: Sight<'_, Self>,
        memory: &mut Self::Memory,
    ) -> (Plan<Self::Status>, Vec<Measure>);
    /// The events that a change of its status is worth.
    fn notes(&self, old: &Self::Status) -> Vec<Note>;

    /// Since when it does to its Pod what requests of other kinds must not do meanwhile.
    fn disturbs(&self, memory: &Self::Memory, at: At, pod: Option<&Pod>) -> Option<Mono>;

    /// What to count when a change of its status is stored.
    fn measure(&self, old: &Self::Status) -> Option<Measure> {
        let end = self.ended().filter(|_| Self::course(old).ended.is_none())?;
        let About { id, reasons, .. } = Self::ABOUT;
        let reason = reasons.iter().find(|known| **known == end.reason).unwrap_or(&UNKNOWN);
        Some(Measure::Ended { kind: id, complete: end.complete, reason })
    }
    /// The Pod that it was accepted for, once it was.
    fn target(&self) -> Option<Target<'_>> {
        Self::course(self.status()).target
    }
    /// How it ended, once it has.
    fn ended(&self) -> Option<Ended<'_>> {
        Self::course(self.status()).ended
    }
    /// It has ended.
    fn completed(&self) -> bool {
        self.ended().is_some()
    }
    /// It only asks what would be.
    fn asks(&self) -> bool {
        false
    }
    /// It waits to be [released](crate::deed::Deed::Resume), and has done nothing to its Pod.
    fn suspended(&self) -> bool {
        false
    }
    /// Images that it asks for by their tags alone, and the digests that a node has pulled for them.
    fn pulled(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }
    /// The object that it makes, or has made, and looks after.
    fn child(&self) -> Option<(KindId, ObjectKey)> {
        None
    }
    /// The Pod that the request of that name and UID may have made, and looks after. It is deleted once the request is over.
    fn made_pod(_key: &ObjectKey, _uid: &str) -> Option<ObjectKey> {
        None
    }
    /// The hold by which it keeps its Pod not ready while it is at work.
    fn gate(&self) -> Option<Hold> {
        None
    }
    /// What it wants the daemon of the Pod's node to give the Pod, while that counts.
    fn claim(&self) -> Option<Claim<'_>> {
        None
    }
    /// The node's daemon holds its Pod for it, or may.
    fn held(&self) -> bool {
        false
    }

    /// It looks after its workload, for as long as that is parked.
    fn keeps_park(&self) -> bool {
        false
    }
    /// It gives Pods that it looks after by their labels something that another one could take from them again.
    fn gives(&self) -> bool {
        false
    }
    /// What its workload was parked for has failed.
    fn fails_park(&self) -> bool {
        false
    }

    /// Of the requests that it has made for Pods of that node, one that has succeeded.
    fn done_at(&self, _memory: &Self::Memory, _node: &str) -> Option<ObjectKey> {
        None
    }

    /// What it has had done came back.
    fn deed_done(_memory: &mut Self::Memory, _now: Mono, _deed: Deed, _done: Done) {}
    /// A Pod that it looks after among others changed, or a request for that Pod that it has made.
    fn member_changed(_memory: &mut Self::Memory, _pod: &ObjectKey) {}
    /// A write of its Pod came back.
    fn pod_written(&self, _memory: &mut Self::Memory, _now: Mono, _written: PodWritten) {}
    /// Whether all or none of its orders have a place in the node's book. Whether that is news.
    fn placed(_memory: &mut Self::Memory, _now: Mono, _all: bool, _none: bool) -> bool {
        false
    }
    /// The book went without a last word on an order for that container that was taken up, or may have been.
    fn lost(_memory: &mut Self::Memory, _container: &str) {}
}

/// The event that a change of status is worth by which the request ends; `reasons`: of a success, and of another end.
pub fn end_note<K: Kind>(
    request: &K,
    old: &K::Status,
    [completed, failed]: [&'static str; 2],
) -> Option<Note> {
    let Ended { complete, reason, message } = request.ended().filter(|_| K::course(old).ended.is_none())?;
    let text = format!("Request {} ended ({reason}): {message}", request.meta().key);
    Some(note(request, !complete, if complete { completed } else { failed }, text))
}

/// An event about the request, and about the Pod that it was accepted for.
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
