//! The engine serves a kind for many Pods: it reports the watched Pods and their requests.

use std::collections::VecDeque;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pitstop_api::recreate::ContainerRecreateRequest;

use super::*;
use crate::action::{Action, Event, Object, Watch, Write};
use crate::change::Note;
use crate::deed::Child;
use crate::engine::Engine;
use crate::kinds::Status;
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::pod::{Controller, label_hashes};
use crate::recreate::{self, Request};
use crate::rollout::ID;

struct Scene {
    engine: Engine,
    rollouts: BTreeMap<ObjectKey, Rollout>,
    requests: BTreeMap<ObjectKey, ContainerRecreateRequest>,
    pods: Vec<Pod>,
    version: u32,
    counted: Vec<Measure>,
    noted: Vec<Note>,
    /// Requests that the API server has not created yet. None: it creates at once.
    held: Option<Vec<(Object, Box<Child>)>>,
}

impl Scene {
    fn new(rollouts: Vec<Rollout>, pods: Vec<Pod>) -> Self {
        Self::with(Config::default(), rollouts, pods)
    }

    fn with(config: Config, rollouts: Vec<Rollout>, pods: Vec<Pod>) -> Self {
        let mut scene = Self {
            engine: Engine::new(config),
            rollouts: rollouts.iter().map(|r| (r.key.clone(), r.clone())).collect(),
            requests: BTreeMap::new(),
            pods: pods.clone(),
            version: 10,
            counted: Vec::new(),
            noted: Vec::new(),
            held: None,
        };
        let mut lists = vec![
            Event::Guarded(true),
            Event::Leader(true),
            Event::Pods(Watch::list(pods)),
            Event::NodeWorks(Watch::list(Vec::new())),
        ];
        lists.extend(Event::none_but(&[ID]));
        lists.push(Event::of::<Rollout>(Watch::list(rollouts)));
        for list in lists {
            scene.happens(list);
        }
        scene
    }

