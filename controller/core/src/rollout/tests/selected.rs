//! Pods that a selector names.

use super::*;
use crate::pod::label_hashes;
use crate::workload::Budget;

/// Other rollouts that select Pods.
#[derive(PartialEq)]
pub(super) enum Others {
    None,
    /// This rollout gives its Pods something.
    Gives(ObjectKey),
    TooMany,
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("app".to_owned(), "web".to_owned())])
}

fn of(name: &str, image: &str) -> Pod {
    let containers = vec![crate::pod::Container { image: image.into(), ..container("app") }];
    Pod { labels: label_hashes(&labels()).into(), controller: None, containers, ..pod(name) }
}

/// Pods with the image `web:1`, and a rollout with this wish.
fn world(wish: &Value, pods: &[&str]) -> World {
    let mut world = World::new("Deployment", &json!({}), &[], 1);
    let mut spec = json!({"selector": {"matchLabels": labels()}, "strategy": {"soakSeconds": 0}});
    spec.as_object_mut().unwrap().extend(wish.as_object().unwrap().clone());
    world.rollout = of_spec(&spec);
    let workload = Workload { labels: label_hashes(&labels()), max_unavailable: 1, ..Workload::default() };
    world.workload = Ok(workload);
    for name in pods {
        world.put(of(name, "web:1"));
    }
    world
}

fn image(tag: &str) -> Value {
    json!({"images": [{"name": "app", "image": format!("web:{tag}")}]})
}

impl World {
    /// Every open request succeeds and gives its Pod the image.
    fn update(&mut self) -> usize {
        let mut most = 0;
        self.settle();
        while let Some(pod) = self.open().first().map(|pod| (*pod).to_owned()) {
            most = most.max(self.open().len());
            let asked = self.asked.values().find(|asked| asked.pod == pod && asked.ended.is_none()).unwrap();
            let image = asked.spec["containers"][0]["image"].as_str().map(str::to_owned);
            let known = self.pods.get_mut(&ObjectKey::new("shop", &pod)).unwrap();
            if let Some(image) = image {
                known.containers[0].image = image;
            }
            self.end(&pod, true);
        }
        most
    }

    fn wants(&mut self, wish: &Value) {
        let spec = serde_json::to_value(&self.rollout.spec).unwrap();
        let mut spec = spec.as_object().unwrap().clone();
        spec.extend(wish.as_object().unwrap().clone());
        self.rollout.spec = serde_json::from_value(Value::Object(spec)).unwrap();
    }
}

#[test]
fn they_get_the_image_one_after_another_and_are_marked() {
    let mut world = world(&image("2"), &["a", "b", "c"]);
    assert_eq!(world.update(), 1);
    assert_eq!(world.begun, ["a", "b", "c"]);
    let mut marked = world.marked.clone();
    marked.sort_unstable();
    assert_eq!(marked, ["a", "b", "c"]);
    assert_eq!((world.phase(), world.counts()), (Some(Phase::Complete), (3, 3, 0, 0)));
    let (reason, message) = world.report();
    assert_eq!(reason, "Updated");
    assert_eq!(
        message,
        "the Pods of selector app=web have spec.images and spec.resources: 3 of 3 in the last update"
    );
    assert!(world.asked.is_empty(), "what is left of it is deleted");
    let (readings, writes) = (world.readings, world.writes);
    world.later(3_600);
    assert_eq!((world.readings, world.writes), (readings, writes), "and then it is silent");
}

#[test]
fn a_pod_that_is_made_later_gets_it_and_one_that_has_it_is_marked() {
    let mut world = world(&image("2"), &["a"]);
    world.update();
    let readings = world.readings;
    world.put(of("has", "web:2"));
    world.settle();
    assert_eq!(
        (world.marked.as_slice(), world.readings),
        (&["a".to_owned(), "has".to_owned()][..], readings)
    );
    world.put(of("old", "web:1"));
    world.settle();
    assert_eq!(world.phase(), Some(Phase::Progressing));
    world.update();
    assert_eq!(
        (world.begun.as_slice(), world.phase()),
        (&["a".to_owned(), "old".to_owned()][..], Some(Phase::Complete))
    );
}

