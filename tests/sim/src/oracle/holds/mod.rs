//! Rules for nodes where daemons hold Pods at other resources than those in their spec.
//!
//! - H1: A daemon writes only into groups (of an instance, of its Pod) that an order names which this daemon
//!   has acknowledged; or it restores what a deleted book held.
//! - H2: The stored book has the original values before the first write.
//! - H3: At rest every running container has the resources in force for it, its Pod has their sum, and the
//!   record says just that.
//! - H4: No write leaves a container with a larger quota than its Pod's on v1, or with less memory than it
//!   uses.
//! - H5: A request succeeds only after its containers had the resources that it asks for.
//! - H6: A request for one container takes six writes if nothing goes wrong.
//! - H7: An order to hold names a running instance, of a Pod for which a request was accepted.
//! - H8: A repair gives a Pod that no request holds the sum of its spec, for a request at work on it.
//!
//! These rules compute the resources in force anew, from what is stored.

mod rest;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::nodework::{AnswerState, Bounds, Cgroup, Held, NodeWork, Order, ResizeOrder, request_uid};
use pitstop_api::quantity::Resources;
use pitstop_api::resize::{Mechanism, PodResize, PodResizeStatus};
use serde::Deserialize;

pub use self::rest::Present;
use super::resizes::sizes;
use super::rules::{Found, bare};
use crate::node::cgroups::{Keeping, Touched, of_pod};
use crate::node::runtime::{Deed, DeedKind};
use crate::oracle::Wrote;
use crate::server::Server;
use crate::world::plan::{Failing, Fault, Schedule};

/// Time after which a controller knows what a Pod shows.
const KNOWN: u64 = 8_000;

/// What the rules have seen.
pub struct Holds {
    schedule: Schedule,
    now: u64,
    /// etcd was restored: facts seen before may be wrong.
    off: bool,
    keepings: BTreeMap<String, Keeping>,
    /// Orders to resize that stood in a book, by ID.
    orders: BTreeMap<String, Order>,
    /// Orders with the processes that acknowledged them.
    acknowledged: BTreeSet<(String, String)>,
    /// Records of deleted books, by node.
    lost: BTreeMap<String, Vec<Held>>,
    /// Pods for which a request was accepted.
    accepted: BTreeSet<String>,
    /// Requests with the mechanism `API`, with their Pods.
    by_api: BTreeMap<String, String>,
    /// Sums of the Pods' specs, by UID.
    sums: BTreeMap<String, Vec<Bounds>>,
    /// Sizes of each container in those specs, by UID.
    specs: BTreeMap<String, Vec<BTreeMap<String, Resources>>>,
    /// Values that daemons wrote into containers' groups, by ID.
    written: BTreeMap<String, Vec<Cgroup>>,
    /// Values before the first write since the node's book has a record, by container ID or Pod UID.
    before: BTreeMap<String, BTreeMap<String, Cgroup>>,
    /// When a Pod stopped showing an instance as running, by ID.
    ended_at: BTreeMap<String, u64>,
    /// Instances that Pods show as running, by Pod UID.
    shown: BTreeMap<String, BTreeSet<String>>,
    /// Number of containers that began, if such a node exists.
    pub(super) began: usize,
    /// Number of containers that ended, likewise: their records must go.
    ended: usize,
    /// Number of writes of pitstop.
    pub(super) writes: usize,
}

impl Holds {
    /// Nothing seen yet.
    pub(super) fn new(schedule: &Schedule) -> Self {
        Self {
            schedule: schedule.clone(),
            now: 0,
            off: false,
            keepings: BTreeMap::new(),
            orders: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            lost: BTreeMap::new(),
            accepted: BTreeSet::new(),
            by_api: BTreeMap::new(),
            sums: BTreeMap::new(),
            specs: BTreeMap::new(),
            written: BTreeMap::new(),
            before: BTreeMap::new(),
            ended_at: BTreeMap::new(),
            shown: BTreeMap::new(),
            began: 0,
            ended: 0,
            writes: 0,
        }
    }

    /// Sets how a node keeps its groups.
    pub(super) fn keeps(&mut self, node: &str, keeping: Keeping) {
        self.keepings.insert(node.to_owned(), keeping);
    }

    pub(super) fn restored(&mut self) {
        self.off = true;
    }

    fn faults(&self, kind: impl Fn(&Fault) -> bool) -> bool {
        self.schedule.faults.iter().any(|f| kind(&f.what))
    }