    /// Handles the event, and everything that follows at once.
    fn happens(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.engine.step(Mono(0), DateTime::UNIX_EPOCH, event) {
                events.extend(self.carry_out(action));
            }
        }
    }

    fn next(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn carry_out(&mut self, action: Action) -> Vec<Event> {
        match action {
            Action::Write {
                object: Object { key, uid, .. },
                write: Write::Status { status, resource_version },
            } => match status {
                Status::Rollout(status) => {
                    let version = self.next();
                    let rollout = self.rollouts.get_mut(&key).unwrap();
                    assert_eq!(rollout.resource_version, resource_version);
                    (rollout.status, rollout.resource_version) = (*status, version);
                    let stored = rollout.clone();
                    let shown = Event::of(Watch::Upsert(stored.clone()));
                    vec![Event::written::<Rollout>(key, uid, Outcome::Written(stored)), shown]
                }
                Status::Recreate(status) => {
                    let version = self.next();
                    let request = self.requests.get_mut(&key).unwrap();
                    request.status = Some(*status);
                    request.metadata.resource_version = Some(version);
                    stored(key, uid, request)
                }
                other => panic!("{other:?}"),
            },
            Action::Write { object: Object { key, uid, .. }, write: Write::Metadata { labels, .. } } => {
                let version = self.next();
                let request = self.requests.get_mut(&key).unwrap();
                for (name, value) in labels {
                    let all = request.metadata.labels.get_or_insert_default();
                    match value {
                        Some(value) => drop(all.insert(name, value)),
                        None => drop(all.remove(&name)),
                    }
                }
                request.metadata.resource_version = Some(version);
                stored(key, uid, request)
            }
            Action::Do { object, deed: Deed::AskWorkload(query) } => {
                let labels = label_hashes(&query.labels);
                let listed = self.pods.iter().filter(|pod| pod.has_labels(&labels)).map(|pod| Listed {
                    name: pod.key.name.clone(),
                    uid: pod.uid.clone(),
                    created: pod.created,
                    revision: pod.revision,
                });
                let workload = Workload {
                    uid: "w".into(),
                    controllers: query.kind.map(|_| "owner-1".into()).into_iter().collect(),
                    desired: u32::try_from(self.pods.len()).unwrap(),
                    max_unavailable: 1,
                    labels: labels.clone(),
                    pods: query.pods.then(|| listed.collect()),
                    budgets: query.budgets.then(Vec::new),
                    ..Workload::default()
                };
                let deed = Box::new(Deed::AskWorkload(query));
                vec![Event::DeedDone { object, deed, done: Done::Read(Box::new(workload)) }]
            }
            Action::Do { object, deed: Deed::Create(child) } if self.held.is_some() => {
                self.held.iter_mut().for_each(|held| held.push((object.clone(), child.clone())));
                Vec::new()
            }
            Action::Do { object, deed: Deed::Create(child) } => {
                assert_eq!((object.kind, child.kind), (ID, recreate::ID));
                let owner = OwnerReference {
                    api_version: "pitstop.dev/v1alpha1".into(),
                    kind: "InPlaceRollout".into(),
                    name: object.key.name.clone(),
                    uid: object.uid.clone(),
                    controller: Some(true),
                    ..OwnerReference::default()
                };
                let metadata = ObjectMeta {
                    name: Some(child.key.name.clone()),
                    namespace: Some(child.key.namespace.clone()),
                    uid: Some(format!("uid-{}", child.key.name)),
                    resource_version: Some(self.next()),
                    labels: Some(child.labels.clone()),
                    owner_references: Some(vec![owner]),
                    ..ObjectMeta::default()
                };
                let spec = serde_json::from_value(child.spec.clone()).unwrap();
                let made = ContainerRecreateRequest { metadata, spec, status: None };
                self.requests.insert(child.key.clone(), made.clone());
                let shown = Event::of(Watch::Upsert(Request::observe(made)));
                let deed = Box::new(Deed::Create(child));
                vec![Event::DeedDone { object, deed, done: Done::Effected }, shown]
            }
            Action::Do { object, deed: deed @ Deed::Delete { .. } } => {
                let Deed::Delete { key, .. } = &deed else { unreachable!() };
                let gone = Request::observe(self.requests.remove(key).unwrap());
                let done = Event::DeedDone { object, deed: Box::new(deed), done: Done::Effected };
                vec![done, Event::of(Watch::Gone(gone))]
            }
            Action::WriteOrders { node, .. } => vec![Event::NodeWorkWritten(node, Outcome::Retry)],
            Action::Count(measure) => {
                self.counted.push(measure);
                Vec::new()
            }
            Action::Emit(note) => {
                self.noted.push(note);
                Vec::new()
            }
            other => panic!("{other:?}"),
        }
    }

    fn open(&self) -> Vec<String> {
        let over =
            |r: &ContainerRecreateRequest| r.status.as_ref().is_some_and(|s| s.completion_time.is_some());
        self.requests.values().filter(|r| !over(r)).map(|r| r.spec.pod_name.clone()).collect()
    }

    /// The request for the Pod succeeds.
    fn done(&mut self, pod: &str) {
        let version = self.next();
        let request = self.requests.values_mut().find(|r| r.spec.pod_name == pod).unwrap();
        let status = json!({"completionTime": "2027-01-01T00:00:00Z", "phase": "Completed", "conditions": [{"type": "Complete",
            "status": "True", "reason": "Complete", "message": "", "lastTransitionTime": "2027-01-01T00:00:00Z"}]});
        request.status = Some(serde_json::from_value(status).unwrap());
        request.metadata.resource_version = Some(version);
        let shown = Request::observe(request.clone());
        self.happens(Event::of(Watch::Upsert(shown)));
    }
}

/// The answer to a write, and the watch event.
fn stored(key: ObjectKey, uid: String, request: &ContainerRecreateRequest) -> Vec<Event> {
    let stored = Request::observe(request.clone());
    let shown = Event::of(Watch::Upsert(stored.clone()));
    vec![Event::written::<Request>(key, uid, Outcome::Written(stored)), shown]
}

fn named(name: &str, created: i64) -> Rollout {
    let mut rollout = rollout("Deployment", &json!({}));
    (rollout.key, rollout.uid) = (ObjectKey::new("shop", name), format!("uid-{name}"));
    rollout.created = created;
    rollout
}

