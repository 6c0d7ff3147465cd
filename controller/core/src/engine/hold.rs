//! The Pods that the daemons of their nodes hold at other resources than their spec says.
//!
//! The claim of a request is admitted when the request is accepted. A later request may replace it. When that one
//! is gone, the claim counts again. Others may have been granted the same resources meanwhile, so it is admitted anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pitstop_api::nodework::{Held, request_uid};

use super::kept::Book;
use super::room::Turn;
use super::store::Admission;
use super::stores::Stored;
use super::{Engine, Subject};
use crate::action::{Action, Object};
use crate::hold::admission::{ADMITTING, Decision, FRESH, NODE_BUSY, Question, Survey, admit};
use crate::hold::{Claim, Claims, CountedClaim, Force, HoldPlan, Holding, settle};
use crate::key::ObjectKey;
use crate::kind::Dormant;
use crate::nodework::{NodeWork, OrderView, views};
use crate::pod::{Container, Pod};
use crate::time::{Mono, earliest};

/// How soon a claim that is no longer admitted is checked again.
const AGAIN: Duration = Duration::from_mins(1);
/// How soon it is checked again while another request is being accepted.
const SOON: Duration = Duration::from_secs(1);

impl NodeWork {
    /// The daemon's record of a Pod.
    pub(crate) fn held(&self, pod_uid: &str) -> Option<&Held> {
        self.status.held.iter().find(|held| held.pod.uid == pod_uid)
    }
}

/// The requests that gave the containers of a Pod their resources, as far as this process knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grants {
    pod_uid: String,
    /// UIDs of requests, by container name.
    request_uids: BTreeMap<String, String>,
}

/// The claims that count for the containers of a Pod, by whether they are granted.
#[derive(Default)]
struct SortedClaims {
    /// Claims that are granted, or were until now: UIDs of requests, by container name.
    request_uids: BTreeMap<String, String>,
    /// Requests whose claims are granted although their status says otherwise.
    returned: BTreeSet<Object>,
    /// Container names, by the request whose claim must be admitted anew.
    doubtful: BTreeMap<Object, Vec<String>>,
    /// Requests that were to be admitted anew, and whose claims do not count now.
    obsolete: Vec<Object>,
}

/// Whether a claim that counts for a container is granted.
enum Grant {
    /// It is granted.
    Given,
    /// Not known yet: the container keeps what it has. When to look again.
    Unknown(Option<Mono>),
    /// Not granted now: the container has what its spec says. When to look again.
    Refused(Option<Mono>),
}

impl Grant {
    fn wake_at(&self) -> Option<Mono> {
        match self {
            Self::Given => None,
            Self::Unknown(at) | Self::Refused(at) => *at,
        }
    }
}

impl Engine {
    /// The orders for the Pods that the node's daemon holds or should hold, and when to look again.
    pub(super) fn holding(&mut self, now: Mono, node: &str, actions: &mut Vec<Action>) -> HoldPlan {
        let key = ObjectKey::new("", node);
        let mut pods: BTreeMap<String, ObjectKey> = BTreeMap::new();
        for held in
            self.books.objects.get(&key).and_then(Book::known).iter().flat_map(|work| &work.status.held)
        {
            pods.insert(held.pod.uid.clone(), ObjectKey::new(&held.pod.namespace, &held.pod.name));
        }
        pods.extend(self.stores.each().flat_map(|store| store.held_at(node)));
        let mut plan = HoldPlan::default();
        for (uid, pod) in pods {
            self.pods.wake(&pod);
            let known = self.pods.get(&pod).map(|e| e.pod.get()).filter(|known| known.uid == uid);
            if known.is_some_and(|known| known.deleting) {
                // Its containers end, and its cgroup is removed with them.
                continue;
            }
            let runs = known.is_some_and(|known| !known.finished && known.node.as_deref() == Some(node));
            let (waits, again) = if runs { self.grant(now, &pod, actions) } else { (false, None) };
            plan.wake_at = earliest(plan.wake_at, again);
            let of_pod = self.held_pod(now, &key, (&pod, &uid), runs, waits);
            plan.orders.extend(of_pod.orders);
            plan.wake_at = earliest(plan.wake_at, of_pod.wake_at);
        }
        plan
    }

    /// The orders for one Pod. `waits`: what the Pod should have is not known yet.
    fn held_pod(
        &self,
        now: Mono,
        node: &ObjectKey,
        (key, uid): (&ObjectKey, &str),
        runs: bool,
        waits: bool,
    ) -> HoldPlan {
        let book = self.books.objects.get(node);
        let work = book.and_then(Book::known);
        let orders: Vec<OrderView<'_>> =
            views(work).filter(|view| request_uid(&view.order.id) == uid).collect();
        if waits {
            let orders = orders.iter().map(|view| view.order.clone()).collect();
            return HoldPlan { orders, wake_at: None };
        }
        let pod = self.pods.get(key).map(|e| e.pod.get()).filter(|_| runs);
        let unknown = BTreeMap::new();
        settle(
            now,
            &Holding {
                pod,
                force: &pod.map(|pod| self.force(pod)).unwrap_or_default(),
                held: work.and_then(|work| work.held(uid)),
                orders: &orders,
                answered: book.map_or(&unknown, |book| &book.answered),
                last_attempt: work.map_or(0, |work| work.last_attempt(uid)),
                guarded: self.guarded,
                awaited: self.stores.each().any(|store| store.awaits_hold(key)),
            },
        )
    }