    /// Whether the records of a deleted book may be lost: its daemon does not see the deletion, or cannot
    /// write.
    fn forgotten(&self) -> bool {
        let lost = self.faults(|f| matches!(f, Fault::DeleteBook(_)));
        let unseen = self.schedule.crash.is_some() || self.faults(|f| !rest::leaves_daemons_alone(f));
        (lost && unseen) || self.off || self.faults(|f| matches!(f, Fault::RemoveNode(_)))
    }

    /// Takes an event of a container.
    pub(super) fn deed(&mut self, deed: &Deed) {
        let counts = !self.keepings.is_empty();
        self.began += usize::from(counts && deed.kind == DeedKind::Started);
        self.ended += usize::from(counts && matches!(deed.kind, DeedKind::Ended(_)));
    }

    /// An object was written, or removed.
    pub(super) fn wrote(&mut self, wrote: &Wrote<'_>) {
        let Wrote { now, kind, before, after, .. } = *wrote;
        self.now = now;
        match (kind, after) {
            ("NodeWork", Some(new)) => self.book_wrote(&NodeWork::deserialize(new).unwrap()),
            ("NodeWork", None) => {
                let book = before.map(|old| NodeWork::deserialize(old).unwrap()).unwrap_or_default();
                let node = book.metadata.name.unwrap_or_default();
                self.lost.entry(node).or_default().extend(book.status.unwrap_or_default().held);
            }
            ("PodResize", Some(new)) => {
                let resize = PodResize::deserialize(new).unwrap();
                let status = resize.status.unwrap_or_default();
                let pod = status.target.map(|target| target.pod_uid);
                let by_api = status.mechanism == Some(Mechanism::Api) && !resize.spec.dry_run;
                let request = resize.metadata.uid.filter(|_| by_api);
                self.by_api.extend(request.zip(pod.clone()));
                self.accepted.extend(pod);
            }
            ("Pod", _) => self.pod_wrote(wrote),
            _ => {}
        }
    }

    fn book_wrote(&mut self, book: &NodeWork) {
        for order in book.spec.orders.iter().filter(|o| o.action.recreate.is_none()) {
            self.orders.insert(order.id.clone(), order.clone());
        }
        let held: BTreeSet<&str> =
            book.status.iter().flat_map(|status| &status.held).flat_map(recorded_of).collect();
        if let Some(before) = book.metadata.name.as_ref().and_then(|node| self.before.get_mut(node)) {
            before.retain(|whose, _| held.contains(whose.as_str()));
        }
        let answers = book.status.iter().flat_map(|status| &status.answers);
        let acknowledged = answers.filter(|a| a.state == AnswerState::Acknowledged);
        self.acknowledged.extend(acknowledged.map(|a| (a.order_id.clone(), a.acknowledged_by.clone())));
    }

    fn pod_wrote(&mut self, wrote: &Wrote<'_>) {
        let Wrote { before, after, .. } = *wrote;
        let Some(pod) = after.or(before) else { return };
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let specs = self.specs.entry(uid.to_owned()).or_default();
        specs.push(sizes(pod));
        specs.dedup();
        let sum = of_pod(&sizes(pod).into_values().collect::<Vec<_>>());
        let sums = self.sums.entry(uid.to_owned()).or_default();
        sums.push(Bounds {
            cpu_request: sum.cpu_request.unwrap_or_default(),
            cpu_limit: sum.cpu_limit,
            memory_limit: sum.memory_limit,
        });
        sums.dedup();
        let lists = ["containerStatuses", "initContainerStatuses"];
        let statuses = lists.into_iter().filter_map(|list| after?["status"][list].as_array()).flatten();
        let running = statuses.filter(|s| s["state"]["running"].is_object());
        let ids = running.map(|s| bare(s["containerID"].as_str().unwrap_or_default()).to_owned());
        let ids: BTreeSet<String> = ids.collect();
        let old = self.shown.insert(uid.to_owned(), ids.clone()).unwrap_or_default();
        for id in old.difference(&ids) {
            self.ended_at.insert(id.clone(), self.now);
        }
    }

    /// Checks a new order to resize. `ran`: whether that instance of that Pod ran at some time.
    pub(super) fn placed(&self, order: &Order, ran: bool) -> Found {
        let mut found = Found::new();
        let Some(resize) = order.action.resize.as_ref().filter(|_| !self.off) else { return found };
        if request_uid(&order.id) != order.pod.uid {
            return self.repairs(order, resize);
        }
        let own = request_uid(&order.id) == order.pod.uid && self.accepted.contains(&order.pod.uid);
        if !own || !ran {
            found.push(("H7", format!("order {} names {:?} of {:?}", order.id, order.container, order.pod)));
        }
        let ended = self.ended_at.get(&order.container.id);
        if let Some(ended) = ended
            .filter(|at| resize.hold && self.now > **at + KNOWN && self.schedule.leaves_controllers_alone())
        {
            found.push(("H7", format!("order {} is for an instance that ended at {ended}", order.id)));
        }
        found
    }

