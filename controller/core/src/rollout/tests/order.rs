//! Which Pods are restarted, in which order, and how many at a time.

use proptest::prelude::*;

use super::*;

const FIVE: [&str; 5] = ["web-0", "web-1", "web-2", "web-3", "web-4"];

#[test]
fn all_pods_are_restarted_within_the_budget() {
    let mut world = World::new("Deployment", &json!({}), &FIVE, 2);
    world.settle();
    assert_eq!((world.phase(), world.counts()), (Some(Phase::Progressing), (5, 0, 2, 0)));
    assert_eq!(world.report().0, "Restarting");
    let interest: Vec<&str> =
        world.rollout.status.pods_of_interest.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(interest, ["web-0", "web-1"]);
    assert_eq!(world.run(), 2);
    assert_eq!(world.begun, FIVE);
    assert_eq!((world.phase(), world.counts()), (Some(Phase::Complete), (5, 5, 0, 0)));
    assert_eq!(world.rollout.status.restarted_at.as_deref(), Some("one"));
    assert_eq!((world.report().0, &world.rollout.status.restart), ("Restarted", &None));
    assert!(world.asked.is_empty(), "what it has made is deleted");
    assert_eq!(world.readings, 2, "one to begin with, one to see that nobody is left");
    // Nothing more is wanted, and no rollout watches the Pods.
    let plan = world.plan();
    assert!(plan.is_nothing() && plan.groups.is_empty() && plan.wake_at.is_none());
}

#[test]
fn what_begins_says_how_many_pods_there_are() {
    let mut world = World::new("Deployment", &json!({}), &FIVE, 2);
    while world.rollout.status.restart.is_none() {
        assert!(world.step());
    }
    assert_eq!((world.counts(), world.report().1), ((5, 0, 0, 0), "0 of 5 Pods restarted, 0 in progress"));
    // The Pods of an update are not listed before it begins.
    let mut world = World::parked();
    while world.rollout.status.update.is_none() {
        assert!(world.step());
    }
    assert_eq!(world.counts(), (0, 0, 0, 0));
    let message = world.report().1;
    assert!(message.starts_with("no Pod of StatefulSet web is counted so far"), "{message}");
}

#[test]
fn a_request_asks_for_what_the_rollout_says() {
    let strategy = json!({"unreadyGracePeriodSeconds": 5, "soakSeconds": 3});
    let mut world = World::new("Deployment", &strategy, &["web-0"], 1);
    world.settle();
    let spec = world.asked.values().next().unwrap().spec.clone();
    let expected = json!({"podName": "web-0", "containers": [{"name": "app"}], "activeDeadlineSeconds": 3608,
        "strategy": {"failurePolicy": "Fail", "unreadyGracePeriodSeconds": 5, "minStartedSeconds": 3}});
    assert_eq!(spec, expected);
    // `minReadySeconds` of the workload counts if it is longer.
    let mut world = World::new("Deployment", &strategy, &["web-0"], 1);
    world.workload.as_mut().unwrap().min_ready_seconds = 30;
    world.settle();
    assert_eq!(world.asked.values().next().unwrap().spec["strategy"]["minStartedSeconds"], 30);
}

#[test]
fn pods_of_one_node_do_not_go_one_after_another() {
    let pods = ["a-0", "a-1", "a-2", "b-0", "b-1", "c-0"];
    let mut world = World::new("Deployment", &json!({}), &[], 1);
    world.workload.as_mut().unwrap().desired = 6;
    for name in pods {
        world.put(Pod { node: Some(name[..1].into()), ..pod(name) });
    }
    world.settle();
    // A change of a Pod does not change its turn.
    world.put(Pod { node: Some("a".into()), ..pod("a-1") });
    world.run();
    assert_eq!(world.begun, ["a-0", "b-0", "c-0", "a-1", "b-1", "a-2"]);
}

