//! A parked workload that no rollout manages.

use chrono::DateTime;
use pitstop_api::rollout::{TargetKind, UpdateEnd};
use serde_json::{Value, json};

use crate::action::{Action, Event, Watch};
use crate::config::Config;
use crate::deed::{Deed, Done, Release, Strategy};
use crate::engine::left::{Next, Orphan};
use crate::engine::{Engine, LEFT_PARKED, RELEASED};
use crate::fixtures::{container, pod};
use crate::key::ObjectKey;
use crate::kind::Kind as _;
use crate::pod::{Container, Pod};
use crate::rollout::{ID, Rollout};
use crate::template::{Change, Delta, Image, Wanted};
use crate::time::Mono;
use crate::workload::{Listed, Parked, Set, Sets, Template, UNKNOWN, Workload, revision_hash};

const KIND: TargetKind = TargetKind::StatefulSet;

/// A leader's engine.
struct Scene(Engine);

impl Scene {
    fn new(parked: Vec<Parked>, rollouts: Vec<Rollout>) -> Self {
        let mut engine = Engine::new(Config::default());
        let mut events = vec![Event::Guarded(true), Event::Leader(true)];
        events.extend([Event::Pods(Watch::list(Vec::new())), Event::NodeWorks(Watch::list(Vec::new()))]);
        events.push(Event::Parked(KIND, Watch::list(parked)));
        events.extend(Event::none_but(&[ID]));
        events.push(Event::of::<Rollout>(Watch::list(rollouts)));
        for event in events {
            engine.step(Mono(0), DateTime::UNIX_EPOCH, event);
        }
        Self(engine)
    }

    fn at(&mut self, seconds: u64, event: Event) -> Vec<Action> {
        self.0.step(Mono(seconds * 1_000), DateTime::UNIX_EPOCH, event)
    }

    /// The only deed that begins then.
    fn does(&mut self, seconds: u64) -> Deed {
        self.ends(seconds, None)
    }

    /// The same, after that deed ended.
    fn ends(&mut self, seconds: u64, ended: Option<(Deed, Done)>) -> Deed {
        let event = ended.map_or(Event::Tick, |(deed, done)| done_event(deed, done));
        match <[Action; 1]>::try_from(self.at(seconds, event)) {
            Ok([Action::Do { deed, .. }]) => deed,
            other => panic!("{other:?}"),
        }
    }
}

fn done_event(deed: Deed, done: Done) -> Event {
    let object = crate::action::Object {
        kind: crate::key::KindId::new(KIND.name()),
        key: ObjectKey::new("shop", "StatefulSet/web"),
        uid: String::new(),
    };
    Event::DeedDone { object, deed: Box::new(deed), done }
}

fn parked(mark: &str) -> Parked {
    Parked { kind: KIND, key: ObjectKey::new("shop", "web"), generation: 2, mark: mark.into() }
}

fn read(holds: bool) -> Done {
    let template =
        Template { parked: Some("3".into()), resource_version: "9".into(), holds, ..Template::default() };
    Done::Read(Box::new(Workload { uid: "w".into(), template: Some(template), ..Workload::default() }))
}

fn rollout(changes: &str, status: &Value) -> Rollout {
    let object = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "InPlaceRollout",
        "metadata": {"name": "web", "namespace": "shop", "uid": "r-1", "resourceVersion": "1", "generation": 1},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": KIND.name(), "name": "web"},
            "templateChanges": changes}, "status": status});
    Rollout::observe(serde_json::from_value(object).unwrap())
}

fn listed(pod: &Pod) -> Listed {
    Listed { name: pod.key.name.clone(), uid: pod.uid.clone(), ..Listed::default() }
}

fn release(to: Strategy) -> Deed {
    let key = ObjectKey::new("shop", "web");
    Deed::Release(Box::new(Release { kind: KIND, key, uid: "w".into(), resource_version: "9".into(), to }))
}

