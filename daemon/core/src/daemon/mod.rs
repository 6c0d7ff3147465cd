//! The node's order book, and the actions that follow from it.
//!
//! The daemon carries out an order in steps: ask the runtime, acknowledge with a conditional write, run the container's
//! preStop hook, stop, ask again. An acknowledgement counts only if the stored book names this process. A restarted
//! daemon acknowledges again, so no stop ever rests on a stale view. Orders of one Pod run one after another.
//!
//! An order to read cgroups changes nothing, so it is answered without an acknowledgement. For orders to resize, see
//! [`resize`](crate::resize).
//!
//! The hook is part of the stop, as with the kubelet. Its time counts against the grace period, and its failure does
//! not prevent the stop. If an order is withdrawn while its hook runs, the daemon completes the stop.

mod answers;
mod book;
mod outcomes;
mod turns;

use std::collections::BTreeMap;
use std::time::Duration;

use pitstop_api::logic::backoff::Backoff;
use pitstop_api::logic::machine::{Machine, Now};
use pitstop_api::logic::time::{Mono, earliest};
use pitstop_api::logic::tracked::Tracked;
use pitstop_api::nodework::{Answer, AnswerState, NodeWorkStatus, Order, RuntimeInfo};

use crate::action::{Action, Book, Event};
use crate::image::Images;
use crate::order::{Progress, SentStops};
use book::Restore;

/// When a hook or stop begins, a successful status write must have begun less than this time ago. Longer than a write
/// may take (30 s, `kit/src/client.rs`), so that a slow API server does not block every stop.
const FRESH: Duration = Duration::from_secs(40);

/// Ended hooks: order ID and failure, `None` for success. At most [`MAX_ENDED_HOOKS`] are kept.
pub type EndedHooks = BTreeMap<String, Option<String>>;

/// How many ended hooks are remembered: four times the orders of a full book.
pub const MAX_ENDED_HOOKS: usize = 256;

/// Identity of this daemon.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Unique to this process.
    pub instance: String,
    /// The node's boot, `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// State of the core. Times are milliseconds since the node's boot.
#[derive(Clone, Debug)]
pub struct Daemon {
    identity: Identity,
    /// Whether orders to resize are allowed.
    resizes: bool,
    runtime: Option<RuntimeInfo>,
    book: Option<Tracked<Book>>,
    orders: BTreeMap<String, Progress>,
    images: Images,
    ended_hooks: EndedHooks,
    /// Stops that this process sent. If such an order is withdrawn and placed again, its container has the signal
    /// already, so its grace period continues.
    sent: SentStops,
    /// Pods to restore, by UID.
    restores: BTreeMap<String, Restore>,
    /// Time of the last event.
    stepped_at: Mono,
    backoff: Backoff,
    /// When to try a write again: after the back-off, or when the watch has had time to explain a conflict.
    write_at: Option<Mono>,
    /// When the write under way began.
    write_began: Option<Mono>,
    /// Start of the last successful write, which proves the known book. The watch shows any later change.
    proved_at: Option<Mono>,
}