#[test]
fn a_rollout_goes_through_its_pods() {
    let mut scene = Scene::new(vec![named("web", 1)], vec![pod("web-0"), pod("web-1")]);
    assert_eq!(scene.open(), ["web-0"]);
    for (ready, version) in [(false, "2"), (true, "3")] {
        let changed = Pod { ready, resource_version: version.into(), ..pod("web-0") };
        scene.happens(Event::Pods(Watch::Upsert(changed)));
    }
    scene.done("web-0");
    assert_eq!(scene.open(), ["web-1"]);
    scene.done("web-1");
    let gap = Measure::RolloutGap { duration: std::time::Duration::ZERO };
    assert_eq!(scene.counted.iter().filter(|measure| **measure == gap).count(), 1);
    let of = |kind| {
        scene.noted.iter().filter(|note| note.kind == kind).map(Note::is_on_request).collect::<Vec<_>>()
    };
    assert_eq!(of(recreate::ID), [false, false], "those are on the Pods alone");
    assert!(!of(ID).is_empty() && of(ID).into_iter().all(|on_request| on_request));
    let status = &scene.rollouts[&ObjectKey::new("shop", "web")].status;
    assert_eq!((status.phase, status.current), (Some(Phase::Complete), 2));
    assert!(scene.requests.is_empty());
    let ended = Measure::Ended { kind: ID, complete: true, reason: "Restarted" };
    assert_eq!(scene.counted.iter().filter(|measure| **measure == ended).count(), 1);
    // No rollout watches the Pods any more, so their changes cost no plan.
    let planned = scene.engine.planned();
    scene.happens(Event::Pods(Watch::Upsert(Pod {
        ready: false,
        resource_version: "9".into(),
        ..pod("web-0")
    })));
    assert_eq!(scene.engine.planned(), planned);
}

#[test]
fn a_pod_that_is_ready_again_lets_the_next_one_begin() {
    let mut scene = Scene::new(vec![named("web", 1)], vec![pod("web-0"), pod("web-1"), pod("web-2")]);
    scene.happens(Event::Pods(Watch::Upsert(Pod {
        ready: false,
        resource_version: "9".into(),
        ..pod("web-2")
    })));
    scene.done("web-0");
    assert_eq!(scene.open(), ["web-2"], "it is broken, so it costs nothing");
    let stray = Pod { key: ObjectKey::new("evil", "web-9"), ready: false, ..pod("web-9") };
    let planned = scene.engine.planned();
    scene.happens(Event::Pods(Watch::Upsert(stray)));
    assert_eq!(scene.engine.planned(), planned, "of another namespace, whatever it says of its owner");
    scene.done("web-2");
    assert!(scene.open().is_empty(), "it is still not ready");
    scene.happens(Event::Pods(Watch::Upsert(Pod { resource_version: "10".into(), ..pod("web-2") })));
    assert_eq!(scene.open(), ["web-1"]);
}

#[test]
fn of_two_for_one_workload_the_older_acts_until_it_is_deleted() {
    let (older, newer) = (named("web", 1), named("also-web", 2));
    let mut scene = Scene::new(vec![newer, older.clone()], vec![pod("web-0")]);
    let reason = |scene: &Scene, name: &str| {
        let conditions = &scene.rollouts[&ObjectKey::new("shop", name)].status.conditions;
        pitstop_api::condition::find(conditions, "Complete").unwrap().reason.clone()
    };
    assert_eq!((reason(&scene, "web"), reason(&scene, "also-web")), ("Restarting".into(), "Conflict".into()));
    scene.happens(Event::of(Watch::Gone(older)));
    assert_eq!(reason(&scene, "also-web"), "Restarting");
}

#[test]
fn who_begins_to_lead_finds_everything_again() {
    let mut scene = Scene::new(vec![named("web", 1)], vec![pod("web-0"), pod("web-1")]);
    scene.happens(Event::Leader(false));
    scene.happens(Event::Leader(true));
    scene.happens(Event::NodeWorks(Watch::list(Vec::new())));
    let requests: Vec<Request> = scene.requests.values().cloned().map(Request::observe).collect();
    let rollouts: Vec<Rollout> = scene.rollouts.values().cloned().collect();
    for list in Event::none_but(&[ID, recreate::ID]) {
        scene.happens(list);
    }
    scene.happens(Event::of::<Request>(Watch::list(requests)));
    scene.happens(Event::of::<Rollout>(Watch::list(rollouts)));
    assert_eq!(scene.open(), ["web-0"]);
    scene.done("web-0");
    assert_eq!(scene.open(), ["web-1"]);
}

#[test]
fn a_pod_that_changes_hands_is_left_alone() {
    let mut scene = Scene::new(vec![named("web", 1)], vec![pod("web-0"), pod("web-1")]);
    assert_eq!(scene.open(), ["web-0"]);
    let other = Controller { uid: "owner-2".into(), ..controller("ReplicaSet") };
    let given = Pod { controller: Some(Box::new(other)), resource_version: "9".into(), ..pod("web-1") };
    scene.pods.retain(|pod| pod.key.name != "web-1");
    scene.happens(Event::Pods(Watch::Upsert(given)));
    scene.done("web-0");
    let status = &scene.rollouts[&ObjectKey::new("shop", "web")].status;
    assert_eq!((status.phase, status.pods, status.current), (Some(Phase::Complete), 1, 1));
}

