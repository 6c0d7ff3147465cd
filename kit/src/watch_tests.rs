use super::*;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;

use crate::health::Readiness;

/// A client that gets these answers in order; then every request hangs. Also returns the queries.
fn client(answers: Vec<(u16, String)>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let queries = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&queries);
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let service = tower::service_fn(move |request: Request<Body>| {
        seen.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
        let answer = answers.lock().unwrap().pop_front();
        async move {
            match answer {
                Some((code, body)) => Ok::<_, Infallible>(
                    Response::builder().status(code).body(Full::new(Bytes::from(body))).unwrap(),
                ),
                None => std::future::pending().await,
            }
        }
    });
    (Client::new(service, "default"), queries)
}

fn object(name: &str, version: u32) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"{version}"}}}}"#)
}

fn malformed(name: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"n","resourceVersion":"1"}},"data":7}}"#)
}

fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn end_of_list(version: u32) -> String {
    event(
        "BOOKMARK",
        &format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}"#
        ),
    )
}

fn page(continue_token: &str, items: &[String]) -> String {
    format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"9","continue":"{continue_token}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

fn failure(code: u16) -> (u16, String) {
    (
        code,
        format!(
            r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"r","message":"m","code":{code}}}"#
        ),
    )
}

struct Running {
    rx: mpsc::Receiver<Watch<String>>,
    readiness: Readiness,
    metrics: WatchMetrics,
    queries: Arc<Mutex<Vec<String>>>,
}

fn start(answers: Vec<(u16, String)>) -> Running {
    let (client, queries) = client(answers);
    let readiness = Readiness::new();
    let metrics = WatchMetrics::default();
    let source = Source {
        name: "maps",
        config: watcher::Config::default().fields("metadata.name=a"),
        synced: readiness.condition("maps synced"),
        metrics: metrics.clone(),
    };
    let (tx, rx) = mpsc::channel(8);
    let api: Api<Guard<ConfigMap>> = Api::all(client);
    tokio::spawn(run(api, source, |map: ConfigMap| map.metadata.name, |watch| watch, tx));
    Running { rx, readiness, metrics, queries }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[tokio::test]
async fn a_streamed_list_arrives_whole_and_changes_one_by_one() {
    let body = [
        event("ADDED", &object("a", 1)),
        event("ADDED", &malformed("b")),
        event("ADDED", &object("c", 2)),
        end_of_list(5),
        event("MODIFIED", &object("a", 6)),
        event("MODIFIED", &malformed("c")),
        event("DELETED", &object("c", 7)),
    ]
    .concat();
    let mut running = start(vec![(200, body)]);
    assert!(!running.readiness.is_ready());
    assert_eq!(running.rx.recv().await, Some(Watch::list(names(&["a", "c"]))));
    assert_eq!(running.rx.recv().await, Some(Watch::Upsert("a".to_owned())));
    assert_eq!(running.rx.recv().await, Some(Watch::Gone("c".to_owned())));
    assert!(running.readiness.is_ready());
    // The stream has ended: the watch continues where it was, without a list.
    while running.queries.lock().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let queries = running.queries.lock().unwrap().clone();
    assert!(
        queries[0].contains("sendInitialEvents=true") && queries[0].contains("metadata.name"),
        "{queries:?}"
    );
    assert!(
        queries[1].contains("resourceVersion=7") && !queries[1].contains("sendInitialEvents"),
        "{queries:?}"
    );
    assert_eq!(running.metrics.malformed.get_or_create(&[("watch", "maps")]).get(), 2);
}

#[tokio::test]
async fn a_server_that_cannot_stream_is_listed_by_pages() {
    let mut running = start(vec![
        failure(422),
        (200, page("more", &[object("a", 1), malformed("b")])),
        (200, page("", &[object("c", 2)])),
    ]);
    assert_eq!(running.rx.recv().await, Some(Watch::list(names(&["a", "c"]))));
    let queries = running.queries.lock().unwrap().clone();
    assert!(queries[1].contains("limit=100") && queries[2].contains("continue=more"), "{queries:?}");
    assert_eq!(running.metrics.errors.get_or_create(&[("watch", "maps")]).get(), 0);
}

#[tokio::test(start_paused = true)]
async fn errors_are_counted_and_a_version_that_is_too_old_leads_to_a_new_list() {
    let gone = event("ERROR", &failure(410).1);
    let mut running = start(vec![
        failure(500),
        (200, [event("ADDED", &object("a", 1)), end_of_list(5), gone].concat()),
        (200, [event("ADDED", &object("b", 8)), end_of_list(9)].concat()),
    ]);
    assert_eq!(running.rx.recv().await, Some(Watch::list(names(&["a"]))));
    assert_eq!(running.rx.recv().await, Some(Watch::list(names(&["b"]))));
    assert_eq!(running.metrics.errors.get_or_create(&[("watch", "maps")]).get(), 2);
    assert_eq!(running.metrics.lists.get_or_create(&[("watch", "maps")]).get(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_breaks_off_is_not_taken_for_a_whole_one() {
    let mut running = start(vec![
        (200, event("ADDED", &object("a", 1))),
        (200, [event("ADDED", &object("b", 2)), end_of_list(5)].concat()),
    ]);
    assert_eq!(running.rx.recv().await, Some(Watch::list(names(&["b"]))));
}

#[tokio::test]
async fn a_large_list_comes_in_parts() {
    let count = PART_SIZE + 1;
    let mut body: String = (0..count).map(|i| event("ADDED", &object(&format!("m{i}"), 1))).collect();
    body.push_str(&end_of_list(5));
    let mut running = start(vec![(200, body)]);
    let mut part = async || match running.rx.recv().await {
        Some(Watch::Listed(part)) => (part.objects.len(), part.first, part.last),
        other => panic!("{other:?}"),
    };
    assert_eq!(part().await, (PART_SIZE, true, false));
    assert_eq!(part().await, (1, false, true));
    assert_eq!(running.metrics.lists.get_or_create(&[("watch", "maps")]).get(), 1, "it is one list");
}

#[tokio::test]
async fn it_ends_with_its_receiver() {
    let (client, _) = client(Vec::new());
    let source = Source {
        name: "maps",
        config: watcher::Config::default(),
        synced: Readiness::new().condition("maps synced"),
        metrics: WatchMetrics::default(),
    };
    let (tx, rx) = mpsc::channel(1);
    let api: Api<Guard<ConfigMap>> = Api::all(client);
    let task = tokio::spawn(run(api, source, |map: ConfigMap| map.metadata.name, |watch| watch, tx));
    drop(rx);
    tokio::time::timeout(Duration::from_secs(5), task).await.unwrap().unwrap();
}