    /// Checks a repair: an order of a request itself.
    fn repairs(&self, order: &Order, resize: &ResizeOrder) -> Found {
        let own = self.by_api.get(request_uid(&order.id)) == Some(&order.pod.uid);
        let plain = resize.container.is_none() && !resize.hold && resize.only_raise;
        let fits = self.sums.get(&order.pod.uid).zip(resize.pod).is_some_and(|(all, sum)| all.contains(&sum));
        if own && plain && fits {
            return Found::new();
        }
        vec![(
            "H8",
            format!("order {} is for {:?} of {:?}: {resize:?}", order.id, order.container, order.pod),
        )]
    }

    /// Checks a daemon's write into a group, also one that the kernel refused.
    pub(super) fn touched(
        &mut self,
        now: u64,
        (by, node): (&str, &str),
        order_id: Option<&str>,
        touched: &Touched,
        server: &Server,
    ) -> Found {
        self.now = now;
        let mut found = Found::new();
        let whose = touched.container.as_deref().unwrap_or(&touched.pod);
        // An earlier write may have had no effect, an instance reported as ended may run, and lost records
        // bind no daemon.
        let lied = self.faults(|f| matches!(f, Fault::FailWrite(_, Failing::Lies) | Fault::RuntimeLies(..)));
        if let Some(wrong) = touched.wrong.as_ref().filter(|_| !lied && !self.forgotten()) {
            found.push(("H4", format!("{by} writes {:?} for {whose}: {wrong}", touched.after)));
        } else if touched.container.is_some() && touched.wrong.is_none() {
            self.written.entry(whose.to_owned()).or_default().push(touched.after);
        }
        match order_id.map(|id| (id, self.orders.get(id).cloned())) {
            _ if self.off => {}
            None => self.gives_back(by, node, touched, &mut found),
            Some((id, None)) => found.push(("H1", format!("{by} writes for {id}, which stood nowhere"))),
            Some((id, Some(order))) => {
                let resize = order.action.resize.clone().unwrap_or_default();
                let named = match &touched.container {
                    Some(own) => *own == order.container.id && resize.container.is_some(),
                    None => resize.pod.is_some(),
                };
                if !named || touched.pod != order.pod.uid {
                    found.push(("H1", format!("{by} writes for {whose}, which {id} does not name")));
                }
                if !self.acknowledged.contains(&(id.to_owned(), by.to_owned())) {
                    found.push(("H1", format!("{by} writes for {id}, which it has not acknowledged")));
                }
                if resize.hold && !self.forgotten() {
                    self.recorded(&order, node, touched, server, &mut found);
                }
            }
        }
        if self.off { Found::new() } else { found }
    }

    /// Without an order, a daemon may only restore original values.
    fn gives_back(&self, by: &str, node: &str, touched: &Touched, found: &mut Found) {
        let mut records = self.lost.get(node).into_iter().flatten().filter(|h| h.pod.uid == touched.pod);
        let own = |held: &Held| match &touched.container {
            Some(id) => held.containers.iter().any(|c| c.id == *id),
            None => true,
        };
        if !records.any(own) {
            found.push(("H1", format!("{by} writes without an order: {touched:?}")));
        }
    }

    /// Checks that the stored book has the original values: the kubelet's, or those at the start of this hold
    /// if the Pod's spec has had them. The spec may change after an instance was made; the daemon then
    /// restores the new spec's values.
    fn recorded(&mut self, order: &Order, node: &str, touched: &Touched, server: &Server, found: &mut Found) {
        let Some(book) = server.object("NodeWork", "", node) else { return };
        let book = NodeWork::deserialize(&**book).unwrap();
        let all = book.status.unwrap_or_default().held;
        let held = all.into_iter().find(|h| h.pod.uid == touched.pod);
        let record = held.as_ref().and_then(|held| match &touched.container {
            Some(id) => held.containers.iter().find(|c| c.id == *id).map(|c| c.original),
            None => Some(held.original),
        });
        let whose = touched.container.as_deref().unwrap_or(&touched.pod);
        let began = self.before.entry(node.to_owned()).or_default();
        let began = *began.entry(whose.to_owned()).or_insert(touched.before);
        let keeping = self.keepings.get(node).copied().unwrap_or_default();
        let files = |sizes: &BTreeMap<String, Resources>| match &touched.container {
            Some(_) => sizes.get(&order.container.name).map(|size| keeping.files(size, true)),
            None => Some(keeping.files(&of_pod(&sizes.values().copied().collect::<Vec<_>>()), false)),
        };
        let specs = self.specs.get(&touched.pod).into_iter().flatten().filter_map(files);
        let back = specs.into_iter().find(|spec| same(spec, &began));
        let before = [Some(touched.original), back];
        match record {
            None => found.push(("H2", format!("{} is carried out, and nothing is on record", order.id))),
            Some(record) if !before.iter().flatten().any(|before| same(&record, before)) => {
                let text = format!("{} was there, and {record:?} is on record", brief(&touched.original));
                found.push(("H2", text));
            }
            Some(_) => {}
        }
    }

