//! Measures whether the leader renews its lease in time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::coordination::v1::Lease;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use pitstop_controller_core::lease;
use tokio::task::JoinSet;

use crate::harness::programs::NAMESPACE;

const NAME: &str = "pitstop-controller";

/// Renewals of the lease since the start of the watch.
pub(crate) struct Renewals {
    seen: Arc<Mutex<Seen>>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Seen {
    times: Vec<Instant>,
    holders: Vec<String>,
}

impl Renewals {
    /// Starts to watch.
    pub(crate) fn watch(client: &Client) -> Self {
        let api: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
        let seen = Arc::<Mutex<Seen>>::default();
        let noting = Arc::clone(&seen);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let changes = watcher(api, Config::default().fields(&format!("metadata.name={NAME}")));
            pin_mut!(changes);
            while let Some(change) = changes.next().await {
                if let Ok(Event::Apply(lease) | Event::InitApply(lease)) = change {
                    let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
                    let mut seen = noting.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.times.push(Instant::now());
                    if seen.holders.last() != Some(&holder) {
                        seen.holders.push(holder);
                    }
                }
            }
        });
        Self { seen, _tasks: tasks }
    }

    /// The longest time between two renewals, or since the last one, and the number of successive holders.
    pub(crate) fn longest(&self) -> (Duration, usize) {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (longest_gap(&seen.times, Instant::now()), seen.holders.len())
    }
}

/// Gap after which a renewal is late: it is due every `renew_every`, and repeated `retry_after` a failure.
pub(crate) fn late_after() -> Duration {
    let config = lease::Config::default();
    config.renew_every + config.retry_after
}

/// The longest time between two renewals, or from the last one to the end.
fn longest_gap(renewals: &[Instant], end: Instant) -> Duration {
    let next = renewals.iter().skip(1).chain([&end]);
    renewals.iter().zip(next).map(|(one, next)| *next - *one).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_counts_also_at_the_end() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(longest_gap(&[at(0), at(5), at(12)], at(13)), Duration::from_secs(7));
        assert_eq!(longest_gap(&[at(0), at(5)], at(25)), Duration::from_secs(20));
        assert_eq!(longest_gap(&[], at(9)), Duration::ZERO);
        assert_eq!(late_after(), Duration::from_secs(6));
    }
}
