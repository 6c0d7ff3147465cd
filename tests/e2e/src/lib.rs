//! What the tests on a real cluster share.
//!
//! `cargo xtask test` starts a cluster of one node, hands in its `KUBECONFIG` and runs the tests: on a
//! cluster without the resize API those of the module `cri`, on another one all others.
//! [`on_cluster`] deploys pitstop once, as a user would, gives every test a namespace of its own, and on a failure shows
//! what there is to see and repairs what the test may have left broken. Such a test has the cluster for itself; those of
//! [`on_shared_cluster`] run beside each other.

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
