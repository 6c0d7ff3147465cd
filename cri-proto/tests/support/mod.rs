//! A private containerd for tests.
//!
//! - `containerd`: starts one in a box of its own, restarts and kills it, and removes all traces.
//! - `images`: makes the images that it needs from the machine's busybox.
//! - `registry`: serves one of them for pulls.
//! - `pods`: makes Pods and containers, with the CRI calls that pitstop itself must not have.

mod containerd;
mod images;
pub(crate) mod pods;
mod registry;

pub(crate) use containerd::Containerd;
#[allow(unused_imports, reason = "only the tests of resizes ask")]
pub(crate) use containerd::through_systemd;
pub(crate) use images::{APP_IMAGE, PAUSE_IMAGE};
pub(crate) use pods::{NewContainer, Pod};
pub(crate) use registry::Registry;

use std::{future::Future, time::Duration};

/// Asks every 50 ms until the answer is not `None`, for at most ten seconds.
pub(crate) async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    // As in the cluster tests: an emulated machine takes longer.
    let patience = std::env::var("PITSTOP_CLUSTER_PATIENCE").map_or(1, |factor| factor.parse().unwrap());
    for _ in 0..200 * patience {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("waited {} seconds for this: {what}", 10 * patience);
}
