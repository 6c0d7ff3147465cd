//! How much is under way at a time, and whose turn is next. Who finds no room stands in line and is planned again when its
//! turn comes, so what it does then follows from what is known then.
//!
//! Namespaces take turns, so what one of them asks for keeps no other's waiting. Within one, requests that have begun go
//! before new ones, and new ones of a node follow each other. Where many wait, a turn is [some](ROW) new ones of one node, and
//! their orders wait for each other for [a moment](GATHER), so that they reach its book in one write.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use super::Subject;
use super::load::Load;
use super::pacing::Timers;
use crate::action::Event;
use crate::time::Mono;

/// Most actions under way at a time; each holds a stream of the connection to the API server.
const MOST: usize = 16;
/// Most of one namespace among them: more of it would wait in the API server, and there before what others ask for.
const MOST_OF_NAMESPACE: usize = 4;
/// Most of the books among them.
const MOST_BOOKS: usize = 8;
/// Most new requests of one node, of those that wait, that go one after another.
const MOST_IN_A_ROW: usize = 32;
/// Where so many wait,
const CROWD: usize = 256;
/// so many new requests of one node are a namespace's turn, though more of it are then under way than else,
const ROW: usize = 4;
/// and their orders wait so long for each other, from the first one's turn. Then, for as long again, none waits.
const GATHER: Duration = Duration::from_millis(500);
/// A namespace's new requests may begin this often in the long run, or less often where the API server [is busy](Load::slows),
const SPACING: Duration = Duration::from_millis(20);
/// and at once as many as would in this time.
const BURST: Duration = Duration::from_secs(6);

/// What the turn of something depends on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn<'a> {
    /// An order book: of no namespace.
    Book,
    /// Of that namespace, and begun.
    Begun(&'a str),
    /// Of that namespace, and new; the node of its Pod, where that is known.
    New(&'a str, Option<&'a str>),
}

impl<'a> Turn<'a> {
    fn of(self) -> Of<'a> {
        match self {
            Self::Book => Of::Books,
            Self::Begun(namespace) | Self::New(namespace, _) => Of::Namespace(namespace),
        }
    }
}

/// Whose room something takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Of<'a> {
    Books,
    Namespace(&'a str),
}

impl<'a> Of<'a> {
    /// Whose room is free again, where an action has ended by that.
    pub(super) fn ended(event: &'a Event) -> Option<Self> {
        let key = match event {
            Event::Written { key, .. } | Event::PodWritten { key, .. } | Event::PodTried { key, .. } => key,
            Event::DeedDone { by, .. } | Event::PodRead { by, .. } => &by.key,
            Event::Surveyed { place, .. } => place,
            Event::NodeWorkWritten(..) => return Some(Self::Books),
            Event::Pods(_)
            | Event::Objects(_)
            | Event::NodeWorks(_)
            | Event::Parked(..)
            | Event::Leader(_)
            | Event::Guarded(_)
            | Event::Tick => return None,
        };
        Some(Self::Namespace(&key.namespace))
    }
}

/// What is under way, and what waits for its turn.
#[derive(Clone, Debug)]
pub(super) struct Room {
    under_way: usize,
    books: Lane,
    namespaces: BTreeMap<String, Lane>,
    /// Namespaces of which something could have its turn.
    ready: BTreeSet<String>,
    /// The namespace that had a turn last.
    last: String,
    /// When the next new request of a namespace may begin.
    paced: Timers<String>,
    /// When nothing has to be known of a namespace any more.
    spent: Timers<String>,
    /// How many stand in line.
    waiting: usize,
    /// How many new requests of one node that namespace's turn has been so far.
    row: usize,
    /// Whose turn it is.
    called: Option<Subject>,
    load: Load,
}

/// Of one namespace, or of the books.
#[derive(Clone, Debug)]
struct Lane {
    most: usize,
    under_way: usize,
    begun: Line,
    new: Line,
    /// When the new requests that began would all have begun, had each waited for the one before it.
    paced_to: Mono,
}

impl Lane {
    fn new(most: usize) -> Self {
        Self { most, under_way: 0, begun: Line::default(), new: Line::default(), paced_to: Mono(0) }
    }

    /// When the next new request may begin.
    fn next_new(&self) -> Mono {
        Mono(self.paced_to.after(SPACING).0.saturating_sub(millis(BURST)))
    }

    fn waits(&self) -> bool {
        !(self.begun.is_empty() && self.new.is_empty())
    }

    /// The next of those that wait could have its turn.
    fn is_ready(&self, now: Mono) -> bool {
        let new = !self.new.is_empty() && (self.next_new() <= now || self.new.goes_on());
        self.under_way < self.most && (!self.begun.is_empty() || new)
    }

