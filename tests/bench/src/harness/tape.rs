//! A watch that keeps changes with their times of arrival.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt, pin_mut};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::say;

/// One change.
#[derive(Clone, Debug)]
pub(crate) struct Seen<K> {
    /// Time of arrival.
    pub(crate) time: Instant,
    /// The object after the change.
    pub(crate) object: K,
}

/// Changes of one kind in one namespace since the start of the tape.
pub(crate) struct Tape<K> {
    changes: mpsc::UnboundedReceiver<Result<Seen<K>>>,
    seen: Vec<Seen<K>>,
    task: JoinHandle<()>,
}

impl<K> Tape<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    /// Starts to watch; returns after the first list.
    pub(crate) async fn start(api: Api<K>) -> Result<Self> {
        let (sender, mut changes) = mpsc::unbounded_channel();
        let (first_list, listed) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(record(api, sender, first_list));
        if listed.await.is_err() {
            while let Some(change) = changes.recv().await {
                change.context("cannot watch")?;
            }
            bail!("the watch did not start");
        }
        Ok(Self { changes, seen: Vec::new(), task })
    }

    /// Waits for the first change after `since` for which `wanted` returns a value.
    pub(crate) async fn find<T>(
        &mut self,
        since: Instant,
        patience: Duration,
        what: &str,
        mut wanted: impl FnMut(&K) -> Option<T>,
    ) -> Result<(Instant, T)> {
        let mut next = self.seen.partition_point(|seen| seen.time < since);
        let until = tokio::time::Instant::now() + patience;
        loop {
            while let Some(seen) = self.seen.get(next) {
                if let Some(found) = wanted(&seen.object) {
                    return Ok((seen.time, found));
                }
                next += 1;
            }
            match tokio::time::timeout_at(until, self.changes.recv()).await {
                Ok(Some(change)) => self.seen.push(change?),
                Ok(None) => bail!("the watch ended while waiting for: {what}"),
                Err(_) => bail!("waited {} s in vain for: {what}", patience.as_secs()),
            }
        }
    }
}

impl<K> Tape<K> {
    /// All changes up to now.
    pub(crate) fn seen(&mut self) -> Result<&[Seen<K>]> {
        while let Ok(change) = self.changes.try_recv() {
            self.seen.push(change?);
        }
        Ok(&self.seen)
    }
}

impl<K> Drop for Tape<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn record<K>(
    api: Api<K>,
    sender: mpsc::UnboundedSender<Result<Seen<K>>>,
    first_list: tokio::sync::oneshot::Sender<()>,
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut first_list = Some(first_list);
    let changes = watcher(api, Config::default()).default_backoff();
    pin_mut!(changes);
    while let Some(change) = changes.next().await {
        let time = Instant::now();
        let sent = match change {
            Ok(Event::Apply(object) | Event::InitApply(object)) => sender.send(Ok(Seen { time, object })),
            Ok(Event::InitDone) => {
                // Only the first list has a waiter.
                first_list.take().map(|waiter| waiter.send(()));
                Ok(())
            }
            Ok(Event::Delete(_) | Event::Init) => Ok(()),
            // An established watch resumes: the API server ends watches of a kind whose definition changed.
            Err(error) if first_list.is_none() => {
                say(format!(
                    "a watch begins again; what came meanwhile counts as later than it was: {error}"
                ));
                Ok(())
            }
            Err(error) => {
                // The receiver is gone only when the benchmark ends.
                let _ = sender.send(Err(error.into()));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}
