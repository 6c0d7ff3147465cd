//! Rules of the design besides the numbered invariants: turn, order, grace, truth, and no haste.
//!
//! Some can only be checked if nothing else goes wrong; each says in which schedules it applies.

mod calls;
mod requests;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::nodework::{AnswerState, Order};
use pitstop_api::recreate::ContainerRecreateRequest;

use super::pace::{Clocks, Rate};
use super::turns::Turns;
use crate::world::plan::{Fault, Schedule};

/// Broken rules: the number, or `rule`, and what happened.
pub type Found = Vec<(&'static str, String)>;

/// An order that stood in a book.
struct Placed {
    order: Order,
    node: String,
    /// When it was placed, in milliseconds.
    at: u64,
    /// The write that placed it; orders of one write stand in the requested order.
    write: usize,
    /// Whether it is still in the book.
    in_book: bool,
    /// The stored answer, and since when the order has one.
    answer: Option<(AnswerState, u64)>,
    /// The uptime in the stored acknowledgement, and since when: the grace counts from it.
    grace_from: Option<(Option<i64>, u64)>,
    /// When a daemon first ran its hook.
    hooked: Option<u64>,
    /// When a daemon first stopped its container.
    stopped: Option<u64>,
}

/// A request.
struct Followed {
    object: ContainerRecreateRequest,
    created: u64,
    accepted: Option<u64>,
    ended: Option<u64>,
    /// When the kubelet took over from a silent daemon.
    falls_back: Option<u64>,
    deleted: Option<u64>,
    /// Why it waits, and since when.
    waits: (String, u64),
    /// Since when its Pod is out of service without a break.
    out_since: Option<u64>,
    /// When its Pod was last seen in service.
    in_service: u64,
}

/// What the rules have seen.
pub struct Rules {
    schedule: Schedule,
    clocks: Clocks,
    now: u64,
    /// etcd was restored: facts seen before may be wrong.
    off: bool,
    writes: usize,
    orders: BTreeMap<String, Placed>,
    requests: BTreeMap<String, Followed>,
    /// Instances that ran: Pod UID, name and ID.
    ran: BTreeSet<(String, String, String)>,
    /// Instances that ended, by ID.
    ended: BTreeSet<String>,
    /// Since when an instance is shown running and ready, by Pod UID and ID.
    ready: BTreeMap<(String, String), u64>,
    /// When a Pod was first seen, and since when it is gone, by UID.
    pods: BTreeMap<String, (u64, Option<u64>)>,
    /// Instances that were ever shown ready: Pod UID and ID.
    were_ready: BTreeSet<(String, String)>,
    /// Orders with the processes that acknowledged them.
    acknowledged_by: BTreeSet<(String, String)>,
    calling: Rate,
    /// Requests of the other kinds.
    resizes: Turns,
}

impl Rules {
    /// Nothing seen yet.
    pub fn new(schedule: &Schedule) -> Self {
        Self {
            schedule: schedule.clone(),
            clocks: Clocks::of(schedule),
            now: 0,
            off: false,
            writes: 0,
            orders: BTreeMap::new(),
            requests: BTreeMap::new(),
            ran: BTreeSet::new(),
            ended: BTreeSet::new(),
            ready: BTreeMap::new(),
            pods: BTreeMap::new(),
            were_ready: BTreeSet::new(),
            acknowledged_by: BTreeSet::new(),
            calling: Rate::default(),
            resizes: Turns::default(),
        }
    }

    /// etcd was restored to an earlier state.
    pub fn restored(&mut self) {
        self.off = true;
    }

    /// Whether the schedule has only faults of this kind.
    fn only(&self, kind: impl Fn(&Fault) -> bool) -> bool {
        self.schedule.crash.is_none() && self.schedule.faults.iter().all(|f| kind(&f.what))
    }

    /// Whether the schedule has no faults, only actions of users.
    fn calm(&self) -> bool {
        self.only(|_| false)
    }

    /// Whether faults leave the way between API server and controllers alone.
    fn sound_controllers(&self) -> bool {
        self.only(leaves_controllers_alone)
    }

    /// Whether every daemon's process continues.
    fn sound_daemons(&self) -> bool {
        self.only(|f| {
            !matches!(
                f,
                Fault::KillDaemon(..)
                    | Fault::TwoDaemons(..)
                    | Fault::Reboot(..)
                    | Fault::RemoveNode(..)
                    | Fault::DeleteBook(..)
            )
        })
    }

    /// Checks that one process leads, unless a process stood still or etcd was restored.
    pub fn one_leads(&self, leaders: usize) -> Found {
        let excused = self.off || !self.only(|f| !matches!(f, Fault::PauseController(..)));
        if leaders > 1 && !excused {
            vec![("I13", format!("{leaders} processes lead"))]
        } else {
            Found::new()
        }
    }

    /// When the last fault ends.
    fn last_fault(&self) -> u64 {
        self.schedule.faults.iter().map(|f| f.at + crate::world::lasts(&f.what)).max().unwrap_or(0)
    }
}

/// Whether controllers' processes continue, and see what they should see.
pub(super) fn leaves_controllers_alone(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::KillDaemon(..)
            | Fault::PauseDaemon(..)
            | Fault::HoldBook(..)
            | Fault::KubeletDown(..)
            | Fault::NodeLost(..)
            | Fault::RuntimeDown(..)
            | Fault::RuntimeHangs(..)
            | Fault::RuntimeFails(..)
            | Fault::RuntimeLies(..)
            | Fault::HideCgroups(..)
            | Fault::SlowCgroups(..)
            | Fault::FailWrite(..)
            | Fault::RegistryAway(..)
            | Fault::RegistrySlow(..)
            | Fault::RegistryRefuses(..)
            | Fault::DiskFull(..)
            | Fault::JumpClock(..)
    )
}

/// The ID without the runtime's name.
pub(super) fn bare(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}

pub(super) fn millis(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or_default() * 1000
}
