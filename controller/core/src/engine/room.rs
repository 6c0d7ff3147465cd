//! How many actions are under way at a time, and whose turn is next. A subject that finds no room waits in line. It is
//! planned again when its turn comes, so that it acts on what is known then.
//!
//! Namespaces take turns, so that none keeps another waiting. Within one, requests that have begun go before new ones,
//! and new ones of a node follow each other. While many wait, a turn is [several](ROW) new ones of one node. Their
//! orders [wait for each other](GATHER), so that they reach its book in one write.

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
/// Most of one namespace among them: more would wait in the API server, ahead of other namespaces' actions.
const MOST_OF_NAMESPACE: usize = 4;
/// Most writes of books among them.
const MOST_BOOKS: usize = 8;
/// Most waiting new requests of one node that go one after another.
const MOST_IN_A_ROW: usize = 32;
/// From so many waiting subjects on, [`ROW`] and [`GATHER`] apply.
const CROWD: usize = 256;
/// New requests of one node in a namespace's turn, even beyond [`MOST_OF_NAMESPACE`].
const ROW: usize = 4;
/// How long their orders wait for each other, from the first one's turn. Then, for as long again, none waits.
const GATHER: Duration = Duration::from_millis(500);
/// Least time between a namespace's new requests in the long run; longer while the API server [is busy](Load::slows).
const SPACING: Duration = Duration::from_millis(20);
/// As many new requests as fit in this time may begin at once.
const BURST: Duration = Duration::from_secs(6);

/// What the turn of a subject depends on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Turn<'a> {
    /// An order book, which belongs to no namespace.
    Book,
    /// A subject of that namespace that has begun.
    Begun(&'a str),
    /// A new subject of that namespace; the node of its Pod, if known.
    New(&'a str, Option<&'a str>),
}

impl<'a> Turn<'a> {
    fn lane(self) -> LaneId<'a> {
        match self {
            Self::Book => LaneId::Books,
            Self::Begun(namespace) | Self::New(namespace, _) => LaneId::Namespace(namespace),
        }
    }
}

/// Whose room an action takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LaneId<'a> {
    Books,
    Namespace(&'a str),
}

