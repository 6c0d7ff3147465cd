//! Sizes of scenarios.

use std::fmt;

/// Scenario and sizes of a run.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The scenario.
    #[arg(value_enum)]
    pub(crate) scenario: Scenario,
    /// Factor for every size that is not given.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Nodes.
    #[arg(long)]
    nodes: Option<usize>,
    /// Running Pods.
    #[arg(long)]
    pods: Option<usize>,
    /// Requests that ended before the measurement.
    #[arg(long)]
    finished: Option<usize>,
    /// Requests to create.
    #[arg(long)]
    requests: Option<usize>,
    /// Deployments that no rollout names.
    #[arg(long)]
    workloads: Option<usize>,
    /// Rollouts that are not armed.
    #[arg(long)]
    rollouts: Option<usize>,
}

/// A scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Scenario {
    /// A large cluster: memory, the cost of Pod changes, and the time until a new leader knows the cluster.
    Cluster,
    /// Many requests for one Pod.
    Queue,
    /// Requests for Pods in the whole cluster.
    Spread,
    /// A namespace with as many requests as possible.
    Hostile,
    /// A rollout of a Deployment with many Pods: a restart, and a new image.
    Roll,
    /// Deployments that no rollout names, and rollouts that are not armed.
    Unrolled,
}

impl Scenario {
    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::Queue => "queue",
            Self::Spread => "spread",
            Self::Hostile => "hostile",
            Self::Roll => "roll",
            Self::Unrolled => "unrolled",
        }
    }

    /// Components installed in addition to `deploy/default`.
    pub(crate) fn components(self) -> &'static [&'static str] {
        match self {
            Self::Roll => &["image-update", "in-place"],
            Self::Unrolled => &["image-update", "in-place", "park"],
            Self::Cluster | Self::Queue | Self::Spread | Self::Hostile => &[],
        }
    }

    /// Default sizes in the order of the fields of [`Sizes`].
    fn sizes(self) -> [usize; 6] {
        match self {
            Self::Cluster => [5_000, 100_000, 50_000, 0, 0, 0],
            Self::Queue => [1, 1, 0, 3_000, 0, 0],
            Self::Spread => [1_000, 10_000, 0, 10_000, 0, 0],
            Self::Hostile => [10, 100, 0, 10_000, 0, 0],
            Self::Roll => [100, 1_000, 0, 0, 0, 0],
            Self::Unrolled => [10, 1_000, 0, 0, 10_000, 10_000],
        }
    }
}

/// The sizes of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    pub(crate) finished: usize,
    pub(crate) requests: usize,
    pub(crate) workloads: usize,
    pub(crate) rollouts: usize,
}

impl Args {
    /// The given sizes; the others are scaled defaults.
    pub(crate) fn sizes(&self) -> Sizes {
        let sizes = self.scenario.sizes().map(|size| scaled(size, self.scale));
        let [nodes, pods, finished, requests, workloads, rollouts] = sizes;
        Sizes {
            nodes: self.nodes.unwrap_or(nodes),
            pods: self.pods.unwrap_or(pods),
            finished: self.finished.unwrap_or(finished),
            requests: self.requests.unwrap_or(requests),
            workloads: self.workloads.unwrap_or(workloads),
            rollouts: self.rollouts.unwrap_or(rollouts),
        }
    }
}

/// Scales a size; at least 1 unless the size is 0.
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

/// KiB as MiB.
#[allow(clippy::cast_precision_loss, reason = "memory of a process")]
pub(crate) fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodes, pods, finished, requests, workloads, rollouts } = self;
        write!(f, "{nodes} nodes, {pods} Pods, {finished} finished and {requests} open requests")?;
        match workloads + rollouts {
            0 => Ok(()),
            _ => write!(
                f,
                ", {workloads} Deployments that no rollout names, {rollouts} rollouts that are not armed"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(scenario: Scenario, scale: f64, nodes: Option<usize>) -> Args {
        let (pods, finished, requests, workloads, rollouts) = (None, None, None, None, None);
        Args { scenario, scale, nodes, pods, finished, requests, workloads, rollouts }
    }

    #[test]
    fn what_is_given_is_not_scaled() {
        let sizes = args(Scenario::Cluster, 0.1, Some(7)).sizes();
        assert_eq!(sizes, Sizes { nodes: 7, pods: 10_000, finished: 5_000, ..Sizes::default() });
    }

    #[test]
    fn a_small_scale_leaves_one() {
        let sizes = args(Scenario::Queue, 0.001, None).sizes();
        assert_eq!(sizes, Sizes { nodes: 1, pods: 1, requests: 3, ..Sizes::default() });
        assert!((mib(131_072) - 128.0).abs() < 1e-9);
    }
}