/// The release half a minute after the rollout is gone, and the reason of its event.
fn released(scene: &mut Scene, holds: bool) -> (Deed, &'static str) {
    assert_eq!(scene.at(29, Event::Tick), []);
    let asks = scene.does(31);
    assert!(matches!(&asks, Deed::AskWorkload(query) if query.template && query.pods), "{asks:?}");
    let deed = scene.ends(31, Some((asks, read(holds))));
    let actions = scene.at(32, done_event(deed.clone(), Done::Effected));
    let [Action::Emit(note)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((note.kind.name(), note.request_uid.as_str()), (KIND.name(), "w"));
    let reason = note.reason;
    scene.at(33, Event::Parked(KIND, Watch::Gone(parked("3"))));
    assert_eq!(scene.at(3_600, Event::Tick), []);
    (deed, reason)
}

#[test]
fn it_is_released_to_its_own_controller() {
    let mut scene = Scene::new(vec![parked("3")], Vec::new());
    assert_eq!(released(&mut scene, true), (release(Strategy::Partition(3)), RELEASED));
    // Its strategy is already that of a released workload.
    let mut scene = Scene::new(vec![parked("3")], Vec::new());
    assert_eq!(released(&mut scene, false).0, release(Strategy::AsIs));
    // Its rollout leaves changes of the template to its own controller.
    let mut scene = Scene::new(vec![parked("3")], vec![rollout("Native", &Value::Null)]);
    assert_eq!(released(&mut scene, true).0, release(Strategy::Partition(3)));
}

/// The watch may show the release before the answer comes.
#[test]
fn what_was_done_is_told_though_the_watch_was_faster() {
    let mut scene = Scene::new(vec![parked("3")], Vec::new());
    let asks = scene.does(31);
    let deed = scene.ends(31, Some((asks, read(true))));
    assert_eq!(scene.at(32, Event::Parked(KIND, Watch::Gone(parked("3")))), []);
    let actions = scene.at(32, done_event(deed, Done::Effected));
    assert!(matches!(&actions[..], [Action::Emit(note)] if note.reason == RELEASED), "{actions:?}");
    // Nothing is remembered for another park.
    assert_eq!(scene.at(40, Event::Parked(KIND, Watch::Upsert(parked("3")))), []);
    assert_eq!(scene.at(69, Event::Tick), []);
    assert!(matches!(scene.does(71), Deed::AskWorkload(_)));
}

#[test]
fn one_whose_update_had_failed_is_left_to_its_user() {
    let update = json!({"revision": "new", "from": "old", "ended": UpdateEnd::RolledBack.name()});
    let failed = rollout("InPlace", &json!({"phase": "Stalled", "update": update}));
    let mut scene = Scene::new(vec![parked("3")], vec![failed.clone()]);
    scene.at(0, Event::of(Watch::Gone(failed.clone())));
    assert_eq!(released(&mut scene, true), (release(Strategy::AsIs), LEFT_PARKED));
    // A finalizer keeps the rollout for a moment.
    let mut scene = Scene::new(vec![parked("3")], vec![failed.clone()]);
    let deleted = Rollout { deleting: true, resource_version: "2".into(), ..failed };
    scene.at(0, Event::of(Watch::Upsert(deleted.clone())));
    scene.at(0, Event::of(Watch::Gone(deleted)));
    assert_eq!(released(&mut scene, true), (release(Strategy::AsIs), LEFT_PARKED));
}

/// The user went back to the previous template, and the rollout was deleted before that Pod was back.
#[test]
fn a_pod_with_something_of_another_revision_is_replaced() {
    let label = |name: &str| revision_hash(name);
    let container = Container { image: "shop/web:v3".into(), ..container("app") };
    let astray = Pod { revision: label("second"), containers: vec![container.clone()], ..pod() };
    let fine = Container { image: "shop/web:v2".into(), ..container };
    let other = Pod { key: ObjectKey::new("shop", "web-9"), containers: vec![fine], ..astray.clone() };
    let image = Image { container: "app".into(), image: "shop/web:v2".into(), before: "shop/web:v3".into() };
    let third = Change::InPlace(Delta { images: vec![image], ..Delta::default() });
    let listing = |pods: &[&Pod]| {
        let Done::Read(mut workload) = read(true) else { panic!() };
        workload.pods = Some(pods.iter().map(|pod| listed(pod)).collect());
        let template = workload.template.as_mut().unwrap();
        template.revision = Some("second".into());
        template.changes = [("third".to_owned(), third.clone())].into();
        Done::Read(workload)
    };
    let mut scene = Scene::new(vec![parked("3")], Vec::new());
    scene.at(0, Event::Pods(Watch::list(vec![other.clone(), astray.clone()])));
    let asks = scene.does(31);
    let deed = scene.ends(31, Some((asks.clone(), listing(&[&other, &astray]))));
    let expected = Deed::MarkPod {
        key: astray.key.clone(),
        uid: astray.uid.clone(),
        resource_version: astray.resource_version.clone(),
        revision: UNKNOWN.into(),
        kind: Some(KIND),
    };
    assert_eq!(deed, expected);
    assert_eq!(scene.at(32, done_event(deed, Done::Effected)), []);
    let marked = Pod { revision: label(UNKNOWN), resource_version: "99".into(), ..astray.clone() };
    scene.at(32, Event::Pods(Watch::Upsert(marked)));
    assert_eq!(scene.does(34), asks);
    let deed = scene.ends(34, Some((asks, listing(&[&other, &astray]))));
    assert_eq!(deed, release(Strategy::Partition(3)));
}

/// A Deployment's controller looks only at the template of the ReplicaSet.
#[test]
fn a_pod_that_its_controller_would_not_notice_keeps_it_parked() {
    let kind = TargetKind::Deployment;
    let wanted = Wanted { image: "shop/web:v1".into(), ..Wanted::default() };
    let set = Set { new: true, ..Set::default() };
    let sets = Sets { active: vec![set], wanted: [("app".into(), wanted)].into(), ..Sets::default() };
    let parked = Parked { kind, mark: "Unpaused".into(), ..parked("") };
    let template = Template {
        parked: Some("Unpaused".into()),
        revision: Some("first".into()),
        holds: true,
        sets,
        ..Template::default()
    };
    let of = |revision: u64, image: &str| {
        let containers = vec![Container { image: image.into(), ..container("app") }];
        Pod { revision, containers, ..pod() }
    };
    for (pod, strays) in [
        (of(0, "shop/web:v1"), false),
        (of(0, "mirror/web:what-admission-made-of-it"), false),
        (of(0, "shop/web:v3"), true),
        (of(revision_hash("first"), "shop/web:v1"), false),
        (of(revision_hash("third"), "shop/web:v1"), true),
    ] {
        assert_eq!(template.strays(kind, &pod), strays, "{pod:?}");
        let mut orphan = Orphan::new(Mono(0));
        let pods = |_: &ObjectKey| Some(pod.clone());
        let Next::Do(asks) = orphan.next(Mono(30_000), &parked, &pods) else { panic!() };
        orphan.begins(asks.clone());
        let workload = Workload {
            template: Some(template.clone()),
            pods: Some(vec![listed(&pod)]),
            ..Workload::default()
        };
        assert_eq!(orphan.done(Mono(30_000), &asks, Done::Read(Box::new(workload))), None);
        match orphan.next(Mono(30_000), &parked, &pods) {
            Next::Do(Deed::Release(release)) => assert_eq!((strays, release.to), (false, Strategy::Unpaused)),
            Next::Emit(note) => assert_eq!((strays, note.reason, note.warning), (true, LEFT_PARKED, true)),
            Next::Do(_) | Next::Look(_) => panic!(),
        }
        if strays {
            // A user may have deleted the Pod.
            let again = orphan.next(Mono(40_000), &parked, &pods);
            assert!(matches!(again, Next::Do(Deed::AskWorkload(_))));
        }
    }
    let other_set = Template { sets: Sets::default(), ..template };
    assert!(!other_set.strays(kind, &of(0, "shop/web:v3")), "all its Pods are replaced");
}

#[test]
fn a_rollout_that_is_made_again_in_time_goes_on() {
    let mut scene = Scene::new(vec![parked("3")], vec![rollout("InPlace", &Value::Null)]);
    scene.at(10, Event::of(Watch::Gone(rollout("InPlace", &Value::Null))));
    let mut again = rollout("InPlace", &Value::Null);
    again.uid = "r-2".into();
    scene.at(35, Event::of(Watch::Upsert(again.clone())));
    let later = scene.at(60, Event::Tick);
    assert!(
        !later.iter().any(|a| matches!(a, Action::Do { object, .. } if object.uid.is_empty())),
        "{later:?}"
    );
    // The time before does not count.
    scene.at(70, Event::of(Watch::Gone(again)));
    assert_eq!(scene.at(99, Event::Tick), []);
    assert!(matches!(scene.does(101), Deed::AskWorkload(_)));
}

#[test]
fn what_is_refused_or_uncertain_is_tried_again() {
    let mut scene = Scene::new(vec![parked("3")], Vec::new());
    let asks = scene.does(31);
    assert_eq!(scene.at(31, done_event(asks.clone(), Done::Retry("lost".into()))), []);
    assert_eq!(scene.does(32), asks);
    let deed = scene.ends(32, Some((asks.clone(), read(true))));
    assert_eq!(scene.at(33, done_event(deed.clone(), Done::Conflict)), []);
    assert_eq!(scene.does(34), asks, "it is another version");
    assert_eq!(scene.ends(34, Some((asks.clone(), read(true)))), deed);
    for (refused, again) in [(35, 46), (46, 67), (67, 108)] {
        assert_eq!(scene.at(refused, done_event(deed.clone(), Done::Refused("no right".into()))), []);
        assert_eq!(scene.at(again - 2, Event::Tick), [], "somebody has to give the right");
        assert_eq!(scene.does(again), asks);
        assert_eq!(scene.ends(again, Some((asks.clone(), read(true)))), deed);
    }
    // The user changed the workload after it was read.
    assert_eq!(scene.at(109, done_event(deed, Done::Conflict)), []);
    assert_eq!(scene.does(110), asks);
    assert_eq!(scene.at(110, Event::Parked(KIND, Watch::Upsert(parked("5")))), []);
    assert_eq!(scene.at(110, done_event(asks.clone(), read(true))), [], "and not at once");
    assert_eq!(scene.does(112), asks);
}

#[test]
fn a_mark_that_says_nothing_is_its_users() {
    let mut scene = Scene::new(vec![parked("none")], Vec::new());
    assert_eq!(scene.at(3_600, Event::Tick), []);
    let known = scene.at(3_601, Event::Parked(KIND, Watch::Upsert(parked("3"))));
    assert!(matches!(&known[..], [Action::Do { deed: Deed::AskWorkload(_), .. }]), "{known:?}");
}

#[test]
fn a_process_that_does_not_lead_releases_nothing() {
    let mut scene = Scene::new(vec![parked("3")], Vec::new());
    scene.at(1, Event::Leader(false));
    assert_eq!(scene.at(3_600, Event::Tick), []);
}
