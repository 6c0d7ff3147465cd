//! Orders to pull an image, and to report what runs.

use std::time::Duration;

use pitstop_api::nodework::{ImageAnswer, Pull, PullPolicy};

use super::*;

mod judged;

const IMAGE: &str = "r.example.com/shop/web:v2";
const DIGEST: &str = "sha256:2222222222222222222222222222222222222222222222222222222222222222";

fn pull(n: u8, policy: PullPolicy) -> Order {
    Order { action: Pull::new(IMAGE.into(), policy, 60).into(), ..order(n, "web", None) }
}

fn named(n: u8) -> Option<NamedContainer> {
    let references = vec!["r.example.com/shop/web:v1".to_owned()];
    Some(NamedContainer { facts: facts(n, "web", ContainerState::Running), asked: String::new(), references })
}

fn image() -> Option<Image> {
    let digests = vec![
        format!("other.example.com/web@sha256:{}", "3".repeat(64)),
        format!("r.example.com/shop/web@{DIGEST}"),
    ];
    Some(Image { id: "config-2".into(), digests, bytes: 7 })
}

fn newest(n: u8, runs: bool) -> Option<NewestContainer> {
    let image_id = if n == 1 { "config-1" } else { "config-2" }.to_owned();
    Some(NewestContainer { id: id(n), runs, started: true, image_id, digests: Vec::new() })
}

impl Node {
    fn looked(&mut self, look: Look) {
        let action = self.expect(|action| matches!(action, Action::LookAtImage { .. }));
        let Action::LookAtImage { order_id, image, .. } = action else { panic!() };
        assert_eq!(image, IMAGE);
        self.send(Event::ImageSeen(order_id, Ok(Box::new(look))));
    }

    fn pulls(&mut self) -> Duration {
        let action = self.expect(|action| matches!(action, Action::Pull { .. }));
        let Action::Pull { limit, .. } = action else { panic!() };
        limit
    }

    fn pass(&mut self, millis: u64) {
        self.now += millis;
        self.send(Event::Tick);
    }

    fn image_answer(&mut self) -> (AnswerState, Option<AnswerReason>, ImageAnswer) {
        let status = self.stored();
        let answer = status.answers[0].clone();
        (answer.state, answer.reason, answer.image.map(|image| *image).unwrap_or_default())
    }
}

fn failed(missing: bool, message: &str) -> Event {
    Event::Pulled(IMAGE.into(), Err(PullFailure { missing, message: message.into() }))
}

#[test]
fn an_image_is_pulled_and_what_runs_later_is_told() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
    node.looked(Look { named: named(1), newest: newest(1, true), ..Look::default() });
    assert_eq!(node.pulls(), Duration::from_mins(1));
    node.now += 1_500;
    node.send(Event::Pulled(IMAGE.into(), Ok(())));
    node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
    let (state, reason, answer) = node.image_answer();
    assert_eq!((state, reason), (AnswerState::Done, None));
    let pulled = answer.pulled.unwrap();
    assert_eq!((pulled.image_id.as_str(), pulled.digest.as_str()), ("config-2", DIGEST));
    assert_eq!((pulled.bytes, pulled.milliseconds, pulled.present), (7, 1_500, false));
    assert_eq!(answer.running, None, "the one that the order names");
    // The daemon looks every second, and reports nothing while nothing changes.
    node.pass(1_000);
    node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
    assert_eq!(node.todo, []);
    // Then the kubelet stops it: the daemon looks more often, until another runs.
    node.pass(1_000);
    node.looked(Look { named: None, image: image(), newest: newest(1, false), ..Look::default() });
    node.pass(250);
    // The Pod's status also shows that the pulled image runs, and mostly the request is over by then.
    for _ in 0..3 {
        node.looked(Look { named: None, image: image(), newest: newest(2, true), ..Look::default() });
        assert_eq!(node.todo, []);
        node.pass(1_000);
    }
    let running = node.image_answer().2.running.unwrap();
    assert_eq!((running.container_id.as_str(), running.image_id.as_str()), (id(2).as_str(), "config-2"));
    assert_eq!(node.writes, 2);
}

#[test]
fn that_something_else_runs_is_told_at_once() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
    node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
    node.image_answer();
    node.pass(1_000);
    let other = newest(2, true).map(|newest| NewestContainer { image_id: "config-3".into(), ..newest });
    node.looked(Look { named: None, image: image(), newest: other, ..Look::default() });
    assert_eq!(node.image_answer().2.running.unwrap().image_id, "config-3");
}

