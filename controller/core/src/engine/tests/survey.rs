//! Surveys: when they begin, what is remembered of them, and what other Pods take.

use pitstop_api::nodework::{Bounds, Held, HeldContainer, NodeWorkStatus, OrderPod};
use pitstop_api::quantity::Resources;
use pitstop_api::resize::{ContainerStatus, Mechanism, Phase, PodResizeStatus, Target, Values};
use serde_json::json;

use super::*;
use crate::engine::room::Turn;
use crate::hold::admission::{LastSurvey, Survey, Usage};

/// A turn that finds room.
const LINE: (&Subject, Turn<'_>) = (&Subject::Node(String::new()), Turn::Book);

fn cpu(request: i64) -> Resources {
    Resources { cpu_request: Some(request), ..Resources::default() }
}

/// A Pod with one container with that CPU request, in millicores.
fn on(node: &str, name: &str, request: i64) -> Pod {
    let mut pod = pod(name);
    pod.uid = format!("pod-{name}");
    pod.node = Some(node.into());
    pod.containers.truncate(1);
    pod.containers[0].resources = cpu(request);
    pod
}

/// A resize of a Pod. `granted`: the CPU request in force, in millicores, if any.
fn resize(name: &str, pod: &Pod, granted: Option<i64>) -> Resize {
    let spec = json!({"podRef": {"name": pod.key.name},
        "containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}], "mechanism": "CRI"});
    let container = |cpu_request| ContainerStatus {
        name: "app".into(),
        desired: Values::from(&cpu(cpu_request)),
        ..ContainerStatus::default()
    };
    let target =
        Target { pod_uid: pod.uid.clone(), node_name: pod.node.clone().unwrap(), ..Target::default() };
    let status = granted.map(|granted| PodResizeStatus {
        phase: Some(Phase::Succeeded),
        mechanism: Some(Mechanism::Cri),
        target: Some(target),
        completion_time: Some(DateTime::UNIX_EPOCH),
        containers: vec![container(granted)],
        ..PodResizeStatus::default()
    });
    Resize {
        key: ObjectKey::new("shop", name),
        uid: format!("uid-{name}"),
        resource_version: "1".into(),
        spec: serde_json::from_value(spec).unwrap(),
        status: status.unwrap_or_default(),
        ..Resize::default()
    }
}

/// The book of a node whose daemon has given the granted resources.
fn on_record(node: &str, resizes: &[Resize]) -> NodeWork {
    let held = resizes.iter().filter_map(|resize| {
        let target = resize.status.target.as_ref().filter(|target| target.node_name == node)?;
        let container = resize.status.containers.first()?;
        let given = Resources::from(&container.desired).cpu_request.unwrap_or_default();
        let given = Some(Bounds { cpu_request: given, ..Bounds::default() });
        let container = HeldContainer { name: container.name.clone(), given, ..HeldContainer::default() };
        let pod = OrderPod { uid: target.pod_uid.clone(), ..OrderPod::default() };
        Some(Held { pod, containers: vec![container], ..Held::default() })
    });
    let status = NodeWorkStatus { held: held.collect(), ..NodeWorkStatus::default() };
    NodeWork { node: node.into(), uid: format!("book-{node}"), status, ..NodeWork::default() }
}

/// An engine with these Pods and resizes, which are not planned: their plans are for other tests.
fn engine(pods: Vec<Pod>, resizes: &[Resize]) -> Engine {
    let mut engine = Engine::new(Config::default());
    engine.step(Mono(0), DateTime::UNIX_EPOCH, Event::Leader(true));
    engine.step(Mono(0), DateTime::UNIX_EPOCH, Event::Pods(Watch::list(pods)));
    let books = ["n1", "n2"].map(|node| on_record(node, resizes));
    engine.step(Mono(0), DateTime::UNIX_EPOCH, Event::NodeWorks(Watch::list(books.to_vec())));
    let resizes = Event::of::<Resize>(Watch::list(resizes.to_vec()));
    engine.step(Mono(0), DateTime::UNIX_EPOCH, resizes);
    engine.stores.resizes.dirty.clear();
    engine
}

/// The namespace of all Pods here, and the first node.
fn survey_key() -> ObjectKey {
    ObjectKey::new("shop", "n1")
}

/// A survey that the resize wants ended.
fn surveyed(engine: &mut Engine, now: u64, resize: &Resize, outcome: Outcome<Survey>) {
    let _ = begin(engine, now, resize);
    engine.step(Mono(now), DateTime::UNIX_EPOCH, Event::Surveyed { key: survey_key(), outcome });
}

fn begin(engine: &mut Engine, now: u64, resize: &Resize) -> Result<Option<Action>, Mono> {
    let by = Object::new(resize::ID, resize.key.clone(), resize.uid.clone());
    engine.survey(Mono(now), by, &resize.pod_key(), Mono(0), LINE)
}

/// The last survey, however old.
fn last<'a>(engine: &'a Engine, resize: &Resize) -> Option<&'a LastSurvey> {
    engine.last_survey(&resize.pod_key(), Mono(0))
}

fn usage<'a>(engine: &'a Engine, resize: &Resize) -> Option<Usage<'a>> {
    let survey = last(engine, resize);
    survey.is_some_and(|last| last.result.is_ok()).then(|| engine.usage(&resize.pod_key())).flatten()
}