    /// What a container has, as a daemon sees it. The daemon misses a write without effect if the old weight
    /// is as near to the wanted one as those of two runtimes are.
    fn as_taken(&self, there: Cgroup, wanted: &Cgroup) -> Cgroup {
        let near = there.cpu_weight.zip(wanted.cpu_weight).is_some_and(|(is, be)| is.abs_diff(be) <= 1);
        let lies = self.faults(|f| matches!(f, Fault::FailWrite(_, Failing::Lies)));
        if near && lies { Cgroup { cpu_weight: wanted.cpu_weight, ..there } } else { there }
    }

    /// Checks a successful request: its containers had the resources that it asks for.
    pub(super) fn succeeded(&self, id: &str, status: &PodResizeStatus) -> Found {
        let mut found = Found::new();
        let Some(target) = status.target.as_ref().filter(|_| status.mechanism == Some(Mechanism::Cri)) else {
            return found;
        };
        if self.off {
            return found;
        }
        let keeping = self.keepings.get(&target.node_name).copied().unwrap_or_default();
        for container in &status.containers {
            let desired = Resources::from(&container.desired);
            let wanted = keeping.files(&desired, true);
            let spec = keeping.files(&Resources::from(&container.original), true);
            let of_it =
                |order: &&Order| order.pod.uid == target.pod_uid && order.container.name == container.name;
            let ids: BTreeSet<&str> =
                self.orders.values().filter(of_it).map(|o| o.container.id.as_str()).collect();
            // Values that the request does not change are not its own. An instance without a write has what
            // the spec says.
            let has =
                |cgroup: &Cgroup| same(&self.as_taken(changed(&spec, &wanted, cgroup), &wanted), &wanted);
            let specs = self.specs.get(&target.pod_uid).into_iter().flatten();
            let specs: Vec<Cgroup> =
                specs.filter_map(|s| s.get(&container.name)).map(|size| keeping.files(size, true)).collect();
            let had = |id: &&str| self.written.get(*id).unwrap_or(&specs).iter().any(has);
            if !same(&wanted, &spec) && !ids.iter().any(had) {
                let text = format!("{id} has succeeded, and {} never had {}", container.name, brief(&wanted));
                found.push(("H5", text));
            }
        }
        found
    }
}

/// The groups in the record of a Pod.
fn recorded_of(held: &Held) -> impl Iterator<Item = &str> {
    let containers = held.containers.iter().map(|container| container.id.as_str());
    containers.chain([held.pod.uid.as_str()])
}

/// The present values; the wanted value where the request changes nothing.
fn changed(before: &Cgroup, wanted: &Cgroup, there: &Cgroup) -> Cgroup {
    fn of<T: PartialEq>(before: T, wanted: T, there: T) -> T {
        if before == wanted { wanted } else { there }
    }
    Cgroup {
        cpu_quota: of(before.cpu_quota, wanted.cpu_quota, there.cpu_quota),
        cpu_shares: of(before.cpu_shares, wanted.cpu_shares, there.cpu_shares),
        cpu_weight: of(before.cpu_weight, wanted.cpu_weight, there.cpu_weight),
        memory_limit: of(before.memory_limit, wanted.memory_limit, there.memory_limit),
        ..*there
    }
}

/// Whether limits and weights are equal.
pub(super) fn same(one: &Cgroup, other: &Cgroup) -> bool {
    let all = |c: &Cgroup| (c.cpu_quota, c.cpu_shares, c.cpu_weight, c.memory_limit);
    all(one) == all(other)
}

fn brief(cgroup: &Cgroup) -> String {
    let Cgroup { cpu_quota, cpu_shares, cpu_weight, memory_limit, .. } = cgroup;
    format!("quota {cpu_quota:?}, shares {cpu_shares:?}, weight {cpu_weight:?}, memory {memory_limit:?}")
}