#[test]
fn what_the_node_has_is_not_pulled_unless_it_is_always() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
    node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
    assert!(node.image_answer().2.pulled.unwrap().present);
    let mut node = Node::new(vec![pull(1, PullPolicy::Always)]);
    node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
    node.pulls();
    let mut node = Node::new(vec![pull(1, PullPolicy::Never)]);
    node.looked(Look { named: named(1), newest: newest(1, true), ..Look::default() });
    let (state, reason, _) = node.image_answer();
    assert_eq!((state, reason), (AnswerState::Failed, Some(AnswerReason::ImageNeverPull)));
}

/// A writer of orders can bring onto a node only other versions of what runs there.
#[test]
fn only_the_repository_of_the_named_container_is_pulled() {
    let refused = |look: Look| {
        let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
        node.looked(look);
        let (state, reason, _) = node.image_answer();
        assert_eq!(state, AnswerState::Refused);
        assert_eq!(node.todo, []);
        reason.unwrap()
    };
    assert_eq!(refused(Look::default()), AnswerReason::NotRunning);
    let other = |change: fn(&mut NamedContainer)| {
        let mut named = named(1);
        change(named.as_mut().unwrap());
        Look { named, ..Look::default() }
    };
    let pod = other(|named| named.facts.pod_uid = "another".into());
    assert_eq!(refused(pod), AnswerReason::WrongContainer);
    let repository =
        other(|named| named.references = vec!["r.example.com/shop/other:v1".into(), "nonsense:".into()]);
    assert_eq!(refused(repository), AnswerReason::WrongRepository);
    // The name in the Pod counts before other names of the same image.
    let asked = other(|named| named.asked = "r.example.com/shop/other:v1".into());
    assert_eq!(refused(asked), AnswerReason::WrongRepository);
    assert_eq!(refused(other(|named| named.references.clear())), AnswerReason::WrongRepository);
}

#[test]
fn what_makes_no_sense_is_refused_unasked() {
    let broken: [fn(&mut Order); 5] = [
        |order| order.container.id = "ab".into(),
        |order| order.pod.uid.clear(),
        |order| order.action.pull.as_mut().unwrap().image = "No Image".into(),
        |order| order.action.pull.as_mut().unwrap().timeout_seconds = 0,
        |order| order.action.pull.as_mut().unwrap().timeout_seconds = 86_401,
    ];
    for (i, breaks) in broken.into_iter().enumerate() {
        let mut order = pull(1, PullPolicy::IfNotPresent);
        breaks(&mut order);
        let mut node = Node::new(vec![order]);
        let (state, reason, _) = node.image_answer();
        assert_eq!((state, reason), (AnswerState::Refused, Some(AnswerReason::InvalidOrder)), "{i}");
        assert_eq!(node.todo, [], "{i}");
    }
    let mut both = pull(1, PullPolicy::IfNotPresent);
    both.action.recreate = Some(Recreate::with_grace(None));
    let mut node = Node::new(vec![both]);
    assert_eq!(node.image_answer().1, Some(AnswerReason::InvalidOrder));
}

#[test]
fn a_pull_that_takes_long_is_told_and_one_that_fails_is_tried_again() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
    node.looked(Look { named: named(1), ..Look::default() });
    node.pulls();
    node.pass(2_999);
    assert_eq!(node.todo, []);
    node.pass(1);
    let (state, reason, _) = node.image_answer();
    assert_eq!((state, reason), (AnswerState::Acknowledged, Some(AnswerReason::Pulling)));
    node.send(failed(false, "dial tcp: connection refused"));
    assert_eq!(node.image_answer().1, Some(AnswerReason::PullRetried));
    let at = node.wake_at().unwrap();
    node.pass(at.0 - node.now);
    // By now another client may have pulled it, or the container may be another.
    node.looked(Look { named: named(1), ..Look::default() });
    assert!(node.pulls() < Duration::from_mins(1), "what is left");
    // Its time is over.
    node.send(failed(false, "dial tcp: connection refused"));
    node.todo.clear();
    node.pass(60_000);
    let (state, reason, _) = node.image_answer();
    assert_eq!((state, reason), (AnswerState::Failed, Some(AnswerReason::PullTimedOut)));
    assert!(node.book.status.answers[0].message.contains("connection refused"));
}

#[test]
fn what_the_registry_refuses_is_final() {
    for (event, reason) in [
        (failed(true, "not there"), AnswerReason::PullFailed),
        (failed(false, "401 Unauthorized"), AnswerReason::PullUnauthorized),
        (failed(false, "no space left on device"), AnswerReason::NoDiskRoom),
    ] {
        let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
        node.looked(Look { named: named(1), ..Look::default() });
        node.pulls();
        node.send(event);
        let (state, actual, _) = node.image_answer();
        assert_eq!((state, actual), (AnswerState::Failed, Some(reason)));
        node.pass(100_000);
        assert_eq!(node.todo, []);
        node.restart("two");
        assert_eq!(node.todo, [], "nor by another process");
    }
}

