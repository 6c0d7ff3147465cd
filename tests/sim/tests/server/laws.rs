use std::sync::Arc;

use chrono::{DateTime, Utc};
use http::{Request, Response};
use pitstop_sim::server::admission::{Admission, Refusal, Review};
use pitstop_sim::server::{Server, Watch};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/a/pods";
const MAPS: &str = "/api/v1/namespaces/a/configmaps";

fn wall() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

fn server() -> Server {
    let mut server = Server::new();
    server.insert_namespace(wall(), "a");
    server
}

fn send(server: &mut Server, method: &str, uri: &str, body: &Value) -> Response<Value> {
    let body = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let request = Request::builder().method(method).uri(uri);
    let request = match method {
        "PATCH" => request.header("content-type", "application/merge-patch+json"),
        _ => request.header("content-type", "application/json"),
    };
    server.handle(wall(), &request.body(body).unwrap())
}

fn get(uri: &str) -> Request<Vec<u8>> {
    Request::get(uri).body(Vec::new()).unwrap()
}

fn open(server: &mut Server, uri: &str) -> Watch {
    server.watch(wall(), &get(uri)).unwrap()
}

fn map(server: &mut Server, name: &str) -> Value {
    let answer = send(server, "POST", MAPS, &json!({ "metadata": { "name": name } }));
    assert_eq!(answer.status(), 201, "{}", answer.body());
    answer.into_body()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[test]
fn history_beyond_the_floor_is_gone() {
    let mut server = server();
    let first = version(&map(&mut server, "x"));
    map(&mut server, "y");
    let mut late = open(&mut server, &format!("{MAPS}?watch=true&resourceVersion={first}"));
    server.compact(0);
    let mut watch = open(&mut server, &format!("{MAPS}?watch=true&resourceVersion={first}"));
    for watch in [&mut watch, &mut late] {
        let events = server.poll(watch);
        assert_eq!(kinds(&events), ["ERROR"]);
        assert_eq!(events[0]["object"]["code"], 410);
        assert!(watch.is_closed());
        assert_eq!(server.poll(watch), Vec::<Value>::new());
    }
    let list = format!("{MAPS}?resourceVersion={first}&resourceVersionMatch=Exact");
    assert_eq!(send(&mut server, "GET", &list, &Value::Null).status(), 410);
    let page = format!("{MAPS}?limit=1&continue={first}.a/x");
    assert_eq!(send(&mut server, "GET", &page, &Value::Null).status(), 410);
}

#[test]
fn a_version_of_the_future_is_too_large() {
    let mut server = server();
    for uri in [
        format!("{MAPS}?resourceVersion=1000&resourceVersionMatch=NotOlderThan"),
        format!("{MAPS}?resourceVersion=1000"),
        format!("{MAPS}/x?resourceVersion=1000"),
    ] {
        let answer = send(&mut server, "GET", &uri, &Value::Null);
        assert_eq!(answer.status(), 504);
        assert_eq!(answer.body()["details"]["retryAfterSeconds"], 1);
    }
}

#[test]
fn an_older_etcd_brings_back_what_was_and_forgets_the_rest() {
    let mut server = server();
    let x = map(&mut server, "x");
    let snapshot = server.snapshot();
    let y = map(&mut server, "y");
    assert_eq!(send(&mut server, "DELETE", &format!("{MAPS}/x"), &Value::Null).status(), 200);
    let mut watch = open(&mut server, &format!("{MAPS}?watch=true&resourceVersion={}", version(&y)));
    let before = server.version();
    server.restore(&snapshot, 0);
    assert!(server.version() < before);
    assert_eq!(server.poll(&mut watch), Vec::<Value>::new());
    assert!(watch.is_closed());
    assert_eq!(
        server.object("ConfigMap", "a", "x").map(|o| o["metadata"]["uid"].clone()),
        Some(x["metadata"]["uid"].clone())
    );
    assert!(server.object("ConfigMap", "a", "y").is_none());
    let again = map(&mut server, "y");
    assert_eq!(version(&again), version(&y), "versions repeat");
    assert_ne!(again["metadata"]["uid"], y["metadata"]["uid"], "UIDs do not");
    // A client from before the restore does not see what happens below its version.
    let mut old = open(&mut server, &format!("{MAPS}?watch=true&resourceVersion={}", version(&y) + 1));
    map(&mut server, "z");
    assert_eq!(server.poll(&mut old), Vec::<Value>::new());
    map(&mut server, "zz");
    assert_eq!(kinds(&server.poll(&mut old)), ["ADDED"]);
}

#[test]
fn a_stale_server_reads_the_past_and_writes_the_present() {
    let mut server = server();
    let x = map(&mut server, "x");
    map(&mut server, "y");
    let then = version(&x);
    let names = |answer: Response<Value>| {
        let items = answer.body()["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["metadata"]["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(server.handle_stale(then, wall(), &get(MAPS))), ["x"]);
    assert_eq!(names(server.handle(wall(), &get(MAPS))), ["x", "y"]);
    let create = Request::post(MAPS).body(br#"{"metadata":{"name":"y"}}"#.to_vec()).unwrap();
    assert_eq!(server.handle_stale(then, wall(), &create).status(), 409);
    let mut watch = server.watch_stale(then, wall(), &get(&format!("{MAPS}?watch=true"))).unwrap();
    assert_eq!(kinds(&server.poll(&mut watch)), ["ADDED", "ADDED"]);
}

#[test]
fn bookmarks_come_when_all_is_read() {
    let mut server = server();
    let mut watch = open(&mut server, &format!("{MAPS}?watch=true&allowWatchBookmarks=true"));
    map(&mut server, "x");
    assert!(server.bookmark(&watch).is_none());
    assert_eq!(server.poll(&mut watch).len(), 1);
    let bookmark = server.bookmark(&watch).unwrap();
    assert_eq!(bookmark["object"]["metadata"]["resourceVersion"], server.version().to_string());
    let plain = open(&mut server, &format!("{MAPS}?watch=true"));
    assert!(server.bookmark(&plain).is_none());
}

#[test]
fn the_direct_way_is_seen_like_any_other() {
    let mut server = server();
    let pod = json!({ "metadata": { "namespace": "a", "name": "p" }, "spec": { "nodeName": "n" } });
    server.insert(wall(), "Pod", pod);
    let mut watch = open(&mut server, &format!("{PODS}?watch=true&fieldSelector=spec.nodeName%3Dn"));
    assert!(server.update("Pod", "a", "p", |pod| pod["status"] = json!({ "phase": "Running" })));
    let written = server.version();
    assert!(server.update("Pod", "a", "p", |pod| pod["status"] = json!({ "phase": "Running" })));
    assert_eq!(server.version(), written, "what changes nothing is no write");
    assert!(server.remove("Pod", "a", "p"));
    assert!(!server.remove("Pod", "a", "p"));
    assert_eq!(kinds(&server.poll(&mut watch)), ["ADDED", "MODIFIED", "DELETED"]);
}

#[test]
fn a_namespace_ends_when_it_is_empty() {
    let mut server = server();
    map(&mut server, "x");
    send(&mut server, "PATCH", &format!("{MAPS}/x"), &json!({ "metadata": { "finalizers": ["a.io/b"] } }));
    assert!(!server.empty_namespace(wall(), "a"), "nobody deleted it");
    assert_eq!(send(&mut server, "DELETE", "/api/v1/namespaces/a", &Value::Null).status(), 200);
    let refused = send(&mut server, "POST", MAPS, &json!({ "metadata": { "name": "y" } }));
    assert_eq!(refused.status(), 403);
    assert!(!server.empty_namespace(wall(), "a"), "an object is held");
    send(&mut server, "PATCH", &format!("{MAPS}/x"), &json!({ "metadata": { "finalizers": null } }));
    assert!(server.empty_namespace(wall(), "a"));
    assert_eq!(send(&mut server, "GET", "/api/v1/namespaces/a", &Value::Null).status(), 404);
    let refused = send(&mut server, "POST", MAPS, &json!({ "metadata": { "name": "y" } }));
    assert_eq!(refused.status(), 404);
}

#[derive(Debug)]
struct Hook;

impl Admission for Hook {
    fn mutate(&self, _: &Server, _: &Review<'_>, object: &mut Value) -> Result<(), Refusal> {
        object["metadata"]["labels"]["seen"] = "yes".into();
        Ok(())
    }

    fn validate(&self, _: &Server, review: &Review<'_>, object: &Value) -> Result<(), Refusal> {
        assert_eq!(object["metadata"]["labels"]["seen"], "yes");
        match review.name {
            "bad" => Err(Refusal { code: 403, reason: "Forbidden", message: "no".to_owned() }),
            _ => Ok(()),
        }
    }
}

#[test]
fn hooks_change_and_refuse() {
    let mut server = server();
    server.admit(Arc::new(Hook));
    assert_eq!(map(&mut server, "x")["metadata"]["labels"]["seen"], "yes");
    let answer = send(&mut server, "POST", MAPS, &json!({ "metadata": { "name": "bad" } }));
    assert_eq!((answer.status().as_u16(), answer.body()["reason"].as_str()), (403, Some("Forbidden")));
    assert_eq!(send(&mut server, "GET", &format!("{MAPS}/bad"), &Value::Null).status(), 404);
}

#[test]
fn a_grace_that_is_over_cannot_be_prolonged() {
    let mut server = server();
    let pod = json!({ "metadata": { "name": "p" }, "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "i" }] } });
    assert_eq!(send(&mut server, "POST", PODS, &pod).status(), 201);
    let uri = format!("{PODS}/p");
    let later = wall() + chrono::Duration::seconds(600);
    let grace = |seconds: i64| {
        Request::delete(&uri).body(json!({ "gracePeriodSeconds": seconds }).to_string().into_bytes()).unwrap()
    };
    assert_eq!(server.handle(wall(), &grace(300)).body()["metadata"]["deletionGracePeriodSeconds"], 300);
    let shortened = server.handle(later, &grace(200)).into_body();
    assert_eq!(
        shortened["metadata"]["deletionGracePeriodSeconds"], 1,
        "its time is over, and the kubelet removes it"
    );
    assert_eq!(server.handle(later, &grace(200)).body()["metadata"]["deletionGracePeriodSeconds"], 1);
    server.handle(later, &grace(0));
    assert!(server.object("Pod", "a", "p").is_none());
}