fn asked(engine: &Engine, resize: &Resize) -> Option<i64> {
    usage(engine, resize).unwrap().asked.cpu_request
}

/// Two resizes on the first node, and one on another.
fn three() -> ([Resize; 3], Engine) {
    let pods = [on("n1", "web", 100), on("n1", "db", 100), on("n2", "far", 100)];
    let resizes = [0, 1, 2].map(|i| resize(&format!("grow-{i}"), &pods[i], None));
    let engine = engine(pods.to_vec(), &resizes);
    (resizes, engine)
}

#[test]
fn requests_for_pods_of_a_namespace_and_a_node_share_a_survey() {
    let ([one, other, far], mut engine) = three();
    assert_eq!(begin(&mut engine, 0, &one), Ok(Some(Action::Survey { key: survey_key() })));
    assert_eq!(begin(&mut engine, 60_000, &one), Ok(None), "it is under way");
    assert_eq!(begin(&mut engine, 60_000, &other), Ok(None), "for both");
    assert!(matches!(begin(&mut engine, 60_000, &far), Ok(Some(_))), "of another node");
    assert!(engine.stores.resizes.dirty.is_empty());
    engine.surveyed(Mono(60_000), &survey_key(), Outcome::Written(Survey::default()));
    let dirty = &engine.stores.resizes.dirty;
    assert!(dirty.contains(&one.key) && dirty.contains(&other.key), "both are planned");
    assert!(!dirty.contains(&far.key));
    assert!(last(&engine, &other).is_some() && last(&engine, &far).is_none());
}

/// Its user may have made a quota just before the request, and after the survey for another one.
#[test]
fn what_was_begun_before_a_request_was_known_does_not_count_for_it() {
    let ([one, late, _], mut engine) = three();
    let by = |resize: &Resize| Object::new(resize::ID, resize.key.clone(), resize.uid.clone());
    let found = Outcome::Written(Survey::default());
    assert!(matches!(engine.survey(Mono(10), by(&one), &one.pod_key(), Mono(10), LINE), Ok(Some(_))));
    let wants =
        |engine: &mut Engine, now| engine.survey(Mono(now), by(&late), &late.pod_key(), Mono(11), LINE);
    assert_eq!(wants(&mut engine, 11), Ok(None), "one is under way");
    engine.surveyed(Mono(12), &survey_key(), found.clone());
    assert!(engine.stores.resizes.dirty.contains(&late.key), "it is planned, and wants the next one");
    assert!(engine.last_survey(&one.pod_key(), Mono(10)).is_some());
    assert!(engine.last_survey(&late.pod_key(), Mono(11)).is_none());
    assert!(matches!(wants(&mut engine, 12), Ok(Some(_))), "at once");
    engine.surveyed(Mono(13), &survey_key(), found);
    assert!(engine.last_survey(&late.pod_key(), Mono(11)).is_some());
    assert_eq!(wants(&mut engine, 14), Err(Mono(5_013)));
}

#[test]
fn surveys_do_not_follow_each_other_too_soon() {
    let ([one, other, far], mut engine) = three();
    for outcome in
        [Outcome::Written(Survey::default()), Outcome::Retry, Outcome::Refused("no".into()), Outcome::Gone]
    {
        let _ = begin(&mut engine, 70_000, &one);
        engine.surveyed(Mono(70_000), &survey_key(), outcome);
        assert_eq!(begin(&mut engine, 74_999, &other), Err(Mono(75_000)));
        assert!(matches!(begin(&mut engine, 75_000, &one), Ok(Some(_))));
    }
    let _ = begin(&mut engine, 80_000, &far);
    engine.surveyed(Mono(80_001), &ObjectKey::new("shop", "n2"), Outcome::Retry);
    engine.surveyed(Mono(80_001), &survey_key(), Outcome::Retry);
    assert!(last(&engine, &one).is_some());
    engine.surveyed(Mono(90_000), &survey_key(), Outcome::Retry);
    assert!(last(&engine, &one).is_none(), "what is old is not kept");
}

#[test]
fn what_came_of_a_survey_is_remembered() {
    let ([grow, ..], mut engine) = three();
    for (outcome, text) in [
        (Outcome::Retry, Some("has not answered")),
        (Outcome::Refused("needs the right".into()), Some("needs the right")),
        (Outcome::Gone, Some("does not exist")),
        (Outcome::Written(Survey::default()), None),
    ] {
        engine.surveys = Surveys::default();
        surveyed(&mut engine, 7, &grow, outcome);
        let last = last(&engine, &grow).cloned().unwrap();
        assert_eq!(last.ended, Mono(7));
        match text {
            Some(text) => assert!(last.result.clone().unwrap_err().contains(text), "{last:?}"),
            None => assert_eq!(last.result, Ok(Survey::default())),
        }
        assert_eq!(usage(&engine, &grow).is_some(), text.is_none());
    }
}

