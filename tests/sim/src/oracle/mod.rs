//! What no schedule may break, checked after every write and every deed; `reference/reliability.md` 3.2 has the
//! numbers.
//!
//! The oracle believes nobody: what was stopped it learns from the runtimes, what was written from the API server, and
//! both in true time.

mod containers;
mod end;
pub mod holds;
mod orders;
mod pace;
mod parks;
mod pods;
mod requests;
mod resizes;
mod rollouts;
mod rules;
mod selected;
mod turns;
mod updates;

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::recreate::ContainerRecreateRequest;
use serde::Deserialize;
use serde_json::Value;

use crate::node::cgroups::{Keeping, Touched, Written};
use crate::node::runtime::ImageNews;
use crate::server::Server;
use crate::world::plan::{Fault, Schedule};

/// More requests of pitstop in a second than any of the small worlds can need.
const MOST_A_SECOND: usize = 120;

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Number of the invariant, for example `I1`.
    pub invariant: &'static str,
    /// What happened.
    pub what: String,
    /// When, in milliseconds.
    pub at: u64,
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A process of the controller.
    Controller,
    /// A daemon, by its node.
    Daemon(usize),
    /// A kubelet.
    Kubelet,
    /// A user.
    User,
    /// A native controller of a workload.
    Native,
    /// Anybody else.
    Other,
}

impl Writer {
    fn ours(self) -> bool {
        matches!(self, Self::Controller | Self::Daemon(_))
    }
}

/// An object was written, or removed.
#[derive(Clone, Copy)]
pub(crate) struct Wrote<'a> {
    /// When, in milliseconds.
    now: u64,
    writer: Writer,
    /// More than one process takes itself for the leader.
    many_leaders: bool,
    kind: &'a str,
    before: Option<&'a Value>,
    after: Option<&'a Value>,
    /// As it is afterwards.
    server: &'a Server,
}

/// A request as far as the oracle follows it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) key: String,
    pub(crate) pod: String,
    pub(crate) created: u64,
    pub(crate) deadline: u64,
    pub(crate) ttl: Option<u64>,
    pub(crate) unready_grace: Option<u64>,
    /// It follows the instance that runs.
    pub(crate) forced: bool,
    pub(crate) ended: Option<u64>,
    pub(crate) deleted: Option<u64>,
    pub(crate) target: Option<pitstop_api::recreate::Target>,
    /// When its Pod was out of service, or accepted where it has no gate.
    pub(crate) drained_since: Option<u64>,
}

/// The ledger.
pub struct Oracle {
    now: u64,
    broken: Option<Violation>,
    /// Writes of pitstop but those of the election.
    pub writes: usize,
    /// When pitstop last sent a request but those of the election.
    last_sent: u64,
    sending: pace::Rate,
    /// More than one process may have led at once.
    many_leaders: bool,
    /// etcd was restored: what was seen before may be told again.
    restored: bool,
    clocks: pace::Clocks,
    default_deadline: u64,
    requests: BTreeMap<String, Known>,
    ends: BTreeMap<String, usize>,
    /// Orders by ID, with the container that each names.
    orders: BTreeMap<String, (String, String, String)>,
    /// Acknowledgements that were stored: order and container, and when first.
    acknowledged: BTreeMap<(String, String), u64>,
    /// Those of them whose answers somebody deleted with the book, by order.
    forgotten: BTreeSet<String>,
    /// How often that happened to a container of a request.
    losses: BTreeMap<(String, String), usize>,
    /// Containers that we stopped, by request and name.
    stopped: BTreeMap<(String, String), BTreeSet<String>>,
    /// When each hold was written last, by Pod UID and the hold's key.
    held: BTreeMap<(String, String), u64>,
    /// Pins that were stored, by Pod UID and container: whose they are.
    pinned: BTreeMap<(String, String), String>,
    /// Stops that a daemon began: container, and when with how many seconds of grace.
    stops: BTreeMap<String, (u64, i64)>,
    /// Containers that a kubelet stops, for its own reasons, and when the first of its graces is over.
    kubelet_stops: BTreeMap<String, u64>,
    /// Lists may be older than what was seen before, which the API server never does to who asks as pitstop does.
    stale: bool,
    /// A runtime lies for so long that an order is not over when the rest is.
    lying: bool,
    /// A runtime lies: to the kubelet too, which then takes the sandbox down.
    lied: bool,
    /// A node goes away for good.
    lost_node: bool,
    /// Hooks that were begun, by order.
    hooks: BTreeMap<String, usize>,
    /// Every instance that ever ran: Pod UID, name, ID and when it began.
    ran: Vec<(String, String, String, u64)>,
    rules: rules::Rules,
    resizes: resizes::Resizes,
    updates: updates::Updates,
    rollouts: rollouts::Rollouts,
    parks: parks::Parks,
    selected: selected::Selected,
    holds: holds::Holds,
    /// When the lead last changed, or a controller began.
    led_since: u64,
    leaders: usize,
}

