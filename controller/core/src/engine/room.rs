//! How much is under way at a time, and whose turn is next. Who finds no room stands in line and is planned again when its
//! turn comes, so what it does then follows from what is known then.
//!
//! Namespaces take turns, so what one of them asks for keeps no other's waiting. Within one, requests that have begun go
//! before new ones, and new ones of a node follow each other, so that their orders reach its book in one write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Subject;
use super::pacing::Timers;
use crate::time::Mono;

/// Most actions under way at a time; each holds a stream of the connection to the API server.
const MOST: usize = 16;
/// Most of one namespace among them: more of it would wait in the API server, and there before what others ask for.
const MOST_OF_NAMESPACE: usize = 4;
/// Most of the books among them.
const MOST_BOOKS: usize = 8;
/// Most new requests of one node, of those that wait, that go one after another.
const MOST_IN_A_ROW: usize = 32;
/// A namespace's new requests may begin this often in the long run,
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
    /// Of whom.
    fn owner(self) -> Option<&'a str> {
        match self {
            Self::Book => None,
            Self::Begun(namespace) | Self::New(namespace, _) => Some(namespace),
        }
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
    /// Whose turn it is.
    called: Option<Subject>,
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
        let new = !self.new.is_empty() && self.next_new() <= now;
        self.under_way < self.most && (!self.begun.is_empty() || new)
    }

    /// The next of those that wait.
    fn call(&mut self) -> Option<Subject> {
        self.begun.call().or_else(|| self.new.call())
    }

    fn start(&mut self, now: Mono, turn: Turn<'_>) {
        self.under_way = self.under_way.saturating_add(1);
        if matches!(turn, Turn::New(..)) {
            self.paced_to = self.paced_to.max(now).after(SPACING);
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
}

impl Line {
    fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn holds(&self, subject: &Subject) -> bool {
        self.places.contains_key(subject)
    }

    /// Goes to the end of its group, unless it is in line.
    fn join(&mut self, subject: &Subject, group: &str) {
        if !self.holds(subject) {
            self.came = self.came.saturating_add(1);
            let place = (group.to_owned(), self.came);
            self.by_group.insert(place.clone(), subject.clone());
            self.places.insert(subject.clone(), place);
        }
    }

    fn call(&mut self) -> Option<Subject> {
        let (group, had) = &self.turn;
        // A group that goes on getting new ones keeps no other one's waiting.
        let from = (group.clone(), if *had < MOST_IN_A_ROW { 0 } else { u64::MAX });
        let next = self.by_group.range(from..).next().or_else(|| self.by_group.first_key_value());
        let place = next?.0.clone();
        let had = if place.0 == *group && *had < MOST_IN_A_ROW { had.saturating_add(1) } else { 1 };
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
            called: None,
        }
    }
}

impl Room {
    /// Whether an action that `subject` needs may start. One that may counts as under way until [`Room::ended`]; else
    /// `subject` stands in line.
    pub(super) fn start(&mut self, now: Mono, subject: &Subject, turn: Turn<'_>) -> bool {
        let called = self.called.as_ref() == Some(subject);
        let free = called || (self.under_way < MOST && self.ready.is_empty() && !self.books.is_ready(now));
        let lane = match turn.owner() {
            None => &mut self.books,
            Some(namespace) => {
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
                lane.start(now, turn);
                self.under_way = self.under_way.saturating_add(1);
            }
            Turn::Book | Turn::Begun(_) => lane.begun.join(subject, ""),
            Turn::New(_, node) => lane.new.join(subject, node.unwrap_or_default()),
        }
        self.look(now, turn.owner());
        may
    }

    /// An action came to its end; `namespace`: of what it was about, absent for a book.
    pub(super) fn ended(&mut self, now: Mono, namespace: Option<&str>) {
        let lane = match namespace {
            None => Some(&mut self.books),
            Some(namespace) => self.namespaces.get_mut(namespace),
        };
        if let Some(lane) = lane.filter(|lane| lane.under_way > 0) {
            lane.under_way = lane.under_way.saturating_sub(1);
            self.under_way = self.under_way.saturating_sub(1);
        }
        self.look(now, namespace);
    }

