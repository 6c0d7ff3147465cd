//! The order book of one node as a tree: its orders, the daemon's answers, and the held Pods.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use kube::ResourceExt as _;
use pitstop_api::nodework::{
    Answer, AnswerState, Bounds, Held, HeldContainer, MAX_HELD, NodeWork, Order, OrderAction, order_attempt,
    request_uid,
};
use pitstop_api::quantity::Resource;
use serde::Serialize;

use crate::doctor::MOST_ORDERS;
use crate::explain::{NodeFacts, daemon_text, last_answer};
use crate::known::Known;
use crate::plain;
use crate::summary::{Request, summary};
use crate::tree::{Item, Mark, Tree, short_id};

/// Most characters of a message of the daemon.
const MOST_TEXT: usize = 400;

/// The request that an order is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its name, such as `crr/one`.
    pub name: String,
    /// Since when it has been open.
    pub since: Option<DateTime<Utc>>,
}

impl Owner {
    /// The UID of a request, and its entry.
    pub fn of<R: Request>(request: &R) -> (String, Self) {
        let name = format!("{}/{}", R::KIND.short(), plain::line(&request.name_any(), 253));
        (request.uid().unwrap_or_default(), Self { name, since: summary(request).since })
    }
}

/// The namespaces of the Pods that orders are about.
pub fn namespaces(work: &NodeWork) -> Vec<String> {
    let mut all: Vec<String> = work.spec.orders.iter().map(|it| it.pod.namespace.clone()).collect();
    all.sort();
    all.dedup();
    all
}

/// The tree of a node. `owners` are the requests that could be read, by UID.
pub fn tree(name: &str, facts: &NodeFacts, owners: &BTreeMap<String, Owner>) -> Tree {
    let (mark, text) = match &facts.ready {
        Known::Is(true) => (Mark::Plain, "Ready".to_owned()),
        Known::Is(false) => (Mark::NotReady, "not Ready: its kubelet does nothing now".to_owned()),
        Known::Missing => (Mark::NotReady, "there is no such node".to_owned()),
        Known::Unread(why) => (Mark::Plain, format!("cannot read whether it is Ready: {why}")),
    };
    let mut root = Item { mark, text: plain::line(&text, MOST_TEXT), ..Item::new(plain::line(name, 253)) };
    root.items.push(daemon(facts));
    let mut unread = Vec::new();
    match &facts.work {
        Known::Is(work) => {
            root.items.push(orders(work, owners));
            root.items.push(held(work));
        }
        Known::Missing => {
            let text = "none yet: the first order for the node creates it".to_owned();
            root.items.push(Item { text, ..Item::new("order book") });
        }
        Known::Unread(why) => {
            unread.push(plain::line(&format!("cannot read the order book: {why}"), MOST_TEXT));
        }
    }
    Tree { items: vec![root], unread, ..Tree::default() }
}

/// The daemon, its last write, and the generation that it has read.
fn daemon(facts: &NodeFacts) -> Item {
    let mark = match &facts.daemon {
        Known::Is((_, true)) => Mark::Done,
        Known::Is((_, false)) | Known::Missing => Mark::NotReady,
        Known::Unread(_) => Mark::Plain,
    };
    let mut text = daemon_text(facts);
    let mut since = None;
    if let Known::Is(work) = &facts.work {
        let read = work.status.as_ref().and_then(|it| it.observed_generation);
        if let (Some(read), Some(now)) = (read, work.metadata.generation) {
            text = format!("{text}; has read generation {read} of {now} of its orders");
        }
        since = last_answer(work);
    }
    Item { mark, since, text: plain::line(&text, MOST_TEXT), ..Item::new("daemon") }
}

fn orders(work: &NodeWork, owners: &BTreeMap<String, Owner>) -> Item {
    let orders = &work.spec.orders;
    let answers = work.status.as_ref().map(|it| it.answers.as_slice()).unwrap_or_default();
    let items = orders.iter().map(|order| {
        let answer = answers.iter().find(|it| it.order_id == order.id);
        let closed = work.spec.closed.contains(&order.id);
        of_order(order, answer, closed, owners.get(request_uid(&order.id)))
    });
    let mark = if orders.len() >= MOST_ORDERS { Mark::NotReady } else { Mark::Plain };
    let full = if mark == Mark::NotReady { "full: further orders wait" } else { "" };
    let name = format!("orders: {} of {MOST_ORDERS}", orders.len());
    Item { mark, text: full.to_owned(), items: items.collect(), ..Item::new(name) }
}

