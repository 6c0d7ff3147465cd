//! Versions side by side: additions that the next version of a program might write, made from this version.
//!
//! In a mixed program, every second process is of the next version. The next version of the CRD is installed before: it
//! allows the field `later` in orders and answers, and [`LATER`] as a reason.

use std::collections::BTreeSet;

use pitstop_controller_core::wire::HttpRequest;
use serde_json::{Value, json};

/// A reason that this version does not know.
pub const LATER: &str = "Later";

/// A controller of the next version.
#[derive(Debug, Default)]
pub struct NextController {
    /// IDs of orders that stood in a book: no version changes such orders.
    seen: BTreeSet<String>,
}

impl NextController {
    /// A watch delivered a book.
    pub fn delivered(&mut self, book: &Value) {
        let orders = book["spec"]["orders"].as_array().into_iter().flatten();
        self.seen.extend(orders.filter_map(|order| order["id"].as_str()).map(str::to_owned));
    }

    /// Adds fields to new orders that this version does not know.
    pub fn sends(&self, request: &mut HttpRequest) {
        if !request.uri().path().contains("/nodeworks") {
            return;
        }
        change(request, |body| {
            for order in orders_in(body).and_then(Value::as_array_mut).into_iter().flatten() {
                if self.seen.contains(order["id"].as_str().unwrap_or_default()) {
                    continue;
                }
                order["later"] = json!({"a": [1]});
                for action in ["/action/recreate", "/action/resize", "/action/pull"] {
                    if let Some(action) = order.pointer_mut(action) {
                        action["later"] = json!({"b": 2});
                    }
                }
            }
        });
    }
}

/// Adds what a daemon of the next version writes: more fields in answers, and a reason for a plain `Done`.
pub fn daemon_sends(request: &mut HttpRequest) {
    change(request, |body| {
        for answer in body.pointer_mut("/status/answers").and_then(Value::as_array_mut).into_iter().flatten()
        {
            answer["later"] = json!({"c": [3]});
            if answer["state"] == "Done" && answer["reason"].is_null() {
                answer["reason"] = LATER.into();
            }
        }
    });
}

/// Removes that reason, as such a daemon does when it reads it again.
pub fn daemon_reads(book: &mut Value) {
    for answer in book.pointer_mut("/status/answers").and_then(Value::as_array_mut).into_iter().flatten() {
        if answer["reason"] == LATER {
            answer.as_object_mut().unwrap().remove("reason");
        }
    }
}

/// The CRD of `NodeWork` in the next version.
pub fn next_crd(spec: &mut Value) {
    for version in spec["versions"].as_array_mut().unwrap() {
        let schema = &mut version["schema"]["openAPIV3Schema"]["properties"];
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let order = &mut schema["spec"]["properties"]["orders"]["items"]["properties"];
        order["later"] = any.clone();
        for action in ["recreate", "resize", "pull"] {
            order["action"]["properties"][action]["properties"]["later"] = any.clone();
        }
        let answer = &mut schema["status"]["properties"]["answers"]["items"]["properties"];
        answer["later"] = any;
        answer["reason"]["enum"].as_array_mut().unwrap().push(LATER.into());
    }
}

/// The orders of a book, of a change of it, or of the operations of a JSON patch.
fn orders_in(body: &mut Value) -> Option<&mut Value> {
    const ORDERS: &str = "/spec/orders";
    match body {
        Value::Array(operations) => operations.iter_mut().find(|op| op["path"] == ORDERS)?.get_mut("value"),
        _ => body.pointer_mut(ORDERS),
    }
}

fn change(request: &mut HttpRequest, change: impl FnOnce(&mut Value)) {
    let Ok(mut body) = serde_json::from_slice(request.body()) else { return };
    change(&mut body);
    *request.body_mut() = serde_json::to_vec(&body).unwrap();
}
