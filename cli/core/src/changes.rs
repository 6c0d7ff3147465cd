//! The changes between two trees as lines, for `status --watch` into a pipe.

use std::collections::BTreeMap;

use crate::tree::{Item, Tree};

/// The lines of the last tree, by path.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    told: BTreeMap<String, String>,
}

impl Changes {
    /// A line for each item that is new, changed or gone.
    pub fn since(&mut self, tree: &Tree) -> Vec<String> {
        let mut now = BTreeMap::new();
        for item in &tree.items {
            note(&mut now, "", item);
        }
        // Keep only the kind, the first word: the rest has an age, which always changes.
        let unread = tree.unread.iter().map(|why| why.split_once(' ').unwrap_or((why, "")));
        now.extend(unread.map(|(kind, _)| (kind.to_owned(), "cannot be read now".to_owned())));
        let new = now.iter().filter(|(path, says)| self.told.get(*path) != Some(*says));
        let mut lines: Vec<String> =
            new.map(|(path, says)| format!("{path} {says}").trim_end().to_owned()).collect();
        lines.extend(
            self.told.keys().filter(|path| !now.contains_key(*path)).map(|path| format!("{path} gone")),
        );
        self.told = now;
        lines
    }
}

fn note(into: &mut BTreeMap<String, String>, above: &str, item: &Item) {
    let path = if above.is_empty() { item.name.clone() } else { format!("{above} {}", item.name) };
    let says = match (item.reason.as_str(), item.text.as_str()) {
        ("", text) => text.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, text) => format!("{reason}: {text}"),
    };
    for below in &item.items {
        note(into, &path, below);
    }
    if !says.is_empty() || item.items.is_empty() {
        into.insert(path, says);
    }
}