fn of_order(order: &Order, answer: Option<&Answer>, closed: bool, owner: Option<&Owner>) -> Item {
    let (mark, mut reason) = match answer.map(|it| it.state) {
        None => (Mark::Waiting, "no answer".to_owned()),
        Some(state @ AnswerState::Acknowledged) => (Mark::Working, word(&state)),
        Some(state @ AnswerState::Done) => (Mark::Done, word(&state)),
        Some(state @ (AnswerState::Refused | AnswerState::Failed)) => (Mark::Failed, word(&state)),
    };
    if let Some(why) = answer.and_then(|it| it.reason) {
        reason = format!("{reason} ({})", word(&why));
    }
    let whose = owner.map_or_else(|| format!("owner {}", request_uid(&order.id)), |it| it.name.clone());
    let (verb, how) = action(&order.action);
    let (attempt, id) = (order_attempt(&order.id), short_id(&order.container.id));
    let mut text = format!("{verb} for {whose}, attempt {attempt}, {how}container {id}");
    if closed {
        text.push_str(", closed: the daemon begins nothing new");
    }
    if let Some(message) = answer.map(|it| it.message.as_str()).filter(|it| !it.is_empty()) {
        text = format!("{text}: {message}");
    }
    let name = format!("{}/{} {}", order.pod.namespace, order.pod.name, order.container.name);
    Item {
        mark,
        since: owner.and_then(|it| it.since),
        reason,
        text: plain::line(&text, MOST_TEXT),
        ..Item::new(plain::line(&name, 400))
    }
}

/// The verb of an action, and its details.
fn action(action: &OrderAction) -> (&'static str, String) {
    if let Some(recreate) = &action.recreate {
        let grace = recreate.grace_period_seconds;
        return ("stop", grace.map(|it| format!("grace {it}s, ")).unwrap_or_default());
    }
    if let Some(resize) = &action.resize {
        return match resize.container.as_ref().or(resize.pod.as_ref()) {
            Some(bounds) => ("resize", format!("{}, ", bounded(bounds))),
            None => ("restore", String::new()),
        };
    }
    if let Some(pull) = &action.pull {
        return ("pull", format!("image {}, ", pull.image));
    }
    (if action.verify.is_some() { "verify" } else { "an action of a newer version" }, String::new())
}

fn bounded(bounds: &Bounds) -> String {
    let cpu = |it: i64| Resource::Cpu.show(it);
    let to = bounds.cpu_limit.map_or_else(|| "no limit".to_owned(), cpu);
    let memory = bounds.memory_limit.map_or_else(|| "no limit".to_owned(), |it| Resource::Memory.show(it));
    format!("cpu {} to {to}, memory {memory}", cpu(bounds.cpu_request))
}

/// Pods that the daemon holds at other resources than those of their spec.
fn held(work: &NodeWork) -> Item {
    let held = work.status.as_ref().map(|it| it.held.as_slice()).unwrap_or_default();
    let mark = if held.len() >= MAX_HELD { Mark::NotReady } else { Mark::Plain };
    let items = held.iter().map(of_held).collect();
    let name = format!("held: {} of {MAX_HELD}", held.len());
    Item { mark, items, ..Item::new(name) }
}

fn of_held(held: &Held) -> Item {
    let name = format!("{}/{}", held.pod.namespace, held.pod.name);
    let given =
        |given: Option<&Bounds>| given.map_or_else(|| "being changed, or left alone".to_owned(), bounded);
    let containers = held.containers.iter().map(|it: &HeldContainer| {
        let text = format!("{} by order {}", given(it.given.as_ref()), it.order);
        Item { text: plain::line(&text, MOST_TEXT), ..Item::new(plain::line(&it.name, 63)) }
    });
    Item {
        text: given(held.given.as_ref()),
        items: containers.collect(),
        ..Item::new(plain::line(&name, 400))
    }
}