#[test]
fn a_set_goes_down_its_ordinals_and_keeps_its_partition() {
    let pods = ["web-0", "web-1", "web-2", "web-10"];
    let mut world = World::new("StatefulSet", &json!({}), &pods, 1);
    world.workload.as_mut().unwrap().partition = 1;
    assert_eq!(world.run(), 1);
    assert_eq!(world.begun, ["web-10", "web-2", "web-1"]);
    assert_eq!(world.counts(), (3, 3, 0, 0));
}

#[test]
fn pods_that_are_made_later_are_left_alone() {
    let mut world = World::new("Deployment", &json!({}), &["web-0", "web-1"], 1);
    world.settle();
    world.put(Pod { created: 101, ..pod("web-new") });
    // A StatefulSet's new Pod has the name of the old one.
    world.pods.remove(&ObjectKey::new("shop", "web-1"));
    world.put(Pod { created: 102, uid: "again".into(), ..pod("web-1") });
    world.run();
    assert_eq!((world.begun.clone(), world.phase()), (vec!["web-0".to_owned()], Some(Phase::Complete)));
}

#[test]
fn what_is_not_the_workloads_or_never_started_is_left_alone() {
    let mut world = World::new("Deployment", &json!({}), &["web-0"], 1);
    world.put(Pod { controller: None, ..pod("bare") });
    world.put(Pod { finished: true, ..pod("over") });
    let mut pending = pod("pending");
    pending.ready = false;
    pending.containers[0].status.as_mut().unwrap().container_id = String::new();
    world.put(pending);
    world.rollout.spec.restart = Some(serde_json::from_value(json!({"containers": ["proxy"]})).unwrap());
    world.settle();
    assert_eq!(world.counts(), (0, 0, 0, 0), "none has a container of that name");
    world.rollout.spec.restart = None;
    world.rollout.spec.restarted_at = Some("two".into());
    world.workload.as_mut().unwrap().desired = 1;
    // The API server's list also names finished Pods.
    world.run();
    assert_eq!(world.begun, ["web-0"]);
}

#[test]
fn broken_pods_go_first_and_cost_nothing() {
    let mut world = World::new("Deployment", &json!({}), &["web-0", "web-1", "web-2"], 1);
    world.put(Pod { ready: false, ..pod("web-2") });
    world.settle();
    assert_eq!(world.open(), ["web-2"], "the budget is used up by it already");
    world.put(pod("web-2"));
    world.end("web-2", true);
    assert_eq!(world.open(), ["web-0"]);
}

#[test]
fn pods_that_are_unavailable_for_other_reasons_use_the_budget_up() {
    let mut world = World::new("Deployment", &json!({}), &["web-0", "web-1"], 1);
    world.workload.as_mut().unwrap().desired = 3;
    world.settle();
    assert_eq!((world.open().len(), world.report().0), (0, "WaitingForAvailability"));
    world.put(Pod { created: 200, ..pod("web-2") });
    world.settle();
    assert_eq!(world.open(), ["web-0"]);
}

#[test]
fn the_canary_goes_first_and_is_watched_for_longer() {
    let strategy = json!({"maxUnavailable": "100%", "canary": {"pods": 2, "soakSeconds": 60}});
    let mut world = World::new("Deployment", &strategy, &FIVE, 1);
    world.settle();
    assert_eq!((world.open().len(), world.report().0), (2, "WaitingForCanary"));
    let soaks = |world: &World| -> Vec<i64> {
        world.asked.values().map(|a| a.spec["strategy"]["minStartedSeconds"].as_i64().unwrap()).collect()
    };
    assert_eq!(soaks(&world), [60, 60]);
    world.end("web-0", true);
    assert_eq!(world.open(), ["web-1"]);
    world.end("web-1", true);
    assert_eq!((world.open().len(), soaks(&world)), (3, vec![60, 60, 10, 10, 10]));
}

#[test]
fn a_list_that_names_more_than_the_watch_shows_is_waited_for() {
    let mut world = World::new("Deployment", &json!({}), &["web-0", "web-1"], 2);
    world.unseen.push(ObjectKey::new("shop", "web-1"));
    world.run();
    assert_eq!(
        (world.begun.as_slice(), world.phase()),
        (&["web-0".to_owned()][..], Some(Phase::Progressing))
    );
    let readings = world.readings;
    world.later(1);
    assert_eq!(world.readings, readings + 1, "it is asked again, and not at once");
    world.unseen.clear();
    world.changed(&ObjectKey::new("shop", "web-1"));
    world.run();
    world.later(1);
    assert_eq!((world.begun.len(), world.phase()), (2, Some(Phase::Complete)));
}

