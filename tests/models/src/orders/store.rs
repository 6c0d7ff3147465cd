//! A small API server: objects with versions, writes with preconditions, and changes for watches.
//!
//! A version consists of the object's UID and its number of writes. The cores compare versions for equality only, so a
//! counter per object suffices.

use std::collections::BTreeMap;

use pitstop_api::MAX_ORDERS;
use pitstop_api::nodework::NodeWorkStatus;
use pitstop_controller_core::change::PodChange;
use pitstop_controller_core::nodework::NodeWork;
use pitstop_controller_core::pod::Pod;
use pitstop_controller_core::readiness::GateCondition;
use pitstop_controller_core::recreate::Request;
use pitstop_controller_core::{Action, Basis, Event, Object, Outcome, Status, Watch, Write};

use super::part::Part;

/// A change that watches deliver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    Pod(Part<Pod>),
    PodGone(Part<Pod>),
    Request(Part<Request>),
    RequestGone(Part<Request>),
    Book(Part<NodeWork>),
}

impl Change {
    /// The change as an event of a controller.
    pub fn event(&self) -> Event {
        match self {
            Self::Pod(pod) => Event::Pods(Watch::Upsert((**pod).clone())),
            Self::PodGone(pod) => Event::Pods(Watch::Gone((**pod).clone())),
            Self::Request(request) => Event::of::<Request>(Watch::Upsert((**request).clone())),
            Self::RequestGone(request) => Event::of::<Request>(Watch::Gone((**request).clone())),
            Self::Book(book) => Event::NodeWorks(Watch::Upsert((**book).clone())),
        }
    }
}

/// Stored objects by name, all in one namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Store {
    /// Pods.
    pub pods: BTreeMap<String, Part<Pod>>,
    /// Recreate requests.
    pub requests: BTreeMap<String, Part<Request>>,
    /// The node's book.
    pub book: Option<Part<NodeWork>>,
    /// Changes that are not in the watches yet; empty between steps.
    pub changes: Vec<Change>,
    /// Planted bug: the store ignores preconditions.
    pub unguarded: bool,
}

/// Number of writes in an object's version.
pub fn count(version: &str) -> u64 {
    version.rsplit('.').next().and_then(|n| n.parse().ok()).unwrap_or_default()
}

fn next(uid: &str, version: &str) -> String {
    format!("{uid}.{}", count(version) + 1)
}

impl Store {
    /// Stores the Pod as a new version.
    pub fn put_pod(&mut self, mut pod: Pod) -> Pod {
        pod.resource_version = next(&pod.uid, &pod.resource_version);
        let part = Part::new(pod.clone());
        self.pods.insert(pod.key.name.clone(), part.clone());
        self.changes.push(Change::Pod(part));
        pod
    }

    /// Removes the Pod.
    pub fn remove_pod(&mut self, name: &str) {
        if let Some(pod) = self.pods.remove(name) {
            self.changes.push(Change::PodGone(pod));
        }
    }

    /// Stores the request as a new version.
    pub fn put_request(&mut self, mut request: Request) -> Request {
        request.resource_version = next(&request.uid, &request.resource_version);
        let part = Part::new(request.clone());
        self.requests.insert(request.key.name.clone(), part.clone());
        self.changes.push(Change::Request(part));
        request
    }

    /// Removes the request.
    pub fn remove_request(&mut self, name: &str) {
        if let Some(request) = self.requests.remove(name) {
            let mut last = (*request).clone();
            last.resource_version = next(&last.uid, &last.resource_version);
            self.changes.push(Change::RequestGone(Part::new(last)));
        }
    }

    /// Adds a book without orders.
    pub fn add_book(&mut self) {
        let book = NodeWork { node: super::NODE.into(), uid: "book".into(), ..NodeWork::default() };
        self.put_book(NodeWork { generation: 1, ..book });
    }

    /// Stores the book as a new version.
    pub fn put_book(&mut self, mut book: NodeWork) -> NodeWork {
        book.resource_version = next(&book.uid, &book.resource_version);
        let part = Part::new(book.clone());
        self.book = Some(part.clone());
        self.changes.push(Change::Book(part));
        book
    }

