//! The findings as lines of text.

use unicode_width::UnicodeWidthStr as _;

use super::{Finding, Level, count};
use crate::draw::{Look, painted};
use crate::page::wrapped;
use crate::plain;
use crate::tree::Mark;

/// Columns before the text: the verdict, and the check's name.
const VERDICT: usize = 9;
const LEAD: usize = VERDICT + 13;

/// The findings with what to do about them, and the totals. Lines are folded at the terminal's width.
pub fn lines(findings: &[Finding], look: Look) -> Vec<String> {
    let mut lines = Vec::new();
    let room = look.size.map(|(width, _)| width.saturating_sub(LEAD).max(20));
    for finding in findings {
        let (word, mark) = word(finding.verdict);
        let mut texts = wrapped(&plain::line(&finding.text, plain::MOST), room).into_iter();
        let head = painted(&format!("{word:<VERDICT$}"), mark, look);
        let check = finding.check;
        let first = texts.next().unwrap_or_default();
        lines.push(format!("{head}{check:<0$}{first}", LEAD - VERDICT));
        let to_do = wrapped(&plain::line(&finding.to_do, plain::MOST), room);
        lines.extend(
            texts.chain(to_do.into_iter().filter(|it| it.width() > 0)).map(|it| format!("{:LEAD$}{it}", "")),
        );
    }
    lines.push(sum(findings));
    lines
}

fn word(verdict: Level) -> (&'static str, Mark) {
    match verdict {
        Level::Ok => ("ok", Mark::Done),
        Level::Warning => ("warning", Mark::NotReady),
        Level::Unknown => ("unknown", Mark::NotReady),
        Level::Error => ("error", Mark::Failed),
    }
}

fn sum(findings: &[Finding]) -> String {
    let of = |verdict: Level| findings.iter().filter(|it| it.verdict == verdict).count();
    let (errors, warnings, unknown) = (of(Level::Error), of(Level::Warning), of(Level::Unknown));
    let unread = if unknown > 0 { format!(", {unknown} could not be checked") } else { String::new() };
    format!("{}, {}{unread}", count(errors, "error"), count(warnings, "warning"))
}

#[cfg(test)]
mod tests {
    use super::super::{examine, fixtures};
    use super::*;

    fn at(width: usize) -> String {
        let look = Look { size: Some((width, usize::MAX)), ..Look::default() };
        lines(&some(), look).join("\n")
    }

    fn some() -> Vec<Finding> {
        vec![
            Finding::ok("leader", "pitstop-controller-a leads, and renewed its Lease 4s ago"),
            Finding::error(
                "nodes",
                "2 nodes without a ready daemon: node2, node3",
                "See kubectl pitstop node NODE, and kubectl -n pitstop-system get pods -o wide.",
            ),
            Finding::unknown(
                "order books",
                "NodeWorks",
                "nodeworks.pitstop.dev is forbidden: User \"ann\" cannot list resource",
            ),
            Finding::warning("opt-in", "a\u{1b}[2Jb", ""),
        ]
    }

    #[test]
    fn at_80_columns_lines_are_folded_below_their_text() {
        assert_eq!(
            at(80),
            "\
ok       leader       pitstop-controller-a leads, and renewed its Lease 4s ago
error    nodes        2 nodes without a ready daemon: node2, node3
                      See kubectl pitstop node NODE, and kubectl -n
                      pitstop-system get pods -o wide.
unknown  order books  cannot check NodeWorks: nodeworks.pitstop.dev is
                      forbidden: User \"ann\" cannot list resource
warning  opt-in       a\\u{1b}[2Jb
1 error, 1 warning, 1 could not be checked"
        );
    }

    #[test]
    fn at_200_columns_each_has_its_line() {
        assert_eq!(
            at(200),
            "\
ok       leader       pitstop-controller-a leads, and renewed its Lease 4s ago
error    nodes        2 nodes without a ready daemon: node2, node3
                      See kubectl pitstop node NODE, and kubectl -n pitstop-system get pods -o wide.
unknown  order books  cannot check NodeWorks: nodeworks.pitstop.dev is forbidden: User \"ann\" cannot list resource
warning  opt-in       a\\u{1b}[2Jb
1 error, 1 warning, 1 could not be checked"
        );
    }

    #[test]
    fn a_pipe_gets_whole_lines_without_colours() {
        let all = examine(&fixtures::empty());
        let printed = lines(&all, Look::default());
        let to_do = all.iter().filter(|it| !it.to_do.is_empty()).count();
        assert_eq!(printed.len(), all.len() + to_do + 1);
        assert!(printed.iter().all(|it| !it.contains('\u{1b}')));
        let coloured = lines(&some(), Look { colour: true, ..Look::default() });
        assert!(coloured[1].starts_with("\u{1b}[31merror"), "{coloured:?}");
    }
}
