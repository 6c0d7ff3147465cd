//! The order book of the own node, and what follows from it.
//!
//! An order is carried out in steps: ask the runtime, acknowledge with a conditional write, run the container's
//! preStop hook, stop, ask again. The acknowledgement counts only when the book as stored names this very process: a
//! daemon that started anew acknowledges again, so no stop ever rests on a stale view. Orders of one Pod go one after
//! another.
//!
//! An order to read cgroups changes nothing, so it is answered without an acknowledgement. What an order to resize does is
//! in [`resize`](crate::resize).
//!
//! The hook is a part of the stop, as with the kubelet: its time counts against the grace, its failure holds nothing
//! up, and an order that is withdrawn while it runs is carried out to its end.

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
use crate::order::{Progress, Sent};
use book::Owed;

/// How long ago the write may have begun that proves the book when a hook or a stop begins. Longer than such a write may
/// take (30 s, `kit/src/client.rs`), so that a slow API server does not hold up every stop for ever.
const FRESH: Duration = Duration::from_secs(40);

/// Hooks that ended, by their orders' IDs, with what went wrong. More of them than [`MAX_ENDED_HOOKS`] are never kept.
pub type EndedHooks = BTreeMap<String, Option<String>>;

/// How many ended hooks are remembered: four times what a book can hold.
pub const MAX_ENDED_HOOKS: usize = 256;

/// Who this daemon is.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// Unique to this process.
    pub instance: String,
    /// The node's boot, `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// Everything known. Times are milliseconds since the node's boot.
#[derive(Clone, Debug)]
pub struct Daemon {
    identity: Identity,
    /// Orders to resize are carried out.
    resizes: bool,
    runtime: Option<RuntimeInfo>,
    book: Option<Tracked<Book>>,
    orders: BTreeMap<String, Progress>,
    images: Images,
    ended_hooks: EndedHooks,
    /// Stops that this process sent. An order that is withdrawn and placed again names a container that has its signal, so
    /// its grace goes on.
    sent: Sent,
    /// Pods that are to get back what they had, by their UIDs.
    owed: BTreeMap<String, Owed>,
    /// When the last event was taken in.
    stepped: Mono,
    backoff: Backoff,
    /// When to try a write again: the back-off is over, or the watch has had its time to explain a conflict.
    write_at: Option<Mono>,
    /// When the write under way began.
    write_began: Option<Mono>,
    /// When the last write began that was stored: then the book was as it is known, or is shown anew.
    proved_at: Option<Mono>,
}

impl Daemon {
    /// Nothing known yet.
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            resizes: false,
            runtime: None,
            book: None,
            orders: BTreeMap::new(),
            images: Images::default(),
            ended_hooks: EndedHooks::new(),
            sent: Sent::default(),
            owed: BTreeMap::new(),
            stepped: Mono(0),
            backoff: Backoff::default(),
            write_at: None,
            write_began: None,
            proved_at: None,
        }
    }

    /// Hooks that the processes before this one brought to an end; they are not run again.
    #[must_use]
    pub fn with_ended_hooks(mut self, ended: EndedHooks) -> Self {
        self.ended_hooks = ended;
        self
    }

    /// So many bytes must be free where images are kept before one is pulled; without this, or with 0, nobody looks.
    #[must_use]
    pub fn with_image_room(mut self, bytes: u64) -> Self {
        self.images.needs_room(bytes);
        self
    }

    /// Whether it may change the resources of containers and Pods; without this it may not.
    #[must_use]
    pub fn with_resizes(mut self, allowed: bool) -> Self {
        self.resizes = allowed;
        self
    }

    /// Takes in one event and gives back what to do. `now` counts from the node's boot.
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
        self.stepped = now;
        actions.extend(self.give_back(now));
        actions.extend(self.write(now));
        actions
    }

    /// When to call [`Daemon::step`] with a tick though nothing happened.
    pub fn wake_at(&self) -> Option<Mono> {
        // What was due and did not go on then waits for something else, such as its turn.
        let later = |at: &Mono| *at > self.stepped;
        let asks = self.orders.values().filter_map(|p| p.ask_at).filter(later).min();
        let owed = self.owed.values().filter(|owed| !owed.under_way).filter_map(|owed| owed.at);
        let owed = owed.filter(later).min();
        let images = self.images.wake_at(self.stepped);
        earliest(earliest(earliest(asks, owed), self.write_at), images)
    }

    /// The orders in the book.
    pub fn open_orders(&self) -> &[Order] {
        self.book.as_ref().map_or(&[], |b| &b.get().orders)
    }

    /// The runtime answers, for the first time or again: what waited for it is asked at once.
    fn runtime_is_back(&mut self, runtime: RuntimeInfo) {
        self.runtime = Some(runtime);
        for progress in self.orders.values_mut() {
            progress.backoff.succeeded();
            progress.ask_at = None;
        }
        self.images.retry();
        for owed in self.owed.values_mut() {
            owed.at = None;
        }
    }

    /// What the book says was proved a short while ago by a write of this process. A process that stood still, or whose
    /// writes fail, does not know whether its orders still stand.
    fn proved(&self, now: Mono) -> bool {
        self.proved_at.is_some_and(|at| now < at.after(FRESH))
    }

    /// The order of that ID in the book.
    fn order(&self, id: &str) -> Option<&Order> {
        self.open_orders().iter().find(|order| order.id == id)
    }

    /// The book says that the order's request is over.
    fn closed(&self, order_id: &str) -> bool {
        self.book.as_ref().is_some_and(|book| book.get().closed.iter().any(|id| id == order_id))
    }

    fn stored(&self, order_id: &str) -> Option<&Answer> {
        self.book.as_ref()?.get().answer(order_id)
    }
}

impl Identity {
    /// The answer is an acknowledgement of this very process.
    fn acknowledged(&self, answer: &Answer) -> bool {
        answer.state == AnswerState::Acknowledged && answer.acknowledged_by == self.instance
    }

    /// Uptimes in the status count from this boot of the node.
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
