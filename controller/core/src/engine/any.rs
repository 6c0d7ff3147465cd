//! What the engine asks of the objects of any kind.

use std::collections::BTreeSet;

use pitstop_api::nodework::{Order, request_uid};

use super::open::Open;
use super::queue::{Position, Progress};
use super::store::{Admission, Entry, Store, node_of, object};
use crate::action::Object;
use crate::change::{ImageChange, Sizing};
use crate::deed::{Deed, Done};
use crate::hold::Claim;
use crate::key::{KindId, ObjectKey};
use crate::kind::{About, Kind, PodWritten, Relative};
use crate::lifecycle::started_for;
use crate::outcome::Outcome;
use crate::pod::Pod;
use crate::pod_check::Found;
use crate::readiness::Hold;
use crate::time::Mono;

/// How many of a Pod's last waiting requests are considered as one that an earlier request gives way to.
pub(super) const LAST_WAITING: usize = 16;

/// A request that is in the way of requests of other kinds.
pub(super) struct Disturbing<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) since: Mono,
    /// The request was accepted.
    pub(super) accepted: bool,
}

/// What one request wants in its node's book. Requests are sorted by `rank`, the oldest first.
pub(super) struct Wants<'a> {
    pub(super) rank: (i64, &'a ObjectKey),
    pub(super) orders: &'a [Order],
    pub(super) closed: &'a [String],
}

/// What a change of one object affects beside that object.
pub(super) struct Touched {
    pub(super) pod: ObjectKey,
    /// Kind and key of its owner.
    pub(super) owner: Option<(String, ObjectKey)>,
    /// Kind and key of its child.
    pub(super) child: Option<(KindId, ObjectKey)>,
}

/// The objects of one kind.
pub(super) trait AnyStore {
    fn about(&self) -> &'static About;
    fn synced(&self) -> bool;
    fn open(&self) -> &Open;

    /// This process starts or stops leading.
    fn lead(&mut self, now: Mono, leading: bool);
    /// Marks the requests that are newly within or beyond their namespace's limit.
    fn apply_limit(&mut self);
    fn all_dirty(&mut self);
    fn is_dirty(&self) -> bool;
    fn clear_dirty(&mut self);
    /// Marks the object to be planned.
    fn mark(&mut self, key: &ObjectKey);
    /// Marks the object to be planned, and to look again at the Pod: it manages the Pod among others, or has a request
    /// for it.
    fn member_changed(&mut self, key: &ObjectKey, pod: &ObjectKey);
    /// Marks the objects that a change of the Pod concerns.
    fn pod_changed(&mut self, pod: &ObjectKey);
    /// Marks the objects that look at the node's book.
    fn book_changed(&mut self, node: &str);

