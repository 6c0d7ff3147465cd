//! How many actions the engine has under way at a time.

use super::*;

const BOOKS: &str = "";

/// The namespace whose room the action takes, or the books.
fn of(action: &Action) -> Option<&str> {
    match action {
        Action::Emit(_) | Action::Count(_) => None,
        Action::WriteOrders { .. } => Some(BOOKS),
        Action::Write { object: Object { key, .. }, .. } | Action::PatchPod { key, .. } => {
            Some(&key.namespace)
        }
        other => panic!("{other:?}"),
    }
}

/// `many` requests of one namespace and one of another, each for its own Pod, on four nodes in turn.
fn crowd(many: usize) -> (Bench, VecDeque<Action>) {
    let mut bench = Bench::empty();
    let pair = |namespace: &str, name: String, i: usize| {
        let mut pod = pod(&name);
        pod.key = ObjectKey::new(namespace, &name);
        pod.node = Some(format!("node{}", i % 4));
        let mut request = request(&name, &name, i64::try_from(i).unwrap());
        request.key = pod.key.clone();
        (pod, request)
    };
    let all =
        (0..many).map(|i| pair("many", format!("p{i:03}"), i)).chain([pair("one", "last".into(), many)]);
    let (pods, requests): (Vec<Pod>, Vec<Request>) = all.unzip();
    bench.requests = requests.iter().map(|r| (r.key.clone(), r.clone())).collect();
    bench.pods = pods.iter().map(|p| (p.key.clone(), p.clone())).collect();
    bench.step(Event::Leader(true));
    bench.step(Event::Pods(Watch::list(pods)));
    bench.step(Event::NodeWorks(Watch::list(Vec::new())));
    let first = bench.step(Event::of::<Request>(Watch::list(requests)));
    (bench, first.into())
}

fn accepted(bench: &Bench) -> Vec<&ObjectKey> {
    bench.requests.iter().filter(|(_, r)| r.status.target.is_some()).map(|(key, _)| key).collect()
}

#[test]
fn no_more_is_under_way_than_there_is_room_for_and_all_get_through() {
    let (mut bench, mut under_way) = crowd(100);
    let mut order = Vec::new();
    while let Some(action) = under_way.pop_front() {
        let all: Vec<_> = under_way.iter().chain([&action]).filter_map(of).collect();
        assert!(all.len() <= 16, "{}", all.len());
        for one in &all {
            let most = if *one == BOOKS { 8 } else { 4 };
            assert!(all.iter().filter(|other| *other == one).count() <= most, "{one:?}");
        }
        if of(&action).is_none() {
            continue;
        }
        let known = accepted(&bench).len();
        let answer = match &action {
            // No book is stored: every write of one fails, and is tried again.
            Action::WriteOrders { node, .. } => Event::NodeWorkWritten(node.clone(), Outcome::Retry),
            write => bench.write(write),
        };
        if accepted(&bench).len() > known
            && let Action::Write { object, .. } = &action
        {
            order.push(object.key.name.clone());
        }
        under_way.extend(bench.step(answer));
    }
    assert_eq!(order.len(), 101);
    let last = order.iter().position(|name| name == "last").unwrap();
    assert!(last <= 16, "it waits for nobody else's: {last}");
    // The first ones came before any had to wait.
    let nodes: Vec<usize> = order[8..]
        .iter()
        .filter_map(|name| name.strip_prefix('p')?.parse::<usize>().ok())
        .map(|i| i % 4)
        .collect();
    let changes = nodes.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes < 8, "those of a node follow each other: {nodes:?}");
}
