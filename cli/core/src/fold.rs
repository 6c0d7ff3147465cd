//! Shortens a tree that does not fit. Failed items and items at work come first.

use crate::tree::{Item, Mark, Part};

/// Most quiet Pods of a node that are shown one by one, if they fit.
const SHOWN: usize = 5;
/// Most quiet Pods in all for that.
const FEW: usize = 40;

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Detail {
    /// Most quiet Pods of a node; more are counted.
    pods: usize,
    /// Most quiet nodes; more are counted, and their Pods with them.
    nodes: usize,
    /// Details of items are shown, and nodes are sorted by name. Otherwise nodes with failed Pods come first.
    whole: bool,
}

impl Detail {
    /// Each Pod in a line of its own.
    pub(crate) const ALL: Self = Self { pods: usize::MAX, nodes: usize::MAX, whole: true };
    /// From most to least.
    const STEPS: [Self; 4] = [
        Self { pods: SHOWN, ..Self::ALL },
        Self { pods: 0, ..Self::ALL },
        Self { pods: 0, nodes: 0, whole: true },
        Self { pods: 0, nodes: 0, whole: false },
    ];

    /// The steps for these items, from most to least.
    pub(crate) fn steps(items: &[Item]) -> &'static [Self] {
        let from = usize::from(items.iter().map(quiet_pods).sum::<usize>() > FEW);
        Self::STEPS.get(from..).unwrap_or_default()
    }

    /// The items to show; others are counted.
    pub(crate) fn of(self, items: &[Item]) -> Vec<Item> {
        let mut shown: Vec<Item> =
            items.iter().filter(|item| self.whole || item.part != Part::Detail).cloned().collect();
        if !self.whole {
            shown.sort_by_key(|item| (item.part == Part::Node).then(|| urgency(item)));
        }
        let shown = counted(shown, Part::Pod, self.pods);
        let shown = counted(shown, Part::Node, self.nodes);
        let sums = |item: &Item| item.part == Part::Node && item.quiet && item.items.len() > self.pods.max(1);
        shown.into_iter().map(|item| if sums(&item) { summed(&item) } else { item }).collect()
    }
}

/// Counts the quiet items of that part in one line, if they are more than `most`.
fn counted(items: Vec<Item>, part: Part, most: usize) -> Vec<Item> {
    let (quiet, mut shown): (Vec<Item>, Vec<Item>) =
        items.iter().cloned().partition(|item| item.part == part && item.quiet);
    // A single item takes one line either way.
    if quiet.len() <= most.max(1) {
        return items;
    }
    let others = if shown.iter().any(|item| item.part == part) { "other " } else { "" };
    let nodes = part == Part::Node;
    let pods: Vec<&Item> =
        if nodes { quiet.iter().flat_map(|node| &node.items).collect() } else { quiet.iter().collect() };
    let text = if nodes { format!("{} Pods: {}", pods.len(), sum(&pods)) } else { sum(&pods) };
    let name = format!("{} {others}{}", quiet.len(), if nodes { "nodes" } else { "Pods" });
    shown.push(Item { mark: mark(&pods), name, text, ..Item::default() });
    shown
}

/// A quiet node in one line.
fn summed(node: &Item) -> Item {
    let pods: Vec<&Item> = node.items.iter().collect();
    let text = format!("{} Pods: {}", pods.len(), sum(&pods));
    Item { mark: mark(&pods), text, items: Vec::new(), ..node.clone() }
}

/// The mark of counted Pods.
fn mark(pods: &[&Item]) -> Mark {
    if pods.iter().all(|pod| pod.mark == Mark::Done) { Mark::Done } else { Mark::Plain }
}

fn quiet_pods(item: &Item) -> usize {
    let own = usize::from(item.part == Part::Pod && item.quiet);
    item.items.iter().map(quiet_pods).sum::<usize>().saturating_add(own)
}

/// Counts of quiet Pods by mark.
fn sum(pods: &[&Item]) -> String {
    let counts = [(Mark::Done, "done"), (Mark::Waiting, "waiting"), (Mark::Plain, "ready")];
    let counts = counts.map(|(mark, name)| (pods.iter().filter(|pod| pod.mark == mark).count(), name));
    let texts =
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}"));
    texts.collect::<Vec<_>>().join(", ")
}

/// The most urgent mark of an item and of all below it.
fn urgency(item: &Item) -> Mark {
    item.items.iter().map(urgency).min().map_or(item.mark, |below| below.min(item.mark))
}