/// A value as the API spells it.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    plain::line(value.as_str().unwrap_or_default(), 64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::draw::{Look, draw};

    const AT80: &str = "\
· node1                         Ready
├─ ✔ daemon                30s  pitstop-daemon-x is ready, with containerd 2.4.~
├─ · orders: 3 of 64
│  ├─ ● shop/web-0 app     90s  Acknowledged: stop for crr/one, attempt 1, grac~
│  ├─ ✗ shop/web-1 app          Failed (ResizeFailed): resize for owner u-2, at~
│  └─ ○ shop/web-2 app          no answer: pull for owner u-3, attempt 1, image~
└─ · held: 1 of 128
   └─ · shop/db                 cpu 250m to 500m, memory 256Mi
      └─ · app                  cpu 250m to 500m, memory 256Mi by order u-9/app~";
    const AT200: &str = "\
· node1                         Ready
├─ ✔ daemon                30s  pitstop-daemon-x is ready, with containerd 2.4.2; has read generation 6 of 7 of its orders
├─ · orders: 3 of 64
│  ├─ ● shop/web-0 app     90s  Acknowledged: stop for crr/one, attempt 1, grace 30s, container 0123456789ab: the hook\\u{1b}[2J runs
│  ├─ ✗ shop/web-1 app          Failed (ResizeFailed): resize for owner u-2, attempt 3, cpu 250m to 500m, memory 256Mi, container 0123456789ab, closed: the daemon begins nothing new
│  └─ ○ shop/web-2 app          no answer: pull for owner u-3, attempt 1, image shop/web:v2, container 0123456789ab
└─ · held: 1 of 128
   └─ · shop/db                 cpu 250m to 500m, memory 256Mi
      └─ · app                  cpu 250m to 500m, memory 256Mi by order u-9/app/1";

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).unwrap()
    }

    fn work() -> NodeWork {
        let pod = |name: &str| json!({"namespace": "shop", "name": name, "uid": name});
        let order = |id: &str, name: &str, action: serde_json::Value| {
            json!({"id": id, "pod": pod(name), "container": {"name": "app", "id": "0123456789abcdef".repeat(4)},
                "action": action})
        };
        let bounds = json!({"cpuRequest": 250, "cpuLimit": 500, "memoryLimit": 268_435_456});
        serde_json::from_value(json!({
            "metadata": {"name": "node1", "generation": 7, "managedFields": [
                {"manager": "x", "subresource": "status", "time": at(60)}, {"manager": "y", "time": at(80)}]},
            "spec": {"closed": ["u-2/app/3"], "orders": [
                order("u-1/app/1", "web-0", json!({"recreate": {"gracePeriodSeconds": 30}})),
                order("u-2/app/3", "web-1", json!({"resize": {"container": bounds}})),
                order("u-3/app/1", "web-2", json!({"pull": {"image": "shop/web:v2", "timeoutSeconds": 60}}))]},
            "status": {"observedGeneration": 6, "runtime": {"name": "containerd", "version": "2.4.2"},
                "answers": [
                    {"orderID": "u-1/app/1", "state": "Acknowledged", "message": "the hook\u{1b}[2J runs"},
                    {"orderID": "u-2/app/3", "state": "Failed", "reason": "ResizeFailed"}],
                "held": [{"pod": pod("db"), "cgroup": "/x", "original": {}, "given": bounds, "containers":
                    [{"name": "app", "id": "0", "original": {}, "order": "u-9/app/1", "given": bounds}]}]},
        }))
        .unwrap()
    }

    fn drawn(facts: &NodeFacts, width: usize) -> String {
        let owner = Owner { name: "crr/one".into(), since: Some(at(0)) };
        let owners = BTreeMap::from([("u-1".to_owned(), owner)]);
        let look = Look { size: Some((width, usize::MAX)), ..Look::default() };
        draw(&tree("node1", facts, &owners), at(90), look).join("\n")
    }

    fn facts() -> NodeFacts {
        NodeFacts {
            ready: Known::Is(true),
            work: Known::Is(Box::new(work())),
            daemon: Known::Is(("pitstop-daemon-x".into(), true)),
        }
    }

    #[test]
    fn at_80_columns_an_order_is_one_line() {
        assert_eq!(drawn(&facts(), 80), AT80);
    }

    #[test]
    fn at_200_columns_its_message_is_seen() {
        assert_eq!(drawn(&facts(), 200), AT200);
    }

    #[test]
    fn what_is_not_there_or_cannot_be_read_is_told() {
        let nothing = NodeFacts { ready: Known::Missing, work: Known::Missing, daemon: Known::Missing };
        let text = drawn(&nothing, 200);
        for line in ["there is no such node", "there is no daemon on this node", "none yet"] {
            assert!(text.contains(line), "{text}");
        }
        let hidden = || "nodes is forbidden\u{1b}".to_owned();
        let unread = NodeFacts {
            ready: Known::Unread(hidden()),
            work: Known::Unread(hidden()),
            daemon: Known::Unread(hidden()),
        };
        let text = drawn(&unread, 200);
        assert!(text.contains("cannot read the order book: nodes is forbidden\\u{1b}"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }

    #[test]
    fn a_full_book_is_marked() {
        let mut full = work();
        let order = full.spec.orders[0].clone();
        full.spec.orders = vec![order; MOST_ORDERS];
        let text = drawn(&NodeFacts { work: Known::Is(Box::new(full)), ..facts() }, 200);
        assert!(text.contains("! orders: 64 of 64") && text.contains("full: further orders wait"), "{text}");
        assert_eq!(namespaces(&work()), ["shop"]);
    }
}
