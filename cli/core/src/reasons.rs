//! The meanings of reasons, from docs/troubleshooting.md: the page is the only source.

use crate::target::RequestKind;

/// The page, as part of the program, so that both agree.
const PAGE: &str = include_str!("../../../docs/troubleshooting.md");

/// The headings of the columns.
const MEANS: &str = "what it means";
const TO_DO: &str = "what to do";

/// A reason's row on the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// What it means.
    pub means: String,
    /// What to do; empty: only wait.
    pub to_do: String,
}

/// The meaning of a reason in the conditions of that kind: the row in the kind's own sections, or the page's first row.
pub fn meaning(kind: RequestKind, reason: &str) -> Option<Meaning> {
    let all = || rows(PAGE).filter(|row| row.is_for(reason));
    let own = all().find(|row| row.section.contains(section(kind)));
    let row = own.or_else(|| all().next())?;
    Some(Meaning { means: without_links(row.means), to_do: without_links(row.to_do) })
}

/// The text that all headings of a kind's sections contain.
fn section(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Restart => "A request",
        RequestKind::Resize => "A resize",
        RequestKind::ImageUpdate => "PodImageUpdate",
        RequestKind::Rollout => "InPlaceRollout",
    }
}

/// A row of a table about reasons.
struct Row<'a> {
    section: &'a str,
    reasons: &'a str,
    means: &'a str,
    to_do: &'a str,
}

impl Row<'_> {
    /// Its first cell has the reason, between backticks.
    fn is_for(&self, reason: &str) -> bool {
        !reason.is_empty() && self.reasons.split('`').skip(1).step_by(2).any(|named| named == reason)
    }
}

/// The rows of tables with a column for meanings; other columns are left out.
fn rows(page: &str) -> impl Iterator<Item = Row<'_>> {
    let (mut section, mut means, mut to_do) = ("", None, None);
    page.lines().filter_map(move |line| {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading;
        }
        let cells: Vec<&str> =
            line.strip_prefix('|')?.trim_end_matches('|').split(" | ").map(str::trim).collect();
        let first = *cells.first()?;
        if !first.starts_with('`') {
            if !first.starts_with("--") {
                let column = |name: &str| cells.iter().position(|cell| *cell == name);
                (means, to_do) = (column(MEANS), column(TO_DO));
            }
            return None;
        }
        let cell = |column: Option<usize>| column.and_then(|column| cells.get(column)).copied();
        Some(Row { section, reasons: first, means: cell(means)?, to_do: cell(to_do).unwrap_or_default() })
    })
}

/// All reasons in the sections whose headings contain that text.
#[cfg(test)]
pub(crate) fn reasons_in(section: &str) -> std::collections::BTreeSet<&'static str> {
    let rows = rows(PAGE).filter(|row| row.section.contains(section));
    rows.flat_map(|row| row.reasons.split('`').skip(1).step_by(2)).collect()
}

/// Markdown for a terminal, with each link replaced by its text.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        let link = after.split_once("](").and_then(|(name, after)| Some((name, after.split_once(')')?.1)));
        let (name, after) = link.unwrap_or(("[", after));
        plain.push_str(name);
        rest = after;
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_means_what_the_page_says_for_its_kind() {
        let restart = meaning(RequestKind::Restart, "Queued").unwrap();
        assert!(restart.means.contains("earlier restarts"), "{restart:?}");
        let waits = meaning(RequestKind::Restart, "WaitingForDaemon").unwrap();
        assert!(waits.to_do.contains("Is a daemon ready"), "{waits:?}");
        let resize = meaning(RequestKind::Resize, "Queued");
        assert!(resize.is_some_and(|resize| resize.means != restart.means));
        assert_eq!(meaning(RequestKind::Restart, "NoSuchReason"), None);
        assert_eq!(meaning(RequestKind::Restart, ""), None);
    }

    #[test]
    fn of_links_the_text_is_left() {
        assert_eq!(without_links("A [drain](a.md#b) begins, `x[0]` too"), "A drain begins, `x[0]` too");
        assert_eq!(without_links("none"), "none");
        assert!(rows(PAGE).count() > 100, "the page has other tables now");
        for kind in RequestKind::ALL {
            assert!(rows(PAGE).any(|row| row.section.contains(section(kind))), "{kind:?} has no section");
        }
    }

    /// The most frequent reasons of each kind.
    #[test]
    fn what_is_waited_for_most_is_explained() {
        for (kind, reasons) in [
            (RequestKind::Restart, &["Stopping", "ContainerNotReady", "Complete", "DeadlineExceeded"][..]),
            (RequestKind::Resize, &["NodeBusy", "WaitingForKubelet"]),
            (RequestKind::ImageUpdate, &["Pulling", "PullFailed", "Suspended"]),
            (RequestKind::Rollout, &["Paused", "PodsFailed", "ProgressDeadlineExceeded"]),
        ] {
            for reason in reasons {
                assert!(meaning(kind, reason).is_some(), "{kind:?} {reason}");
            }
        }
    }
}
