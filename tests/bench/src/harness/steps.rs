//! Steps: the API writes between two moments, with begin and duration.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::audit::Entry;
use super::figures::{Samples, ms, signed};

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    name: String,
    /// Milliseconds after the first moment.
    begins: f64,
    took: f64,
}

/// Every API write of pitstop's programs and of the benchmark that arrived between two moments. The step `last` lasts
/// from the last answer to the second moment. Writes may overlap.
///
/// The API server, pitstop and the benchmark run on one machine and share its clock.
pub(crate) fn steps(entries: &[Entry], from: SystemTime, to: SystemTime, last: &str) -> Vec<Step> {
    let writes = entries.iter().filter(|e| is_write(e) && e.received() >= from && e.received() <= to);
    let mut steps: Vec<Step> = writes
        .map(|write| Step {
            name: format!("{}: {}", write.program().trim_start_matches("pitstop-"), write.name()),
            begins: signed(from, write.received()),
            took: signed(write.received(), write.answered()),
        })
        .collect();
    let whole = signed(from, to);
    let before_last = steps.iter().map(|step| step.begins + step.took).filter(|end| *end <= whole);
    let begins = before_last.fold(0.0, f64::max);
    steps.push(Step { name: last.to_owned(), begins, took: whole - begins });
    steps
}

/// Steps of many measurements as rows, by begin: begin, duration (median, smallest, largest), number. A repeated write
/// of one measurement is a separate step.
pub(crate) fn rows<'a>(all: impl Iterator<Item = &'a [Step]>) -> Vec<[String; 6]> {
    let mut found: BTreeMap<(String, usize), Vec<&Step>> = BTreeMap::new();
    for steps in all {
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for step in steps {
            let time = times.entry(&step.name).and_modify(|time| *time += 1).or_insert(1);
            found.entry((step.name.clone(), *time)).or_default().push(step);
        }
    }
    let mut rows: Vec<_> = found
        .into_iter()
        .map(|((name, time), steps)| {
            let begins: Samples = steps.iter().map(|step| step.begins).collect();
            let took: Samples = steps.iter().map(|step| step.took).collect();
            let name = if time > 1 { format!("{name} ({time})") } else { name };
            (begins.median(), name, took.cells())
        })
        .collect();
    rows.sort_by(|(a, ..), (b, ..)| a.total_cmp(b));
    rows.into_iter()
        .map(|(begins, name, [median, min, max, count])| [name, ms(begins), median, min, max, count])
        .collect()
}

/// Whether a write counts: events and leases delay no request.
fn is_write(entry: &Entry) -> bool {
    entry.program().starts_with("pitstop-")
        && entry.writes()
        && ["containerrecreaterequests", "nodeworks", "podresizes", "pods"]
            .contains(&entry.object_ref.resource.as_str())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn only_writes_on_the_way_are_steps_and_nothing_is_lost() {
        let entries = [
            entry("pitstop-controller", "create", "events", 15, 16),
            entry("pitstop-daemon", "update", "nodeworks", 20, 25),
            entry("pitstop-bench", "create", "containerrecreaterequests", 2, 10),
            entry("kubectl", "create", "containerrecreaterequests", 3, 4),
            entry("pitstop-controller", "get", "nodeworks", 12, 13),
            entry("pitstop-controller", "patch", "nodeworks", 40, 50),
        ];
        let begin = entries[1].received() - Duration::from_millis(20);
        let steps = steps(&entries, begin, begin + Duration::from_millis(31), "end");
        let rows = rows([steps.as_slice(), steps.as_slice()].into_iter());
        let row =
            |name: &str, begins: &str, took: &str| [name, begins, took, took, took, "2"].map(str::to_owned);
        assert_eq!(
            rows,
            [
                row("bench: create containerrecreaterequests", "2.0", "8.0"),
                row("daemon: update nodeworks", "20.0", "5.0"),
                row("end", "25.0", "6.0"),
            ]
        );
    }

    #[test]
    fn what_happens_twice_is_two_steps() {
        let step = |begins| Step { name: "write".to_owned(), begins, took: 1.0 };
        let rows = rows([[step(1.0), step(5.0)].as_slice(), [step(3.0)].as_slice()].into_iter());
        assert_eq!(rows[0].each_ref().map(String::as_str), ["write", "2.0", "1.0", "1.0", "1.0", "2"]);
        assert_eq!(rows[1].each_ref().map(String::as_str), ["write (2)", "5.0", "1.0", "1.0", "1.0", "1"]);
    }
}