    /// Updates the position of the object in its queue, and marks it. Returns what this affects; None: unknown object.
    fn changed(&mut self, key: &ObjectKey) -> Option<Touched>;
    /// What other kinds may know of the object.
    fn relative(&self, key: &ObjectKey) -> Option<Relative<'_>>;
    /// The Pod that the object is for.
    fn pod_of(&self, key: &ObjectKey) -> Option<ObjectKey>;
    /// The objects that the request with that UID made, except those that rest.
    fn children<'a>(&'a self, owner_uid: &str) -> Box<dyn Iterator<Item = Relative<'a>> + 'a>;
    /// Whether the object with that UID is at work on the named Pod.
    fn at_work(&self, key: &ObjectKey, uid: &str, pod: &ObjectKey) -> bool;
    /// A request that the object made for a Pod of that node, and that succeeded.
    fn succeeded_on(&self, key: &ObjectKey, uid: &str, node: &str) -> Option<ObjectKey>;
    fn admission(&mut self, key: &ObjectKey) -> Option<&mut Admission>;
    /// Node of the Pod that the request was accepted for.
    fn node(&self, key: &ObjectKey) -> Option<&str>;

    /// The holds of requests at work on the Pod.
    fn gates(&self, pod: &Pod) -> Vec<Hold>;
    /// The images that requests at work on the Pod want in it.
    fn images(&self, pod: &Pod) -> Vec<ImageChange>;
    /// The first wanted change of resources: of requests at work, then of dry runs, then of the last waiting requests,
    /// which only try it.
    fn sizing(&self, pod: &Pod) -> Option<(Object, Sizing)>;
    /// The resources at which requests want the daemon to hold the Pod.
    fn claims(&self, pod: &ObjectKey) -> Vec<Claim<'_>>;
    /// Nodes of requests for which a daemon holds the Pod, or may.
    fn holders(&self, pod: &ObjectKey) -> Vec<&str>;
    /// Whether an open request wants a daemon to hold the Pod.
    fn awaits_hold(&self, pod: &ObjectKey) -> bool;
    /// Requests for the Pod whose claims were checked anew.
    fn asked_anew(&self, pod: &ObjectKey) -> Vec<ObjectKey>;
    /// Whether the acceptance of a request for the Pod is being written.
    fn being_accepted(&self, pod: &ObjectKey) -> bool;
    /// Whether any object is in the queue of the Pod.
    fn has_queue(&self, pod: &ObjectKey) -> bool;
    /// Whether the first object in the workload's queue manages the workload while it is parked.
    fn keeps_park(&self, workload: &ObjectKey) -> bool;
    /// Whether a request of another owner has begun with the Pod.
    fn others_begun(&self, pod: &ObjectKey, owner_uid: &str) -> bool;
    /// The first request that waits for the Pod.
    fn first_waiting(&self, pod: &ObjectKey) -> Option<&Position>;
    /// The requests that are in the way of other kinds, except where `not` (UID, owner's UID) is true.
    fn disturbing(
        &self,
        key: &ObjectKey,
        pod: Option<&Pod>,
        not: &dyn Fn(&str, Option<&str>) -> bool,
    ) -> Vec<Disturbing<'_>>;
    /// The Pods of a namespace that have such objects in their queues.
    fn pods_of<'a>(&'a self, namespace: &'a str) -> Box<dyn Iterator<Item = &'a ObjectKey> + 'a>;

    /// What requests want in the node's book.
    fn wanted_at<'a>(&'a self, node: &'a str) -> Vec<Wants<'a>>;
    /// UIDs and names of the Pods that the node's daemon holds for requests, or may.
    fn held_at(&self, node: &str) -> Vec<(String, ObjectKey)>;
    /// Notes which requests have orders without a place in the node's book. Returns those for which this changed.
    /// `placed`: IDs of the orders with a place.
    fn note_placed(&mut self, now: Mono, node: &str, placed: &BTreeSet<String>) -> Vec<ObjectKey>;
    /// The node's book is gone without a final answer to the order, which the daemon took up, or may have.
    fn lost(&mut self, node: &str, order: &Order);

    /// A write of the Pod's images ended. `refused`: the message of the refusal; None: not refused.
    fn images_written(&mut self, now: Mono, pod: &ObjectKey, refused: Option<&String>);
    /// A write of the request's Pod ended.
    fn pod_written(&mut self, now: Mono, key: &ObjectKey, uid: &str, written: PodWritten);
    /// Whether the request with that UID is a dry run or suspended.
    fn changes_nothing(&self, key: &ObjectKey, uid: &str) -> bool;
    fn pod_read(&mut self, now: Mono, key: &ObjectKey, uid: &str, outcome: &Outcome<String>);
    /// A deed ended. Returns whether the deed is known.
    fn deed_done(&mut self, now: Mono, by: &Object, deed: Deed, done: Done) -> bool;
}

impl<K: Kind> Store<K> {
    fn entry(&mut self, key: &ObjectKey, uid: &str) -> Option<&mut Entry<K>> {
        // An answer about a deleted request does not concern a new one with the same name.
        self.objects.get_mut(key).filter(|e| e.request.get().uid() == uid)
    }

