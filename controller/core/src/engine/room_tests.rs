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

/// Starts as many actions of a namespace as may start at once. Returns how many.
fn fill(room: &mut Room, namespace: &str) -> usize {
    let names = (0..99).map(|i| pod(namespace, format!("fill-{i}")));
    let started = names.filter(|subject| room.start(Mono(0), subject, Turn::Begun(namespace))).count();
    room.clear(Mono(0));
    started
}

/// Up to `most` subjects whose turns come; each starts one action.
fn turns(room: &mut Room, now: Mono, most: usize, turn: impl Fn(&Subject) -> Turn<'static>) -> Vec<String> {
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
    room.ended(Mono(0), LaneId::Books);
    assert_eq!(name(room.call(Mono(0))), "node8", "the books' next one, which waits for longer");
}

#[test]
fn who_waits_is_called_when_something_ends_and_then_has_room() {
    let mut room = Room::default();
    fill(&mut room, "shop");
    let web = pod("shop", "web");
    assert!(!room.start(Mono(0), &web, BEGUN) && room.waits(&web, BEGUN));
    assert_eq!(room.call(Mono(0)), None);
    room.ended(Mono(1), LaneId::Namespace("shop"));
    // A subject that comes now waits behind it.
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
    for namespace in full {
        fill(&mut room, namespace);
    }
    for i in 0..3 {
        for namespace in ["a", "b", "c"] {
            let subject = pod(namespace, format!("{namespace}{i}"));
            // One of them wants a hundred times as much.
            for j in 0..99 {
                let _ = room.start(Mono(0), &pod("b", format!("b{i}-{j}")), Turn::Begun("b"));
            }
            assert!(!room.start(Mono(0), &subject, Turn::Begun(namespace)));
        }
    }
    (0..16).for_each(|i| room.ended(Mono(0), LaneId::Namespace(full[i % 4])));
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
    room.ended(Mono(0), LaneId::Namespace("shop"));
    assert_eq!(turns(&mut room, Mono(0), 1, |_| BEGUN), ["begun"]);
    room.ended(Mono(0), LaneId::Namespace("shop"));
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
        room.ended(Mono(0), LaneId::Namespace("shop"));
        nodes.extend(turns(&mut room, Mono(0), 1, |_| Turn::New("shop", None)));
    }
    let of_first = |from: usize, to: usize| nodes[from..to].iter().filter(|n| n.starts_with("n1")).count();
    assert_eq!((of_first(0, 32), of_first(32, 64), of_first(64, 82), of_first(82, 100)), (32, 0, 18, 0));
    assert_eq!((nodes[0].as_str(), nodes[31].as_str(), nodes[64].as_str()), ("n1-0", "n1-31", "n1-32"));
}

