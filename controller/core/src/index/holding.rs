//! The Pods that the daemons of their nodes hold at other resources than those of their spec.
//!
//! What a request claims was admitted when it was accepted. It counts again once a later one that took its place is gone,
//! and others may have been granted what it claims meanwhile: then it is admitted anew.

use std::collections::BTreeMap;
use std::time::Duration;

use pitstop_api::nodework::{Held, request_uid};

use super::asked::Entry;
use super::kinds::Book;
use super::queue::Standing;
use super::{Index, Timer};
use crate::action::Action;
use crate::key::ObjectKey;
use crate::nodework::{NodeWork, OrderView, views};
use crate::pod::{Container, Pod};
use crate::resize::admission::{FRESH, Question, Survey, Verdict, admit};
use crate::resize::{ADMITTING, Claim, Dormant, Force, Holding, NODE_BUSY, Resize, Settled, claims, settle};
use crate::time::{Mono, earliest};

/// How soon what is not admitted any more is looked at again.
const AGAIN: Duration = Duration::from_mins(1);
/// How soon again while another request is being accepted.
const SOON: Duration = Duration::from_secs(1);

impl NodeWork {
    /// The daemon's record of a Pod.
    pub(crate) fn held(&self, pod_uid: &str) -> Option<&Held> {
        self.status.held.iter().find(|held| held.pod.uid == pod_uid)
    }
}

/// By which requests the containers of a Pod have what they have, as far as this process knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Grants {
    pod_uid: String,
    /// Requests' UIDs by containers' names.
    by: BTreeMap<String, String>,
}

/// Whether what counts for a container is granted.
enum Grant {
    /// It is.
    Given,
    /// Not known yet: the container keeps what it has.
    Unknown(Option<Mono>),
    /// Not now: the container has what its spec says. When to look again.
    Refused(Option<Mono>),
}

impl Grant {
    fn again(&self) -> Option<Mono> {
        match self {
            Self::Given => None,
            Self::Unknown(at) | Self::Refused(at) => *at,
        }
    }
}

impl Index {
    /// The orders for the Pods that the daemon of the node holds, or should, and when to look at them again.
    pub(super) fn holding(&mut self, now: Mono, node: &str, actions: &mut Vec<Action>) -> Settled {
        let key = ObjectKey::new("", node);
        let mut pods: BTreeMap<String, ObjectKey> = BTreeMap::new();
        for held in
            self.books.objects.get(&key).and_then(Book::known).iter().flat_map(|work| &work.status.held)
        {
            pods.insert(held.pod.uid.clone(), ObjectKey::new(&held.pod.namespace, &held.pod.name));
        }
        for request in self.resizes.of_node(node).map(|e| e.request.get()).filter(|r| r.held()) {
            let uid = request.status.target.as_ref().map(|target| target.pod_uid.clone());
            pods.extend(uid.map(|uid| (uid, request.pod_key())));
        }
        let mut settled = Settled::default();
        for (uid, pod) in pods {
            let known = self.pods.objects.get(&pod).map(|e| e.pod.get()).filter(|known| known.uid == uid);
            if known.is_some_and(|known| known.deleting) {
                // Its containers end, and its cgroup goes with them.
                continue;
            }
            let runs = known.is_some_and(|known| !known.finished && known.node.as_deref() == Some(node));
            let (waits, again) = if runs { self.grant(now, &pod, actions) } else { (false, None) };
            settled.wake_at = earliest(settled.wake_at, again);
            let of_pod = self.held_pod(now, &key, (&pod, &uid), runs, waits);
            settled.orders.extend(of_pod.orders);
            settled.wake_at = earliest(settled.wake_at, of_pod.wake_at);
        }
        settled
    }

