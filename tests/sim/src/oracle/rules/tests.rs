//! Meaning of orders that are placed again.

use serde_json::{Value, json};

use super::*;
use crate::oracle::Writer;
use crate::oracle::Wrote;
use crate::server::Server;

const ID: &str = "u/app/1";

fn rules() -> Rules {
    let mut rules = Rules::new(&crate::draw::schedule(0));
    rules.schedule.faults.clear();
    rules.schedule.crash = None;
    rules
}

fn order(container: &str, grace: i64) -> Value {
    json!({
        "id": ID, "pod": {"namespace": "shop", "name": "web", "uid": "p"},
        "container": {"name": "app", "id": container},
        "action": {"recreate": {"gracePeriodSeconds": grace}},
    })
}

fn of_the_next_version() -> Value {
    let mut order = order("a", 8);
    order["later"] = json!({"a": [1]});
    order["action"]["recreate"]["later"] = json!({"b": 2});
    order
}

/// Broken rules if an order of the next version is stopped, withdrawn, and done once `order` is in the book.
fn placed_again(order: &Value) -> Vec<&'static str> {
    let (mut rules, server) = (rules(), Server::for_worlds());
    let wrote = |rules: &mut Rules, now: u64, orders: &[&Value], state: &str| {
        let answer = json!({"orderID": ID, "state": state, "acknowledgedBy": "daemon0-1"});
        let book = json!({
            "apiVersion": "pitstop.dev/v1alpha1", "kind": "NodeWork", "metadata": {"name": "node0"},
            "spec": {"orders": orders}, "status": {"answers": [answer]},
        });
        let (writer, kind, after) = (Writer::Controller, "NodeWork", Some(&book));
        rules.wrote(&Wrote { now, writer, many_leaders: false, kind, before: None, after, server: &server })
    };
    assert!(wrote(&mut rules, 1, &[&of_the_next_version()], "Acknowledged").is_empty());
    rules.orders.get_mut(ID).unwrap().stopped = Some(2);
    assert!(wrote(&mut rules, 3, &[], "Acknowledged").is_empty());
    let found = wrote(&mut rules, 4, &[order], "Done");
    found.into_iter().map(|(number, _)| number).collect()
}

#[test]
fn what_a_newer_version_says_beside_an_order_makes_it_no_other_one() {
    assert_eq!(placed_again(&of_the_next_version()), [""; 0], "the same");
    assert_eq!(placed_again(&order("a", 8)), [""; 0], "by a version that says less");
    assert_eq!(placed_again(&order("b", 8)), ["I6"], "another container");
    assert_eq!(placed_again(&order("a", 2)), ["I6"], "another grace");
}