/// `each` new subjects wait in each namespace, of `nodes` nodes in turn.
fn crowd(room: &mut Room, namespaces: [&'static str; 2], each: usize, nodes: usize) {
    for namespace in namespaces {
        assert_eq!(fill(room, namespace), 4);
    }
    for i in 0..each {
        for namespace in namespaces {
            let node = ["n0", "n1"][i % nodes];
            let subject = pod(namespace, format!("{namespace}-{node}-{i}"));
            assert!(!room.start(Mono(0), &subject, Turn::New(namespace, Some(node))));
        }
    }
    assert_eq!(room.waiting(), 2 * each);
}

/// Subjects whose turns come as one action after the other ends, without the last part of their names.
fn rows(room: &mut Room, now: u64, ends: &[&'static str]) -> Vec<String> {
    let mut names = Vec::new();
    for of in ends {
        room.ended(Mono(now), LaneId::Namespace(of));
        names.extend(turns(room, Mono(now), 1, |subject| match subject {
            Subject::Pod(key) if key.namespace == "a" => Turn::New("a", None),
            _ => Turn::New("b", None),
        }));
    }
    names.iter().filter_map(|name| Some(name.rsplit_once('-')?.0.to_owned())).collect()
}

#[test]
fn where_many_wait_a_turn_is_some_new_ones_of_a_node() {
    let ends = ["a", "b", "a", "b", "a", "b", "a", "b"];
    let (mut room, mut few) = (Room::default(), Room::default());
    crowd(&mut room, ["a", "b"], 200, 2);
    crowd(&mut few, ["a", "b"], 50, 2);
    assert_eq!(rows(&mut few, 0, &ends), ["a-n0", "b-n0", "a-n0", "b-n0", "a-n0", "b-n0", "a-n0", "b-n0"]);
    assert_eq!(rows(&mut room, 0, &ends), ["a-n0", "a-n0", "a-n0", "a-n0", "b-n0", "b-n0", "b-n0", "b-n0"]);
    let begun = pod("a", "begun-");
    assert!(!room.start(Mono(0), &begun, Turn::Begun("a")));
    let ends = ["a", "b", "b", "b", "b", "b", "b", "b"];
    let next = rows(&mut room, 0, &ends);
    assert_eq!(next[..5], ["begun", "b-n0", "b-n0", "b-n0", "b-n0"], "what has begun is a turn of its own");
}

#[test]
fn orders_of_a_node_wait_for_those_that_come_with_them_and_for_no_others() {
    let mut room = Room::default();
    crowd(&mut room, ["a", "b"], 200, 2);
    let gathers = |room: &Room, now, node, of: &[&str]| {
        room.gathers(Mono(now), node, of.iter().copied()).map(|until| until.0)
    };
    assert_eq!(gathers(&room, 0, "n0", &["a"]), None, "nobody is called");
    assert_eq!(rows(&mut room, 1000, &["a"; 8])[..4], ["a-n0"; 4]);
    assert_eq!(gathers(&room, 1100, "n0", &["a", "a"]), Some(1500));
    assert_eq!(gathers(&room, 1500, "n0", &["a"]), None, "long enough");
    assert_eq!(gathers(&room, 1100, "n1", &["a"]), None, "another node");
    assert_eq!(gathers(&room, 1100, "n0", &["other"]), None, "it has called nobody");
    assert_eq!(
        gathers(&room, 1100, "n0", &["a", "other"]),
        None,
        "one that waits for nobody takes the others along"
    );
    // The book is written, however often the node is called.
    let mut room = Room::default();
    crowd(&mut room, ["a", "b"], 200, 1);
    let waits: Vec<bool> = (1000..9000)
        .step_by(100)
        .map(|now| {
            rows(&mut room, now, &["a"]);
            gathers(&room, now, "n0", &["a"]).is_some()
        })
        .collect();
    assert_eq!(waits.chunk_by(|one, other| one == other).map(<[bool]>::len).max(), Some(5));
    room.clear(Mono(9000));
    assert_eq!(gathers(&room, 9000, "n0", &["a"]), None, "nobody waits");
}

#[test]
fn new_ones_of_a_namespace_come_at_a_rate_and_begun_ones_do_not() {
    let mut room = Room::default();
    let mut start = |now, i: usize| {
        let started = room.start(Mono(now), &pod("shop", format!("p{i}")), Turn::New("shop", None));
        if started {
            room.ended(Mono(now), LaneId::Namespace("shop"));
        }
        started
    };
    assert_eq!((0..1000).filter(|i| start(10_000, *i)).count(), 300);
    let begun = pod("shop", "begun");
    assert!(room.start(Mono(10_000), &begun, BEGUN));
    assert!(room.start(Mono(10_000), &pod("other", "web"), Turn::New("other", None)));
    for namespace in ["shop", "other"] {
        room.ended(Mono(10_000), LaneId::Namespace(namespace));
    }
    assert_eq!((room.call(Mono(10_000)), room.wake_at()), (None, Some(Mono(10_020))));
    let mut called = 0;
    for now in 10_001..=11_000 {
        while let Some(subject) = room.call(Mono(now)) {
            assert!(room.start(Mono(now), &subject, Turn::New("shop", None)));
            room.ended(Mono(now), LaneId::Namespace("shop"));
            called += 1;
        }
    }
    assert_eq!(called, 50, "in a second");
}

#[test]
fn those_of_a_node_begin_together_and_all_together_at_the_rate() {
    let mut room = Room::default();
    let new = |node| Turn::New("shop", Some(node));
    for i in 0..400 {
        // 100 of each node.
        let (node, subject) = (["n1", "n2", "n3", "n4"][i % 4], pod("shop", format!("p{i}")));
        if room.start(Mono(10_000), &subject, new(node)) {
            room.ended(Mono(10_000), LaneId::Namespace("shop"));
        }
    }
    assert_eq!(room.waiting(), 100);
    let mut begun = Vec::new();
    for now in 10_001..=12_000 {
        while let Some(subject) = room.call(Mono(now)) {
            assert!(room.start(Mono(now), &subject, new("n1")));
            room.ended(Mono(now), LaneId::Namespace("shop"));
            begun.push(now);
        }
    }
    assert_eq!(begun.len(), 100, "in two seconds");
    assert_eq!(
        (begun[0], begun[24], begun[25]),
        (10_020, 10_020, 10_520),
        "25 of a node, and then those of the next"
    );
}

#[test]
fn new_ones_come_less_often_while_the_api_server_is_busy_and_others_ask_it() {
    let mut room = Room::default();
    let mut now = 10_000;
    // One call of each namespace, one after the other, of `millis` milliseconds.
    let both = |room: &mut Room, now: &mut u64, millis: u64| {
        for of in ["shop", "other"] {
            assert!(room.start(Mono(*now), &pod(of, "begun"), Turn::Begun(of)));
            *now += millis;
            room.ended(Mono(*now), LaneId::Namespace(of));
        }
    };
    (0..16).for_each(|_| both(&mut room, &mut now, 5));
    (0..16).for_each(|_| both(&mut room, &mut now, 10));
    let mut begun = 0;
    while room.start(Mono(now), &pod("shop", format!("p{begun}")), Turn::New("shop", None)) {
        now += 10;
        room.ended(Mono(now), LaneId::Namespace("shop"));
        begun += 1;
    }
    // Answers take twice as long as at best: a quarter of the requests begin at once, and a quarter of those for the
    // time that this takes.
    assert_eq!(begun, 300 / 4 + 11);
    assert!(room.start(Mono(now), &pod("other", "web"), Turn::New("other", None)), "others have their own");
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
    assert_eq!((room.under_way, room.waiting()), (12, 0), "what is under way still is");
    (0..4).for_each(|_| room.ended(Mono(0), LaneId::Namespace("shop")));
    assert_eq!((room.call(Mono(0)), room.namespaces.len()), (None, 0));
}

proptest! {
    /// In any sequence, every subject has a turn, and then nothing is kept.
    #[test]
    fn everybody_has_a_turn(
        asked in proptest::collection::vec((0..4_usize, 0..3_u8, 0..30_usize), 1..120),
        gaps in proptest::collection::vec(0..50_u64, 120),
    ) {
        const OF: [&str; 4] = ["a", "b", "c", "d"];
        let (mut room, mut now) = (Room::default(), 0);
        let (mut open, mut under_way): (BTreeMap<Subject, Turn<'_>>, Vec<LaneId<'_>>) = Default::default();
        let start = |room: &mut Room, now, subject: &Subject, turn: Turn<'static>| {
            let started = room.start(Mono(now), subject, turn);
            assert!(started != room.waits(subject, turn));
            started.then(|| turn.lane())
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
                None => {
                    open.insert(subject, turn);
                }
            }
        }
        loop {
            prop_assert_eq!(room.waiting(), open.len());
            while let Some(subject) = room.call(Mono(now)) {
                let turn = open.remove(&subject).unwrap();
                let started = start(&mut room, now, &subject, turn);
                prop_assert!(started.is_some());
                under_way.extend(started);
                prop_assert!(under_way.len() <= MOST);
                for (of, most) in [(LaneId::Books, MOST_BOOKS), (LaneId::Namespace("a"), MOST_OF_NAMESPACE)] {
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