#[test]
fn who_selects_labels_is_told_of_the_pods_that_have_them() {
    let labels = |of: &[&str]| -> BTreeMap<String, String> {
        of.iter().map(|label| ((*label).to_owned(), "x".to_owned())).collect()
    };
    let labelled = |name: &str, of: &[&str]| Pod { labels: label_hashes(&labels(of)).into(), ..pod(name) };
    let selector = labels(&["app", "tier"]);
    let selected = of_spec(&json!({"selector": {"matchLabels": selector}, "restartedAt": "one"}));
    let pods = ["a", "b", "c"].map(|name| labelled(name, &["app", "more", "tier"]));
    let mut scene = Scene::new(vec![selected.clone()], [&pods[..], &[labelled("other", &["app"])]].concat());
    assert_eq!(scene.open(), ["a"]);
    let planned = scene.engine.planned();
    for other in [labelled("other", &["app"]), Pod { key: ObjectKey::new("evil", "a"), ..pods[0].clone() }] {
        scene.happens(Event::Pods(Watch::Upsert(Pod {
            ready: false,
            resource_version: "9".into(),
            ..other
        })));
    }
    assert_eq!(scene.engine.planned(), planned, "it has not both labels, or is of another namespace");
    // One Pod loses a label during the restart.
    scene.pods.retain(|pod| pod.key.name != "b");
    scene
        .happens(Event::Pods(Watch::Upsert(Pod { resource_version: "9".into(), ..labelled("b", &["app"]) })));
    scene.done("a");
    assert_eq!(scene.open(), ["c"]);
    scene.done("c");
    let status = &scene.rollouts[&selected.key].status;
    assert_eq!((status.phase, status.pods, status.current), (Some(Phase::Complete), 2, 2));
}

/// A rollout does not bypass the limit of a namespace.
#[test]
fn requests_of_a_rollout_count_among_those_of_their_namespace() {
    let mut rollout = named("web", 1);
    rollout.spec.strategy = Some(serde_json::from_value(json!({"maxUnavailable": "100%"})).unwrap());
    let config = Config { max_open_requests_per_namespace: Some(1), ..Config::default() };
    let mut scene = Scene::with(config, vec![rollout], vec![pod("web-0"), pod("web-1")]);
    let accepted = |scene: &Scene| {
        let target = |r: &ContainerRecreateRequest| r.status.as_ref().is_some_and(|s| s.target.is_some());
        scene.requests.values().filter(|r| target(r)).map(|r| r.spec.pod_name.clone()).collect::<Vec<_>>()
    };
    assert_eq!((scene.open().len(), accepted(&scene)), (2, vec!["web-0".to_owned()]));
    scene.done("web-0");
    assert_eq!(accepted(&scene), ["web-1"], "its turn");
}

/// The API server is slow. The Pods count from when their requests are sent.
#[test]
fn requests_are_made_side_by_side_as_far_as_the_budget_and_their_namespace_let_them() {
    for (most, expected) in [("3", [3, 0, 1]), ("100%", [4, 1, 0])] {
        let most: Value = most.parse().map_or(json!(most), |most: u32| json!(most));
        let mut rollout = named("web", 1);
        rollout.spec.restarted_at = None;
        rollout.spec.strategy = Some(serde_json::from_value(json!({"maxUnavailable": most})).unwrap());
        let names: Vec<String> = (0..9).map(|i| format!("web-{i}")).collect();
        let mut scene = Scene::new(vec![rollout.clone()], names.iter().map(|name| pod(name)).collect());
        scene.held = Some(Vec::new());
        let current = &scene.rollouts[&rollout.key];
        (rollout.spec.restarted_at, rollout.status) = (Some("one".into()), current.status.clone());
        rollout.resource_version = scene.next();
        scene.rollouts.insert(rollout.key.clone(), rollout.clone());
        scene.happens(Event::of(Watch::Upsert(rollout)));
        let held = |scene: &Scene| scene.held.as_ref().map_or(0, Vec::len);
        let mut made = vec![held(&scene)];
        // One request is created: another may be made if there is room. Then one ends.
        let mut all = scene.held.take().unwrap();
        let (object, child) = all.swap_remove(0);
        let name = child::pod_of(&child).name;
        for event in scene.carry_out(Action::Do { object, deed: Deed::Create(child) }) {
            scene.held.get_or_insert_default();
            scene.happens(event);
        }
        made.push(held(&scene));
        scene.done(&name);
        made.push(held(&scene) - made[1]);
        assert_eq!(made, expected, "{most}");
    }
}
