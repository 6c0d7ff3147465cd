//! Progress of requests, from a watch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::runtime::watcher;
use kube::{Api, Client};
use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::labels;
use pitstop_api::recreate::{ContainerRecreateRequest, Phase, conditions};
use pitstop_kit::guard::Guard;
use pitstop_kit::watch::{Source, Watch};
use pitstop_kit::{Readiness, WatchMetrics, watch};
use tokio::sync::{mpsc, watch as signal};
use tokio::task::JoinSet;

use super::player::pod::Pod;

/// Capacity of the queue of changes.
const QUEUE: usize = 1024;

/// The used facts of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    namespace: String,
    name: String,
    accepted: bool,
    /// Whether it ended as complete; `None` until it ends.
    ended: Option<bool>,
    /// Its label `active` is gone.
    tidy: bool,
}

/// Times when a request was first seen in a state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    /// The controller has accepted it.
    pub(crate) accepted: Option<Instant>,
    /// It ended.
    pub(crate) ended: Option<Instant>,
    tidy: bool,
}

/// All observations.
#[derive(Debug, Default)]
struct Notes {
    times: BTreeMap<(String, String), Times>,
    /// Names in the order of their ends.
    order: Vec<String>,
    complete: usize,
    tidy: usize,
}

impl Notes {
    fn note(&mut self, seen: Seen, now: Instant) {
        let times = self.times.entry((seen.namespace, seen.name.clone())).or_default();
        if seen.accepted {
            times.accepted.get_or_insert(now);
        }
        let Some(complete) = seen.ended else { return };
        if times.ended.is_none() {
            times.ended = Some(now);
            self.order.push(seen.name);
            self.complete += usize::from(complete);
        }
        if seen.tidy && !std::mem::replace(&mut times.tidy, true) {
            self.tidy += 1;
        }
    }
}

/// The requests of one namespace or of all.
pub(crate) struct Ends {
    notes: Arc<Mutex<Notes>>,
    changed: signal::Receiver<()>,
    _tasks: JoinSet<()>,
}

impl Ends {
    /// Starts to watch.
    pub(crate) fn watch(client: &Client, namespace: Option<&str>) -> Self {
        let api: Api<Guard<ContainerRecreateRequest>> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let source = Source {
            name: "requests",
            config: watcher::Config::default(),
            synced: Readiness::new().condition("requests synced"),
            metrics: WatchMetrics::default(),
        };
        let (sender, mut inbox) = mpsc::channel(QUEUE);
        let mut tasks = JoinSet::new();
        tasks.spawn(watch::run(api, source, |request| Some(seen(request)), |watch| watch, sender));
        let notes = Arc::<Mutex<Notes>>::default();
        let (change, changed) = signal::channel(());
        let noting = Arc::clone(&notes);
        tasks.spawn(async move {
            while let Some(watch) = inbox.recv().await {
                let now = Instant::now();
                let all = match watch {
                    Watch::Upsert(one) => vec![one],
                    Watch::Listed(list) => list.objects,
                    Watch::Gone(_) => Vec::new(),
                };
                let mut notes = noting.lock().unwrap_or_else(PoisonError::into_inner);
                for seen in all {
                    notes.note(seen, now);
                }
                drop(notes);
                change.send_replace(());
            }
        });
        Self { notes, changed, _tasks: tasks }
    }

    /// Waits until `wanted` returns a value; `None` after `patience`.
    async fn until<T>(&mut self, patience: Duration, wanted: impl Fn(&Notes) -> Option<T>) -> Option<T> {
        let waiting = async {
            loop {
                self.changed.mark_unchanged();
                if let Some(found) = wanted(&self.notes()) {
                    return Some(found);
                }
                self.changed.changed().await.ok()?;
            }
        };
        tokio::time::timeout(patience, waiting).await.ok().flatten()
    }

    /// Time when a request was accepted; `None` after `patience`.
    pub(crate) async fn accepted(&mut self, pod: &Pod, name: &str, patience: Duration) -> Option<Instant> {
        let key = (pod.namespace.clone(), name.to_owned());
        self.until(patience, |notes| notes.times.get(&key)?.accepted).await
    }

    /// Time when a request ended; `None` after `patience`.
    pub(crate) async fn ended(&mut self, pod: &Pod, name: &str, patience: Duration) -> Option<Instant> {
        let key = (pod.namespace.clone(), name.to_owned());
        self.until(patience, |notes| notes.times.get(&key)?.ended).await
    }

    /// Waits until `count` requests have ended and lost their label `active`. Gives up without progress for `patience`.
    pub(crate) async fn all_tidy(&mut self, count: usize, patience: Duration) {
        let mut before = 0;
        loop {
            let done = self.until(patience, |notes| {
                (notes.tidy >= count || notes.order.len() + notes.tidy > before + 100)
                    .then_some((notes.tidy, notes.order.len()))
            });
            match done.await {
                Some((tidy, ended)) if tidy < count => before = tidy + ended,
                _ => return,
            }
        }
    }

    /// Numbers of ended and of complete requests.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let notes = self.notes();
        (notes.order.len(), notes.complete)
    }

    /// Names of the requests in the order of their ends.
    pub(crate) fn order(&self) -> Vec<String> {
        self.notes().order.clone()
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn seen(request: ContainerRecreateRequest) -> Seen {
    let labels = request.metadata.labels.unwrap_or_default();
    let status = request.status.unwrap_or_default();
    let complete = condition::find(&status.conditions, conditions::COMPLETE)
        .is_some_and(|condition| condition.status == ConditionStatus::True);
    Seen {
        namespace: request.metadata.namespace.unwrap_or_default(),
        name: request.metadata.name.unwrap_or_default(),
        accepted: status.target.is_some(),
        ended: (status.phase == Some(Phase::Completed)).then_some(complete),
        tidy: !labels.contains_key(labels::ACTIVE),
    }
}

/// Number of requests that ended after a request with a later name. Requests should end in the order of their names.
pub(crate) fn out_of_order<'a>(names: impl IntoIterator<Item = &'a str>) -> usize {
    let mut latest = "";
    let mut count = 0;
    for name in names {
        if name < latest {
            count += 1;
        } else {
            latest = name;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_overtaken_counts() {
        assert_eq!(out_of_order(["a", "b", "c"]), 0);
        assert_eq!(out_of_order(["b", "a", "c"]), 1);
        assert_eq!(out_of_order(["c", "a", "b"]), 2);
        assert_eq!(out_of_order([]), 0);
    }

    #[test]
    fn the_first_sight_of_an_end_counts() {
        let mut notes = Notes::default();
        let one = Seen { namespace: "n".into(), name: "a".into(), accepted: true, ..Seen::default() };
        let (first, second) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        notes.note(one.clone(), first);
        assert!(notes.order.is_empty());
        let over = Seen { ended: Some(true), ..one };
        notes.note(over.clone(), second);
        notes.note(Seen { tidy: true, ..over }, second + Duration::from_secs(1));
        let times = notes.times[&("n".to_owned(), "a".to_owned())];
        assert_eq!((times.accepted, times.ended), (Some(first), Some(second)));
        assert_eq!((notes.order.len(), notes.complete, notes.tidy), (1, 1, 1));
    }
}
