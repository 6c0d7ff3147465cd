//! What goes into the engine and what comes out of it.

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

/// An object of a kind.
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
    /// That one.
    pub fn new(kind: KindId, key: ObjectKey, uid: impl Into<String>) -> Self {
        Self { kind, key, uid: uid.into() }
    }
}

/// Something happened.
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
    /// This process began or ceased to lead.
    Leader(bool),
    /// The API server keeps each daemon to its own node, or does not ([`crate::guard`]).
    Guarded(bool),
    /// A write of an object came back.
    Written {
        /// The object.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// How it ended.
        outcome: Written,
    },
    /// A write of a Pod came back.
    PodWritten {
        /// The Pod.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// How it ended.
        outcome: Outcome<Pod>,
    },
    /// A dry run of a Pod's change came back.
    PodTried {
        /// The Pod.
        key: ObjectKey,
        /// Its UID, as the action named it.
        uid: String,
        /// How it ended.
        outcome: Outcome<()>,
    },
    /// What a request has had done came back.
    DeedDone {
        /// For whom.
        by: Object,
        /// What.
        deed: Box<Deed>,
        /// How it ended.
        done: Done,
    },
    /// What bounds the Pods of a namespace and a node was read.
    Surveyed {
        /// The namespace, and the name of the node.
        place: ObjectKey,
        /// What was found.
        outcome: Outcome<Survey>,
    },
    /// The API server was asked for the Pod of a request.
    PodRead {
        /// For whom.
        by: Object,
        /// The Pod's UID.
        outcome: Outcome<String>,
    },
    /// A write of an order book came back.
    NodeWorkWritten(String, Outcome<NodeWork>),
    /// Time passed.
    Tick,
}

impl Event {
    /// Objects of that kind changed.
    pub fn of<K: Registered>(watch: Watch<K>) -> Self {
        Self::Objects(K::watched(watch))
    }

    /// That there are no objects of any kind but of those: what is listed by whoever knows no other.
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

    /// A write of an object of that kind came back.
    pub fn written<K: Registered>(key: ObjectKey, uid: String, outcome: Outcome<K>) -> Self {
        Self::Written { key, uid, outcome: K::written(outcome) }
    }
}

/// A write, or a reading, to do. Each names what it relies on, and can be repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write an object.
    Write {
        /// The object; its UID for the logs, and for a deletion as the precondition.
        object: Object,
        /// What.
        write: Write,
    },
    /// Read what bounds Pods: the `LimitRange`s and the `ResourceQuota`s of a namespace, and a node.
    Survey {
        /// The namespace, and the name of the node.
        place: ObjectKey,
    },
    /// Read whether the Pod of a request exists.
    ReadPod {
        /// For whom.
        by: Object,
        /// The Pod.
        pod: ObjectKey,
    },
    /// Write a node's orders.
    WriteOrders {
        /// The node.
        node: String,
        /// What of the book must be as it was.
        basis: Basis,
        /// All open orders.
        orders: Vec<Order>,
        /// IDs of those of them whose request has ended or is about to.
        closed: Vec<String>,
        /// The book has no owner, and gets its node for one if that is there.
        adopt: bool,
    },
    /// Change a Pod, if it is still that version.
    PatchPod {
        /// The Pod.
        key: ObjectKey,
        /// Its UID.
        uid: String,
        /// The version that was looked at.
        resource_version: String,
        /// What to change; all else stays.
        change: PodChange,
    },
    /// Do something for a request.
    Do {
        /// For whom.
        by: Object,
        /// What.
        deed: Deed,
    },
    /// Tell people; lost ones are not repeated.
    Emit(Note),
    /// Count; lost ones are not repeated.
    Count(Measure),
}

/// What a write of a node's orders rests on: nothing is written where it is another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// There is no book, and one is made.
    Absent,
    /// All of the book, the daemon's answers included: its `metadata.resourceVersion`.
    Version(String),
    /// What the controllers have written: the daemon may have answered meanwhile.
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
    /// Replace the status, if the object is still that version.
    Status {
        /// The version that the status was computed from.
        resource_version: String,
        /// The whole status.
        status: Status,
    },
    /// Set or remove labels and annotations, if the object is still that version.
    Metadata {
        /// The version that was looked at.
        resource_version: String,
        /// Label values; absent ones are removed.
        labels: BTreeMap<String, Option<String>>,
        /// Annotation values; absent ones are removed.
        annotations: BTreeMap<String, Option<String>>,
    },
    /// Delete the object, if it still has that UID.
    Delete,
}