#[test]
fn the_other_pods_of_the_node_are_counted_as_they_come_and_go() {
    let web = on("n1", "web", 100);
    let grow = resize("grow", &web, None);
    let given = on("n1", "given", 200);
    let held = resize("held", &given, Some(700));
    let less = on("n1", "less", 50);
    let shrunk = resize("shrunk", &less, Some(10));
    let mut done = on("n1", "done", 900);
    done.finished = true;
    let pods = vec![web.clone(), given, less.clone(), done, on("n2", "far", 800)];
    let mut engine = engine(pods, &[grow.clone(), held, shrunk]);
    surveyed(&mut engine, 0, &grow, Outcome::Written(Survey::default()));
    assert_eq!(asked(&engine, &grow), Some(750), "700m that were granted and 50m of a spec");
    let step = |engine: &mut Engine, watch| {
        engine.step(Mono(1), DateTime::UNIX_EPOCH, Event::Pods(watch));
    };
    let mut fresh = on("n1", "new", 30);
    fresh.node = None;
    step(&mut engine, Watch::Upsert(fresh.clone()));
    assert_eq!(asked(&engine, &grow), Some(750));
    let bound = Pod { node: Some("n1".into()), resource_version: "2".into(), ..fresh };
    step(&mut engine, Watch::Upsert(bound.clone()));
    assert_eq!(asked(&engine, &grow), Some(780));
    let moved = Pod { node: Some("n2".into()), uid: "another".into(), resource_version: "3".into(), ..bound };
    step(&mut engine, Watch::Upsert(moved));
    assert_eq!(asked(&engine, &grow), Some(750));
    step(&mut engine, Watch::Gone(less));
    assert_eq!(asked(&engine, &grow), Some(700));
    step(&mut engine, Watch::list(vec![web, on("n1", "last", 5)]));
    assert_eq!(asked(&engine, &grow), Some(5));
}

#[test]
fn what_others_of_the_namespace_were_granted_is_told() {
    let web = on("n1", "web", 100);
    let grow = resize("grow", &web, None);
    let (given, less) = (on("n2", "given", 200), on("n2", "less", 50));
    let mut held = resize("held", &given, Some(700));
    let shrunk = resize("shrunk", &less, Some(10));
    let mut foreign = on("n2", "given", 200);
    foreign.key.namespace = "other".into();
    let mut elsewhere = resize("elsewhere", &foreign, Some(900));
    elsewhere.key.namespace = "other".into();
    let pods = vec![web, given, less, foreign];
    let mut engine = engine(pods, &[grow.clone(), held.clone(), shrunk, elsewhere]);
    surveyed(&mut engine, 0, &grow, Outcome::Written(Survey::default()));
    let granted = |engine: &Engine| -> Vec<(String, Resources)> {
        usage(engine, &grow).unwrap().granted.iter().map(|g| (g.pod.key.name.clone(), g.beyond)).collect()
    };
    assert_eq!(granted(&engine), [("given".to_owned(), cpu(500))]);
    let mut change = |version: &str, change: fn(&mut Resize)| {
        change(&mut held);
        held.resource_version = version.into();
        engine.step(Mono(1), DateTime::UNIX_EPOCH, Event::of::<Resize>(Watch::Upsert(held.clone())));
        granted(&engine).len()
    };
    assert_eq!(change("2", |held| held.status.phase = Some(Phase::RolledBack)), 0, "given up");
    assert_eq!(change("3", |held| held.status.completion_time = None), 1, "at work");
    assert_eq!(change("4", |held| held.deleting = true), 0);
    assert_eq!(change("5", |held| (held.deleting, held.spec.dry_run) = (false, true)), 0);
    assert_eq!(
        change("6", |held| (held.status.mechanism, held.spec.dry_run) = (Some(Mechanism::Api), false)),
        0
    );
}

/// Two requests that are decided at once must not both get the last room.
#[test]
fn nothing_is_known_while_another_one_is_being_accepted() {
    let web = on("n1", "web", 100);
    let grow = resize("grow", &web, None);
    let other = on("n1", "other", 200);
    let second = resize("second", &other, None);
    let mut engine = engine(vec![web, other], &[grow.clone(), second.clone()]);
    surveyed(&mut engine, 0, &grow, Outcome::Written(Survey::default()));
    assert_eq!(asked(&engine, &grow), Some(200));
    let entry = engine.stores.resizes.objects.get_mut(&second.key).unwrap();
    entry.begin(Mono(0));
    entry.request.write_started();
    engine.stores.resizes.requeue(&second.key);
    assert!(usage(&engine, &grow).is_none());
    let mut accepted = resize("second", &on("n1", "other", 200), Some(600));
    accepted.resource_version = "2".into();
    (accepted.status.completion_time, accepted.status.phase) = (None, Some(Phase::Proposed));
    let (key, uid) = (second.key.clone(), second.uid.clone());
    let written = Event::written::<Resize>(key, uid, Outcome::Written(accepted));
    engine.step(Mono(1), DateTime::UNIX_EPOCH, written);
    assert_eq!(asked(&engine, &grow), Some(600));
}
