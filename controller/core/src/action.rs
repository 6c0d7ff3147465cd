//! Input and output of the engine: events and actions.

use std::collections::BTreeMap;

pub use pitstop_api::logic::watch::{Part, Watch};
use pitstop_api::nodework::Order;
use pitstop_api::rollout::TargetKind;

use crate::change::{Note, PodChange};
use crate::deed::{Deed, Done};
use crate::hold::admission::Survey;
use crate::key::{KindId, ObjectKey};
use crate::kinds::{ForEach, Registered, Status, Watched, Written, for_each};
use crate::measure::Measure;
use crate::nodework::NodeWork;
use crate::outcome::Outcome;
use crate::pod::Pod;
use crate::workload::Parked;

/// Identity of an object: kind, key and UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its kind.
    pub kind: KindId,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: String,
}

impl Object {
    /// The identity of an object.
    pub fn new(kind: KindId, key: ObjectKey, uid: impl Into<String>) -> Self {
        Self { kind, key, uid: uid.into() }
    }
}

/// Input of the engine.
#[derive(Clone, Debug)]
pub enum Event {
    /// Pods changed.
    Pods(Watch<Pod>),
    /// Objects of a kind changed.
    Objects(Watched),
    /// Parked workloads of that kind changed.
    Parked(TargetKind, Watch<Parked>),
    /// Order books changed.
    NodeWorks(Watch<NodeWork>),
    /// This process became the leader (true), or leads no longer (false).
    Leader(bool),
    /// Whether the API server restricts each daemon to its own node ([`crate::guard`]).
    Guarded(bool),
    /// Result of a write of an object.
    Written {
        /// The object.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// How it ended.
        outcome: Written,
    },
    /// Result of a write of a Pod.
    PodWritten {
        /// The Pod.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// How it ended.
        outcome: Outcome<Pod>,
    },
    /// Result of a dry run of a Pod's change.
    PodTried {
        /// The Pod.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// How it ended.
        outcome: Outcome<()>,
    },
    /// Result of a deed of a request.
    DeedDone {
        /// The request.
        object: Object,
        /// The deed.
        deed: Box<Deed>,
        /// How it ended.
        done: Done,
    },
    /// Result of [`Action::Survey`].
    Surveyed {
        /// Namespace, and name of the node.
        key: ObjectKey,
        /// The survey, if it succeeded.
        outcome: Outcome<Survey>,
    },
    /// Result of [`Action::ReadPod`].
    PodRead {
        /// The request.
        object: Object,
        /// The Pod's UID.
        outcome: Outcome<String>,
    },
    /// Result of a write of the order book of this node.
    NodeWorkWritten(String, Outcome<NodeWork>),
    /// Time passed.
    Tick,
}

impl Event {
    /// Objects of kind `K` changed.
    pub fn of<K: Registered>(watch: Watch<K>) -> Self {
        Self::Objects(K::watched(watch))
    }

    /// Empty lists for every kind except `kinds`.
    pub fn none_but(kinds: &[KindId]) -> Vec<Self> {
        struct Lists<'a> {
            kinds: &'a [KindId],
            lists: Vec<Event>,
        }
        impl ForEach for Lists<'_> {
            fn kind<K: Registered>(&mut self) {
                if !self.kinds.contains(&K::ABOUT.id) {
                    self.lists.push(Event::of::<K>(Watch::list(Vec::new())));
                }
            }
        }
        let mut lists = Lists { kinds, lists: Vec::new() };
        for_each(&mut lists);
        lists.lists
    }

    /// Result of a write of an object of kind `K`.
    pub fn written<K: Registered>(key: ObjectKey, uid: String, outcome: Outcome<K>) -> Self {
        Self::Written { key, uid, outcome: K::written(outcome) }
    }
}

/// A write or read to perform. Each names its precondition and can be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write an object.
    Write {
        /// The object. Its UID is for the logs; for a deletion it is also the precondition.
        object: Object,
        /// The write.
        write: Write,
    },
    /// Read the limits for Pods: the `LimitRange`s and `ResourceQuota`s of a namespace, and a node.
    Survey {
        /// Namespace, and name of the node.
        key: ObjectKey,
    },
    /// Read whether the Pod of a request exists.
    ReadPod {
        /// The request.
        object: Object,
        /// The Pod.
        pod: ObjectKey,
    },
    /// Write a node's orders.
    WriteOrders {
        /// The node.
        node: String,
        /// The state of the book that this write requires.
        basis: Basis,
        /// All open orders.
        orders: Vec<Order>,
        /// IDs of the orders whose request has ended or is about to end.
        closed: Vec<String>,
        /// The book has no owner: make its node the owner, if the node exists.
        adopt: bool,
    },
    /// Change a Pod, if its version is unchanged.
    PatchPod {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// The version that the change is based on.
        resource_version: String,
        /// What to change; the rest of the Pod stays.
        change: PodChange,
    },
    /// Carry out a deed of a request.
    Do {
        /// The request.
        object: Object,
        /// The deed.
        deed: Deed,
    },
    /// Record a Kubernetes event; not repeated if lost.
    Emit(Note),
    /// Count a measure; not repeated if lost.
    Count(Measure),
}

/// Precondition of a write of a node's orders: the write fails if the book is different.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// No book exists: the write creates it.
    Absent,
    /// The whole book is unchanged, including the daemon's answers: its `metadata.resourceVersion`.
    Version(String),
    /// The part that controllers write is unchanged; the daemon may have answered meanwhile.
    Orders {
        /// The book's UID.
        uid: String,
        /// Its `metadata.generation`.
        generation: i64,
    },
}

/// A write of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Replace the status, if the object's version is unchanged.
    Status {
        /// The version that the status was computed from.
        resource_version: String,
        /// The whole status.
        status: Status,
    },
    /// Set or remove labels and annotations, if the object's version is unchanged.
    Metadata {
        /// The version that the change is based on.
        resource_version: String,
        /// Label values; `None` removes the label.
        labels: BTreeMap<String, Option<String>>,
        /// Annotation values; `None` removes the annotation.
        annotations: BTreeMap<String, Option<String>>,
    },
    /// Delete the object, if it still has that UID.
    Delete,
}
