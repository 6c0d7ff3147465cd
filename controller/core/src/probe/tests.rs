//! The engine serves the kind: only its folder and its line know it.

use chrono::DateTime;
use pitstop_api::logic::answer::Answer;
use pitstop_api::recreate::ContainerRecreateRequest;
use serde_json::{Value, json};

use super::kind::ID;
use super::*;
use crate::action::{Action, Event, Object, Watch, Write};
use crate::config::Config;
use crate::deed::{Deed, Done};
use crate::engine::Engine;
use crate::fixtures::pod;
use crate::image::ImageUpdate;
use crate::kind::Kind as _;
use crate::kinds::{Status, Written, about, all};
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::recreate::{self, Request};
use crate::resize::Resize;
use crate::rollout::Rollout;
use crate::wire::{Exchange, HttpRequest, Step};

/// An engine that leads, with one Pod.
struct Scene {
    engine: Engine,
}

impl Scene {
    fn new() -> Self {
        let mut scene = Self { engine: Engine::new(Config::default()) };
        for event in [
            Event::Guarded(true),
            Event::Leader(true),
            Event::Pods(Watch::list(vec![pod()])),
            Event::NodeWorks(Watch::list(Vec::new())),
            Event::of::<Request>(Watch::list(Vec::new())),
            Event::of::<Resize>(Watch::list(Vec::new())),
            Event::of::<ImageUpdate>(Watch::list(Vec::new())),
            Event::of::<Rollout>(Watch::list(Vec::new())),
        ] {
            assert!(scene.step(event).is_empty());
        }
        assert!(!scene.engine.synced(), "its list counts as the others do");
        scene.step(Event::of::<Probe>(Watch::list(Vec::new())));
        assert!(scene.engine.synced());
        scene
    }

    fn step(&mut self, event: Event) -> Vec<Action> {
        self.engine.step(Mono(0), DateTime::UNIX_EPOCH, event)
    }
}

fn probe() -> Probe {
    let text = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodProbe",
        "metadata": {"name": "look", "namespace": "shop", "uid": "p-1", "resourceVersion": "1"}, "spec": {"podName": "web"}});
    Probe::observe(serde_json::from_value(text).unwrap())
}

fn sent(action: Action) -> (HttpRequest, Exchange) {
    match Exchange::begin(action, DateTime::UNIX_EPOCH) {
        Some(Step::Send(request, exchange)) => (*request, *exchange),
        other => panic!("{other:?}"),
    }
}

fn body(request: &HttpRequest) -> Value {
    serde_json::from_slice(request.body()).unwrap()
}

