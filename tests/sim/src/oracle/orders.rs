//! Writes of order books: orders never change, and acknowledged orders may be carried out.

use pitstop_api::nodework::{AnswerState, NodeWork, Order, request_uid};
use serde::Deserialize;
use serde_json::Value;

use super::{Oracle, Writer, resizes};
use crate::server::Server;

impl Oracle {
    pub(super) fn book_wrote(
        &mut self,
        writer: Writer,
        before: Option<&Value>,
        after: Option<&Value>,
        server: &Server,
    ) {
        let read = |o: &Value| NodeWork::deserialize(o).unwrap();
        let old = before.map(read);
        let Some(new) = after.map(read) else { return self.loses(old.as_ref()) };
        let old = old.filter(|old| old.metadata.uid == new.metadata.uid);
        let old_orders: &[Order] = old.as_ref().map_or(&[], |o| &o.spec.orders);
        let node = new.metadata.name.clone().unwrap_or_default();
        if writer == Writer::Other {
            // A forger's orders: the daemon may refuse them, and never carries them out.
            for order in &new.spec.orders {
                let names = (order.pod.uid.clone(), order.container.name.clone(), order.container.id.clone());
                self.orders.entry(order.id.clone()).or_insert(names);
            }
        } else if new.spec.orders != old_orders {
            self.check(writer == Writer::Controller, "I11", || format!("{writer:?} writes orders of {node}"));
            self.check(new.spec.orders.len() <= pitstop_api::MAX_ORDERS, "I12", || {
                format!("{node} is too long")
            });
            let answers = new.status.as_ref().map_or(&[][..], |status| &status.answers);
            for order in &new.spec.orders {
                self.placed(order, old_orders, &node);
                let fresh = old_orders.iter().all(|old| old.id != order.id);
                let answered = fresh && answers.iter().any(|answer| answer.order_id == order.id);
                let excused = self.restored;
                self.check(!answered || excused || order.action.resize.is_none(), "H7", || {
                    format!("order {} has the number of one that was answered", order.id)
                });
            }
        }
        let answers = new.status.clone().unwrap_or_default().answers;
        let old_answers = old.as_ref().and_then(|o| o.status.clone()).unwrap_or_default().answers;
        if answers != old_answers {
            let own = matches!(writer, Writer::Daemon(at) if at == usize::MAX || node == format!("node{at}"));
            self.check(own, "I11", || format!("{writer:?} writes answers of {node}"));
        }
        for (id, container, instance) in resizes::answered(&new) {
            self.resizes.reported(request_uid(&id), &container, &instance);
        }
        for answer in &answers {
            let earlier = old_answers.iter().find(|a| a.order_id == answer.order_id);
            let over = |state| state != AnswerState::Acknowledged;
            // An answer about images may change as long as the order is in the book.
            let goes_on = new.spec.orders.iter().any(|o| o.id == answer.order_id && o.action.pull.is_some());
            if let Some(earlier) = earlier.filter(|e| over(e.state) && !goes_on) {
                self.check(earlier.state == answer.state, "I5", || {
                    format!("the answer to {} changes from {earlier:?} to {answer:?}", answer.order_id)
                });
            }
            if answer.state == AnswerState::Acknowledged {
                let order = new.spec.orders.iter().find(|o| o.id == answer.order_id);
                self.acknowledges(&answer.order_id, order, server);
            }
        }
    }

    /// A deleted book loses its acknowledgements, until its orders are acknowledged again.
    fn loses(&mut self, book: Option<&NodeWork>) {
        for order in book.into_iter().flat_map(|book| &book.spec.orders) {
            let known = self.acknowledged.contains_key(&(order.id.clone(), order.container.id.clone()));
            if known && self.forgotten.insert(order.id.clone()) {
                let whose = (request_uid(&order.id).to_owned(), order.container.name.clone());
                *self.losses.entry(whose).or_default() += 1;
            }
        }
    }

