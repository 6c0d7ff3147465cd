//! What one request of any kind needs next.

use std::collections::BTreeMap;

use pitstop_api::nodework::Order;

use crate::change::{ImageChange, Sizing};
use crate::deed::Deed;
use crate::pod::Group;
use crate::time::Mono;

/// How soon a write must happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// At once.
    Now,
    /// After a while without other writes: it only says what the request waits for.
    Later,
}

/// A status to write.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite<S> {
    /// The whole new status.
    pub status: S,
    /// How soon.
    pub urgency: Urgency,
}

/// What to read because no watch shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The limits for the request's Pod.
    Bounds,
    /// Whether the Pod exists.
    Pod,
}

/// What one request needs.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Plan<S> {
    /// The status to store.
    pub status: Option<StatusWrite<S>>,
    /// The orders that it wants in its node's book; any other of its orders is withdrawn.
    pub orders: Vec<Order>,
    /// IDs of its orders that outlive the request: the daemon may finish what it has begun, but begins nothing.
    pub closed: Vec<String>,
    /// Images to set in its Pod.
    pub images: Vec<ImageChange>,
    /// Resources to set in its Pod.
    pub sizing: Option<Sizing>,
    /// The request waits for its turn and was found possible: an earlier one that it replaces may give way.
    pub possible: bool,
    /// The Pods of its namespace that it manages.
    pub groups: Vec<Group>,
    /// What to read from the API server.
    pub read: Option<Read>,
    /// The deed to do.
    pub deed: Option<Deed>,
    /// Labels to set or to remove.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations to set or to remove.
    pub annotations: BTreeMap<String, Option<String>>,
    /// Delete the request.
    pub delete: bool,
    /// When to look again without an event.
    pub wake_at: Option<Mono>,
}

impl<S> Plan<S> {
    /// It wants nothing, except perhaps another look later.
    pub fn is_nothing(&self) -> bool {
        let Self { status, orders, closed, images, sizing, possible, .. } = self;
        let Self { read, deed, labels, annotations, delete, wake_at: _, groups: _, .. } = self;
        let changes = status.is_some() || sizing.is_some() || !(labels.is_empty() && annotations.is_empty());
        let wants = !(orders.is_empty() && closed.is_empty() && images.is_empty());
        !(changes || wants || *possible || read.is_some() || deed.is_some() || *delete)
    }
}