    /// `subject` stands in the line of that turn.
    pub(super) fn waits(&self, subject: &Subject, turn: Turn<'_>) -> bool {
        let lane = match turn.owner() {
            None => Some(&self.books),
            Some(namespace) => self.namespaces.get(namespace),
        };
        lane.is_some_and(|lane| match turn {
            Turn::Book | Turn::Begun(_) => lane.begun.holds(subject),
            Turn::New(..) => lane.new.holds(subject),
        })
    }

    /// Whose turn it is, while there is room: it is to be planned, and may start what it needs.
    pub(super) fn call(&mut self, now: Mono) -> Option<Subject> {
        while let Some(namespace) = self.paced.pop_due(now).or_else(|| self.spent.pop_due(now)) {
            self.look(now, Some(&namespace));
        }
        self.called = None;
        if self.under_way >= MOST {
            return None;
        }
        // Their orders are what all namespaces wait for.
        if self.books.is_ready(now) {
            self.called = self.books.call();
            return self.called.clone();
        }
        let after = (std::ops::Bound::Excluded(self.last.clone()), std::ops::Bound::Unbounded);
        let next = self.ready.range::<String, _>(after).next().or_else(|| self.ready.first())?.clone();
        self.called = self.namespaces.get_mut(&next)?.call();
        self.look(now, Some(&next));
        self.last = next;
        self.called.clone()
    }

    /// When somebody's turn may come though nothing has ended.
    pub(super) fn wake_at(&self) -> Option<Mono> {
        self.paced.first()
    }

    /// Nobody waits any more.
    pub(super) fn clear(&mut self, now: Mono) {
        self.called = None;
        (self.books.begun, self.books.new) = (Line::default(), Line::default());
        let namespaces: Vec<String> = self.namespaces.keys().cloned().collect();
        for namespace in namespaces {
            if let Some(lane) = self.namespaces.get_mut(&namespace) {
                (lane.begun, lane.new) = (Line::default(), Line::default());
            }
            self.look(now, Some(&namespace));
        }
    }