    /// The request with that UID.
    pub fn request(&self, uid: &str) -> Option<&Request> {
        self.requests.values().map(|r| &**r).find(|r| r.uid == uid)
    }

    fn same(&self, stored: &str, expected: &str) -> bool {
        self.unguarded || stored == expected
    }

    /// Whether a write could still take effect.
    pub fn may_apply(&self, action: &Action) -> bool {
        match action {
            Action::Write {
                object: Object { key, .. },
                write: Write::Status { resource_version, status: Status::Recreate(_) },
            }
            | Action::Write { object: Object { key, .. }, write: Write::Metadata { resource_version, .. } } => {
                self.requests.get(&key.name).is_some_and(|r| self.same(&r.resource_version, resource_version))
            }
            Action::Write { object: Object { key, uid, .. }, write: Write::Delete } => {
                self.requests.get(&key.name).is_some_and(|r| r.uid == *uid)
            }
            Action::PatchPod { key, resource_version, .. } => {
                self.pods.get(&key.name).is_some_and(|p| self.same(&p.resource_version, resource_version))
            }
            Action::WriteOrders { basis, .. } => match (&self.book, basis) {
                (None, Basis::Absent) => true,
                (Some(book), Basis::Version(version)) => self.same(&book.resource_version, version),
                (Some(book), Basis::Orders { uid, generation }) => {
                    self.unguarded || (&book.uid, book.generation) == (uid, *generation)
                }
                (None | Some(_), _) => false,
            },
            Action::ReadPod { .. }
            | Action::Write { write: Write::Status { .. }, .. }
            | Action::Survey { .. }
            | Action::Do { .. }
            | Action::Emit(_)
            | Action::Count(_) => false,
        }
    }

    /// Carries out a controller's action; returns the answer.
    pub fn carry_out(&mut self, action: &Action) -> Event {
        match action {
            Action::WriteOrders { node, .. } => {
                Event::NodeWorkWritten(node.clone(), self.write_orders(action))
            }
            Action::Write {
                object: Object { key, uid, .. },
                write: Write::Status { status: Status::Recreate(_), .. },
            }
            | Action::Write { object: Object { key, uid, .. }, write: Write::Metadata { .. } }
            | Action::Write { object: Object { key, uid, .. }, write: Write::Delete } => {
                Event::written::<Request>(key.clone(), uid.clone(), self.write_request(action))
            }
            Action::PatchPod { key, uid, .. } => {
                Event::PodWritten { key: key.clone(), uid: uid.clone(), outcome: self.write_pod(action) }
            }
            Action::ReadPod { object, pod } => {
                let found = self.pods.get(&pod.name);
                let outcome = found.map_or(Outcome::Gone, |pod| Outcome::Written(pod.uid.clone()));
                Event::PodRead { object: object.clone(), outcome }
            }
            Action::Write { write: Write::Status { .. }, .. } | Action::Survey { .. } | Action::Do { .. } => {
                panic!("there are no resizes here")
            }
            Action::Emit(_) | Action::Count(_) => panic!("not kept"),
        }
    }

    /// Carries out a write of a request.
    fn write_request(&mut self, action: &Action) -> Outcome<Request> {
        let (Action::Write {
            object: Object { key, .. },
            write: Write::Status { status: Status::Recreate(_), .. },
        }
        | Action::Write { object: Object { key, .. }, write: Write::Metadata { .. } }
        | Action::Write { object: Object { key, .. }, write: Write::Delete }) = action
        else {
            panic!("{action:?} is no write of a request")
        };
        let Some(stored) = self.requests.get(&key.name).map(|r| (**r).clone()) else { return Outcome::Gone };
        if !self.may_apply(action) {
            return Outcome::Conflict;
        }
        match action {
            // A write without changes makes no new version: it confirms the named one.
            Action::Write { write: Write::Status { status: Status::Recreate(status), .. }, .. }
                if stored.status == **status =>
            {
                Outcome::Written(stored)
            }
            Action::Write { write: Write::Status { status: Status::Recreate(status), .. }, .. } => {
                Outcome::Written(self.put_request(Request { status: (**status).clone(), ..stored }))
            }
            Action::Write { write: Write::Metadata { labels, annotations, .. }, .. } => {
                let mut new = stored;
                for (kept, changes) in
                    [(&mut new.more.labels, labels), (&mut new.more.annotations, annotations)]
                {
                    for (key, value) in changes {
                        match value {
                            Some(value) => kept.insert(key.clone(), value.clone()),
                            None => kept.remove(key),
                        };
                    }
                }
                Outcome::Written(self.put_request(new))
            }
            _ => {
                self.remove_request(&key.name);
                Outcome::Gone
            }
        }
    }