impl Oracle {
    /// Nothing seen yet.
    pub fn new(schedule: &Schedule) -> Self {
        let many = schedule.faults.iter().any(|f| matches!(f.what, Fault::PauseController(..)));
        Self {
            now: 0,
            broken: None,
            writes: 0,
            last_sent: 0,
            sending: pace::Rate::default(),
            many_leaders: many,
            restored: false,
            clocks: pace::Clocks::of(schedule),
            default_deadline: schedule.default_deadline,
            requests: BTreeMap::new(),
            ends: BTreeMap::new(),
            orders: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            losses: BTreeMap::new(),
            stopped: BTreeMap::new(),
            held: BTreeMap::new(),
            pinned: BTreeMap::new(),
            stops: BTreeMap::new(),
            kubelet_stops: BTreeMap::new(),
            stale: schedule.faults.iter().any(|f| matches!(f.what, Fault::StaleLists(..))),
            lying: schedule.faults.iter().any(|f| matches!(f.what, Fault::RuntimeLies(_, 6..))),
            lied: schedule.faults.iter().any(|f| matches!(f.what, Fault::RuntimeLies(..))),
            lost_node: schedule.faults.iter().any(|f| matches!(f.what, Fault::RemoveNode(..))),
            hooks: BTreeMap::new(),
            ran: Vec::new(),
            rules: rules::Rules::new(schedule),
            resizes: resizes::Resizes::new(schedule),
            updates: updates::Updates::new(schedule),
            rollouts: rollouts::Rollouts::new(schedule),
            parks: parks::Parks::new(schedule),
            selected: selected::Selected::new(schedule, many),
            holds: holds::Holds::new(schedule),
            led_since: 0,
            leaders: 0,
        }
    }

    /// Something is broken; the first thing counts.
    pub fn broken(&mut self, invariant: &'static str, what: impl Into<String>) {
        if self.broken.is_none() {
            self.broken = Some(Violation { invariant, what: what.into(), at: self.now });
        }
    }

    fn check(&mut self, holds: bool, invariant: &'static str, what: impl FnOnce() -> String) {
        if !holds {
            self.broken(invariant, what());
        }
    }

    fn all(&mut self, found: rules::Found) {
        for (invariant, what) in found {
            self.broken(invariant, what);
        }
    }