    /// Stores which claims are granted for the containers of the Pod, and checks the others. Returns whether a check is
    /// under way, and when to look again.
    fn grant(&mut self, now: Mono, key: &ObjectKey, actions: &mut Vec<Action>) -> (bool, Option<Mono>) {
        let Some(pod) = self.pods.get(key).map(|e| e.pod.get()) else { return (false, None) };
        let pod_uid = pod.uid.clone();
        let SortedClaims { mut request_uids, returned, doubtful, obsolete } = self.sort_claims(pod);
        for request in obsolete {
            if let Some(known) = self.admission(&request) {
                (known.reinstated, known.doubtful_since) = (None, None);
            }
        }
        let (mut waits, mut again) = (false, None);
        let mut returned: Vec<Object> = returned.into_iter().collect();
        for (request, containers) in doubtful {
            let grant = self.admit_anew(now, key, &request, &containers, actions);
            again = earliest(again, grant.wake_at());
            waits |= matches!(grant, Grant::Unknown(_));
            if matches!(grant, Grant::Given) {
                request_uids.extend(containers.into_iter().map(|name| (name, request.uid.clone())));
                returned.push(request);
            }
        }
        for request in returned {
            self.set_reinstated(now, &request, Ok(()));
        }
        if request_uids.is_empty() {
            self.grants.remove(key);
        } else {
            self.grants.insert(key.clone(), Grants { pod_uid, request_uids });
        }
        (waits, again)
    }

    /// Sorts the claims that count for the containers of the Pod by whether they are granted.
    fn sort_claims(&self, pod: &Pod) -> SortedClaims {
        let before = self.grants.get(&pod.key).filter(|grants| grants.pod_uid == pod.uid);
        let claims = self.claims(pod);
        let mut sorted = SortedClaims::default();
        let mut counting = BTreeSet::new();
        for counted in claims.counted() {
            let (request, name) = (object(counted.claim), counted.container);
            counting.insert(request.clone());
            if self.is_granted(pod, &counted) {
                sorted.request_uids.insert(name.to_owned(), request.uid.clone());
                sorted.returned.extend(counted.claim.dormant.then_some(request));
                continue;
            }
            sorted.doubtful.entry(request).or_default().push(name.to_owned());
            // The claim that counted last stays until this one is decided.
            let known = before.and_then(|grants| grants.request_uids.get_key_value(name));
            sorted.request_uids.extend(known.map(|(name, uid)| (name.clone(), uid.clone())));
        }
        // A request that a later one replaced is checked anew when it counts again.
        for store in self.stores.each() {
            let kind = store.about().id;
            let asked = store.asked_anew(&pod.key).into_iter();
            let asked = asked.filter(|key| !counting.iter().any(|c| c.kind == kind && c.key == *key));
            sorted.obsolete.extend(asked.map(|key| Object { kind, key, uid: String::new() }));
        }
        sorted
    }

    /// Whether the claim of an ended request for these containers may be granted again.
    fn admit_anew(
        &mut self,
        now: Mono,
        pod: &ObjectKey,
        request: &Object,
        containers: &[String],
        actions: &mut Vec<Action>,
    ) -> Grant {
        let Some(known) = self.admission(request) else { return Grant::Unknown(None) };
        let doubtful_since = *known.doubtful_since.get_or_insert(now);
        let last = known.reinstated.as_ref().and_then(|r| r.as_ref().err()).map(|dormant| dormant.decided_at);
        // A survey from before does not show what others were granted since.
        let fresh = self.last_survey(pod, doubtful_since).filter(|last| last.ended.after(FRESH) >= now);
        let refused = match fresh.map(|survey| &survey.result) {
            None => None,
            Some(Err(_)) if doubtful_since.after(AGAIN) > now => None,
            Some(Err(text)) => {
                Some((ADMITTING, format!("cannot read the limits of the Pod's namespace and node: {text}")))
            }
            Some(Ok(survey)) => match self.decision(pod, request, containers, survey) {
                None => return Grant::Unknown(Some(now.after(SOON))),
                Some(Decision::Admitted) => return Grant::Given,
                Some(Decision::Busy(text)) => Some((NODE_BUSY, text)),
                Some(Decision::Refused { reason, text, .. }) => Some((reason, text)),
            },
        };
        if let Some((reason, text)) = refused {
            self.set_reinstated(now, request, Err(Dormant { decided_at: now, reason, text }));
            return Grant::Refused(Some(now.after(AGAIN)));
        }
        let again = last.map(|at| at.after(AGAIN));
        if again.is_some_and(|at| at > now) {
            return Grant::Refused(again);
        }
        let node = self.pods.get(pod).and_then(|e| e.pod.get().node.clone()).unwrap_or_default();
        let line = (&Subject::Node(node), Turn::Begun(&pod.namespace));
        let reading = self.survey(now, request.clone(), pod, doubtful_since, line);
        let at = reading.map(|reading| actions.extend(reading)).err();
        if again.is_some() { Grant::Refused(at) } else { Grant::Unknown(at) }
    }