    /// Notes whether a namespace could have a turn, when it could, or that nothing has to be known of it.
    fn look(&mut self, now: Mono, namespace: Option<&str>) {
        let Some((namespace, lane)) = namespace.and_then(|it| self.namespaces.get_key_value(it)) else {
            return;
        };
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::ObjectKey;

    const BEGUN: Turn<'_> = Turn::Begun("shop");

    fn pod(namespace: &str, name: impl Into<String>) -> Subject {
        Subject::Pod(ObjectKey::new(namespace, name.into()))
    }

    fn name(subject: Option<Subject>) -> String {
        match subject {
            Some(Subject::Pod(key)) => key.name,
            Some(Subject::Node(node)) => node,
            other => format!("{other:?}"),
        }
    }

    /// As many of a namespace as may start at once.
    fn fill(room: &mut Room, namespace: &str) -> usize {
        let names = (0..99).map(|i| pod(namespace, format!("fill-{i}")));
        let started = names.filter(|subject| room.start(Mono(0), subject, Turn::Begun(namespace))).count();
        room.clear(Mono(0));
        started
    }

    /// Whose turns come, each of which starts one thing, with so much room.
    fn turns(
        room: &mut Room,
        now: Mono,
        most: usize,
        turn: impl Fn(&Subject) -> Turn<'static>,
    ) -> Vec<String> {
        let mut names = Vec::new();
        while names.len() < most
            && let Some(subject) = room.call(now)
        {
            assert!(room.start(now, &subject, turn(&subject)));
            names.push(name(Some(subject)));
        }
        names
    }

    #[test]
    fn a_namespace_has_a_quarter_of_the_room_and_the_books_have_half_of_it() {
        let mut room = Room::default();
        assert_eq!((fill(&mut room, "shop"), fill(&mut room, "packed")), (4, 4));
        let book = |i: usize| Subject::Node(format!("node{i}"));
        let books = (0..99).filter(|i| room.start(Mono(0), &book(*i), Turn::Book)).count();
        assert_eq!((books, room.under_way), (8, 16));
        assert!(!room.start(Mono(0), &pod("other", "web"), Turn::Begun("other")), "all of it is taken");
        room.ended(Mono(0), None);
        assert_eq!(name(room.call(Mono(0))), "node8", "the books' next one, which waits for longer");
    }

    #[test]
    fn who_waits_is_called_when_something_ends_and_then_has_room() {
        let mut room = Room::default();
        fill(&mut room, "shop");
        let web = pod("shop", "web");
        assert!(!room.start(Mono(0), &web, BEGUN) && room.waits(&web, BEGUN));
        assert_eq!(room.call(Mono(0)), None);
        room.ended(Mono(1), Some("shop"));
        // Whoever comes now has to wait behind it.
        assert!(!room.start(Mono(1), &pod("shop", "late"), BEGUN));
        assert!(!room.start(Mono(1), &pod("other", "late"), Turn::Begun("other")));
        let other = room.call(Mono(1)).unwrap();
        assert!(room.start(Mono(1), &other, Turn::Begun("other")));
        assert_eq!(room.call(Mono(1)), Some(web.clone()));
        assert!(room.start(Mono(1), &web, BEGUN) && !room.waits(&web, BEGUN));
        assert_eq!(room.call(Mono(1)), None, "the namespace's room is taken again");
    }

    #[test]
    fn namespaces_take_turns_whatever_each_of_them_wants() {
        let mut room = Room::default();
        let full = ["d", "e", "f", "g"];
        full.into_iter().for_each(|namespace| drop(fill(&mut room, namespace)));
        for i in 0..3 {
            for namespace in ["a", "b", "c"] {
                let subject = pod(namespace, format!("{namespace}{i}"));
                // One of them wants a hundred times as much.
                (0..99).for_each(|j| {
                    drop(room.start(Mono(0), &pod("b", format!("b{i}-{j}")), Turn::Begun("b")))
                });
                assert!(!room.start(Mono(0), &subject, Turn::Begun(namespace)));
            }
        }
        (0..16).for_each(|i| room.ended(Mono(0), Some(full[i % 4])));
        let turn = |subject: &Subject| match subject {
            Subject::Pod(key) if key.namespace == "a" => Turn::Begun("a"),
            Subject::Pod(key) if key.namespace == "b" => Turn::Begun("b"),
            _ => Turn::Begun("c"),
        };
        let turns = turns(&mut room, Mono(0), 9, turn);
        assert_eq!(turns, ["a0", "b0-0", "c0", "a1", "b0-1", "c1", "a2", "b0-2", "c2"]);
    }

    #[test]
    fn what_has_begun_goes_before_what_is_new() {
        let mut room = Room::default();
        fill(&mut room, "shop");
        assert!(!room.start(Mono(0), &pod("shop", "new"), Turn::New("shop", None)));
        assert!(!room.start(Mono(0), &pod("shop", "begun"), BEGUN));
        room.ended(Mono(0), Some("shop"));
        assert_eq!(turns(&mut room, Mono(0), 1, |_| BEGUN), ["begun"]);
        room.ended(Mono(0), Some("shop"));
        assert_eq!(name(room.call(Mono(0))), "new");
    }

    #[test]
    fn new_ones_of_a_node_follow_each_other_and_keep_no_other_nodes_waiting() {
        let mut room = Room::default();
        fill(&mut room, "shop");
        for i in 0..50 {
            for node in ["n1", "n2"] {
                let subject = pod("shop", format!("{node}-{i}"));
                assert!(!room.start(Mono(0), &subject, Turn::New("shop", Some(node))));
            }
        }
        let mut nodes = Vec::new();
        for _ in 0..100 {
            room.ended(Mono(0), Some("shop"));
            nodes.extend(turns(&mut room, Mono(0), 1, |_| Turn::New("shop", None)));
        }
        let of_first =
            |from: usize, to: usize| nodes[from..to].iter().filter(|n| n.starts_with("n1")).count();
        assert_eq!((of_first(0, 32), of_first(32, 64), of_first(64, 82), of_first(82, 100)), (32, 0, 18, 0));
        assert_eq!((nodes[0].as_str(), nodes[31].as_str(), nodes[64].as_str()), ("n1-0", "n1-31", "n1-32"));
    }

    #[test]
    fn new_ones_of_a_namespace_come_at_a_rate_and_begun_ones_do_not() {
        let mut room = Room::default();
        let mut start = |now, i: usize| {
            let started = room.start(Mono(now), &pod("shop", format!("p{i}")), Turn::New("shop", None));
            if started {
                room.ended(Mono(now), Some("shop"));
            }
            started
        };
        assert_eq!((0..1000).filter(|i| start(10_000, *i)).count(), 300);
        let begun = pod("shop", "begun");
        assert!(room.start(Mono(10_000), &begun, BEGUN));
        assert!(room.start(Mono(10_000), &pod("other", "web"), Turn::New("other", None)));
        assert_eq!((room.call(Mono(10_000)), room.wake_at()), (None, Some(Mono(10_020))));
        let mut called = 0;
        for now in 10_001..=11_000 {
            while let Some(subject) = room.call(Mono(now)) {
                assert!(room.start(Mono(now), &subject, Turn::New("shop", None)));
                room.ended(Mono(now), Some("shop"));
                called += 1;
            }
        }
        assert_eq!(called, 50, "in a second");
    }

    #[test]
    fn nobody_waits_once_the_lead_is_over() {
        let mut room = Room::default();
        fill(&mut room, "shop");
        let (web, node) = (pod("shop", "web"), Subject::Node("node1".into()));
        (0..8).for_each(|_| assert!(room.start(Mono(0), &node, Turn::Book)));
        assert!(!room.start(Mono(0), &web, BEGUN) && !room.start(Mono(0), &node, Turn::Book));
        room.clear(Mono(0));
        assert!(!room.waits(&web, BEGUN) && !room.waits(&node, Turn::Book));
        assert_eq!(room.under_way, 12, "what is under way still is");
        (0..4).for_each(|_| room.ended(Mono(0), Some("shop")));
        assert_eq!((room.call(Mono(0)), room.namespaces.len()), (None, 0));
    }

    proptest! {
        /// Whatever starts and ends when, everybody has a turn, and then nothing is kept.
        #[test]
        fn everybody_has_a_turn(
            asked in proptest::collection::vec((0..4_usize, 0..3_u8, 0..30_usize), 1..120),
            gaps in proptest::collection::vec(0..50_u64, 120),
        ) {
            const OF: [&str; 4] = ["a", "b", "c", "d"];
            let (mut room, mut now) = (Room::default(), 0);
            let (mut open, mut under_way): (BTreeMap<Subject, Turn<'_>>, Vec<Option<&str>>) = Default::default();
            let start = |room: &mut Room, now, subject: &Subject, turn: Turn<'static>| {
                let started = room.start(Mono(now), subject, turn);
                assert!(started != room.waits(subject, turn));
                started.then(|| turn.owner())
            };
            for ((namespace, kind, i), gap) in asked.into_iter().zip(gaps) {
                now += gap;
                let (subject, turn) = match kind {
                    0 => (Subject::Node(format!("n{i}")), Turn::Book),
                    1 => (pod(OF[namespace], format!("p{i}")), Turn::Begun(OF[namespace])),
                    _ => (pod(OF[namespace], format!("q{i}")), Turn::New(OF[namespace], None)),
                };
                match start(&mut room, now, &subject, turn) {
                    Some(of) => under_way.push(of),
                    None => drop(open.insert(subject, turn)),
                }
            }
            loop {
                while let Some(subject) = room.call(Mono(now)) {
                    let turn = open.remove(&subject).unwrap();
                    let started = start(&mut room, now, &subject, turn);
                    prop_assert!(started.is_some());
                    under_way.extend(started);
                    prop_assert!(under_way.len() <= MOST);
                    for (of, most) in [(None, MOST_BOOKS), (Some("a"), MOST_OF_NAMESPACE), (Some("d"), MOST_OF_NAMESPACE)] {
                        prop_assert!(under_way.iter().filter(|one| **one == of).count() <= most);
                    }
                }
                match under_way.pop() {
                    Some(of) => room.ended(Mono(now), of),
                    None if open.is_empty() => break,
                    None => now = room.wake_at().unwrap().0.max(now),
                }
            }
            prop_assert_eq!((room.wake_at(), room.call(Mono(now + 60_000))), (None, None));
            prop_assert!(room.namespaces.is_empty() && room.ready.is_empty() && room.under_way == 0);
        }
    }
}