#[test]
fn an_image_that_goes_is_told_at_once_and_pulled_again() {
    let mut node = Node::new(vec![pull(1, PullPolicy::Always)]);
    node.looked(Look { named: named(1), ..Look::default() });
    node.pulls();
    node.send(Event::Pulled(IMAGE.into(), Ok(())));
    node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
    node.image_answer();
    // A new process goes on from the stored answer: it does not ask the registry again.
    node.restart("two");
    node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
    assert_eq!(node.todo, []);
    node.pass(1_000);
    node.looked(Look { named: named(1), newest: newest(1, true), ..Look::default() });
    let (state, reason, _) = node.image_answer();
    assert_eq!((state, reason), (AnswerState::Acknowledged, Some(AnswerReason::ImageGone)));
    node.pulls();
    node.send(Event::Pulled(IMAGE.into(), Ok(())));
    node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
    assert_eq!(node.image_answer().0, AnswerState::Done);
}

/// Otherwise two daemons on one node would overwrite each other's answers.
#[test]
fn what_another_daemon_has_told_of_an_image_stands() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
    node.looked(Look { named: named(1), ..Look::default() });
    node.pulls();
    node.send(Event::Pulled(IMAGE.into(), Ok(())));
    let there = || Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() };
    node.looked(there());
    assert!(!node.image_answer().2.pulled.unwrap().present);
    node.change(|book| {
        let image = book.status.answers[0].image.as_mut().unwrap();
        image.pulled.as_mut().unwrap().present = true;
    });
    assert_eq!(node.todo, []);
    node.pass(1_000);
    node.looked(there());
    assert_eq!(node.todo, []);
}

/// The same for the end of a pull.
#[test]
fn what_another_daemon_has_told_of_the_end_of_a_pull_stands() {
    for state in [AnswerState::Done, AnswerState::Failed, AnswerState::Refused] {
        let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
        node.looked(Look { named: named(1), ..Look::default() });
        node.pulls();
        node.send(failed(true, "not there"));
        assert_eq!(node.image_answer().0, AnswerState::Failed);
        node.change(|book| {
            (book.status.answers[0].state, book.status.answers[0].message) = (state, "of the other".into());
        });
        assert_eq!(node.todo, [], "{state:?}");
    }
}

#[test]
fn two_pulls_at_a_time_and_the_namespaces_take_turns() {
    let of = |n: u8, namespace: &str| {
        let mut order = pull(n, PullPolicy::IfNotPresent);
        order.pod.namespace = namespace.into();
        order.action.pull.as_mut().unwrap().image = format!("{IMAGE}.{n}");
        order
    };
    let mut node = Node::new(vec![of(1, "a"), of(2, "a"), of(3, "a"), of(4, "b")]);
    for (n, namespace) in [(1, "a"), (2, "a"), (3, "a"), (4, "b")] {
        let mut named = named(n);
        named.as_mut().unwrap().facts.namespace = namespace.into();
        let look = Look { named, ..Look::default() };
        node.send(Event::ImageSeen(format!("req/c{n}/1"), Ok(Box::new(look))));
    }
    node.todo.retain(|action| !matches!(action, Action::LookAtImage { .. }));
    let begun = |node: &mut Node| -> Vec<String> {
        node.todo
            .drain(..)
            .filter_map(|action| match action {
                Action::Pull { order_id, .. } => Some(order_id),
                _ => None,
            })
            .collect()
    };
    assert_eq!(begun(&mut node), ["req/c1/1", "req/c2/1"], "nobody else wanted one yet");
    let missing = PullFailure { missing: true, message: String::new() };
    node.send(Event::Pulled(format!("{IMAGE}.1"), Err(missing)));
    assert_eq!(begun(&mut node), ["req/c4/1"]);
}

#[test]
fn a_pull_is_given_up_with_its_order() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
    node.looked(Look { named: named(1), ..Look::default() });
    node.pulls();
    node.change(|book| book.orders.clear());
    node.expect(|action| matches!(action, Action::CancelPull { image } if image == IMAGE));
    node.send(Event::Pulled(IMAGE.into(), Ok(())));
    assert_eq!(node.todo, []);
}

fn pulls_in(node: &Node) -> usize {
    node.todo
        .iter()
        .filter(|action| matches!(action, Action::Pull { .. } | Action::CancelPull { .. }))
        .count()
}