    /// State of the admission of a request.
    fn admission(&mut self, request: &Object) -> Option<&mut Admission> {
        self.stores.named_mut(request.kind.name())?.admission(&request.key)
    }

    /// The decision of the admission rules. None while the acceptance of another request is being written.
    fn decision(
        &self,
        pod: &ObjectKey,
        request: &Object,
        containers: &[String],
        survey: &Survey,
    ) -> Option<Decision> {
        let usage = &self.usage(pod)?;
        let pod = self.pods.get(pod).map(|e| e.pod.get())?;
        let force = self.force(pod);
        let in_force = |container: &Container| force.wants(container);
        let own = |claim: &Claim<'_>| claim.kind == request.kind && *claim.key == request.key;
        let own = Claims::of(pod, self.all_claims(&pod.key).into_iter().filter(own));
        let named = |counted: &CountedClaim<'_>| containers.iter().any(|name| name == counted.container);
        let wanted: Vec<_> =
            own.counted().filter(named).map(|counted| (counted.container, counted.resources)).collect();
        Some(admit(&Question { pod, in_force: &in_force, wanted: &wanted, survey, usage }))
    }

    /// Stores the result. If it is new, the request is planned, to report it.
    fn set_reinstated(&mut self, now: Mono, request: &Object, result: Result<(), Dormant>) {
        let Some(known) = self.admission(request) else { return };
        known.doubtful_since = None;
        let reason = |result: &Result<(), Dormant>| result.as_ref().map_err(|dormant| dormant.reason).err();
        let news = known.reinstated.as_ref().map(reason) != Some(reason(&result));
        known.reinstated = Some(result);
        if news {
            self.timers.set(Subject::Object(request.kind, request.key.clone()), Some(now));
        }
    }

    /// Whether the container may have what is claimed for it. A request at work was admitted for that. For an ended
    /// request, no other claim may have counted since the container was given that.
    fn is_granted(&self, pod: &Pod, counted: &CountedClaim<'_>) -> bool {
        if !counted.claim.completed {
            return true;
        }
        let grants = self.grants.get(&pod.key).filter(|grants| grants.pod_uid == pod.uid);
        if let Some(uid) = grants.and_then(|grants| grants.request_uids.get(counted.container)) {
            return *uid == counted.claim.uid;
        }
        let book = pod.node.as_ref().and_then(|node| self.books.objects.get(&ObjectKey::new("", node)));
        counted.was_given(pod, book.and_then(Book::known).and_then(|work| work.held(&pod.uid)))
    }

    /// The resources that requests give the Pod.
    pub(super) fn force(&self, pod: &Pod) -> Force {
        Force::of(&self.claims(pod), |counted| self.is_granted(pod, counted))
    }

    /// The same while the request `own` is being planned.
    pub(super) fn force_with<K: Stored>(&self, pod: &Pod, own: &K) -> Force {
        let key = own.meta().key;
        let others = self.all_claims(&pod.key).into_iter();
        let others = others.filter(|claim| claim.kind != K::ABOUT.id || claim.key != key);
        let claims = Claims::of(pod, others.chain(own.claim()));
        Force::of(&claims, |counted| self.is_granted(pod, counted))
    }

    fn claims(&self, pod: &Pod) -> Claims<'_> {
        Claims::of(pod, self.all_claims(&pod.key).into_iter())
    }

    /// The resources at which requests want the daemon to hold the Pod.
    fn all_claims(&self, pod: &ObjectKey) -> Vec<Claim<'_>> {
        self.stores.each().flat_map(|store| store.claims(pod)).collect()
    }

    /// Marks the nodes whose daemons hold the Pod or should hold it.
    pub(super) fn holder_dirty(&mut self, pod: &ObjectKey) {
        let holders = self.stores.each().flat_map(|store| store.holders(pod)).map(str::to_owned);
        let node = self.pods.get(pod).and_then(|e| e.pod.get().node.as_ref());
        let holds = |node: &&String| {
            let book = self.books.objects.get(&ObjectKey::new("", node.as_str())).and_then(Book::known);
            book.is_some_and(|work| !work.status.held.is_empty())
        };
        let nodes: Vec<String> = holders.chain(node.filter(holds).cloned()).collect();
        self.dirty_nodes.extend(nodes);
    }
}

/// The request that makes the claim.
fn object(claim: &Claim<'_>) -> Object {
    Object { kind: claim.kind, key: claim.key.clone(), uid: claim.uid.to_owned() }
}
