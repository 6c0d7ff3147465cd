//! The changes between two trees as lines, for `status --watch` into a pipe.

use std::collections::BTreeMap;

use crate::tree::{Item, Tree};

/// The lines of the last tree, by path.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    last: BTreeMap<String, String>,
}

impl Changes {
    /// A line for each item that is new, changed or gone.
    pub fn since(&mut self, tree: &Tree) -> Vec<String> {
        let mut now = BTreeMap::new();
        for item in &tree.items {
            collect(&mut now, "", item);
        }
        // Keep only the kind, the first word: the rest has an age, which always changes.
        let unread = tree.unread.iter().map(|why| why.split_once(' ').unwrap_or((why, "")));
        now.extend(unread.map(|(kind, _)| (kind.to_owned(), "cannot be read now".to_owned())));
        let new = now.iter().filter(|(path, text)| self.last.get(*path) != Some(*text));
        let mut lines: Vec<String> =
            new.map(|(path, text)| format!("{path} {text}").trim_end().to_owned()).collect();
        lines.extend(
            self.last.keys().filter(|path| !now.contains_key(*path)).map(|path| format!("{path} gone")),
        );
        self.last = now;
        lines
    }
}

fn collect(into: &mut BTreeMap<String, String>, above: &str, item: &Item) {
    let path = if above.is_empty() { item.name.clone() } else { format!("{above} {}", item.name) };
    let text = match (item.reason.as_str(), item.text.as_str()) {
        ("", text) => text.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, text) => format!("{reason}: {text}"),
    };
    for below in &item.items {
        collect(into, &path, below);
    }
    if !text.is_empty() || item.items.is_empty() {
        into.insert(path, text);
    }
}