    fn placed(&mut self, order: &Order, before: &[Order], node: &str) {
        if let Some(old) = before.iter().find(|o| o.id == order.id) {
            self.check(old == order, "I1", || format!("order {} changes", order.id));
            return;
        }
        if order.action.resize.is_some() {
            return self.asked_to_resize(order);
        }
        let uid = request_uid(&order.id).to_owned();
        if self.updates.knows(&uid) {
            return self.asked_for_an_image(order);
        }
        if self.resizes.knows(&uid) {
            return self.asked(order);
        }
        let known = self.requests.get(&uid);
        let target = known.and_then(|k| k.target.clone());
        let named =
            target.as_ref().and_then(|t| t.containers.iter().find(|c| c.name == order.container.name));
        let right = named.is_some_and(|c| c.container_id.ends_with(&order.container.id))
            && target.as_ref().is_some_and(|t| t.pod_uid == order.pod.uid && t.node_name == node);
        // The controller cannot know of a deletion before its watch shows it.
        let ended = known.is_some_and(|k| k.ended.is_some());
        let (split, restored) = (self.many_leaders, self.restored);
        // A second leader may not know yet that a forced request has gone on to the next instance: the
        // earlier one has ended.
        let earlier = self.ran.iter().any(|(pod, name, id, _)| {
            (pod, name, id) == (&order.pod.uid, &order.container.name, &order.container.id)
        });
        self.check(right || restored || (split && earlier), "I3", || {
            format!("order {} names {:?}", order.id, order.container)
        });
        self.check(!ended || split || restored, "I4", || {
            format!("order {} is placed after its request is over", order.id)
        });
        let value = (order.pod.uid.clone(), order.container.name.clone(), order.container.id.clone());
        let same = self.orders.get(&order.id).is_none_or(|old| *old == value);
        self.check(same || restored, "I1", || format!("order {} names another container now", order.id));
        self.orders.insert(order.id.clone(), value);
    }

    /// Checks an order of a resize: it asks, and changes nothing. It names an instance that the Pod has
    /// shown.
    fn asked(&mut self, order: &Order) {
        let only = order.action.verify.is_some() && order.action.recreate.is_none();
        self.check(only, "I3", || format!("order {} of a resize does more than ask", order.id));
        let named = |(pod, name, id, _): &(String, String, String, u64)| {
            (pod, name, id) == (&order.pod.uid, &order.container.name, &order.container.id)
        };
        let ran = self.ran.iter().any(named);
        self.check(ran, "I3", || format!("order {} names {:?}", order.id, order.container));
        let value = (order.pod.uid.clone(), order.container.name.clone(), order.container.id.clone());
        let same = self.orders.get(&order.id).is_none_or(|old| *old == value);
        // A deleted book loses its answers, too.
        let lost = self.restored || self.rules.loses_books();
        self.check(same || lost, "I1", || format!("order {} names another container now", order.id));
        self.orders.insert(order.id.clone(), value);
    }

    /// Checks an order of an update: it only pulls, and names an instance that ran.
    fn asked_for_an_image(&mut self, order: &Order) {
        let only = order.action.pull.is_some() && order.action.recreate.is_none();
        self.check(only, "I3", || format!("order {} of an update does more than pull", order.id));
        let ran = self.ran.iter().any(|(pod, name, id, _)| {
            (pod, name, id) == (&order.pod.uid, &order.container.name, &order.container.id)
        });
        self.check(ran || self.updates.was_shown(&order.container.id), "I3", || {
            format!("order {} names {:?}", order.id, order.container)
        });
    }

    /// Checks an order to give an instance other resources.
    fn asked_to_resize(&mut self, order: &Order) {
        let named = |(pod, name, id, _): &(String, String, String, u64)| {
            (pod, name, id) == (&order.pod.uid, &order.container.name, &order.container.id)
        };
        let found = self.holds.placed(order, self.ran.iter().any(named));
        self.all(found);
    }

    fn acknowledges(&mut self, id: &str, order: Option<&Order>, server: &Server) {
        let Some(order) = order.filter(|o| o.action.resize.is_none() && o.action.pull.is_none()) else {
            return;
        };
        self.forgotten.remove(id);
        let key = (id.to_owned(), order.container.id.clone());
        if self.acknowledged.contains_key(&key) {
            return;
        }
        self.acknowledged.insert(key, self.now);
        let uid = request_uid(id).to_owned();
        let over = self.requests.get(&uid).is_none_or(|k| k.ended.is_some());
        let (split, restored) = (self.many_leaders, self.restored);
        self.check(!over || split || restored, "I4", || format!("{id} begins after the end of its request"));
        self.check_drained(&uid, id, server);
    }

    /// Checks that the Pod was drained before a container is touched.
    fn check_drained(&mut self, uid: &str, what: &str, server: &Server) {
        let Some(known) = self.requests.get(uid) else { return };
        // A Pod that is gone from the API server is not in service.
        let namespace = known.key.split('/').next().unwrap_or_default();
        let there = server.object("Pod", namespace, &known.pod).is_some_and(|pod| {
            known.target.as_ref().is_none_or(|target| pod["metadata"]["uid"] == *target.pod_uid)
        });
        if there {
            self.check_waited(uid, what);
        }
    }

    /// Checks that the Pod was out of service for the grace before its request acts.
    pub(super) fn check_waited(&mut self, uid: &str, what: &str) {
        let Some(known) = self.requests.get(uid) else { return };
        let Some(grace) = known.unready_grace else { return };
        let waited = known.drained_since.map(|since| self.now - since);
        let least = self.clocks.least(grace);
        let enough = waited.is_some_and(|waited| waited >= least) || self.restored;
        self.check(enough, "I7", || format!("{what} is not drained: {waited:?} of {grace} ms"));
    }
}
