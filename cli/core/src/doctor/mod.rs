//! Judges whether an installation of pitstop is complete, from the objects that the caller may read.
//!
//! `deploy/` and docs/install.md define an installation. Each check is a file; none depends on another.

mod definitions;
mod facts;
mod kruise;
mod leader;
mod nodes;
mod opted_in;
mod policies;
mod programs;
pub mod remains;
mod report;
mod rights;
mod versions;
mod webhook;

#[cfg(test)]
mod fixtures;

use serde::Serialize;

pub use definitions::definition_names;
pub use facts::{Expiry, Facts, KRUISE_WEBHOOK, Mutating, Probe, Right, RightReview, SELF_CHECK, WEBHOOK};
pub(crate) use nodes::MOST_ORDERS;
pub use report::lines;
pub use rights::needed_rights;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Level {
    /// As it must be.
    Ok,
    /// It works, but the user should look at it.
    Warning,
    /// It could not be checked.
    Unknown,
    /// It does not work.
    Error,
}

/// One line about the installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was checked, such as `leader`.
    pub check: &'static str,
    /// The result.
    pub verdict: Level,
    /// What the check found.
    pub text: String,
    /// What the user can do; empty: nothing.
    #[serde(rename = "toDo", skip_serializing_if = "String::is_empty")]
    pub to_do: String,
}

impl Finding {
    fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self { check, verdict: Level::Ok, text: text.into(), to_do: String::new() }
    }

    fn warning(check: &'static str, text: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { check, verdict: Level::Warning, text: text.into(), to_do: to_do.into() }
    }

    fn error(check: &'static str, text: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { check, verdict: Level::Error, text: text.into(), to_do: to_do.into() }
    }

    fn unknown(check: &'static str, what: &str, why: &str) -> Self {
        Self {
            check,
            verdict: Level::Unknown,
            text: format!("cannot check {what}: {why}"),
            to_do: String::new(),
        }
    }
}

/// Judges an installation. The findings are in dependency order.
pub fn examine(facts: &Facts) -> Vec<Finding> {
    let checks = [
        definitions::check,
        programs::controller,
        leader::check,
        programs::daemons,
        versions::check,
        policies::validating,
        policies::denial,
        policies::mutating,
        webhook::check,
        webhook::certificate,
        webhook::answer,
        nodes::daemons,
        nodes::runtimes,
        nodes::books,
        kruise::check,
        opted_in::check,
        rights::check,
    ];
    checks.iter().flat_map(|check| check(facts)).collect()
}

/// The exit code of `doctor`: 1 if something is wrong; otherwise 2 if something could not be checked; otherwise 0.
/// Warnings do not count.
pub fn exit_code(findings: &[Finding]) -> u8 {
    let has = |verdict: Level| findings.iter().any(|finding| finding.verdict == verdict);
    if has(Level::Error) { 1 } else { u8::from(has(Level::Unknown)).saturating_mul(2) }
}

/// Names in a sentence: at most [`NAMED`] of them, and the number of the others.
fn name_list<S: AsRef<str>>(names: &[S]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMED).map(AsRef::as_ref).collect();
    let more = names.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Most names in one sentence.
const NAMED: usize = 5;

/// `1 node`, `2 nodes`.
fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_before_what_is_unknown_and_warnings_do_not_count() {
        let (ok, warning) = (Finding::ok("a", ""), Finding::warning("b", "", ""));
        let (unknown, error) = (Finding::unknown("c", "", ""), Finding::error("d", "", ""));
        assert_eq!(exit_code(&[]), 0);
        assert_eq!(exit_code(&[ok.clone(), warning.clone()]), 0);
        assert_eq!(exit_code(&[ok, unknown.clone()]), 2);
        assert_eq!(exit_code(&[unknown, error, warning]), 1);
    }

    #[test]
    fn long_lists_are_counted() {
        assert_eq!(name_list(&["a", "b"]), "a, b");
        assert_eq!(name_list(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
        assert_eq!((count(1, "node"), count(0, "node")), ("1 node".to_owned(), "0 nodes".to_owned()));
    }

    #[test]
    fn a_whole_installation_has_nothing_wrong() {
        let findings = examine(&fixtures::healthy());
        let wrong: Vec<_> = findings.iter().filter(|it| it.verdict != Level::Ok).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert_eq!(exit_code(&findings), 0);
    }

    /// A caller who may read nothing gets neither errors nor good news.
    #[test]
    fn nothing_is_judged_that_cannot_be_read() {
        let findings = examine(&fixtures::unreadable());
        let judged: Vec<_> = findings.iter().filter(|it| it.verdict != Level::Unknown).collect();
        assert!(judged.is_empty(), "{judged:#?}");
        assert_eq!(exit_code(&findings), 2);
    }

    #[test]
    fn an_empty_cluster_has_no_pitstop() {
        let findings = examine(&fixtures::empty());
        assert_eq!(exit_code(&findings), 1);
        for check in ["definitions", "controller", "leader", "daemons", "policies", "denial", "webhook"] {
            let found = findings.iter().find(|it| it.check == check).unwrap();
            assert_eq!(found.verdict, Level::Error, "{found:?}");
            assert!(!found.to_do.is_empty(), "{found:?}");
        }
    }
}