    /// The orders for one Pod. `waits`: nobody knows yet what it should have.
    fn held_pod(
        &self,
        now: Mono,
        node: &ObjectKey,
        (key, uid): (&ObjectKey, &str),
        runs: bool,
        waits: bool,
    ) -> Settled {
        let book = self.books.objects.get(node);
        let work = book.and_then(Book::known);
        let orders: Vec<OrderView<'_>> =
            views(work).filter(|view| request_uid(&view.order.id) == uid).collect();
        if waits {
            let orders = orders.iter().map(|view| view.order.clone()).collect();
            return Settled { orders, wake_at: None };
        }
        let pod = self.pods.objects.get(key).map(|e| e.pod.get()).filter(|_| runs);
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
                awaited: self.resizes.of(key, Standing::Begun).any(|e| e.request.get().held()),
            },
        )
    }

    /// Notes what counts for the containers of the Pod and is granted, and finds out whether the rest may be. Whether that
    /// is under way, and when to look again.
    fn grant(&mut self, now: Mono, key: &ObjectKey, actions: &mut Vec<Action>) -> (bool, Option<Mono>) {
        let Some(pod) = self.pods.objects.get(key).map(|e| e.pod.get()) else { return (false, None) };
        let before = self.grants.get(key).filter(|grants| grants.pod_uid == pod.uid);
        let all = claims(pod, self.given(key)).1;
        let counts = |resize: &Resize| all.values().any(|claim| claim.resize.key == resize.key);
        // Whose place a later one has is asked anew when it comes back.
        let told = self.resizes.of(key, Standing::Lasts).filter(|e| e.memory.anew.is_some());
        let over: Vec<ObjectKey> =
            told.map(|e| e.request.get()).filter(|r| !counts(r)).map(|r| r.key.clone()).collect();
        let mut by = BTreeMap::new();
        let mut returned = Vec::new();
        let mut doubtful: BTreeMap<ObjectKey, Vec<String>> = BTreeMap::new();
        for (name, claim) in all {
            if self.is_granted(pod, &claim) {
                by.insert(name.to_owned(), claim.resize.uid.clone());
                returned.extend(claim.resize.told_dormant().is_some().then(|| claim.resize.key.clone()));
                continue;
            }
            doubtful.entry(claim.resize.key.clone()).or_default().push(name.to_owned());
            // What counted last, until it is known whether this one may.
            by.extend(
                before
                    .and_then(|grants| grants.by.get_key_value(name))
                    .map(|(n, by)| (n.clone(), by.clone())),
            );
        }
        let pod_uid = pod.uid.clone();
        for request in over {
            if let Some(entry) = self.resizes.objects.get_mut(&request) {
                (entry.memory.anew, entry.memory.doubtful_since) = (None, None);
            }
        }
        let (mut waits, mut again) = (false, None);
        for (request, containers) in doubtful {
            let grant = self.admit_anew(now, key, &request, &containers, actions);
            again = earliest(again, grant.again());
            waits |= matches!(grant, Grant::Unknown(_));
            if matches!(grant, Grant::Given) {
                let uid = self.resizes.objects.get(&request).map(|e| e.request.get().uid.clone());
                by.extend(containers.into_iter().filter_map(|name| Some((name, uid.clone()?))));
                returned.push(request);
            }
        }
        for request in returned {
            self.tells(now, &request, Ok(()));
        }
        if by.is_empty() {
            self.grants.remove(key);
        } else {
            self.grants.insert(key.clone(), Grants { pod_uid, by });
        }
        (waits, again)
    }

    /// Whether what a request that is over claims for these containers may be given again.
    fn admit_anew(
        &mut self,
        now: Mono,
        pod: &ObjectKey,
        request: &ObjectKey,
        containers: &[String],
        actions: &mut Vec<Action>,
    ) -> Grant {
        let Some(mut entry) = self.resizes.objects.remove(request) else { return Grant::Unknown(None) };
        let doubtful_since = *entry.memory.doubtful_since.get_or_insert(now);
        // What was read before that tells nothing of what others have got since.
        let asked = |at: Mono| at >= doubtful_since && at.after(FRESH) >= now;
        let fresh = entry.memory.survey.as_ref().filter(|survey| asked(survey.at));
        let refused = match fresh.map(|survey| &survey.result) {
            None => None,
            Some(Err(_)) if doubtful_since.after(AGAIN) > now => None,
            Some(Err(text)) => Some((ADMITTING, format!("cannot read what bounds the Pod: {text}"))),
            Some(Ok(survey)) => match self.verdict(pod, &entry, containers, survey) {
                None => return self.put_back(request, entry, Grant::Unknown(Some(now.after(SOON)))),
                Some(Verdict::Admitted) => return self.put_back(request, entry, Grant::Given),
                Some(Verdict::Busy(text)) => Some((NODE_BUSY, text)),
                Some(Verdict::Refused { reason, text, .. }) => Some((reason, text)),
            },
        };
        if let Some((reason, text)) = refused {
            self.put_back(request, entry, Grant::Given);
            self.tells(now, request, Err(Dormant { at: now, reason, text }));
            return Grant::Refused(Some(now.after(AGAIN)));
        }
        let known = entry.memory.anew.as_ref().and_then(|anew| anew.as_ref().err());
        let again = known.map(|dormant| dormant.at.after(AGAIN));
        if again.is_some_and(|at| at > now) {
            return self.put_back(request, entry, Grant::Refused(again));
        }
        let at = self.begin_survey(now, &mut entry).map(|reading| actions.extend(reading)).err();
        self.put_back(request, entry, if again.is_some() { Grant::Refused(at) } else { Grant::Unknown(at) })
    }

    fn put_back(&mut self, request: &ObjectKey, entry: Entry<Resize>, grant: Grant) -> Grant {
        self.resizes.objects.insert(request.clone(), entry);
        grant
    }

    /// By the rules of admission. Absent while the acceptance of another request is being written.
    fn verdict(
        &self,
        pod: &ObjectKey,
        entry: &Entry<Resize>,
        containers: &[String],
        survey: &Survey,
    ) -> Option<Verdict> {
        let resize = entry.request.get();
        let pod = self.pods.objects.get(pod).map(|e| e.pod.get())?;
        let crowd = &self.crowd(resize, &entry.memory)?;
        let force = self.force_with(pod, resize);
        let in_force = |container: &Container| force.wants(container);
        let claims = claims(pod, std::iter::once(resize)).1;
        let wanted: Vec<_> = containers
            .iter()
            .filter_map(|name| Some((name.as_str(), claims.get(name.as_str())?.resources())))
            .collect();
        Some(admit(&Question { pod, in_force: &in_force, wanted: &wanted, survey, crowd }))
    }

    /// What came of it is for the request to tell.
    fn tells(&mut self, now: Mono, request: &ObjectKey, anew: Result<(), Dormant>) {
        let Some(entry) = self.resizes.objects.get_mut(request) else { return };
        entry.memory.doubtful_since = None;
        let reason = |anew: &Result<(), Dormant>| anew.as_ref().map_err(|dormant| dormant.reason).err();
        if entry.memory.anew.as_ref().map(reason) != Some(reason(&anew)) {
            self.timers.set(Timer::Resize(request.clone()), Some(now));
        }
        entry.memory.anew = Some(anew);
    }

    /// The container may have what is claimed for it: the request is at work, and was admitted for that, or nothing else
    /// has counted since the container was given that.
    fn is_granted(&self, pod: &Pod, claim: &Claim<'_>) -> bool {
        if !claim.resize.completed() {
            return true;
        }
        let grants = self.grants.get(&pod.key).filter(|grants| grants.pod_uid == pod.uid);
        if let Some(by) = grants.and_then(|grants| grants.by.get(&claim.container.name)) {
            return *by == claim.resize.uid;
        }
        let book = pod.node.as_ref().and_then(|node| self.books.objects.get(&ObjectKey::new("", node)));
        claim.stands(pod, book.and_then(Book::known).and_then(|work| work.held(&pod.uid)))
    }

    /// What the requests give the Pod.
    pub(super) fn force(&self, pod: &Pod) -> Force {
        Force::of(pod, self.given(&pod.key), |claim| self.is_granted(pod, claim))
    }

    /// The same while one of them is being planned.
    pub(super) fn force_with(&self, pod: &Pod, own: &Resize) -> Force {
        let others = self.given(&pod.key).filter(|r| r.key != own.key);
        Force::of(pod, others.chain([own]), |claim| self.is_granted(pod, claim))
    }

    /// The requests by which the daemon may hold the Pod.
    fn given(&self, pod: &ObjectKey) -> impl Iterator<Item = &Resize> + use<'_> {
        let of = |standing| self.resizes.of(pod, standing);
        let all = of(Standing::Begun).chain(of(Standing::Lingers)).chain(of(Standing::Lasts));
        all.map(|e| e.request.get())
    }

    /// The node whose daemon holds the Pod, or should, has to be looked at.
    pub(super) fn holder_dirty(&mut self, pod: &ObjectKey) {
        let requests = self.given(pod).filter(|r| r.held());
        let targets = requests.filter_map(|r| r.status.target.as_ref()).map(|target| &target.node_name);
        let node = self.pods.objects.get(pod).and_then(|e| e.pod.get().node.as_ref());
        let holds = |node: &&String| {
            let book = self.books.objects.get(&ObjectKey::new("", node.as_str())).and_then(Book::known);
            book.is_some_and(|work| !work.status.held.is_empty())
        };
        let nodes: Vec<String> = targets.chain(node.filter(holds)).cloned().collect();
        self.dirty_nodes.extend(nodes);
    }
}