/// Such as an autoscaler.
#[test]
fn what_others_change_afterwards_stays_until_the_spec_says_something_else() {
    let size = |cpu: &str| json!({"resources": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]});
    let mut world = world(&size("150m"), &["a"]);
    world.settle();
    let resized = |world: &mut World, cpu: i64| {
        let mut pod = world.pods[&ObjectKey::new("shop", "a")].clone();
        pod.containers[0].resources.cpu_request = Some(cpu);
        world.put(pod);
    };
    resized(&mut world, 150);
    world.end("a", true);
    assert_eq!((world.begun.len(), world.phase()), (1, Some(Phase::Complete)));
    resized(&mut world, 120);
    world.settle();
    assert_eq!((world.begun.len(), world.phase()), (1, Some(Phase::Complete)));
    world.wants(&size("180m"));
    world.settle();
    assert_eq!((world.begun.len(), world.phase()), (2, Some(Phase::Progressing)));
}

#[test]
fn what_a_pod_cannot_get_is_told_of_that_pod() {
    for (wish, why) in [
        (json!({"images": [{"name": "ap", "image": "web:2"}]}), "the Pod has no container ap"),
        (
            json!({"images": [{"name": "app", "image": "db:2"}]}),
            "the image of container app is of another repository",
        ),
        (
            json!({"resources": [{"name": "app", "resources": {"requests": {"cpu": "200m", "memory": "128Mi"}}}]}),
            "QoS",
        ),
    ] {
        let mut world = world(&wish, &["a"]);
        world.settle();
        assert_eq!((world.phase(), world.report().0), (Some(Phase::Stalled), "PodsFailed"), "{why}");
        let failed = &world.rollout.status.pods_of_interest[0];
        assert!(failed.name == "a" && failed.message.contains(why), "{failed:?}");
        assert!(world.begun.is_empty());
    }
}

#[test]
fn another_rollout_that_selects_them_too_has_them_as_long_as_it_is_there() {
    let mut world = world(&image("2"), &["a"]);
    world.others = Others::Gives(ObjectKey::new("shop", "older"));
    world.settle();
    let message = &world.rollout.status.pods_of_interest[0].message;
    assert_eq!(message, "InPlaceRollout older is older, and selects the Pod, too");
    assert!(world.begun.is_empty());
    world.others = Others::None;
    world.later(61);
    assert_eq!(world.begun, ["a"]);
}

#[test]
fn more_than_may_select_pods_wait() {
    let mut world = world(&image("2"), &["a"]);
    world.others = Others::TooMany;
    world.settle();
    assert_eq!((world.phase(), world.report().0), (Some(Phase::Stalled), "TooManySelectors"));
    assert_eq!((world.readings, world.groups.len()), (0, 0));
    world.others = Others::None;
    world.later(61);
    assert_eq!(world.begun, ["a"]);
}

/// The list may come before the watch event.
#[test]
fn a_pod_of_the_list_that_the_watch_shows_later_gets_it_and_a_finished_one_does_not_count() {
    let mut world = world(&image("2"), &["a"]);
    world.put(Pod { finished: true, ready: false, ..of("job", "web:1") });
    world.put(Pod { labels: Box::new([]), ..of("stranger", "web:1") });
    world.put(of("slow", "web:1"));
    world.unseen.push(ObjectKey::new("shop", "slow"));
    // The list does not name these.
    world.pods.remove(&ObjectKey::new("shop", "job"));
    world.pods.remove(&ObjectKey::new("shop", "stranger"));
    world.update();
    assert_eq!((world.begun.as_slice(), world.phase()), (&["a".to_owned()][..], Some(Phase::Progressing)));
    world.unseen.clear();
    world.changed(&ObjectKey::new("shop", "slow"));
    world.update();
    world.later(20);
    assert_eq!((world.begun.len(), world.phase()), (2, Some(Phase::Complete)));
}

