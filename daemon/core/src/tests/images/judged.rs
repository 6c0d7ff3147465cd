//! The daemon checks a pull by its own order, and by the Pod's containers at that time.

use super::*;

/// A forged book may say that the node had the image.
#[test]
fn what_the_book_says_was_pulled_is_judged_before_it_is_pulled_again() {
    let other = || named(1).map(|it| NamedContainer { facts: facts(1, "db", ContainerState::Running), ..it });
    let moved =
        || named(1).map(|it| NamedContainer { references: vec!["r.example.com/shop/db:v1".into()], ..it });
    let cases = [
        (Look { named: other(), ..Look::default() }, AnswerReason::WrongContainer),
        (Look { heir: other(), ..Look::default() }, AnswerReason::WrongContainer),
        (Look { heir: moved(), ..Look::default() }, AnswerReason::WrongRepository),
    ];
    for (look, why) in cases {
        let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
        node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
        node.image_answer();
        node.restart("two");
        node.looked(look);
        let (state, reason, _) = node.image_answer();
        assert_eq!((state, reason), (AnswerState::Refused, Some(why)));
        assert_eq!(node.todo, []);
    }
}

/// As after a node started again without its containers and images.
#[test]
fn between_two_containers_of_a_pod_nothing_is_pulled() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
    node.looked(Look { named: named(1), image: image(), newest: newest(1, true), ..Look::default() });
    node.image_answer();
    node.restart("two");
    node.looked(Look::default());
    assert_eq!(node.image_answer().1, Some(AnswerReason::ImageGone));
    assert_eq!(node.todo, []);
    node.pass(2_000);
    node.looked(Look { heir: named(1), newest: newest(2, true), ..Look::default() });
    node.pulls();
    // If no container comes, the pull's timeout ends the order.
    node.restart("three");
    for _ in 0..30 {
        node.looked(Look::default());
        node.pass(2_000);
    }
    assert_eq!(node.image_answer().1, Some(AnswerReason::PullTimedOut));
}

/// The kubelet removes all but the newest container that has ended, as soon as another one ends.
#[test]
fn an_image_is_pulled_for_a_pod_whose_container_crashes_meanwhile() {
    let mut node = Node::new(vec![pull(1, PullPolicy::IfNotPresent)]);
    let later = || Look { heir: named(1), newest: newest(2, false), ..Look::default() };
    node.looked(later());
    node.pulls();
    node.send(Event::Pulled(IMAGE.into(), Ok(())));
    node.looked(Look { image: image(), ..later() });
    assert_eq!(node.image_answer().0, AnswerState::Done);
}

/// Neither beside the first order, nor instead of it while the runtime is still asked about that.
#[test]
fn what_is_told_of_one_order_is_not_taken_for_another_of_its_id() {
    let pulls = |node: &Node| node.todo.iter().any(|action| matches!(action, Action::Pull { .. }));
    let other = Order { id: order(1, "web", None).id, ..pull(2, PullPolicy::Always) };
    let mut node = Node::new(vec![order(1, "web", None), other]);
    node.todo.retain(|action| matches!(action, Action::LookAtImage { .. }));
    node.looked(Look { named: named(1), ..Look::default() });
    assert!(!pulls(&node), "{:?}", node.todo);

    let another = |n| {
        let mut another = pull(1, PullPolicy::Always);
        another.container.id = id(n).into();
        another
    };
    for changed_first in [false, true] {
        let mut node = Node::new(vec![pull(1, PullPolicy::Always)]);
        if changed_first {
            node.change(|book| book.orders = vec![another(2)]);
            assert_eq!(node.image_answer().1, Some(AnswerReason::InvalidOrder));
        }
        node.change(|book| book.orders.clear());
        node.todo.retain(|action| matches!(action, Action::LookAtImage { .. }));
        node.change(|book| book.orders = vec![another(3)]);
        node.looked(Look { named: named(1), ..Look::default() });
        assert!(!pulls(&node), "{:?}", node.todo);
        if !changed_first {
            node.looked(Look { named: named(1), ..Look::default() });
            assert!(pulls(&node), "its own answer");
        }
    }
}
