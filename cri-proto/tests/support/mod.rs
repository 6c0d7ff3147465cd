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
pub(crate) use images::{APP_IMAGE, PAUSE_IMAGE};
pub(crate) use pods::{NewContainer, Pod};
pub(crate) use registry::Registry;

use std::{future::Future, time::Duration};

/// Asks again every 50 ms until the answer is something, for at most ten seconds.
pub(crate) async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    for _ in 0..200 {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("waited ten seconds for this: {what}");
}
