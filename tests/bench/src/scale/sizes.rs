//! How large a scenario is.

use std::fmt;

/// What is measured, and how large.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// What happens.
    #[arg(value_enum)]
    pub(crate) scenario: Scenario,
    /// Makes every size that is not given smaller or larger.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Nodes.
    #[arg(long)]
    nodes: Option<usize>,
    /// Pods that run on them.
    #[arg(long)]
    pods: Option<usize>,
    /// Requests that ended before.
    #[arg(long)]
    finished: Option<usize>,
    /// Requests that are made.
    #[arg(long)]
    requests: Option<usize>,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// A large cluster: memory, the cost of its Pods' changes, and the time until a new leader knows it.
    Cluster,
    /// Many requests for one Pod.
    Queue,
    /// Requests all over the cluster.
    Spread,
    /// A namespace that asks for as much as it can.
    Hostile,
}

impl Scenario {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Queue => "queue",
            Self::Spread => "spread",
            Self::Hostile => "hostile",
        }
    }

    /// Nodes, Pods, requests that ended and requests that are made.
    fn sizes(self) -> [usize; 4] {
        match self {
            Self::Cluster => [5_000, 100_000, 50_000, 0],
            Self::Queue => [1, 1, 0, 3_000],
            Self::Spread => [1_000, 10_000, 0, 10_000],
            Self::Hostile => [10, 100, 0, 10_000],
        }
    }
}

/// The sizes of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) finished: usize,
    pub(crate) requests: usize,
}

impl Args {
    /// What is given, and the rest to scale.
    pub(crate) fn sizes(&self) -> Sizes {
        let [nodes, pods, finished, requests] = self.scenario.sizes().map(|size| scaled(size, self.scale));
        Sizes {
            nodes: self.nodes.unwrap_or(nodes),
            pods: self.pods.unwrap_or(pods),
            finished: self.finished.unwrap_or(finished),
            requests: self.requests.unwrap_or(requests),
        }
    }
}

/// At least one of what there is at all.
fn scaled(size: usize, scale: f64) -> usize {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes are small, and a negative scale gives none"
    )]
    let scaled = (size as f64 * scale).round() as usize;
    scaled.max(usize::from(size > 0))
}

/// A number of things, for figures.
#[allow(clippy::cast_precision_loss, reason = "they are few")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

/// KiB as MiB.
#[allow(clippy::cast_precision_loss, reason = "memory of a process")]
pub(crate) fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, pods, finished, requests } = self;
        write!(f, "{nodes} nodes, {pods} Pods, {finished} finished and {requests} open requests")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(scenario: Scenario, scale: f64, nodes: Option<usize>) -> Args {
        Args { scenario, scale, nodes, pods: None, finished: None, requests: None }
    }

    #[test]
    fn what_is_given_is_not_scaled() {
        let sizes = args(Scenario::Cluster, 0.1, Some(7)).sizes();
        assert_eq!(sizes, Sizes { nodes: 7, pods: 10_000, finished: 5_000, requests: 0 });
    }

    #[test]
    fn a_small_scale_leaves_one() {
        let sizes = args(Scenario::Queue, 0.001, None).sizes();
        assert_eq!(sizes, Sizes { nodes: 1, pods: 1, finished: 0, requests: 3 });
        assert!((mib(131_072) - 128.0).abs() < 1e-9);
    }
}
