//! Rules that no schedule may break, checked after every write and every event; `reference/reliability.md`
//! 3.2 has the numbers.
//!
//! The oracle trusts no component: it learns stops from the runtimes and writes from the API server, both in
//! true time.

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

/// A broken rule.
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
    /// The daemon of the node with this index.
    Daemon(usize),
    /// A kubelet.
    Kubelet,
    /// A user.
    User,
    /// A native controller of a workload.
    Native,
    /// Any other writer.
    Other,
}

impl Writer {
    fn is_pitstop(self) -> bool {
        matches!(self, Self::Controller | Self::Daemon(_))
    }
}

/// An object was written, or removed.
#[derive(Clone, Copy)]
pub(crate) struct Wrote<'a> {
    /// When, in milliseconds.
    now: u64,
    writer: Writer,
    /// More than one process believes that it leads.
    many_leaders: bool,
    kind: &'a str,
    before: Option<&'a Value>,
    after: Option<&'a Value>,
    /// The API server after the write.
    server: &'a Server,
}

/// A request as the oracle follows it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) key: String,
    pub(crate) pod: String,
    pub(crate) created: u64,
    pub(crate) deadline: u64,
    pub(crate) ttl: Option<u64>,
    pub(crate) unready_grace: Option<u64>,
    /// It follows the running instance.
    pub(crate) forced: bool,
    pub(crate) ended: Option<u64>,
    pub(crate) deleted: Option<u64>,
    pub(crate) target: Option<pitstop_api::recreate::Target>,
    /// Since when its Pod is out of service, or accepted if it has no gate.
    pub(crate) drained_since: Option<u64>,
}

/// What the oracle has seen.
pub struct Oracle {
    now: u64,
    broken: Option<Violation>,
    /// Number of pitstop's writes, except those of the election.
    pub writes: usize,
    /// When pitstop last sent a request, except those of the election.
    last_sent: u64,
    sending: pace::Rate,
    /// More than one process may have led at once.
    many_leaders: bool,
    /// etcd was restored: facts seen before may come again.
    restored: bool,
    clocks: pace::Clocks,
    default_deadline: u64,
    requests: BTreeMap<String, Known>,
    ends: BTreeMap<String, usize>,
    /// Orders by ID, with the container that each names.
    orders: BTreeMap<String, (String, String, String)>,
    /// Stored acknowledgements: order and container, and the first time.
    acknowledged: BTreeMap<(String, String), u64>,
    /// Acknowledged orders whose answers were deleted with the book.
    forgotten: BTreeSet<String>,
    /// How often that happened to a container of a request.
    losses: BTreeMap<(String, String), usize>,
    /// Containers that pitstop stopped, by request and name.
    stopped: BTreeMap<(String, String), BTreeSet<String>>,
    /// When each hold was last written, by Pod UID and the hold's key.
    held: BTreeMap<(String, String), u64>,
    /// Requests of stored pins, by Pod UID and container.
    pinned: BTreeMap<(String, String), String>,
    /// Stops that a daemon began, by container: start and seconds of grace.
    stops: BTreeMap<String, (u64, i64)>,
    /// Containers that a kubelet stops for its own reasons, and when the first of its graces ends.
    kubelet_stops: BTreeMap<String, u64>,
    /// Lists may be older than facts seen before. The API server never does this to clients that ask as
    /// pitstop does.
    stale: bool,
    /// A runtime lies for so long that an order outlasts the rest.
    lying: bool,
    /// A runtime lies, also to the kubelet, which then takes the sandbox down.
    lied: bool,
    /// A node is removed for good.
    lost_node: bool,
    /// Number of hooks that began, by order.
    hooks: BTreeMap<String, usize>,
    /// Every instance that ever ran: Pod UID, name, ID and start.
    ran: Vec<(String, String, String, u64)>,
    rules: rules::Rules,
    resizes: resizes::Resizes,
    updates: updates::Updates,
    rollouts: rollouts::Rollouts,
    parks: parks::Parks,
    selected: selected::Selected,
    holds: holds::Holds,
    /// When the leader last changed, or a controller began.
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

    /// Records a broken rule; only the first counts.
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

    /// Checks that everything that began has ended.
    pub fn at_the_end<'a>(
        &mut self,
        now: u64,
        runtimes: impl Iterator<Item = &'a crate::node::runtime::Runtime>,
    ) {
        let found = self.rules.at_the_end(now, runtimes);
        self.all(found);
    }

    /// Whether no rule is broken so far.
    pub fn intact(&self) -> bool {
        self.broken.is_none()
    }

    /// The broken rule, and how requests ended.
    pub fn finish(mut self) -> (Option<Violation>, BTreeMap<String, usize>) {
        self.ends.append(&mut self.resizes.ends);
        self.ends.append(&mut self.updates.ends);
        self.ends.append(&mut self.rollouts.ends);
        self.ends.append(&mut self.parks.ends);
        self.ends.append(&mut self.selected.ends);
        (self.broken, self.ends)
    }

    /// Takes a kubelet's write into the control group of a container.
    pub fn sized(&mut self, written: &Written) {
        self.resizes.sized(written);
    }

    /// A node got or lost an image.
    pub fn image(&mut self, now: u64, node: &str, news: &ImageNews) {
        self.updates.image(now, node, news);
    }

    /// Sets how a node keeps its groups, if its kubelet does not resize.
    pub fn keeps(&mut self, node: &str, keeping: Keeping) {
        self.holds.keeps(node, keeping);
    }

    /// Takes a daemon's write into a control group of its node, for that order.
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

    /// Checks at rest that held Pods have what they should.
    pub fn holds_at_rest<'a>(
        &mut self,
        now: u64,
        nodes: impl Iterator<Item = holds::Present<'a>>,
        server: &Server,
    ) {
        let found = self.holds.at_rest(now, nodes, server);
        self.all(found);
    }

    /// Takes the number of processes that believe that they lead.
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
        if writer.is_pitstop() {
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

    /// etcd was restored to an earlier state.
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
                        // An end that an earlier restore removed may exist again.
                        known.ended.get_or_insert(now);
                    }
                }
                None => known.deleted = Some(now),
            }
        }
    }

    /// A process of pitstop sends a request. `something`: it is not a mere read of what may have changed.
    pub fn sends(&mut self, now: u64, something: bool) {
        self.now = now;
        if something {
            self.last_sent = now;
        }
        let sent = self.sending.count(now);
        self.check(sent <= MOST_A_SECOND, "I12", || format!("{sent} requests in a second"));
    }

    /// Whether all requests have ended, and pitstop sent nothing for longer than its longest back-off.
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
