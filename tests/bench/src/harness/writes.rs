//! pitstop's writes, from the audit log.

use std::collections::BTreeMap;

use super::audit::Entry;

/// Events are not counted as cost of a request: they are for people, and lost if too many.
const ASIDE: &str = "events";

/// Numbers of writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Attempts, including refused ones.
    pub(crate) all: usize,
    /// Refused attempts, mostly conflicts.
    pub(crate) refused: usize,
}

/// Numbers of writes by `account: verb resource`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Writes {
    pub(crate) counts: BTreeMap<String, Count>,
}

impl Writes {
    /// Counts every write of that namespace's `ServiceAccount`s, except events.
    pub(crate) fn count<'a>(entries: impl IntoIterator<Item = &'a Entry>, namespace: &str) -> Self {
        let mut writes = Self::default();
        for entry in entries {
            writes.add(entry, namespace);
        }
        writes
    }

    /// Counts a request if it is such a write; returns whether it is.
    pub(crate) fn add(&mut self, entry: &Entry, namespace: &str) -> bool {
        let counts = entry.writes() && entry.object_ref.resource != ASIDE;
        let Some(account) = entry.account(namespace).filter(|_| counts) else { return false };
        let count = self.counts.entry(format!("{account}: {}", entry.name())).or_default();
        count.all += 1;
        count.refused += usize::from(entry.refused());
        true
    }

    /// Number of all writes.
    pub(crate) fn total(&self) -> usize {
        self.counts.values().map(|count| count.all).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(user: &str, verb: &str, resource: &str, code: u16) -> Entry {
        serde_json::from_value(serde_json::json!({
            "verb": verb, "user": {"username": user}, "objectRef": {"resource": resource},
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": "2026-11-21T11:00:00Z", "stageTimestamp": "2026-11-21T11:00:00Z",
        }))
        .unwrap()
    }

    #[test]
    fn what_is_written_in_the_name_of_an_account_counts_as_its_own() {
        let entry: Entry = serde_json::from_value(serde_json::json!({
            "verb": "update", "user": {"username": "system:admin"}, "objectRef": {"resource": "nodeworks"},
            "impersonatedUser": {"username": "system:serviceaccount:pitstop-system:pitstop-daemon"},
            "requestReceivedTimestamp": "2026-11-21T11:00:00Z", "stageTimestamp": "2026-11-21T11:00:00Z",
        }))
        .unwrap();
        assert_eq!(Writes::count([&entry], "pitstop-system").total(), 1);
    }

    #[test]
    fn all_attempts_of_our_accounts_count_but_events() {
        let daemon = "system:serviceaccount:pitstop-system:pitstop-daemon";
        let entries = [
            entry(daemon, "update", "nodeworks", 200),
            entry(daemon, "update", "nodeworks", 409),
            entry(daemon, "watch", "nodeworks", 200),
            entry(daemon, "create", "events", 201),
            entry("system:serviceaccount:other:pitstop-daemon", "update", "nodeworks", 200),
            entry("system:admin", "create", "containerrecreaterequests", 201),
        ];
        let writes = Writes::count(&entries, "pitstop-system");
        let count = Count { all: 2, refused: 1 };
        assert_eq!(writes.counts, BTreeMap::from([("pitstop-daemon: update nodeworks".to_owned(), count)]));
        assert_eq!(writes.total(), 2);
    }
}
