//! Pods that the watch does not show: the API server is asked before a request ends for them.

use pitstop_api::labels;
use serde_json::json;

use super::*;

/// A request for a Pod that the watch has not shown in time.
fn late() -> (Bench, Vec<Action>) {
    let mut made = request("a", "web", 0);
    made.more.labels.insert(labels::POD_UID.to_owned(), pod("web").uid);
    let mut bench = Bench::new(Vec::new(), Vec::new());
    bench.requests.insert(made.key.clone(), made.clone());
    assert_eq!(bench.step(Event::of::<Request>(Watch::Upsert(made))), []);
    bench.now = bench.wake_at().unwrap();
    assert_eq!(bench.now, Mono(2000));
    let asked = bench.step(Event::Tick);
    (bench, asked)
}

fn answered(bench: &mut Bench, outcome: Outcome<String>) -> Vec<Action> {
    let (key, uid) = (ObjectKey::new("shop", "a"), "uid-a".to_owned());
    bench.step(Event::PodRead { object: Object { kind: recreate::ID, key, uid }, outcome })
}

#[test]
fn a_watch_that_is_behind_ends_no_request() {
    let (mut bench, asked) = late();
    let [Action::ReadPod { object: Object { kind: recreate::ID, key, uid }, pod: named }] = &asked[..] else {
        panic!("{asked:?}")
    };
    assert_eq!((key.name.as_str(), uid.as_str(), named.name.as_str()), ("a", "uid-a", "web"));
    assert_eq!(bench.step(Event::Tick), [], "one question at a time");
    assert_eq!(answered(&mut bench, Outcome::Written(pod("web").uid)), []);
    // The API server is asked again, less and less often, while the watch shows nothing.
    for wait in [500, 1000, 2000] {
        assert_eq!(bench.wake_at(), Some(bench.now.after(Duration::from_millis(wait))));
        bench.now = bench.wake_at().unwrap();
        assert!(matches!(bench.step(Event::Tick)[..], [Action::ReadPod { .. }]));
        assert_eq!(answered(&mut bench, Outcome::Retry), []);
    }
    bench.pods.insert(pod("web").key, pod("web"));
    let begins = bench.step(Event::Pods(Watch::Upsert(pod("web"))));
    bench.all(begins);
    assert_eq!(bench.phase("a"), Some(Phase::Recreating));
}

#[test]
fn what_the_api_server_says_is_gone_ends_the_request() {
    for outcome in [Outcome::Gone, Outcome::Written("another".to_owned())] {
        let (mut bench, _) = late();
        let ends = answered(&mut bench, outcome);
        bench.all(ends);
        assert_eq!(bench.requests[&ObjectKey::new("shop", "a")].status.message, "pod has gone");
    }
}

#[test]
fn an_answer_for_a_request_of_before_says_nothing() {
    let (mut bench, _) = late();
    let (key, uid) = (ObjectKey::new("shop", "a"), "uid-z".to_owned());
    let answer = Event::PodRead { object: Object { kind: recreate::ID, key, uid }, outcome: Outcome::Gone };
    assert_eq!(bench.step(answer), []);
}

#[test]
fn the_deadline_ends_a_request_whose_pod_is_never_shown() {
    let (mut bench, _) = late();
    answered(&mut bench, Outcome::Written(pod("web").uid));
    bench.now = Mono(3_600_000);
    let ends = bench.step(Event::Tick);
    bench.all(ends);
    let status = &bench.requests[&ObjectKey::new("shop", "a")].status;
    assert_eq!(status.message, "recreating has exceeded the activeDeadlineSeconds");
}

#[test]
fn resizes_ask_too() {
    let spec = json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "resources": {"limits": {"cpu": "1"}}}]});
    let resize = Resize {
        key: ObjectKey::new("shop", "grow"),
        uid: "uid-grow".into(),
        resource_version: "1".into(),
        spec: serde_json::from_value(spec).unwrap(),
        ..Resize::default()
    };
    let mut bench = Bench::new(Vec::new(), Vec::new());
    assert_eq!(bench.step(Event::of::<Resize>(Watch::Upsert(resize.clone()))), []);
    bench.now = Mono(2000);
    let asked = bench.step(Event::Tick);
    assert!(
        matches!(asked[..], [Action::ReadPod { object: Object { kind: resize::ID, .. }, .. }]),
        "{asked:?}"
    );
    let mut answer = |outcome| {
        let (key, uid) = (resize.key.clone(), resize.uid.clone());
        bench.step(Event::PodRead { object: Object { kind: resize::ID, key, uid }, outcome })
    };
    assert_eq!(answer(Outcome::Written("pod-1".to_owned())), []);
    let ends = answer(Outcome::Gone);
    assert!(
        matches!(ends[..], [Action::Write { write: Write::Status { status: Status::Resize(_), .. }, .. }]),
        "{ends:?}"
    );
}
