//! What of a tree is shown where there is no room for all of it: what failed and what is at work before all else.

use crate::tree::{Item, Mark, Part};

/// How many Pods of a node are shown one by one that need no attention, as long as there is room.
const SHOWN: usize = 5;
/// How many of them there may be in all for that.
const FEW: usize = 40;

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Detail {
    /// Most Pods of a node that need no attention; more are counted.
    pods: usize,
    /// Most nodes whose Pods need none; more are counted, and their Pods with them.
    nodes: usize,
    /// Details of items are shown, and nodes are in the order of their names. Otherwise nodes with failed Pods come first.
    whole: bool,
}

impl Detail {
    /// Each Pod in a line of its own.
    pub(crate) const ALL: Self = Self { pods: usize::MAX, nodes: usize::MAX, whole: true };
    /// Ever less.
    const STEPS: [Self; 4] = [
        Self { pods: SHOWN, ..Self::ALL },
        Self { pods: 0, ..Self::ALL },
        Self { pods: 0, nodes: 0, whole: true },
        Self { pods: 0, nodes: 0, whole: false },
    ];

    /// Ever less of these items, from what is shown where there is room for all.
    pub(crate) fn steps(items: &[Item]) -> &'static [Self] {
        let from = usize::from(items.iter().map(quiet_pods).sum::<usize>() > FEW);
        Self::STEPS.get(from..).unwrap_or_default()
    }

    /// The items that are shown of these.
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

/// The quiet ones of that part in one line, where they are more than `most`.
fn counted(items: Vec<Item>, part: Part, most: usize) -> Vec<Item> {
    let (quiet, mut shown): (Vec<Item>, Vec<Item>) =
        items.iter().cloned().partition(|item| item.part == part && item.quiet);
    // To show the only one takes no more room than to count it.
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

/// That of Pods which are counted.
fn mark(pods: &[&Item]) -> Mark {
    if pods.iter().all(|pod| pod.mark == Mark::Done) { Mark::Done } else { Mark::Plain }
}

fn quiet_pods(item: &Item) -> usize {
    let own = usize::from(item.part == Part::Pod && item.quiet);
    item.items.iter().map(quiet_pods).sum::<usize>().saturating_add(own)
}

/// How many of quiet Pods are how far.
fn sum(pods: &[&Item]) -> String {
    let counts = [(Mark::Done, "done"), (Mark::Waiting, "waiting"), (Mark::Plain, "ready")];
    let counts = counts.map(|(mark, name)| (pods.iter().filter(|pod| pod.mark == mark).count(), name));
    let told =
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}"));
    told.collect::<Vec<_>>().join(", ")
}

/// The most urgent mark of an item and of all below it.
fn urgency(item: &Item) -> Mark {
    item.items.iter().map(urgency).min().map_or(item.mark, |below| below.min(item.mark))
}
