//! A tree as lines of text: the same for a terminal, in its size and with colours, and for a pipe.

use chrono::{DateTime, Utc};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::duration::age;
use crate::tree::{Item, Mark, Tree};

/// How many Pods of a node are shown one by one that need no attention; more are counted.
const SHOWN: usize = 5;
/// Narrower than that, nothing can be read.
const LEAST: usize = 20;

/// What lines are drawn for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Columns and rows of the terminal; absent: lines of any length, as many as there are.
    pub size: Option<(usize, usize)>,
    /// Only characters of ASCII.
    pub ascii: bool,
    /// With ANSI colours.
    pub colour: bool,
    /// Every Pod in a line of its own, however many there are.
    pub wide: bool,
}

/// The tree's lines at a time.
pub fn draw(tree: &Tree, now: DateTime<Utc>, look: Look) -> Vec<String> {
    let most = if look.wide { usize::MAX } else { SHOWN };
    let mut rows = rows(tree, most, look);
    let height = look.size.map(|(_, height)| height.max(1));
    if height.is_some_and(|height| rows.len() > height) && !look.wide {
        rows = self::rows(tree, 0, look);
    }
    if let Some(height) = height.filter(|height| rows.len() > *height) {
        let hidden = rows.len().saturating_sub(height.saturating_sub(1));
        rows.truncate(height.saturating_sub(1));
        rows.push(Row::told(format!("... {hidden} more lines: the terminal is too low")));
    }
    let width = look.size.map(|(width, _)| width.max(LEAST));
    // Names with nothing beside them may be longer.
    let beside = rows.iter().filter(|row| row.since.is_some() || !row.text.is_empty());
    let names = beside.map(|row| row.lead.width() + row.name.width()).max().unwrap_or_default();
    let names = width.map_or(names, |width| names.min(width / 2));
    rows.iter().map(|row| row.drawn(now, names, width, look)).collect()
}

/// One line before it has a width.
struct Row {
    /// The lines that lead to it, and its sign.
    lead: String,
    mark: Mark,
    name: String,
    since: Option<DateTime<Utc>>,
    text: String,
}

impl Row {
    fn told(name: String) -> Self {
        Self { lead: String::new(), mark: Mark::Plain, name, since: None, text: String::new() }
    }

    fn drawn(&self, now: DateTime<Utc>, names: usize, width: Option<usize>, look: Look) -> String {
        let since = self.since.map(|since| age((now - since).num_seconds())).unwrap_or_default();
        if since.is_empty() && self.text.is_empty() {
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

/// As much of the text as has room in so many columns; what is cut ends with `~`.
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

fn rows(tree: &Tree, most: usize, look: Look) -> Vec<Row> {
    let mut rows = Vec::new();
    for item in &tree.items {
        push(&mut rows, item, &Lead { here: String::new(), below: String::new() }, most, look);
    }
    for why in &tree.unread {
        let name = format!("{} {why}", sign(Mark::NotReady, look.ascii));
        rows.push(Row { mark: Mark::NotReady, ..Row::told(name) });
    }
    rows
}

/// What stands before an item, and before what is below it.
struct Lead {
    here: String,
    below: String,
}

fn push(rows: &mut Vec<Row>, item: &Item, lead: &Lead, most: usize, look: Look) {
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
    let items = folded(&item.items, most);
    let last = items.len().saturating_sub(1);
    for (number, item) in items.iter().enumerate() {
        let (here, below) = match (number == last, look.ascii) {
            (true, false) => ("└─ ", "   "),
            (true, true) => ("`- ", "   "),
            (false, false) => ("├─ ", "│  "),
            (false, true) => ("|- ", "|  "),
        };
        let lead = Lead { here: format!("{}{here}", lead.below), below: format!("{}{below}", lead.below) };
        push(rows, item, &lead, most, look);
    }
}

/// The items; of those that may be counted, all in one where they are more than `most`.
fn folded(items: &[Item], most: usize) -> Vec<Item> {
    let folds = items.iter().filter(|item| item.folds).count();
    if folds <= most {
        return items.to_vec();
    }
    let mut shown: Vec<Item> = items.iter().filter(|item| !item.folds).cloned().collect();
    let of = |mark: Mark| items.iter().filter(|item| item.folds && item.mark == mark).count();
    let counts = [(Mark::Done, "done"), (Mark::Waiting, "waiting"), (Mark::Plain, "ready")];
    let counts = counts.into_iter().map(|(mark, name)| (of(mark), name)).filter(|(count, _)| *count > 0);
    let text: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
    let others = if shown.is_empty() { "" } else { "other " };
    let pods = if folds == 1 { "Pod" } else { "Pods" };
    let mark = if of(Mark::Done) == folds { Mark::Done } else { Mark::Plain };
    let name = format!("{folds} {others}{pods}");
    shown.push(Item { mark, name, text: text.join(", "), ..Item::default() });
    shown
}

/// What stands before a name.
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
