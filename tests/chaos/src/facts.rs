//! What was seen of a run, for the judge: requests and image updates as the API server shows them, and of Pods what their
//! containers wrote down themselves.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::image_update::Phase;

use crate::plan::{Images, Victim};
use crate::trace::Entry;

/// Hundredths of a second since the machine's boot; one clock for all nodes and containers, since they are on one
/// machine.
pub(crate) type Uptime = u64;

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// By name.
    pub(crate) requests: BTreeMap<String, Request>,
    /// By name.
    pub(crate) updates: BTreeMap<String, Update>,
    /// By name.
    pub(crate) pods: BTreeMap<String, Pod>,
    /// Orders that stand in a node's book.
    pub(crate) orders: Vec<String>,
    pub(crate) kills: Vec<Killed>,
}

/// A request, as it was seen last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) pod: String,
    /// The names in its spec.
    pub(crate) containers: Vec<String>,
    /// What the API server showed of the Pod's containers before the request was made: ID by name.
    pub(crate) before: BTreeMap<String, String>,
    /// What it was resolved to, by container.
    pub(crate) target: BTreeMap<String, Target>,
    /// The containers that it calls `Succeeded`.
    pub(crate) succeeded: BTreeSet<String>,
    pub(crate) outcome: Outcome,
    /// It has the label `active`.
    pub(crate) is_active: bool,
    /// It has a time to live.
    pub(crate) expires: bool,
    /// The API server has it no more.
    pub(crate) is_gone: bool,
}

/// The instance that a request is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) id: String,
    /// It is restarted through the kubelet.
    pub(crate) is_pinned: bool,
}

/// How a request ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has not.
    #[default]
    Open,
    Complete,
    /// With the reason of the condition `Failed`.
    Failed(String),
}

/// An image update, as it was seen last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Update {
    pub(crate) pod: String,
    /// The versions that the containers of its spec get, by name.
    pub(crate) wanted: BTreeMap<String, String>,
    pub(crate) images: Images,
    /// What the API server showed of the Pod's containers before it was made: ID by name.
    pub(crate) before: BTreeMap<String, String>,
    /// What ran in the containers when the Pod was given its images, by name; empty where it was given none.
    pub(crate) replaced: BTreeMap<String, String>,
    /// How it ended.
    pub(crate) end: Option<End>,
    /// When it was first and last seen.
    pub(crate) seen: (Uptime, Uptime),
    /// The API server has it no more.
    pub(crate) is_gone: bool,
}

/// How an image update ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) phase: Phase,
    pub(crate) reason: String,
}

/// A Pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pod {
    pub(crate) node: String,
    pub(crate) is_ready: bool,
    /// Holds of requests on its readiness.
    pub(crate) holds: Vec<String>,
    /// What its containers wrote down, in order.
    pub(crate) trace: Vec<Entry>,
}

/// A `kill -9` that hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Killed {
    pub(crate) time: Uptime,
    pub(crate) victim: Victim,
}