    /// The next new one waits so many times the [`SPACING`].
    fn start(&mut self, now: Mono, turn: Turn<'_>, slows: u32) {
        self.under_way = self.under_way.saturating_add(1);
        if matches!(turn, Turn::New(..)) {
            self.paced_to = self.paced_to.max(now).after(SPACING.saturating_mul(slows));
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Those that wait, by groups: those of a group one after another, in the order in which they came.
#[derive(Clone, Debug, Default)]
struct Line {
    by_group: BTreeMap<(String, u64), Subject>,
    places: BTreeMap<Subject, (String, u64)>,
    /// How many have come.
    came: u64,
    /// The group that has its turn, and how many of it have had theirs.
    turn: (String, usize),
    /// When its orders began to wait for each other.
    gathers_from: Option<Mono>,
}

impl Line {
    fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn holds(&self, subject: &Subject) -> bool {
        self.places.contains_key(subject)
    }

    /// Goes to the end of its group, unless it is in line; how many more are in line now.
    fn join(&mut self, subject: &Subject, group: &str) -> usize {
        if self.holds(subject) {
            return 0;
        }
        self.came = self.came.saturating_add(1);
        let place = (group.to_owned(), self.came);
        self.by_group.insert(place.clone(), subject.clone());
        self.places.insert(subject.clone(), place);
        1
    }

    /// The next one is of the node whose turn it is: what that is too early, those of other nodes are later.
    fn goes_on(&self) -> bool {
        let (group, had) = &self.turn;
        let next =
            || self.by_group.range((group.clone(), 0)..).next().is_some_and(|((next, _), _)| next == group);
        !group.is_empty() && *had < MOST_IN_A_ROW && next()
    }

    fn call(&mut self, now: Mono) -> Option<Subject> {
        let (group, had) = &self.turn;
        // A group that goes on getting new ones keeps no other one's waiting.
        let from = (group.clone(), if *had < MOST_IN_A_ROW { 0 } else { u64::MAX });
        let next = self.by_group.range(from..).next().or_else(|| self.by_group.first_key_value());
        let place = next?.0.clone();
        let same = place.0 == *group;
        let had = if same && *had < MOST_IN_A_ROW { had.saturating_add(1) } else { 1 };
        let over = |from: &Mono| from.after(GATHER.saturating_mul(2)) <= now;
        if !same || self.gathers_from.as_ref().is_none_or(over) {
            self.gathers_from = Some(now);
        }
        self.turn = (place.0.clone(), had);
        let subject = self.by_group.remove(&place)?;
        self.places.remove(&subject);
        Some(subject)
    }
}

impl Default for Room {
    fn default() -> Self {
        Self {
            under_way: 0,
            books: Lane::new(MOST_BOOKS),
            namespaces: BTreeMap::new(),
            ready: BTreeSet::new(),
            last: String::new(),
            paced: Timers::default(),
            spent: Timers::default(),
            waiting: 0,
            row: 0,
            called: None,
            load: Load::default(),
        }
    }
}

impl Room {
    /// Whether an action that `subject` needs may start. One that may counts as under way until [`Room::ended`]; else
    /// `subject` stands in line.
    pub(super) fn start(&mut self, now: Mono, subject: &Subject, turn: Turn<'_>) -> bool {
        let called = self.called.as_ref() == Some(subject);
        let free = called || (self.under_way < MOST && self.ready.is_empty() && !self.books.is_ready(now));
        let lane = match turn.of() {
            Of::Books => &mut self.books,
            Of::Namespace(namespace) => {
                let lane = || Lane::new(MOST_OF_NAMESPACE);
                self.namespaces.entry(namespace.to_owned()).or_insert_with(lane)
            }
        };
        let may = called
            || free
                && lane.under_way < lane.most
                && match turn {
                    Turn::Book | Turn::Begun(_) => lane.begun.is_empty(),
                    Turn::New(..) => !lane.waits() && lane.next_new() <= now,
                };
        match turn {
            _ if may => {
                self.load.pass(now, self.under_way);
                let slows = match turn.of() {
                    Of::Books => 1,
                    Of::Namespace(namespace) => {
                        self.load.started(now, namespace);
                        self.load.slows(now, namespace)
                    }
                };
                lane.start(now, turn, slows);
                self.under_way = self.under_way.saturating_add(1);
            }
            Turn::Book | Turn::Begun(_) => self.waiting += lane.begun.join(subject, ""),
            Turn::New(_, node) => self.waiting += lane.new.join(subject, node.unwrap_or_default()),
        }
        self.look(now, turn.of());
        may
    }

    /// The same of one more beside another that `subject` has just started: nobody's turn is for more than one.
    pub(super) fn start_more(&mut self, now: Mono, subject: &Subject, turn: Turn<'_>) -> bool {
        let called = self.called.take();
        let may = self.start(now, subject, turn);
        self.called = called;
        may
    }

    /// An action came to its end.
    pub(super) fn ended(&mut self, now: Mono, of: Of<'_>) {
        let lane = match of {
            Of::Books => Some(&mut self.books),
            Of::Namespace(namespace) => self.namespaces.get_mut(namespace),
        };
        if let Some(lane) = lane.filter(|lane| lane.under_way > 0) {
            self.load.pass(now, self.under_way);
            self.load.ended(now);
            lane.under_way = lane.under_way.saturating_sub(1);
            self.under_way = self.under_way.saturating_sub(1);
        }
        self.look(now, of);
    }

    /// `subject` stands in the line of that turn.
    pub(super) fn waits(&self, subject: &Subject, turn: Turn<'_>) -> bool {
        let lane = match turn.of() {
            Of::Books => Some(&self.books),
            Of::Namespace(namespace) => self.namespaces.get(namespace),
        };
        lane.is_some_and(|lane| match turn {
            Turn::Book | Turn::Begun(_) => lane.begun.holds(subject),
            Turn::New(..) => lane.new.holds(subject),
        })
    }

    /// Whose turn it is, while there is room: it is to be planned, and may start what it needs.
    pub(super) fn call(&mut self, now: Mono) -> Option<Subject> {
        while let Some(namespace) = self.paced.pop_due(now).or_else(|| self.spent.pop_due(now)) {
            self.look(now, Of::Namespace(&namespace));
        }
        self.called = None;
        if self.under_way >= MOST {
            return None;
        }
        // Their orders are what all namespaces wait for.
        if self.books.is_ready(now) {
            self.called = self.books.begun.call(now);
            self.waiting = self.waiting.saturating_sub(1);
            return self.called.clone();
        }
        let goes_on = || self.namespaces.get(&self.last).is_some_and(|lane| lane.new.goes_on());
        let next = if (1..ROW).contains(&self.row) && goes_on() {
            self.last.clone()
        } else {
            self.row = 0;
            let after = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
            self.ready.range::<String, _>(after).next().or_else(|| self.ready.first())?.clone()
        };
        let lane = self.namespaces.get_mut(&next)?;
        if self.row == 0 && !lane.begun.is_empty() {
            self.called = lane.begun.call(now);
        } else {
            self.called = lane.new.call(now);
            self.row = if self.crowded() { self.row.saturating_add(1) } else { 0 };
        }
        self.waiting = self.waiting.saturating_sub(1);
        self.look(now, Of::Namespace(&next));
        self.last = next;
        self.called.clone()
    }

    /// Until when new orders of these namespaces for that node wait: while each has called others for it.
    pub(super) fn gathers<'b>(
        &self,
        now: Mono,
        node: &str,
        of: impl Iterator<Item = &'b str>,
    ) -> Option<Mono> {
        let until = |namespace: &str| {
            let lane = self.namespaces.get(namespace).filter(|lane| lane.new.turn.0 == node)?;
            lane.new.gathers_from.map(|from| from.after(GATHER)).filter(|until| *until > now)
        };
        // What has to be written at once for one is written for all.
        let all: Vec<Mono> = of.map(until).collect::<Option<_>>()?;
        all.into_iter().min().filter(|_| self.crowded())
    }

    /// Many stand in line.
    pub(super) fn crowded(&self) -> bool {
        self.waiting >= CROWD
    }

    /// How many stand in line.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// When somebody's turn may come though nothing has ended.
    pub(super) fn wake_at(&self) -> Option<Mono> {
        self.paced.first()
    }

    /// Nobody waits any more.
    pub(super) fn clear(&mut self, now: Mono) {
        (self.called, self.waiting, self.row) = (None, 0, 0);
        (self.books.begun, self.books.new) = (Line::default(), Line::default());
        let namespaces: Vec<String> = self.namespaces.keys().cloned().collect();
        for namespace in namespaces {
            if let Some(lane) = self.namespaces.get_mut(&namespace) {
                (lane.begun, lane.new) = (Line::default(), Line::default());
            }
            self.look(now, Of::Namespace(&namespace));
        }
    }

    /// Notes whether a namespace could have a turn, when it could, or that nothing has to be known of it.
    fn look(&mut self, now: Mono, of: Of<'_>) {
        let Of::Namespace(namespace) = of else { return };
        let Some((namespace, lane)) = self.namespaces.get_key_value(namespace) else { return };
        let namespace = namespace.clone();
        let later = |at: Mono| Some(at).filter(|at| *at > now);
        let (ready, waits) = (lane.is_ready(now), lane.waits());
        let (paced, spent) = (later(lane.next_new()).filter(|_| waits), later(lane.paced_to));
        if ready {
            self.ready.insert(namespace.clone());
        } else {
            self.ready.remove(&namespace);
        }
        if !waits && lane.under_way == 0 && spent.is_none() {
            self.namespaces.remove(&namespace);
        }
        self.paced.set(namespace.clone(), paced);
        self.spent.set(namespace, spent);
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
