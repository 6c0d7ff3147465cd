//! A process of the controller: its index, its watches and its writes under way.

use chrono::DateTime;
use pitstop_controller_core::{Action, Config, Event, Index, Mono, Watch};

use crate::store::Store;

/// A process of the controller.
pub struct Controller {
    pub index: Index,
    pub leading: bool,
    pub cursors: [Option<usize>; 3],
    pub writes: Vec<Action>,
    pub answers: Vec<Event>,
}

impl Controller {
    pub fn new(leading: bool) -> Self {
        let index = Index::new(Config::default());
        let mut new =
            Self { index, leading: false, cursors: [None; 3], writes: Vec::new(), answers: Vec::new() };
        if leading {
            new.leading = true;
            assert!(new.index.step(Mono(0), DateTime::UNIX_EPOCH, Event::Leader(true)).is_empty());
        }
        new
    }

    /// The next event of one kind's watch.
    pub fn next(&mut self, kind: usize, store: &Store) -> Event {
        fn read<T: Clone>(cursor: &mut Option<usize>, log: &[Watch<T>], all: Vec<T>) -> Watch<T> {
            match cursor {
                None => {
                    *cursor = Some(log.len());
                    Watch::Restart(all)
                }
                Some(at) => {
                    *at += 1;
                    log[*at - 1].clone()
                }
            }
        }
        let cursor = &mut self.cursors[kind];
        match kind {
            0 => Event::Pods(read(cursor, &store.pod_log, store.pods.values().cloned().collect())),
            1 => {
                Event::Requests(read(cursor, &store.request_log, store.requests.values().cloned().collect()))
            }
            _ => Event::NodeWorks(read(cursor, &store.book_log, store.books.values().cloned().collect())),
        }
    }

    pub fn behind(&self, store: &Store) -> Vec<usize> {
        let ends = [store.pod_log.len(), store.request_log.len(), store.book_log.len()];
        (0..3).filter(|k| self.cursors[*k].is_none_or(|at| at < ends[*k])).collect()
    }
}

/// The object that an action writes.
pub fn target_of(action: &Action) -> String {
    match action {
        Action::WriteStatus { uid, .. }
        | Action::PatchMetadata { uid, .. }
        | Action::DeleteRequest { uid, .. }
        | Action::PatchPod { uid, .. } => uid.clone(),
        Action::WriteOrders { node, .. } => node.clone(),
        Action::Emit(_) | Action::Count(_) => String::new(),
    }
}