#[test]
fn a_new_wish_begins_again_with_all_pods() {
    let mut world = World::new("Deployment", &json!({}), &["web-0", "web-1", "web-2"], 1);
    world.settle();
    world.end("web-0", true);
    assert_eq!(world.open(), ["web-1"]);
    world.rollout.spec.restarted_at = Some("two".into());
    world.rollout.generation = Some(2);
    world.settle();
    assert_eq!(world.open(), ["web-1"], "its stop may have begun: it is waited for");
    assert_eq!((world.asked.len(), world.report().0), (1, "Restarting"), "what has ended is deleted");
    world.end("web-1", true);
    assert_eq!(world.open(), ["web-0"]);
    world.run();
    assert_eq!(world.begun, ["web-0", "web-1", "web-0", "web-1", "web-2"]);
    assert_eq!((world.rollout.status.restarted_at.as_deref(), world.counts()), (Some("two"), (3, 3, 0, 0)));
}

#[test]
fn what_an_earlier_wish_has_begun_is_not_waited_for_for_ever() {
    let mut world = World::new("Deployment", &json!({}), &["web-0", "web-1"], 1);
    world.settle();
    world.rollout.spec.restarted_at = Some("two".into());
    world.settle();
    world.later(299);
    assert_eq!((world.begun.len(), world.open()), (1, vec!["web-0"]));
    world.later(1);
    assert_eq!((world.begun.len(), world.open()), (2, vec!["web-0"]), "another request for it");
}

#[test]
fn what_has_begun_is_not_forgotten_while_its_container_starts() {
    let mut world = World::new("Deployment", &json!({}), &["web-0", "web-1"], 1);
    world.settle();
    let mut starts = Pod { ready: false, ..pod("web-0") };
    starts.containers[0].status.as_mut().unwrap().container_id = String::new();
    world.put(starts);
    world.settle();
    assert_eq!((world.counts(), world.open()), ((2, 0, 1, 0), vec!["web-0"]));
}

#[test]
fn a_container_that_never_started_is_not_named() {
    let mut world = World::new("Deployment", &json!({}), &["web-0"], 1);
    let mut half = Pod { ready: false, ..pod("web-0") };
    half.containers.push(container("late"));
    half.containers[1].status.as_mut().unwrap().container_id = String::new();
    world.put(half);
    world.settle();
    assert_eq!(world.asked.values().next().unwrap().spec["containers"], json!([{"name": "app"}]));
}

#[test]
fn a_broken_pod_of_a_set_is_repaired_though_its_turn_is_last() {
    let mut world = World::new("StatefulSet", &json!({}), &["web-0", "web-1", "web-2"], 1);
    world.put(Pod { ready: false, ..pod("web-0") });
    world.settle();
    assert_eq!(world.open(), ["web-0"], "there is no room for another one");
    world.put(pod("web-0"));
    world.end("web-0", true);
    assert_eq!(world.open(), ["web-2"]);
}

#[test]
fn what_is_deleted_is_deleted_once() {
    let mut world = World::new("Deployment", &json!({}), &["web-0", "web-1"], 2);
    world.shows_deleted = true;
    world.run();
    assert_eq!((world.phase(), world.asked.len()), (Some(Phase::Complete), 2));
    assert_eq!(world.deletes, 2, "the watch has not shown it yet");
    world.later(31);
    assert_eq!(world.deletes, 4, "a restore of etcd has brought them back");
    world.asked.clear();
    world.settle();
    assert!(world.memory.unshown.deleted_until(Mono(0)).is_none(), "nothing is remembered of what is gone");
}