/// The API server stores the only write. Returns what follows.
fn store(scene: &mut Scene, actions: Vec<Action>) -> Vec<Action> {
    let [action] = <[Action; 1]>::try_from(actions).unwrap();
    let (request, exchange) = sent(action);
    assert_eq!(
        (request.method().as_str(), request.uri().path()),
        ("PUT", "/apis/pitstop.dev/v1alpha1/namespaces/shop/podprobes/look/status")
    );
    let mut stored = body(&request);
    stored["spec"] = json!({"podName": "web"});
    let before: u32 = stored["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    stored["metadata"]["resourceVersion"] = json!((before + 1).to_string());
    let Step::Over(over) = exchange.answered(Answer::Body(stored.to_string())) else { panic!() };
    assert_eq!(over.name, "write_probe_status");
    scene.step(over.event)
}

#[test]
fn a_kind_is_served_from_its_watch_to_its_end() {
    let mut scene = Scene::new();
    let accept = scene.step(Event::of(Watch::Upsert(probe())));
    assert_eq!(scene.engine.open_of(ID), 1);
    let make = store(&mut scene, accept);
    // The first write of a new leader proves that no other process ended the probe. Then the child is made.
    let [Action::Do { object, deed: Deed::Create(child) }] = &make[..] else { panic!("{make:?}") };
    assert_eq!((object.kind, object.uid.as_str(), child.kind), (ID, "p-1", recreate::ID));
    let (request, _) = sent(make[0].clone());
    assert_eq!(
        request.uri().path(),
        "/apis/apps.kruise.io/v1alpha1/namespaces/shop/containerrecreaterequests"
    );
    let sent_child = body(&request);
    let owner = &sent_child["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"], &owner["uid"]),
        (&json!("PodProbe"), &json!("look"), &json!("p-1"))
    );
    let object = Object { kind: ID, key: probe().key, uid: "p-1".into() };
    let deed = Box::new(Deed::Create(child.clone()));
    assert!(scene.step(Event::DeedDone { object, deed, done: Done::Effected }).is_empty());

    let mut child: ContainerRecreateRequest = serde_json::from_value(sent_child).unwrap();
    (child.metadata.uid, child.metadata.resource_version) = (Some("c-1".into()), Some("5".into()));
    let begun = scene.step(Event::of(Watch::Upsert(Request::observe(child.clone()))));
    let accepts = |a: &Action| matches!(a, Action::Write { object, write: Write::Status { status: Status::Recreate(s), .. } } if object.uid == "c-1" && s.target.is_some());
    assert!(begun.iter().any(accepts), "its child is at work: {begun:?}");

    let status = json!({"completionTime": "2027-01-01T00:00:00Z", "phase": "Completed", "conditions": [{"type": "Complete",
        "status": "True", "reason": "Complete", "message": "", "lastTransitionTime": "2027-01-01T00:00:00Z"}]});
    child.status = Some(serde_json::from_value(status).unwrap());
    child.metadata.resource_version = Some("6".into());
    let end = scene.step(Event::of(Watch::list(vec![Request::observe(child)])));
    let end: Vec<Action> =
        end.into_iter().filter(|a| matches!(a, Action::Write { object, .. } if object.kind == ID)).collect();
    let stored = store(&mut scene, end);
    assert!(
        matches!(&stored[..], [Action::Emit(note), Action::Count(Measure::Ended { kind: ID, complete: true, reason: "Probed" })] if note.kind == ID),
        "{stored:?}"
    );
    assert_eq!(scene.engine.open_of(ID), 0);
}

#[test]
fn a_child_of_an_owner_that_is_gone_is_in_vain() {
    let mut scene = Scene::new();
    let child = json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest", "metadata":
        {"name": "look-probe", "namespace": "shop", "uid": "c-1", "resourceVersion": "5", "ownerReferences": [{"apiVersion":
        "pitstop.dev/v1alpha1", "kind": "PodProbe", "name": "look", "uid": "p-1", "controller": true}]},
        "spec": {"podName": "web", "containers": [{"name": "app"}]}});
    let end = scene.step(Event::of(Watch::Upsert(Request::observe(serde_json::from_value(child).unwrap()))));
    let [Action::Write { write: Write::Status { status: Status::Recreate(status), .. }, .. }] = &end[..]
    else {
        panic!("{end:?}")
    };
    assert_eq!(
        status.message,
        "metadata.ownerReferences: the PodProbe that the request belongs to is over or gone: nothing is restarted for it"
    );
}

#[test]
fn a_kind_is_on_every_list_by_its_line() {
    assert_eq!(all().filter(|about| about.id == ID).count(), 1);
    assert!(std::ptr::eq(about(ID).unwrap(), about(ID).unwrap()));
    // An answer to a write of another kind's object does not concern it.
    let mut scene = Scene::new();
    scene.step(Event::of(Watch::Upsert(probe())));
    let other =
        Event::Written { key: probe().key, uid: "p-1".into(), outcome: Written::Recreate(Outcome::Conflict) };
    assert!(scene.step(other).is_empty());
}

#[test]
fn a_probe_waits_for_what_another_kind_has_begun() {
    let mut scene = Scene::new();
    let restart = json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest", "metadata":
        {"name": "crr", "namespace": "shop", "uid": "c-1", "resourceVersion": "5"},
        "spec": {"podName": "web", "containers": [{"name": "app"}]}});
    let begun =
        scene.step(Event::of(Watch::Upsert(Request::observe(serde_json::from_value(restart).unwrap()))));
    assert_eq!(begun.len(), 1, "its acceptance is sent: {begun:?}");
    assert!(scene.step(Event::of(Watch::Upsert(probe()))).is_empty());
}