    /// Carries out a write of the node's orders.
    fn write_orders(&mut self, action: &Action) -> Outcome<NodeWork> {
        let Action::WriteOrders { node, orders, closed, basis, .. } = action else {
            panic!("{action:?} is no write of orders")
        };
        assert!(orders.len() <= MAX_ORDERS);
        let new = match &self.book {
            None if *basis != Basis::Absent => return Outcome::Gone,
            _ if !self.may_apply(action) => return Outcome::Conflict,
            None => NodeWork {
                node: node.clone(),
                uid: "book".into(),
                generation: 1,
                orders: orders.clone(),
                closed: closed.clone(),
                ..NodeWork::default()
            },
            // A write without changes makes no new version.
            Some(stored) if (&stored.orders, &stored.closed) == (orders, closed) => {
                return Outcome::Written((**stored).clone());
            }
            Some(stored) => NodeWork {
                generation: stored.generation + 1,
                orders: orders.clone(),
                closed: closed.clone(),
                ..(**stored).clone()
            },
        };
        Outcome::Written(self.put_book(new))
    }

    /// Carries out a daemon's write.
    pub fn write_answers(&mut self, version: &str, status: NodeWorkStatus) -> Option<NodeWork> {
        let stored = self.book.as_ref().filter(|b| self.same(&b.resource_version, version))?;
        let new = NodeWork { status, ..(**stored).clone() };
        Some(self.put_book(new))
    }

    /// Carries out a change of a Pod.
    fn write_pod(&mut self, action: &Action) -> Outcome<Pod> {
        let Action::PatchPod { key, uid, change, .. } = action else {
            panic!("{action:?} is no write of a Pod")
        };
        let Some(mut pod) = self.pods.get(&key.name).map(|p| (**p).clone()) else { return Outcome::Gone };
        if pod.uid != *uid || !self.may_apply(action) {
            return Outcome::Conflict;
        }
        match change {
            PodChange::Gates(changes) => {
                for change in changes {
                    let gate = pod.gates.iter_mut().find(|g| g.type_ == change.type_).unwrap();
                    let new = GateCondition { open: change.open, message: change.message.clone() };
                    gate.condition = Some(new);
                }
            }
            PodChange::Images(changes) => {
                for change in changes {
                    let container = pod.containers.iter_mut().find(|c| c.name == change.container).unwrap();
                    container.image.clone_from(&change.image);
                }
            }
            PodChange::Resources(_) => panic!("there are no resizes here"),
        }
        Outcome::Written(self.put_pod(pod))
    }
}

/// The answer to a failed write: refused, or no answer.
pub fn ends(action: &Action, refused: bool) -> Event {
    fn outcome<T>(refused: bool) -> Outcome<T> {
        if refused { Outcome::Refused("no".into()) } else { Outcome::Retry }
    }
    match action {
        Action::WriteOrders { node, .. } => Event::NodeWorkWritten(node.clone(), outcome(refused)),
        Action::Write {
            object: Object { key, uid, .. },
            write: Write::Status { status: Status::Recreate(_), .. },
        }
        | Action::Write { object: Object { key, uid, .. }, write: Write::Metadata { .. } }
        | Action::Write { object: Object { key, uid, .. }, write: Write::Delete } => {
            Event::written::<Request>(key.clone(), uid.clone(), outcome(refused))
        }
        Action::PatchPod { key, uid, .. } => {
            Event::PodWritten { key: key.clone(), uid: uid.clone(), outcome: outcome(refused) }
        }
        Action::ReadPod { object, .. } => Event::PodRead { object: object.clone(), outcome: Outcome::Retry },
        Action::Write { write: Write::Status { .. }, .. } | Action::Survey { .. } | Action::Do { .. } => {
            panic!("there are no resizes here")
        }
        Action::Emit(_) | Action::Count(_) => panic!("not kept"),
    }
}