#[test]
fn a_restart_of_theirs_leaves_alone_what_they_have_got() {
    let mut world = world(&image("2"), &["a", "b"]);
    world.update();
    let marked = world.marked.len();
    world.wants(&json!({"restartedAt": "one"}));
    world.update();
    assert_eq!((world.phase(), world.report().0), (Some(Phase::Complete), "Restarted"));
    assert_eq!((world.begun.len(), world.marked.len()), (4, marked));
    world.later(60);
    assert_eq!(world.report().0, "Restarted");
    // The same without images and resources.
    let mut world = self::world(&json!({"restartedAt": "one"}), &["a", "b"]);
    assert_eq!(world.run(), 1);
    assert_eq!((world.phase(), world.report().0), (Some(Phase::Complete), "Restarted"));
    assert!(world.groups.is_empty(), "nobody has to report them any more");
}

#[test]
fn the_next_process_goes_on() {
    let mut world = world(&image("2"), &["a", "b", "c"]);
    world.settle();
    for pod in ["a", "b"] {
        world.restart();
        let known = world.pods.get_mut(&ObjectKey::new("shop", pod)).unwrap();
        known.containers[0].image = "web:2".into();
        world.settle();
        world.end(pod, true);
        world.restart();
    }
    world.update();
    assert_eq!((world.begun.len(), world.phase()), (3, Some(Phase::Complete)));
    world.restart();
    let writes = world.writes;
    world.settle();
    assert_eq!((world.writes, world.phase()), (writes, Some(Phase::Complete)), "nothing new is reported");
}

/// A wish that was given up may have changed Pods without a mark.
#[test]
fn a_wish_that_is_given_up_and_comes_back_is_given_to_all() {
    let mut world = world(&image("2"), &["a", "b"]);
    world.update();
    world.wants(&image("3"));
    world.settle();
    // The Pod has the new image and its request is over, but it has no mark.
    let first = world.open()[0].to_owned();
    world.pods.get_mut(&ObjectKey::new("shop", &first)).unwrap().containers[0].image = "web:3".into();
    world.asked.values_mut().for_each(|asked| asked.ended = Some(true));
    world.changed(&ObjectKey::new("shop", &first));
    world.wants(&image("2"));
    world.update();
    assert!(world.pods.values().all(|pod| pod.containers[0].image == "web:2"), "{:?}", world.pods);
    assert_eq!(world.phase(), Some(Phase::Complete));
}

#[test]
fn a_budget_for_some_of_them_counts_every_pod_that_is_away() {
    let budget =
        Budget { name: "some".into(), desired_healthy: Some(1), healthy: 2, expected: 2, partial: true };
    assert_eq!(budget.healthy(4, 4, 4), 2);
    assert_eq!(budget.healthy(3, 4, 4), 1, "it may be one of the two");
    assert_eq!(budget.healthy(0, 4, 4), 0);
    let mut world = world(&image("2"), &["a", "b", "c"]);
    world.workload.as_mut().unwrap().budgets = Some(vec![Budget { healthy: 1, ..budget }]);
    world.settle();
    assert_eq!((world.report().0, world.begun.len()), ("DisruptionBudget", 0));
}

/// These fields need a template, which a selector does not have.
#[test]
fn what_no_template_stands_behind_is_refused() {
    for (wish, field) in [
        (json!({"templateChanges": "InPlace"}), "spec.templateChanges"),
        (json!({"restartAnnotations": ["a/b"]}), "spec.restartAnnotations"),
        (json!({"strategy": {"onFailure": "RollBack"}}), "spec.strategy.onFailure"),
        (
            json!({"resources": [{"name": "app", "resources": {"limits": {"cpu": "+20%"}}}]}),
            "spec.resources[0]",
        ),
        (json!({"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}), "spec"),
    ] {
        let mut world = world(&wish, &["a"]);
        world.settle();
        assert_eq!((world.phase(), world.report().0), (Some(Phase::Stalled), "Invalid"));
        assert!(world.report().1.starts_with(field), "{}", world.report().1);
    }
}
