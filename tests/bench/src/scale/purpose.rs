//! Purposes of pitstop's writes.

use std::collections::{BTreeMap, BTreeSet};

use crate::harness::audit::Entry;

/// The requests' resource.
pub(crate) const REQUESTS: &str = "containerrecreaterequests";
const BOOKS: &str = "nodeworks";

/// Purpose of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Status,
    Label,
    /// A write that adds an order to a node's book. It may remove others.
    Order,
    /// A daemon's write: the acknowledgement of an order, or an answer that no other write carries.
    Acknowledgement,
    /// A write that only removes orders from a node's book.
    Withdrawal,
    Other,
    /// A write with any purpose that was not stored.
    Refused,
}

impl Purpose {
    pub(crate) const ALL: [(Self, &'static str); 7] = [
        (Self::Status, "status of a request"),
        (Self::Label, "label of a request"),
        (Self::Order, "order"),
        (Self::Acknowledgement, "acknowledgement"),
        (Self::Withdrawal, "withdrawal without an order"),
        (Self::Other, "other"),
        (Self::Refused, "refused"),
    ];
}

/// Number of writes by purpose.
#[derive(Debug, Default)]
pub(crate) struct Purposes {
    counts: BTreeMap<Purpose, usize>,
    /// The orders of each node.
    books: BTreeMap<String, BTreeSet<String>>,
}

impl Purposes {
    /// Counts a write. Call it in the order of the writes of a node's book.
    pub(crate) fn add(&mut self, entry: &Entry) {
        let purpose = self.purpose(entry);
        *self.counts.entry(purpose).or_default() += 1;
    }

    pub(crate) fn count(&self, purpose: Purpose) -> usize {
        self.counts.get(&purpose).copied().unwrap_or_default()
    }

    fn purpose(&mut self, entry: &Entry) -> Purpose {
        let object = &entry.object_ref;
        match (object.resource.as_str(), object.subresource.as_str()) {
            _ if entry.refused() => Purpose::Refused,
            (REQUESTS, "status") => Purpose::Status,
            (REQUESTS, "") => Purpose::Label,
            (BOOKS, "status") => Purpose::Acknowledgement,
            (BOOKS, "") => {
                let orders: BTreeSet<String> = entry.orders().map(str::to_owned).collect();
                let before = self.books.insert(object.name.clone(), orders.clone()).unwrap_or_default();
                if orders.is_subset(&before) { Purpose::Withdrawal } else { Purpose::Order }
            }
            _ => Purpose::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn entry(verb: &str, resource: &str, subresource: &str, code: u16, orders: &[&str]) -> Entry {
        let orders: Vec<_> = orders.iter().map(|id| json!({"id": id})).collect();
        with_body(verb, resource, subresource, code, &json!({"spec": {"orders": orders}}))
    }

    fn with_body(verb: &str, resource: &str, subresource: &str, code: u16, body: &Value) -> Entry {
        serde_json::from_value(json!({
            "verb": verb, "objectRef": {"resource": resource, "subresource": subresource, "name": "n"},
            "responseStatus": {"code": code},
            "requestObject": body,
            "requestReceivedTimestamp": "2026-11-21T11:00:00Z", "stageTimestamp": "2026-11-21T11:00:00Z",
        }))
        .unwrap()
    }

    #[test]
    fn a_write_of_a_book_is_an_order_when_one_is_new() {
        let mut purposes = Purposes::default();
        let mut of = |verb, code, orders: &[&str]| purposes.purpose(&entry(verb, BOOKS, "", code, orders));
        assert_eq!(of("create", 201, &["a"]), Purpose::Order);
        assert_eq!(of("patch", 409, &["a", "c"]), Purpose::Refused);
        assert_eq!(of("patch", 200, &["a", "b"]), Purpose::Order);
        assert_eq!(of("patch", 200, &["b"]), Purpose::Withdrawal);
        assert_eq!(of("patch", 200, &["c"]), Purpose::Order);
        assert_eq!(of("patch", 200, &[]), Purpose::Withdrawal);
    }

    #[test]
    fn orders_of_a_json_patch_count_too() {
        let mut purposes = Purposes::default();
        let mut of = |orders: &[&str]| {
            let orders: Vec<_> = orders.iter().map(|id| json!({"id": id})).collect();
            let patch = json!([
                {"op": "test", "path": "/metadata/generation", "value": 4},
                {"op": "add", "path": "/spec/orders", "value": orders},
            ]);
            purposes.purpose(&with_body("patch", BOOKS, "", 200, &patch))
        };
        assert_eq!(of(&["a"]), Purpose::Order);
        assert_eq!(of(&["a", "b"]), Purpose::Order);
    }

    #[test]
    fn every_write_counts_once() {
        let mut purposes = Purposes::default();
        for (resource, subresource) in [
            (REQUESTS, "status"),
            (REQUESTS, ""),
            (BOOKS, "status"),
            ("pods", "status"),
            (REQUESTS, "status"),
        ] {
            purposes.add(&entry("patch", resource, subresource, 200, &[]));
        }
        let counts = Purpose::ALL.map(|(purpose, _)| purposes.count(purpose));
        assert_eq!(counts, [2, 1, 0, 1, 0, 1, 0]);
    }
}