    /// What was begun must have come to an end.
    pub fn at_the_end<'a>(
        &mut self,
        now: u64,
        runtimes: impl Iterator<Item = &'a crate::node::runtime::Runtime>,
    ) {
        let found = self.rules.at_the_end(now, runtimes);
        self.all(found);
    }

    /// Nothing is broken so far.
    pub fn intact(&self) -> bool {
        self.broken.is_none()
    }

    /// What was broken, and how requests ended.
    pub fn finish(mut self) -> (Option<Violation>, BTreeMap<String, usize>) {
        self.ends.append(&mut self.resizes.ends);
        self.ends.append(&mut self.updates.ends);
        self.ends.append(&mut self.rollouts.ends);
        self.ends.append(&mut self.parks.ends);
        self.ends.append(&mut self.selected.ends);
        (self.broken, self.ends)
    }

    /// A kubelet has written into the control group of a container.
    pub fn sized(&mut self, written: &Written) {
        self.resizes.sized(written);
    }

    /// A node has an image, or has it no more.
    pub fn image(&mut self, now: u64, node: &str, news: &ImageNews) {
        self.updates.image(now, node, news);
    }

    /// The groups of a node, whose kubelet does not resize, are kept so.
    pub fn keeps(&mut self, node: &str, keeping: Keeping) {
        self.holds.keeps(node, keeping);
    }

    /// A daemon has written into a control group of its node, for that order.
    pub fn touched(
        &mut self,
        now: u64,
        (by, node): (&str, &str),
        order_id: Option<&str>,
        touched: &Touched,
        server: &Server,
    ) {
        self.now = now;
        let found = self.holds.touched(now, (by, node), order_id, touched, server);
        self.all(found);
    }

    /// All is over: held Pods have what they should.
    pub fn holds_at_rest<'a>(
        &mut self,
        now: u64,
        nodes: impl Iterator<Item = holds::Present<'a>>,
        server: &Server,
    ) {
        let found = self.holds.at_rest(now, nodes, server);
        self.all(found);
    }

    /// So many processes believe that they lead.
    pub fn led(&mut self, now: u64, leaders: usize) {
        if leaders != self.leaders {
            self.leaders = leaders;
            self.led_since = now;
        }
    }

    /// An object was written, or removed.
    pub fn wrote(
        &mut self,
        now: u64,
        writer: Writer,
        kind: &str,
        before: Option<&Value>,
        after: Option<&Value>,
        server: &Server,
    ) {
        let many_leaders = self.leaders > 1;
        let wrote = &Wrote { now, writer, many_leaders, kind, before, after, server };
        self.now = now;
        self.many_leaders |= many_leaders;
        if writer.ours() {
            self.writes += 1;
        }
        self.check_turn(kind, before, after, server);
        let mut found = self.rules.wrote(wrote);
        found.extend(self.rules.one_leads(self.leaders));
        found.extend(self.resizes.wrote(wrote));
        found.extend(self.updates.wrote(wrote));
        found.extend(self.rollouts.wrote(wrote));
        found.extend(self.parks.wrote(wrote));
        found.extend(self.selected.wrote(wrote));
        self.holds.wrote(wrote);
        self.holds.writes = self.writes;
        for (id, status) in self.resizes.take_successes() {
            found.extend(self.holds.succeeded(&id, &status));
        }
        self.all(found);
        match kind {
            "ContainerRecreateRequest" => {
                let read = |o: &Value| ContainerRecreateRequest::deserialize(o).unwrap();
                self.request_wrote(writer, before.map(read), after.map(read), server);
            }
            "NodeWork" => self.book_wrote(writer, before, after, server),
            "Pod" => self.pod_wrote(writer, before, after, server),
            _ => {}
        }
        if kind != "NodeWork" {
            self.see_drains(server);
        }
    }

    /// etcd is as it was before.
    pub fn restored(&mut self, now: u64, server: &Server) {
        self.now = now;
        self.restored = true;
        self.rules.restored();
        self.resizes.restored(now, server);
        self.updates.restored(now, server);
        self.rollouts.restored(now, server);
        self.holds.restored();
        self.many_leaders = true;
        let stored: BTreeMap<String, ContainerRecreateRequest> = server
            .objects("ContainerRecreateRequest")
            .map(|o| ContainerRecreateRequest::deserialize(&**o).unwrap())
            .map(|r| (r.metadata.uid.clone().unwrap_or_default(), r))
            .collect();
        for (uid, known) in &mut self.requests {
            match stored.get(uid) {
                Some(request) => {
                    known.deleted = request.metadata.deletion_timestamp.is_some().then_some(now);
                    if request.status.as_ref().is_none_or(|s| s.completion_time.is_none()) {
                        known.ended = None;
                        known.created = now;
                    } else {
                        // An end that an earlier restore had taken back may be there again.
                        known.ended.get_or_insert(now);
                    }
                }
                None => known.deleted = Some(now),
            }
        }
    }

    /// A process of pitstop sends a request; one that does `something` is no mere reading of what may have changed.
    pub fn sends(&mut self, now: u64, something: bool) {
        self.now = now;
        if something {
            self.last_sent = now;
        }
        let sent = self.sending.count(now);
        self.check(sent <= MOST_A_SECOND, "I12", || format!("{sent} requests in a second"));
    }

    /// All requests are over, and pitstop sent nothing for longer than its longest back-off.
    pub fn at_rest(&self, now: u64) -> bool {
        let over = |known: &Known| match (known.deleted, known.ended, known.ttl) {
            (Some(_), ..) => true,
            (None, Some(ended), Some(ttl)) => now > ended.max(self.led_since) + ttl + 60_000,
            (None, ended, _) => ended.is_some(),
        };
        let led = self.led_since;
        let kinds = self.resizes.over(now, led) && self.updates.over(now, led);
        let all = self.requests.values().all(over) && kinds;
        let all = all && self.rollouts.over(now, led) && self.parks.over(now, led);
        let all = all && self.selected.over(now, led);
        all && now > self.last_sent.max(self.led_since) + 75_000
    }
}