impl Daemon {
    /// An empty state.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            resizes: false,
            runtime: None,
            book: None,
            orders: BTreeMap::new(),
            images: Images::default(),
            ended_hooks: EndedHooks::new(),
            sent: SentStops::default(),
            restores: BTreeMap::new(),
            stepped_at: Mono(0),
            backoff: Backoff::default(),
            write_at: None,
            write_began: None,
            proved_at: None,
        }
    }

    /// Sets the hooks that ended in earlier processes; they do not run again.
    #[must_use]
    pub fn with_ended_hooks(mut self, ended: EndedHooks) -> Self {
        self.ended_hooks = ended;
        self
    }

    /// Sets how many bytes must be free in the image store before a pull. Default 0: no check.
    #[must_use]
    pub fn with_image_room(mut self, bytes: u64) -> Self {
        self.images.require_room(bytes);
        self
    }

    /// Sets whether the daemon may change resources of containers and Pods. Default: no.
    #[must_use]
    pub fn with_resizes(mut self, allowed: bool) -> Self {
        self.resizes = allowed;
        self
    }

    /// Takes one event and returns what to do. `now` counts from the node's boot.
    pub fn step(&mut self, now: Mono, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        match event {
            Event::Book(watch) => self.book_changed(watch),
            Event::Runtime(runtime) => self.runtime_is_back(runtime),
            Event::Inspected(id, result) => self.inspected(now, &id, result),
            Event::HookDone(id, result) => actions.extend(self.hook_done(now, &id, result)),
            Event::Stopped(id, result) => self.stopped(now, &id, result),
            Event::CgroupsRead(id, result) => self.cgroups_read(now, &id, result),
            Event::ResourcesRead(id, result) => self.resources_read(now, &id, result),
            Event::Resized(id, result) => self.resized(now, &id, result),
            Event::ImageSeen(id, result) => self.images.seen(now, &id, result),
            Event::Pulled(image, result) => self.images.pulled(now, &image, &result),
            Event::WrittenBack(uid, result) => self.written_back(now, &uid, &result),
            Event::StatusWritten(outcome) => self.written(now, outcome),
            Event::Tick => {}
        }
        if self.write_at.take_if(|at| *at <= now).is_some()
            && let Some(book) = &mut self.book
        {
            book.retry();
        }
        actions.extend(self.next_steps(now));
        actions.extend(self.images.next_steps(now, self.book.as_ref().map(Tracked::get)));
        self.stepped_at = now;
        actions.extend(self.give_back(now));
        actions.extend(self.write(now));
        actions
    }

    /// When to call [`Daemon::step`] with a tick if no event comes before.
    pub fn wake_at(&self) -> Option<Mono> {
        // Work that was due but did not start waits for something else, such as its turn.
        let later = |at: &Mono| *at > self.stepped_at;
        let asks = self.orders.values().filter_map(|p| p.ask_at).filter(later).min();
        let retries = self.restores.values().filter(|r| !r.under_way).filter_map(|r| r.retry_at);
        let retries = retries.filter(later).min();
        let images = self.images.wake_at(self.stepped_at);
        earliest(earliest(earliest(asks, retries), self.write_at), images)
    }

    /// The orders in the book.
    pub fn open_orders(&self) -> &[Order] {
        self.book.as_ref().map_or(&[], |b| &b.get().orders)
    }

    /// The runtime answers, for the first time or again: the daemon repeats waiting calls at once.
    fn runtime_is_back(&mut self, runtime: RuntimeInfo) {
        self.runtime = Some(runtime);
        for progress in self.orders.values_mut() {
            progress.backoff.succeeded();
            progress.ask_at = None;
        }
        self.images.retry();
        for restore in self.restores.values_mut() {
            restore.retry_at = None;
        }
    }

    /// Whether a recent write of this process has proved the book. A process that was paused, or whose writes fail,
    /// does not know whether the book still has its orders.
    fn proved(&self, now: Mono) -> bool {
        self.proved_at.is_some_and(|at| now < at.after(FRESH))
    }

    /// The order of that ID in the book.
    fn order(&self, id: &str) -> Option<&Order> {
        self.open_orders().iter().find(|order| order.id == id)
    }

    /// Whether the book closes the order.
    fn closed(&self, order_id: &str) -> bool {
        self.book.as_ref().is_some_and(|book| book.get().closed.iter().any(|id| id == order_id))
    }

    fn stored(&self, order_id: &str) -> Option<&Answer> {
        self.book.as_ref()?.get().answer(order_id)
    }
}

impl Identity {
    /// Whether the answer is an acknowledgement by this process.
    fn acknowledged(&self, answer: &Answer) -> bool {
        answer.state == AnswerState::Acknowledged && answer.acknowledged_by == self.instance
    }

    /// Whether uptimes in the status count from the current boot.
    fn same_boot(&self, status: &NodeWorkStatus) -> bool {
        status.boot.as_ref().is_some_and(|boot| boot.id == self.boot_id)
    }
}

impl Machine for Daemon {
    type Event = Event;
    type Action = Action;

    fn tick() -> Event {
        Event::Tick
    }

    fn handle(&mut self, now: Now, event: Event) -> Vec<Action> {
        self.step(now.mono, event)
    }

    fn next_wake(&self, _: Mono) -> Option<Mono> {
        self.wake_at()
    }
}
