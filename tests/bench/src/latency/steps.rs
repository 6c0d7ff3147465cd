//! Where the time goes: the API writes between two moments, and what lies between them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::harness::audit::Entry;
use crate::harness::figures::{Samples, milliseconds};

/// Steps in their order, each with its milliseconds.
pub(super) type Steps = Vec<(String, f64)>;

/// Splits the time from `from` to `to` at every API write of pitstop's programs and of the benchmark.
///
/// The API server, pitstop and the benchmark run on one machine, and so by one clock.
pub(super) fn steps(entries: &[Entry], from: SystemTime, to: SystemTime, last: &str) -> Steps {
    let mut writes: Vec<&Entry> =
        entries.iter().filter(|e| is_write(e) && e.received() >= from && e.received() <= to).collect();
    writes.sort_by_key(|entry| entry.received());
    let mut steps = Steps::new();
    let mut reached = from;
    for write in writes {
        let what = format!("{}: {}", write.program().trim_start_matches("pitstop-"), write.what());
        steps.push((format!("→ {what} arrives"), signed(reached, write.received())));
        steps.push((what, signed(write.received(), write.answered())));
        reached = write.answered();
    }
    steps.push((last.to_owned(), signed(reached, to)));
    steps
}

/// The steps that most had in common, with their figures, and how many those were.
pub(super) fn typical<'a>(all: impl Iterator<Item = &'a Steps>) -> (usize, Vec<(String, Samples)>) {
    let mut kinds: BTreeMap<Vec<&str>, Vec<&Steps>> = BTreeMap::new();
    for steps in all {
        kinds.entry(steps.iter().map(|(name, _)| name.as_str()).collect()).or_default().push(steps);
    }
    let Some((names, members)) = kinds.into_iter().max_by_key(|(_, members)| members.len()) else {
        return (0, Vec::new());
    };
    let figures = names.iter().enumerate().map(|(i, name)| {
        let mut samples = Samples::default();
        members.iter().filter_map(|steps| steps.get(i)).for_each(|(_, ms)| samples.add_ms(*ms));
        ((*name).to_owned(), samples)
    });
    (members.len(), figures.collect())
}

/// Events and leases are not on anyone's way.
fn is_write(entry: &Entry) -> bool {
    entry.program().starts_with("pitstop-")
        && ["create", "update", "patch", "delete"].contains(&entry.verb.as_str())
        && ["containerrecreaterequests", "nodeworks"].contains(&entry.object_ref.resource.as_str())
}

/// Milliseconds from one moment to another; negative when the other was first.
fn signed(from: SystemTime, to: SystemTime) -> f64 {
    match to.duration_since(from) {
        Ok(later) => milliseconds(later),
        Err(earlier) => -milliseconds(earlier.duration()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(program: &str, verb: &str, resource: &str, received: u32, answered: u32) -> Entry {
        let time = |ms: u32| format!("2026-11-21T11:00:00.{ms:03}Z");
        serde_json::from_value(serde_json::json!({
            "verb": verb, "userAgent": format!("{program}/0.1.0"), "objectRef": {"resource": resource},
            "requestReceivedTimestamp": time(received), "stageTimestamp": time(answered),
        }))
        .unwrap()
    }

    #[test]
    fn time_is_split_at_the_writes_and_nothing_is_lost() {
        let entries = [
            entry("pitstop-controller", "create", "events", 15, 16),
            entry("pitstop-daemon", "update", "nodeworks", 20, 25),
            entry("pitstop-bench", "create", "containerrecreaterequests", 2, 10),
            entry("kubectl", "create", "containerrecreaterequests", 3, 4),
            entry("pitstop-controller", "get", "nodeworks", 12, 13),
            entry("pitstop-controller", "patch", "nodeworks", 40, 50),
        ];
        let begin = entries[1].received() - std::time::Duration::from_millis(20);
        let steps = steps(&entries, begin, begin + std::time::Duration::from_millis(31), "end");
        let names: Vec<&str> = steps.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "→ bench: create containerrecreaterequests arrives",
                "bench: create containerrecreaterequests",
                "→ daemon: update nodeworks arrives",
                "daemon: update nodeworks",
                "end",
            ]
        );
        let total: f64 = steps.iter().map(|(_, ms)| ms).sum();
        assert!((total - 31.0).abs() < 1e-6, "{steps:?}");
        let (count, typical) = typical([&steps, &steps, &Steps::new()].into_iter());
        assert_eq!((count, typical.len()), (2, 5));
    }
}