impl<'a> LaneId<'a> {
    /// Whose room is free again, if the event ends an action.
    pub(super) fn ended(event: &'a Event) -> Option<Self> {
        let key = match event {
            Event::Written { key, .. }
            | Event::PodWritten { key, .. }
            | Event::PodTried { key, .. }
            | Event::Surveyed { key, .. } => key,
            Event::DeedDone { object, .. } | Event::PodRead { object, .. } => &object.key,
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

/// Actions under way, and subjects that wait for their turn.
#[derive(Clone, Debug)]
pub(super) struct Room {
    under_way: usize,
    books: Lane,
    namespaces: BTreeMap<String, Lane>,
    /// Namespaces that could have a turn.
    ready: BTreeSet<String>,
    /// The namespace that had a turn last.
    last: String,
    /// When the next new request of a namespace may begin.
    paced: Timers<String>,
    /// When a namespace can be forgotten.
    spent: Timers<String>,
    /// Number of subjects in line.
    waiting: usize,
    /// Number of new requests of one node in that namespace's turn so far.
    row: usize,
    /// The subject whose turn it is.
    called: Option<Subject>,
    load: Load,
}

/// Room and lines of one namespace, or of the books.
#[derive(Clone, Debug)]
struct Lane {
    most: usize,
    under_way: usize,
    begun: Line,
    new: Line,
    /// When all begun new requests would have begun, had each waited for the one before it.
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

    /// Whether the next waiting subject could have its turn.
    fn is_ready(&self, now: Mono) -> bool {
        let new = !self.new.is_empty() && (self.next_new() <= now || self.new.goes_on());
        self.under_way < self.most && (!self.begun.is_empty() || new)
    }

    /// An action starts. The next new one waits `slows` times the [`SPACING`].
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

/// Waiting subjects by group. Those of a group follow each other in order of arrival.
#[derive(Clone, Debug, Default)]
struct Line {
    by_group: BTreeMap<(String, u64), Subject>,
    positions: BTreeMap<Subject, (String, u64)>,
    /// Number of arrivals.
    arrivals: u64,
    /// The group whose turn it is, and how many of it were called.
    turn: (String, usize),
    /// When the orders of the group began to wait for each other.
    gathers_from: Option<Mono>,
}

impl Line {
    fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    fn holds(&self, subject: &Subject) -> bool {
        self.positions.contains_key(subject)
    }

    /// Adds the subject to the end of its group, unless it is in line. Returns how many were added.
    fn join(&mut self, subject: &Subject, group: &str) -> usize {
        if self.holds(subject) {
            return 0;
        }
        self.arrivals = self.arrivals.saturating_add(1);
        let position = (group.to_owned(), self.arrivals);
        self.by_group.insert(position.clone(), subject.clone());
        self.positions.insert(subject.clone(), position);
        1
    }

    /// Whether the next subject has the node whose turn it is. It may begin early; those of other nodes then begin
    /// later.
    fn goes_on(&self) -> bool {
        let (group, had) = &self.turn;
        let next =
            || self.by_group.range((group.clone(), 0)..).next().is_some_and(|((next, _), _)| next == group);
        !group.is_empty() && *had < MOST_IN_A_ROW && next()
    }

    fn call(&mut self, now: Mono) -> Option<Subject> {
        let (group, had) = &self.turn;
        // A group that keeps growing must not keep other groups waiting.
        let from = (group.clone(), if *had < MOST_IN_A_ROW { 0 } else { u64::MAX });
        let next = self.by_group.range(from..).next().or_else(|| self.by_group.first_key_value());
        let position = next?.0.clone();
        let same = position.0 == *group;
        let had = if same && *had < MOST_IN_A_ROW { had.saturating_add(1) } else { 1 };
        let over = |from: &Mono| from.after(GATHER.saturating_mul(2)) <= now;
        if !same || self.gathers_from.as_ref().is_none_or(over) {
            self.gathers_from = Some(now);
        }
        self.turn = (position.0.clone(), had);
        let subject = self.by_group.remove(&position)?;
        self.positions.remove(&subject);
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
    /// Whether an action of `subject` may start. If so, it counts as under way until [`Room::ended`]. If not, `subject`
    /// waits in line.
    pub(super) fn start(&mut self, now: Mono, subject: &Subject, turn: Turn<'_>) -> bool {
        let called = self.called.as_ref() == Some(subject);
        let free = called || (self.under_way < MOST && self.ready.is_empty() && !self.books.is_ready(now));
        let lane = match turn.lane() {
            LaneId::Books => &mut self.books,
            LaneId::Namespace(namespace) => {
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
                let slows = match turn.lane() {
                    LaneId::Books => 1,
                    LaneId::Namespace(namespace) => {
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
        self.refresh(now, turn.lane());
        may
    }

    /// The same for one more action, right after `subject` started another: a turn is for one action.
    pub(super) fn start_more(&mut self, now: Mono, subject: &Subject, turn: Turn<'_>) -> bool {
        let called = self.called.take();
        let may = self.start(now, subject, turn);
        self.called = called;
        may
    }

    /// An action ended.
    pub(super) fn ended(&mut self, now: Mono, id: LaneId<'_>) {
        let lane = match id {
            LaneId::Books => Some(&mut self.books),
            LaneId::Namespace(namespace) => self.namespaces.get_mut(namespace),
        };
        if let Some(lane) = lane.filter(|lane| lane.under_way > 0) {
            self.load.pass(now, self.under_way);
            self.load.ended(now);
            lane.under_way = lane.under_way.saturating_sub(1);
            self.under_way = self.under_way.saturating_sub(1);
        }
        self.refresh(now, id);
    }

    /// Whether `subject` waits in the line of that turn.
    pub(super) fn waits(&self, subject: &Subject, turn: Turn<'_>) -> bool {
        let lane = match turn.lane() {
            LaneId::Books => Some(&self.books),
            LaneId::Namespace(namespace) => self.namespaces.get(namespace),
        };
        lane.is_some_and(|lane| match turn {
            Turn::Book | Turn::Begun(_) => lane.begun.holds(subject),
            Turn::New(..) => lane.new.holds(subject),
        })
    }

    /// The subject whose turn it is, if room is free. The caller plans it, and it may start its action.
    pub(super) fn call(&mut self, now: Mono) -> Option<Subject> {
        while let Some(namespace) = self.paced.pop_due(now).or_else(|| self.spent.pop_due(now)) {
            self.refresh(now, LaneId::Namespace(&namespace));
        }
        self.called = None;
        if self.under_way >= MOST {
            return None;
        }
        // Books come first: all namespaces wait for their orders.
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
        self.refresh(now, LaneId::Namespace(&next));
        self.last = next;
        self.called.clone()
    }

    /// Until when new orders of these namespaces for the node wait. None unless each is calling requests of that node.
    pub(super) fn gathers<'b>(
        &self,
        now: Mono,
        node: &str,
        namespaces: impl Iterator<Item = &'b str>,
    ) -> Option<Mono> {
        let until = |namespace: &str| {
            let lane = self.namespaces.get(namespace).filter(|lane| lane.new.turn.0 == node)?;
            lane.new.gathers_from.map(|from| from.after(GATHER)).filter(|until| *until > now)
        };
        // If the orders of one namespace cannot wait, all are written.
        let all: Vec<Mono> = namespaces.map(until).collect::<Option<_>>()?;
        all.into_iter().min().filter(|_| self.crowded())
    }

    /// Whether many subjects wait.
    pub(super) fn crowded(&self) -> bool {
        self.waiting >= CROWD
    }

    /// Number of subjects in line.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// When a turn may come even if no action ends.
    pub(super) fn wake_at(&self) -> Option<Mono> {
        self.paced.first()
    }

    /// Empties all lines.
    pub(super) fn clear(&mut self, now: Mono) {
        (self.called, self.waiting, self.row) = (None, 0, 0);
        (self.books.begun, self.books.new) = (Line::default(), Line::default());
        let namespaces: Vec<String> = self.namespaces.keys().cloned().collect();
        for namespace in namespaces {
            if let Some(lane) = self.namespaces.get_mut(&namespace) {
                (lane.begun, lane.new) = (Line::default(), Line::default());
            }
            self.refresh(now, LaneId::Namespace(&namespace));
        }
    }

    /// Notes whether and when a namespace could have a turn, or forgets it.
    fn refresh(&mut self, now: Mono, id: LaneId<'_>) {
        let LaneId::Namespace(namespace) = id else { return };
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
