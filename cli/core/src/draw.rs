//! Draws a tree as lines of text, for a terminal with its size and colours, or for a pipe.

use chrono::{DateTime, Utc};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::duration::age;
use crate::fold::Detail;
use crate::tree::{Item, Mark, Tree};

/// Least columns: narrower text is unreadable.
const LEAST: usize = 20;

/// How lines are drawn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Columns and rows of the terminal; `None`: no limit.
    pub size: Option<(usize, usize)>,
    /// Only ASCII characters.
    pub ascii: bool,
    /// With ANSI colours.
    pub colour: bool,
    /// Every Pod in its own line, even if they are many.
    pub wide: bool,
}

/// The tree's lines at the time `now`. If they do not fit the terminal, more and more items are counted instead of
/// shown. Read errors are always shown.
pub fn draw(tree: &Tree, now: DateTime<Utc>, look: Look) -> Vec<String> {
    let height = look.size.map_or(usize::MAX, |(_, height)| height.max(1));
    let mut unread: Vec<Row> = tree.unread.iter().map(|why| Row::unread(why, look)).collect();
    unread.truncate(height);
    let mut rows = fitting(tree, height.saturating_sub(unread.len()), look);
    rows.append(&mut unread);
    let width = look.size.map(|(width, _)| width.max(LEAST));
    // Rows with only a name do not widen the column.
    let columns = rows.iter().filter(|row| !row.is_whole());
    let names = columns.map(|row| row.lead.width() + row.name.width()).max().unwrap_or_default();
    let names = width.map_or(names, |width| names.min(width / 2));
    rows.iter().map(|row| row.drawn(now, names, width, look)).collect()
}

/// The tree's rows, in the most detail that fits.
fn fitting(tree: &Tree, height: usize, look: Look) -> Vec<Row> {
    let steps = if look.wide { &[Detail::ALL][..] } else { Detail::steps(&tree.items) };
    let mut rows = Vec::new();
    for detail in steps {
        rows = self::rows(tree, *detail, look);
        if rows.len() <= height {
            return rows;
        }
    }
    let hidden = rows.len().saturating_sub(height.saturating_sub(1));
    rows.truncate(height.saturating_sub(1));
    if height > 0 {
        rows.push(Row::whole(format!("... {hidden} more lines: the terminal is too small")));
    }
    rows
}

/// One line before it has a width.
struct Row {
    /// The branches before the name, and the sign.
    lead: String,
    mark: Mark,
    name: String,
    since: Option<DateTime<Utc>>,
    text: String,
}

impl Row {
    fn whole(name: String) -> Self {
        Self { lead: String::new(), mark: Mark::Plain, name, since: None, text: String::new() }
    }

    fn unread(why: &str, look: Look) -> Self {
        let name = format!("{} {why}", sign(Mark::NotReady, look.ascii));
        Self { mark: Mark::NotReady, ..Self::whole(name) }
    }

    /// The row is only a name, which takes all columns.
    fn is_whole(&self) -> bool {
        self.since.is_none() && self.text.is_empty()
    }

    fn drawn(&self, now: DateTime<Utc>, names: usize, width: Option<usize>, look: Look) -> String {
        let since = self.since.map(|since| age((now - since).num_seconds())).unwrap_or_default();
        if self.is_whole() {
            let line = format!("{}{}", self.lead, self.name);
            return painted(&cut(&line, width.unwrap_or(usize::MAX)), self.mark, look);
        }
        let name = cut(&self.name, names.saturating_sub(self.lead.width()));
        let gap = names.saturating_sub(self.lead.width() + name.width());
        let head = format!("{}{name}{:gap$}  {since:>6}  ", self.lead, "");
        let rest = width.map_or(usize::MAX, |width| width.saturating_sub(head.width()));
        let text = cut(&self.text, rest);
        format!("{}{}", painted(&head, Mark::Plain, look), painted(&text, self.mark, look))
            .trim_end()
            .to_owned()
    }
}

/// The text with the colour of a mark.
pub(crate) fn painted(text: &str, mark: Mark, look: Look) -> String {
    let code = match mark {
        _ if !look.colour || text.is_empty() => return text.to_owned(),
        Mark::Failed => "31",
        Mark::NotReady => "33",
        Mark::Working => "36",
        Mark::Done => "32",
        Mark::Waiting | Mark::Plain => return text.to_owned(),
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// The text cut to so many columns; a cut text ends with `~`.
fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 1;
    for c in text.chars() {
        used += c.width().unwrap_or_default();
        if used > columns {
            break;
        }
        kept.push(c);
    }
    kept.push('~');
    kept
}

fn rows(tree: &Tree, detail: Detail, look: Look) -> Vec<Row> {
    let mut rows = Vec::new();
    for item in &tree.items {
        push(&mut rows, item, &Lead { here: String::new(), below: String::new() }, detail, look);
    }
    rows
}

/// The branches before an item, and before the items below it.
struct Lead {
    here: String,
    below: String,
}

fn push(rows: &mut Vec<Row>, item: &Item, lead: &Lead, detail: Detail, look: Look) {
    let sign = sign(item.mark, look.ascii);
    let text = match (item.reason.as_str(), item.text.as_str()) {
        (reason, "") => reason.to_owned(),
        ("", text) => text.to_owned(),
        (reason, text) => format!("{reason}: {text}"),
    };
    rows.push(Row {
        lead: format!("{}{sign} ", lead.here),
        mark: item.mark,
        name: item.name.clone(),
        since: item.since,
        text,
    });
    let items = detail.of(&item.items);
    let last = items.len().saturating_sub(1);
    for (number, item) in items.iter().enumerate() {
        let (here, below) = match (number == last, look.ascii) {
            (true, false) => ("└─ ", "   "),
            (true, true) => ("`- ", "   "),
            (false, false) => ("├─ ", "│  "),
            (false, true) => ("|- ", "|  "),
        };
        let lead = Lead { here: format!("{}{here}", lead.below), below: format!("{}{below}", lead.below) };
        push(rows, item, &lead, detail, look);
    }
}

/// The sign before a name.
fn sign(mark: Mark, ascii: bool) -> char {
    match (mark, ascii) {
        (Mark::Failed, false) => '✗',
        (Mark::Failed, true) => 'x',
        (Mark::Working, false) => '●',
        (Mark::Working, true) => '*',
        (Mark::Waiting, false) => '○',
        (Mark::Waiting, true) => 'o',
        (Mark::NotReady, _) => '!',
        (Mark::Plain, false) => '·',
        (Mark::Plain, true) => '-',
        (Mark::Done, false) => '✔',
        (Mark::Done, true) => '+',
    }
}
