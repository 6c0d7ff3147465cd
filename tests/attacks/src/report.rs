//! The table of all probes and their count.

use std::io::Write as _;

use anyhow::Error;

use crate::ask::Ask;
use crate::probe::{Answer, Expected, Probe};
use crate::who::Who;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    who: String,
    what: String,
    expected: String,
    seen: String,
}

impl Row {
    fn is_expected(&self) -> bool {
        self.expected == self.seen
    }

    fn line(&self) -> String {
        let verdict = if self.is_expected() { "ok" } else { "UNEXPECTED" };
        format!("{:<38} {:<78} {:<14} {:<14} {verdict}", self.who, self.what, self.expected, self.seen)
    }
}

/// What was seen so far.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
}

impl Report {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a part of the table.
    pub fn family(&self, name: &str) {
        print(&format!("\n{name}"));
        let [who, what, expected, seen] = ["who", "what", "expected", "seen"];
        print(&format!("{who:<38} {what:<78} {expected:<14} {seen:<14} verdict"));
    }

    /// Sends a probe and writes down what came back.
    pub async fn probe(&mut self, who: &Who, probe: Probe) -> Answer {
        let answer = who.send(probe.ask).await;
        self.answered(&who.name, &probe.what, &probe.expected, &answer);
        answer
    }

    /// Sends a request that must be answered so.
    pub async fn ask(&mut self, who: &Who, what: &str, ask: Ask, expected: Expected) -> Answer {
        self.probe(who, Probe { what: what.to_owned(), ask, expected }).await
    }

    /// Writes down an answer.
    pub fn answered(&mut self, who: &str, what: &str, expected: &Expected, answer: &Answer) {
        self.fact(who, what, &expected.label(), &expected.seen(answer));
    }

    /// Writes down something that is no single answer: `seen` must be `expected`.
    pub fn fact(&mut self, who: &str, what: &str, expected: &str, seen: &str) {
        let row = Row {
            who: who.to_owned(),
            what: what.to_owned(),
            expected: expected.to_owned(),
            seen: seen.to_owned(),
        };
        print(&row.line());
        self.rows.push(row);
    }

    /// Writes down that a part could not be done.
    pub fn broke(&mut self, family: &str, error: &Error) {
        self.fact("-", family, "done", &format!("{error:#}"));
    }

    /// How many probes were not answered as expected.
    pub fn unexpected(&self) -> usize {
        self.rows.iter().filter(|row| !row.is_expected()).count()
    }

    /// The count; before it, once more, what was not expected.
    pub fn last_line(&self) -> String {
        let again: String =
            self.rows.iter().filter(|row| !row.is_expected()).map(|row| row.line() + "\n").collect();
        format!("\n{again}probes={} unexpected={}", self.rows.len(), self.unexpected())
    }
}

/// A reader that has gone is no reason to stop.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{granted, rights};

    #[test]
    fn the_last_line_counts_and_repeats_what_was_not_expected() {
        let mut report = Report::new();
        report.answered("daemon", "a", &granted(200), &Answer { code: 200, text: String::new() });
        assert_eq!(report.last_line(), "\nprobes=1 unexpected=0");
        report.answered("daemon", "b", &rights(), &Answer { code: 200, text: String::new() });
        report.broke("paths", &anyhow::anyhow!("no node"));
        let text = report.last_line();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.last(), Some(&"probes=3 unexpected=2"));
        assert!(lines[1].contains("403 rights") && lines[1].ends_with("UNEXPECTED"), "{text}");
        assert_eq!(report.unexpected(), 2);
    }
}