/// The write of the end may be queued. The list that proves the end is kept.
#[test]
fn an_end_that_cannot_be_written_at_once_is_written_later() {
    let mut world = World::new("Deployment", &json!({}), &["web-0"], 1);
    world.settle();
    let asked = world.asked.values_mut().next().unwrap();
    asked.ended = Some(true);
    world.changed(&ObjectKey::new("shop", "web-0"));
    let list = world.plan().deed.unwrap();
    let done = world.carry_out(&list);
    world.memory.deed_done(world.now, &list, done);
    for _ in 0..3 {
        let plan = world.plan();
        assert_eq!(plan.status.unwrap().status.restarted_at.as_deref(), Some("one"));
        assert_eq!(plan.deed, None);
    }
}

#[test]
fn an_event_costs_the_look_at_one_pod() {
    let names: Vec<String> = (0..500).map(|i| format!("web-{i:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::new("Deployment", &json!({}), &names, 1);
    world.settle();
    let looked = world.memory.looked;
    let first = world.open()[0].to_owned();
    world.end(&first, true);
    let looked = world.memory.looked - looked;
    assert!(looked <= 6, "{looked} looks for one Pod that is done and one that begins");
}

proptest! {
    /// However often the leader changes, each Pod is restarted once, and never more Pods are unavailable than allowed.
    #[test]
    fn every_pod_is_restarted_once(most in 1..4_u32, choices in prop::collection::vec(0..6_u8, 0..60)) {
        let mut world = World::new("Deployment", &json!({}), &FIVE, most);
        for choice in choices {
            match choice {
                0 => world.restart(),
                1 => {
                    let open = world.open().first().map(|pod| (*pod).to_owned());
                    if let Some(pod) = open {
                        let asked = world.asked.values_mut().find(|asked| asked.pod == pod && asked.ended.is_none());
                        asked.unwrap().ended = Some(true);
                        world.changed(&ObjectKey::new("shop", pod));
                    }
                }
                2 => world.now = Mono(world.now.0 + 11_000),
                _ => drop(world.step()),
            }
            prop_assert!(world.open().len() <= usize::try_from(most).unwrap());
        }
        world.run();
        world.later(1);
        let mut begun = world.begun.clone();
        begun.sort();
        prop_assert_eq!(begun, FIVE);
        prop_assert_eq!(world.phase(), Some(Phase::Complete));
        prop_assert!(world.asked.is_empty());
    }
}

/// A finished Pod stays finished when the user raises the partition above it.
#[test]
fn a_partition_that_is_raised_leaves_done_what_is_done() {
    let mut world = World::new("StatefulSet", &json!({}), &["web-0", "web-1", "web-2"], 1);
    world.settle();
    world.end("web-2", true);
    world.workload.as_mut().unwrap().partition = 3;
    world.later(60);
    assert_eq!((world.counts(), world.open()), ((2, 1, 1, 0), vec!["web-1"]));
    world.end("web-1", true);
    assert_eq!((world.phase(), world.counts()), (Some(Phase::Complete), (2, 2, 0, 0)));
}

#[test]
fn requests_have_names_of_their_own_that_tell_of_their_restart() {
    let rollout = rollout("Deployment", &json!({}));
    let (one, two) = (child::work_id(&rollout, "one"), child::work_id(&rollout, "two"));
    assert_ne!(one, two);
    let short = pod("web-1");
    let key = child::key(&one, &short);
    assert!(key.name.starts_with("web-1-") && key.name.len() == 19, "{key}");
    assert!(child::is_of(&one, &key) && !child::is_of(&two, &key));
    let again = Pod { uid: "another".into(), ..short.clone() };
    assert_ne!(child::key(&one, &again), key, "another Pod of that name");
    let long = "a".repeat(100);
    let [a, b] = ["x", "y"].map(|end| child::key(&one, &pod(&format!("{long}{end}"))).name);
    assert!(a.len() == 63 && b.len() == 63 && a != b, "{a} {b}");
    assert!(child::is_of(&one, &ObjectKey::new("shop", a)));
    for other in ["web", "", "ä-12345678901234", "web-0123456789abcd"] {
        assert!(!child::is_of("zzzzz", &ObjectKey::new("shop", other)));
    }
}
