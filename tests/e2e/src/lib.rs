//! Shared code of the tests on a real cluster.
//!
//! `cargo xtask test` starts a cluster of one node, sets `KUBECONFIG` and runs the tests. Tests of the module `cri` run
//! on a cluster without the resize API, all others on a cluster with it. [`on_cluster`] deploys pitstop once, as a user
//! would, and gives every test its own namespace. If a test fails, it prints objects and logs, and repairs what the
//! test may have broken. Such a test has the cluster for itself; those of [`on_shared_cluster`] run beside each other.

pub mod audit;
pub mod cluster;
pub mod discovery;
mod harness;
pub mod images;
pub mod kruise;
pub mod ns;
pub mod pods;
pub mod process;
pub mod registry;
pub mod requests;
pub mod resizes;
pub mod stories;
pub mod system;
pub mod terminal;
pub mod users;
pub mod wait;
pub mod workloads;

pub use anyhow::{Context, Result, bail, ensure};
pub use cluster::Cluster;
pub use harness::{on_bare_cluster, on_cluster, on_shared_cluster, runtime};
pub use ns::Ns;
pub use wait::{LONG, SHORT, until};
