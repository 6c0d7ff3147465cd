//! Actions on containers: only those ordered and acknowledged, only on the named container.

use std::collections::BTreeSet;

use pitstop_api::nodework::request_uid;
use pitstop_daemon_core::EndedHooks;

use super::Oracle;
use super::rules::millis;
use crate::node::keys;
use crate::node::runtime::{Call, Client, Deed, DeedKind, Runtime};
use crate::world::effect::{Asked, Purpose};

impl Oracle {
    /// A daemon is about to call its runtime for an order.
    pub fn calls(&mut self, now: u64, by: &str, asked: &Asked, runtime: &Runtime, ended_hooks: &EndedHooks) {
        self.now = now;
        let found = self.rules.calls(now, by, asked, runtime);
        self.all(found);
        let Asked { order_id, container_id, purpose, .. } = asked;
        if let Call::PullImage { image } = &asked.call {
            let found = self.updates.pulls(by, image);
            self.all(found);
        }
        if purpose.only_asks() {
            return;
        }
        let acknowledged = self.acknowledged.contains_key(&(order_id.clone(), container_id.clone()));
        self.check(acknowledged || self.restored, "I2", || {
            format!("{purpose:?} of {container_id} for {order_id} without an acknowledgement")
        });
        let whole = container_id.len() == 64;
        self.check(whole, "I3", || format!("{container_id} is no whole ID"));
        let container = runtime.containers().get(container_id);
        if let (Some(container), Some((pod, name, id))) = (container, self.orders.get(order_id).cloned()) {
            let label = |key| container.info.labels.get(key).cloned().unwrap_or_default();
            let same =
                label(keys::POD_UID) == pod && label(keys::CONTAINER_NAME) == name && *container_id == id;
            self.check(same, "I3", || format!("{purpose:?} for {order_id} of a container of {pod} {name}"));
        }
        match purpose {
            Purpose::Stop => {
                if container.is_some_and(|c| c.alive(now)) {
                    self.stops_container(order_id, container_id);
                }
            }
            Purpose::Hook => {
                // Deleting a book deletes its orders. An order that is placed again is carried out again.
                let again = ended_hooks.contains_key(order_id) && !self.rules.loses_books();
                self.check(!again, "I16", || format!("the hook of {order_id} ended before, and runs again"));
                *self.hooks.entry(order_id.clone()).or_default() += 1;
            }
            Purpose::Inspect | Purpose::Read | Purpose::Look | Purpose::Image | Purpose::Pull => {}
        }
    }

    fn stops_container(&mut self, order_id: &str, container_id: &str) {
        let uid = request_uid(order_id).to_owned();
        let Some((_, name, _)) = self.orders.get(order_id).cloned() else { return };
        self.restarts((uid, name), container_id, &format!("{order_id} stops a second container"));
    }

    /// A request restarts one instance of a container. One more may follow for each stop whose answer was
    /// lost with its book, and, for a forced request, if an old list did not show it.
    fn restarts(&mut self, whose: (String, String), container_id: &str, otherwise: &str) {
        let hidden = self.stale && self.requests.get(&whose.0).is_some_and(|known| known.forced);
        let lost = self.losses.get(&whose).copied().unwrap_or_default() + usize::from(hidden);
        let found = self.rollouts.stops(&whose.0, &whose.1, container_id, lost);
        self.all(found);
        let all = self.stopped.entry(whose).or_default();
        all.insert(container_id.to_owned());
        let all = all.clone();
        self.check(all.len() <= 1 + lost || self.restored, "I1", || format!("{otherwise}: {all:?}"));
    }

    /// Takes an event that really happened on a node.
    pub fn deed(&mut self, deed: &Deed, runtime: &Runtime) {
        self.holds.deed(deed);
        self.updates.deed(deed, runtime);
        self.rollouts.deed(deed, runtime);
        self.parks.deed(deed, runtime);
        self.now = self.now.max(deed.at);
        self.rules.deed(deed, runtime);
        let Some(container) = runtime.containers().get(&deed.id) else { return };
        let label = |key| container.info.labels.get(key).cloned().unwrap_or_default();
        let (pod, name) = (label(keys::POD_UID), label(keys::CONTAINER_NAME));
        match &deed.kind {
            DeedKind::Started => self.ran.push((pod, name, deed.id.clone(), deed.at)),
            DeedKind::StopAsked(Client::KUBELET, grace) => {
                let over = deed.at.saturating_add(millis(*grace));
                let first = self.kubelet_stops.entry(deed.id.clone()).or_insert(over);
                *first = over.min(*first);
                // The kubelet carries out a pin once.
                let Some(uid) = self.pinned.remove(&(pod, name.clone())) else { return };
                let otherwise = format!("{uid} restarts {name} by order and by pin");
                self.restarts((uid, name), &deed.id, &otherwise);
            }
            DeedKind::StopAsked(_, grace) => {
                self.stops.entry(deed.id.clone()).or_insert((deed.at, *grace));
            }
            DeedKind::Kill => {
                let Some((taken, grace)) = self.stops.get(&deed.id).copied() else { return };
                // Crashes and waits count against the grace.
                let begun = self.rules.asked_to_stop(&deed.id).map_or(taken, |asked| asked.min(taken));
                // With two daemons, the one that was frozen counts from its own stop, which began with its
                // hook.
                let begun = self.rules.begun_by_one_of_two(&deed.id).map_or(begun, |at| at.min(begun));
                // Another request for the same instance may leave it less time.
                let named = self.orders.iter().filter(|(_, (.., id))| *id == deed.id);
                let requests: BTreeSet<&str> = named.map(|(order, _)| request_uid(order)).collect();
                if self.lied || requests.len() > 1 {
                    return;
                }
                // The rest of a grace is computed in whole seconds. The kubelet's own stop may end it sooner.
                let least = begun + self.clocks.least(millis(grace)).saturating_sub(1000);
                let least = self.kubelet_stops.get(&deed.id).map_or(least, |over| least.min(*over));
                self.check(deed.at >= least, "I9", || {
                    format!(
                        "{} is killed {} ms after its stop, with {grace} s of grace",
                        deed.id,
                        deed.at - begun
                    )
                });
            }
            _ => {}
        }
    }
}
