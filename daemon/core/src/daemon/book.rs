//! Changes of the book. If the book is deleted, the daemon restores the original resources of held Pods.

use std::collections::BTreeSet;
use std::time::Duration;

use pitstop_api::logic::time::Mono;
use pitstop_api::logic::tracked::Tracked;
use pitstop_api::nodework::Held;

use super::Daemon;
use crate::action::{Action, Book, CallFailure, Watch};
use crate::order::Membership;

/// Most tries per Pod.
const TRIES: u32 = 6;
/// The wait after the first failure; doubled after each.
const FIRST: Duration = Duration::from_secs(1);

/// A Pod whose original resources the daemon must restore.
#[derive(Clone, Debug)]
pub(super) struct Restore {
    /// The original resources.
    pub(super) held: Held,
    /// UID of the book that is gone.
    pub(super) book_uid: String,
    /// When to try again; `None`: at once.
    pub(super) retry_at: Option<Mono>,
    /// Whether a write is under way.
    pub(super) under_way: bool,
    failures: u32,
}

impl Restore {
    pub(super) fn new(held: Held, book_uid: String) -> Self {
        Self { held, book_uid, retry_at: None, under_way: false, failures: 0 }
    }

    /// Notes the end of a try; returns whether to try again. A final failure may come from a container that ended just
    /// then. The next try omits it: nothing else would restore the others.
    pub(super) fn ended(&mut self, now: Mono, result: &Result<(), CallFailure>) -> bool {
        self.under_way = false;
        if result.is_ok() {
            return false;
        }
        self.retry_at = Some(now.after(FIRST.saturating_mul(1 << self.failures.min(TRIES))));
        self.failures = self.failures.saturating_add(1);
        self.failures < TRIES
    }
}

impl Daemon {
    /// The watch selects the node's own book by name, so a list holds at most that one.
    pub(super) fn book_changed(&mut self, watch: Watch<Book>) {
        let (shown, listed) = match watch {
            Watch::Upsert(book) => (Some(book), false),
            Watch::Gone(last) => {
                let known = self.book.take().map(|book| book.get().clone());
                self.orphan_orders();
                // The event has the newest state of the book; a list without the book has none.
                return self
                    .add_restores(known.filter(|book| book.uid != last.uid).into_iter().chain([last]));
            }
            Watch::Listed(list) => (list.objects.into_iter().next(), true),
        };
        let replaced = self.book.as_ref().map(Tracked::get);
        let replaced = replaced.filter(|known| shown.as_ref().is_none_or(|book| book.uid != known.uid));
        let replaced = replaced.cloned();
        if replaced.is_some() {
            self.orphan_orders();
        }
        self.add_restores(replaced.into_iter());
        if let Some(book) = &shown {
            self.drop_restores(book);
        }
        match (shown, &mut self.book) {
            (Some(book), Some(known)) if listed => known.listed(book),
            (Some(book), Some(known)) => known.observed(book),
            (book, _) => self.book = book.map(Tracked::new),
        }
    }

    /// The orders of the old book count as withdrawn; the next book numbers its orders anew.
    fn orphan_orders(&mut self) {
        self.orders.retain(|_, progress| !progress.idle());
        for progress in self.orders.values_mut() {
            progress.membership = Membership::Orphaned;
        }
    }

    /// Books are gone: their held Pods must be restored.
    fn add_restores(&mut self, books: impl Iterator<Item = Book>) {
        for book in books.filter(|_| self.resizes) {
            for held in book.status.held {
                let restore = Restore::new(held, book.uid.clone());
                self.restores.insert(restore.held.pod.uid.clone(), restore);
            }
        }
    }

    /// Drops restores that a book makes unnecessary: of Pods on its record, and of its own Pods if it only seemed gone.
    fn drop_restores(&mut self, book: &Book) {
        self.restores.retain(|uid, restore| {
            let recorded = book.status.held.iter().any(|held| held.pod.uid == *uid);
            restore.book_uid != book.uid && !recorded
        });
    }

    /// Whether Pods are held or must still be restored. If the book is deleted while this process ends, they would stay
    /// so.
    pub fn holds(&self) -> bool {
        let recorded = self.book.as_ref().is_some_and(|book| !book.get().status.held.is_empty());
        !self.restores.is_empty() || (self.resizes && recorded)
    }

    /// Restores Pods for which nothing else is under way.
    pub(super) fn give_back(&mut self, now: Mono) -> Vec<Action> {
        let busy: BTreeSet<&str> =
            self.orders.values().filter(|p| !p.idle()).map(|p| p.pod.uid.as_str()).collect();
        let mut actions = Vec::new();
        for (uid, restore) in &mut self.restores {
            if restore.under_way || restore.retry_at.is_some_and(|at| at > now) {
                continue;
            }
            restore.retry_at = None;
            if !busy.contains(uid.as_str()) {
                restore.under_way = true;
                actions.push(Action::WriteBack { held: Box::new(restore.held.clone()) });
            }
        }
        actions
    }

    pub(super) fn written_back(&mut self, now: Mono, pod_uid: &str, result: &Result<(), CallFailure>) {
        let restore = self.restores.get_mut(pod_uid).filter(|restore| restore.under_way);
        if restore.is_some_and(|restore| !restore.ended(now, result)) {
            self.restores.remove(pod_uid);
        }
    }
}