/// One image has one pull, even if the order that started it is withdrawn.
#[test]
fn orders_of_one_image_wait_for_one_pull() {
    let orders = || (1..=3).map(|n| pull(n, PullPolicy::Always)).collect();
    let look = |n: u8, image| Look { named: named(n), image, ..Look::default() };
    let mut node = Node::new(orders());
    for n in 1..=3 {
        node.looked(look(n, None));
    }
    node.pulls();
    node.change(|book| drop(book.orders.remove(0)));
    assert_eq!(pulls_in(&node), 0);
    node.now += 700;
    node.send(Event::Pulled(IMAGE.into(), Ok(())));
    for n in 2..=3 {
        node.looked(look(n, image()));
    }
    // The second look came while the first answer was written.
    node.stored();
    let status = node.stored();
    let took = |answer: &Answer| answer.image.as_ref().unwrap().pulled.as_ref().unwrap().milliseconds;
    assert_eq!(status.answers.iter().map(took).collect::<Vec<_>>(), [700, 700]);
    // A failed pull fails all of them.
    let mut node = Node::new(orders());
    for n in 1..=3 {
        node.looked(look(n, None));
    }
    node.pulls();
    node.send(failed(true, "not there"));
    let reasons: Vec<_> = node.stored().answers.iter().map(|answer| answer.reason).collect();
    assert_eq!(reasons, [Some(AnswerReason::PullFailed); 3]);
    assert_eq!(node.todo, []);
}

/// Also if the runtime ignores the limit.
#[test]
fn a_pull_that_takes_too_long_is_given_up() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
    node.looked(Look { named: named(1), ..Look::default() });
    node.pulls();
    node.pass(3_000);
    node.image_answer();
    assert_eq!(node.wake_at(), Some(Mono(160_000)));
    node.pass(57_000);
    node.expect(|action| matches!(action, Action::CancelPull { .. }));
    assert_eq!(node.image_answer().1, Some(AnswerReason::PullTimedOut));
}

#[test]
fn nothing_is_pulled_where_there_is_no_room() {
    let begin = |room: u64| {
        let mut node = Node::new(Vec::new());
        node.daemon = daemon("one").with_image_room(room);
        node.book.orders = vec![pull(1, PullPolicy::IfNotPresent)];
        node.send(Event::Book(Watch::list(vec![node.book.clone()])));
        let asks = |action: &Action| matches!(action, Action::LookAtImage { room: true, .. });
        assert_eq!(node.todo.iter().any(asks), room > 0);
        node
    };
    let look = |free| Look { named: named(1), free, ..Look::default() };
    let mut node = begin(5 << 20);
    node.looked(look(Some((5 << 20) - 1)));
    let (state, reason, _) = node.image_answer();
    assert_eq!((state, reason), (AnswerState::Failed, Some(AnswerReason::NoDiskRoom)));
    let text = &node.book.status.answers[0].message;
    assert!(text.contains("has 4 MiB free; its daemon requires 5 MiB"), "{text}");
    for (room, free) in [(5 << 20, Some(5 << 20)), (5 << 20, None), (0, Some(0))] {
        let mut node = begin(room);
        node.looked(look(free));
        node.pulls();
    }
    // An image on the node needs no room, so the daemon does not look.
    let mut node = begin(5 << 20);
    node.looked(Look { image: image(), ..look(Some(0)) });
    assert_eq!(node.image_answer().0, AnswerState::Done);
    node.pass(1_000);
    node.expect(|action| matches!(action, Action::LookAtImage { room: false, .. }));
}

/// By then the update may have ended the container.
#[test]
fn a_process_that_starts_anew_goes_on_with_an_image_that_is_gone() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
    node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
    node.image_answer();
    node.pass(1_000);
    let after = || Look { heir: named(1), newest: newest(2, true), ..Look::default() };
    node.looked(after());
    let (_, reason, answer) = node.image_answer();
    assert_eq!(reason, Some(AnswerReason::ImageGone));
    assert_eq!(answer.running.map(|running| running.container_id), Some(id(2).into()));
    node.restart("two");
    node.looked(after());
    node.pulls();
    assert_eq!(node.todo, []);
}

/// A container that crashes repeatedly costs at most one write in ten seconds.
#[test]
fn changes_of_what_runs_are_told_ever_more_rarely() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
    node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
    node.image_answer();
    let mut reports = 0;
    for n in 2..42 {
        let at = node.wake_at().unwrap();
        node.pass(at.0 - node.now);
        node.looked(Look { named: None, image: image(), newest: newest(n, true), ..Look::default() });
        if node.todo.iter().any(|action| matches!(action, Action::WriteStatus { .. })) {
            node.image_answer();
            reports += 1;
        }
    }
    assert!((4..=8).contains(&reports), "{reports}");
}

/// A restart of another container of the Pod does not wait for a pull, nor the other way round.
#[test]
fn a_pull_takes_no_turn_of_its_pod() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent), order(2, "web", None)]);
    node.inspect(2, facts(2, "web", ContainerState::Running));
    node.looked(Look { named: named(1), ..Look::default() });
    node.pulls();
}