    fn at_work_on<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a Entry<K>> {
        self.of(&pod.key, Progress::Begun).filter(|e| started_for(e.request.get(), pod))
    }

    /// Requests for which the node's daemon may hold the Pod.
    fn holding(&self, pod: &ObjectKey) -> impl Iterator<Item = &Entry<K>> + use<'_, K> {
        let of = |progress| self.of(pod, progress);
        of(Progress::Begun).chain(of(Progress::Lingers)).chain(of(Progress::Lasts))
    }
}

impl<K: Kind> AnyStore for Store<K> {
    fn about(&self) -> &'static About {
        const { &K::ABOUT }
    }
    fn synced(&self) -> bool {
        self.synced
    }
    fn open(&self) -> &Open {
        &self.open
    }

    fn lead(&mut self, now: Mono, leading: bool) {
        self.begin_lead(now, leading);
    }
    fn apply_limit(&mut self) {
        self.dirty.extend(self.bound.apply());
    }
    fn all_dirty(&mut self) {
        self.dirty.extend(self.objects.keys().cloned());
    }
    fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }
    fn clear_dirty(&mut self) {
        self.dirty.clear();
    }
    fn mark(&mut self, key: &ObjectKey) {
        self.dirty.insert(key.clone());
    }
    fn member_changed(&mut self, key: &ObjectKey, pod: &ObjectKey) {
        if let Some(entry) = self.objects.get_mut(key) {
            K::member_changed(&mut entry.memory, pod);
        }
        self.mark(key);
    }
    fn pod_changed(&mut self, pod: &ObjectKey) {
        self.dirty.extend(self.queues.concerned(pod).cloned());
    }
    fn book_changed(&mut self, node: &str) {
        let keys = self.by_node.get(node).into_iter().flatten();
        let looks = |e: &Entry<K>| e.is_open() || e.has_orders();
        self.dirty.extend(keys.filter(|key| self.objects.get(key).is_some_and(looks)).cloned());
    }

    fn changed(&mut self, key: &ObjectKey) -> Option<Touched> {
        self.requeue(key);
        let touched = self.objects.get(key)?.touches();
        self.dirty.insert(key.clone());
        Some(touched)
    }
    fn relative(&self, key: &ObjectKey) -> Option<Relative<'_>> {
        if let Some((key, rest)) = self.resting.get_key_value(key) {
            let ended = Some(crate::kind::Ended { complete: false, reason: "", message: "" });
            return Some(Relative {
                key,
                uid: &rest.uid,
                owner_uid: None,
                deleting: false,
                suspended: false,
                ended,
                pulled: Vec::new(),
            });
        }
        let request = self.objects.get(key)?.request.get();
        let meta = request.meta();
        Some(Relative {
            key: meta.key,
            uid: request.uid(),
            owner_uid: meta.owner.map(|owner| owner.uid.as_str()),
            deleting: meta.deleting,
            suspended: request.suspended(),
            ended: request.ended(),
            pulled: request.pulled(),
        })
    }
    fn pod_of(&self, key: &ObjectKey) -> Option<ObjectKey> {
        self.objects.get(key).map(|e| e.request.get().pod_key())
    }
    fn children<'a>(&'a self, owner_uid: &str) -> Box<dyn Iterator<Item = Relative<'a>> + 'a> {
        let keys = self.by_owner.get(owner_uid).into_iter().flatten();
        Box::new(keys.filter_map(|key| self.relative(key)))
    }
    fn at_work(&self, key: &ObjectKey, uid: &str, pod: &ObjectKey) -> bool {
        let request = self.objects.get(key).map(|e| e.request.get());
        request.is_some_and(|r| {
            let open = !r.completed() && !r.meta().deleting;
            let on_pod = || r.target().is_some() && r.pod_key() == *pod;
            r.uid() == uid && open && (K::ABOUT.many || on_pod())
        })
    }
    fn succeeded_on(&self, key: &ObjectKey, uid: &str, node: &str) -> Option<ObjectKey> {
        let entry = self.objects.get(key).filter(|e| e.request.get().uid() == uid)?;
        entry.request.get().succeeded_on(&entry.memory, node)
    }
    fn admission(&mut self, key: &ObjectKey) -> Option<&mut Admission> {
        self.objects.get_mut(key).map(|e| &mut e.admission)
    }
    fn node(&self, key: &ObjectKey) -> Option<&str> {
        self.objects.get(key).and_then(|e| node_of(e.request.get()))
    }

    fn gates(&self, pod: &Pod) -> Vec<Hold> {
        self.at_work_on(pod).filter_map(|e| e.request.get().gate()).collect()
    }
    fn images(&self, pod: &Pod) -> Vec<ImageChange> {
        self.at_work_on(pod).flat_map(|e| e.images.iter().cloned()).collect()
    }
    fn sizing(&self, pod: &Pod) -> Option<(Object, Sizing)> {
        let asks = self.of(&pod.key, Progress::Asks).filter(|e| started_for(e.request.get(), pod));
        let wait = self.of(&pod.key, Progress::Waits).rev().take(LAST_WAITING);
        self.at_work_on(pod).chain(asks).chain(wait).find_map(|e| {
            let sizing = e.sizing.clone().filter(|sizing| !sizing.containers.is_empty())?;
            Some((object(e.request.get()), sizing))
        })
    }
    fn claims(&self, pod: &ObjectKey) -> Vec<Claim<'_>> {
        self.holding(pod).filter_map(|e| e.request.get().claim()).collect()
    }
    fn holders(&self, pod: &ObjectKey) -> Vec<&str> {
        self.holding(pod).map(|e| e.request.get()).filter(|r| r.held()).filter_map(node_of).collect()
    }
    fn awaits_hold(&self, pod: &ObjectKey) -> bool {
        self.of(pod, Progress::Begun).any(|e| e.request.get().held())
    }
    fn asked_anew(&self, pod: &ObjectKey) -> Vec<ObjectKey> {
        let asked = self.of(pod, Progress::Lasts).filter(|e| e.admission.reinstated.is_some());
        asked.map(|e| e.request.get().meta().key.clone()).collect()
    }
    fn being_accepted(&self, pod: &ObjectKey) -> bool {
        self.of(pod, Progress::Begun).any(|e| {
            let request = e.request.get();
            let sent = e.acceptance.begun().is_some() && e.request.in_flight();
            sent && request.target().is_none() && !request.completed()
        })
    }
    fn has_queue(&self, pod: &ObjectKey) -> bool {
        self.queues.len(pod) > 0
    }
    fn keeps_park(&self, workload: &ObjectKey) -> bool {
        self.of(workload, Progress::Waits).next().is_some_and(|e| e.request.get().keeps_park())
    }
    fn others_begun(&self, pod: &ObjectKey, owner_uid: &str) -> bool {
        let own = |e: &Entry<K>| e.request.get().meta().owner.is_some_and(|owner| owner.uid == owner_uid);
        self.of(pod, Progress::Begun).any(|e| !own(e))
    }
    fn first_waiting(&self, pod: &ObjectKey) -> Option<&Position> {
        self.queues.of(pod, Progress::Waits).next()
    }
    fn disturbing(
        &self,
        key: &ObjectKey,
        pod: Option<&Pod>,
        not: &dyn Fn(&str, Option<&str>) -> bool,
    ) -> Vec<Disturbing<'_>> {
        let of = |progress: Progress| {
            self.of(key, progress).filter_map(move |e| {
                let request = e.request.get();
                let meta = request.meta();
                if not(request.uid(), meta.owner.map(|owner| owner.uid.as_str())) {
                    return None;
                }
                let since = e.disturbs(pod)?;
                Some(Disturbing { key: meta.key, since, accepted: request.target().is_some() })
            })
        };
        of(Progress::Begun).chain(of(Progress::Lingers)).collect()
    }
    fn pods_of<'a>(&'a self, namespace: &'a str) -> Box<dyn Iterator<Item = &'a ObjectKey> + 'a> {
        Box::new(self.queues.pods_of(namespace))
    }

    fn wanted_at<'a>(&'a self, node: &'a str) -> Vec<Wants<'a>> {
        let wants = |e: &'a Entry<K>| {
            let meta = e.request.get().meta();
            Wants { rank: (meta.created, meta.key), orders: &e.orders, closed: &e.closed }
        };
        self.of_node(node).map(wants).collect()
    }
    fn held_at(&self, node: &str) -> Vec<(String, ObjectKey)> {
        let held = self.of_node(node).map(|e| e.request.get()).filter(|r| r.held());
        held.filter_map(|r| Some((r.target()?.pod_uid.to_owned(), r.pod_key()))).collect()
    }
    fn note_placed(&mut self, now: Mono, node: &str, placed: &BTreeSet<String>) -> Vec<ObjectKey> {
        let mut news = Vec::new();
        for key in self.by_node.get(node).into_iter().flatten() {
            // A request that falls back to the kubelet wants no order even before that is stored.
            let entry = self.objects.get_mut(key).filter(|e| !e.orders.is_empty());
            let Some(entry) = entry else { continue };
            let of = entry.orders.iter().filter(|order| placed.contains(&order.id)).count();
            if K::placed(&mut entry.memory, now, of == entry.orders.len(), of == 0) {
                news.push(key.clone());
            }
        }
        news
    }
    fn lost(&mut self, node: &str, order: &Order) {
        for key in self.by_node.get(node).into_iter().flatten() {
            let entry = self.objects.get_mut(key);
            if let Some(entry) = entry.filter(|e| e.request.get().uid() == request_uid(&order.id)) {
                K::lost(&mut entry.memory, &order.container.name);
            }
        }
    }

    fn images_written(&mut self, now: Mono, pod: &ObjectKey, refused: Option<&String>) {
        for request in self.queues.concerned(pod) {
            if let Some(entry) = self.objects.get_mut(request).filter(|e| !e.images.is_empty()) {
                let Entry { request, memory, .. } = entry;
                request.get().pod_written(memory, now, PodWritten::Images(refused.cloned()));
            }
        }
    }
    fn pod_written(&mut self, now: Mono, key: &ObjectKey, uid: &str, written: PodWritten) {
        if let Some(Entry { request, memory, .. }) = self.entry(key, uid) {
            request.get().pod_written(memory, now, written);
            self.dirty.insert(key.clone());
        }
    }
    fn changes_nothing(&self, key: &ObjectKey, uid: &str) -> bool {
        self.objects.get(key).map(|e| e.request.get()).is_some_and(|r| r.uid() == uid && r.changes_nothing())
    }
    fn pod_read(&mut self, now: Mono, key: &ObjectKey, uid: &str, outcome: &Outcome<String>) {
        let Some(entry) = self.entry(key, uid) else { return };
        let expected = entry.request.get().pod_uid();
        let found = match outcome {
            Outcome::Written(pod) if expected.is_none_or(|uid| uid == pod) => Found::There,
            Outcome::Written(_) | Outcome::Gone => Found::Gone,
            Outcome::Conflict | Outcome::Retry | Outcome::Refused(_) => Found::Unknown,
        };
        entry.pod_check.answered(now, found);
        self.dirty.insert(key.clone());
    }
    fn deed_done(&mut self, now: Mono, by: &Object, deed: Deed, done: Done) -> bool {
        let Some(entry) = self.entry(&by.key, &by.uid) else { return false };
        let known = entry.deeds.ended(now, &deed, &done);
        if known {
            K::deed_done(&mut entry.memory, now, deed, done);
        }
        known
    }
}
