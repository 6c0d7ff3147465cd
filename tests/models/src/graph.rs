//! The transitions of a model, to show that every path ends.
//!
//! A finite graph without cycles has no infinite path: with any order of events and faults, every path reaches a state
//! without a successor. The model's promises say what holds in these states.

use std::sync::Mutex;

/// Number of shards of the table, so that threads seldom wait for each other.
const SHARES: usize = 64;

/// Transitions between states, which are identified by their keys.
#[derive(Debug)]
pub struct Graph {
    edges: Vec<Mutex<Vec<(u64, u64)>>>,
    begin: Mutex<Vec<u64>>,
}

impl Default for Graph {
    fn default() -> Self {
        let edges = (0..SHARES).map(|_| Mutex::default()).collect();
        Self { edges, begin: Mutex::default() }
    }
}

/// Result of the search for cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// No cycle. The longest path has this many transitions.
    Ends(usize),
    /// Cycles. This many states are on a cycle or reachable from one.
    Cycles(usize),
}

impl Graph {
    /// Adds an initial state.
    pub fn begin(&self, state: u64) {
        self.begin.lock().unwrap().push(state);
    }

    /// Adds a transition.
    pub fn edge(&self, from: u64, to: u64) {
        let share = usize::try_from(from % SHARES as u64).unwrap();
        self.edges[share].lock().unwrap().push((from, to));
    }

    /// Searches for cycles: repeatedly removes states without incoming transitions (Kahn 1962).
    pub fn shape(&self) -> Shape {
        let mut edges: Vec<(u64, u64)> = Vec::new();
        for share in &self.edges {
            edges.append(&mut share.lock().unwrap());
        }
        edges.sort_unstable();
        edges.dedup();
        let mut names: Vec<u64> = edges.iter().flat_map(|(from, to)| [*from, *to]).collect();
        names.extend(self.begin.lock().unwrap().iter());
        names.sort_unstable();
        names.dedup();
        let index = |name: &u64| names.binary_search(name).unwrap();
        let mut into = vec![0_u32; names.len()];
        let edges: Vec<(usize, usize)> = edges.iter().map(|(from, to)| (index(from), index(to))).collect();
        let mut first = vec![0_usize; names.len() + 1];
        for (from, to) in &edges {
            into[*to] += 1;
            first[*from + 1] += 1;
        }
        for at in 0..names.len() {
            first[at + 1] += first[at];
        }
        let mut depth = vec![0_usize; names.len()];
        let mut free: Vec<usize> = (0..names.len()).filter(|at| into[*at] == 0).collect();
        let mut taken = 0;
        while let Some(at) = free.pop() {
            taken += 1;
            for (_, to) in &edges[first[at]..first[at + 1]] {
                depth[*to] = depth[*to].max(depth[at] + 1);
                into[*to] -= 1;
                if into[*to] == 0 {
                    free.push(*to);
                }
            }
        }
        match names.len() - taken {
            0 => Shape::Ends(depth.into_iter().max().unwrap_or_default()),
            left => Shape::Cycles(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(edges: &[(u64, u64)]) -> Shape {
        let graph = Graph::default();
        graph.begin(1);
        for (from, to) in edges {
            graph.edge(*from, *to);
        }
        graph.shape()
    }

    #[test]
    fn cycles_are_found() {
        assert_eq!(shape(&[]), Shape::Ends(0));
        assert_eq!(shape(&[(1, 2), (2, 3), (1, 3), (1, 3)]), Shape::Ends(2));
        assert_eq!(shape(&[(1, 2), (2, 3), (3, 2)]), Shape::Cycles(2));
        assert_eq!(shape(&[(1, 2), (2, 2), (2, 4)]), Shape::Cycles(2));
    }
}
