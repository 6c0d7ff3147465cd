//! What keeps a rollout from going on.

use super::*;
use crate::blocker::Blocker;
use crate::change::Named;

const THREE: [&str; 3] = ["web-0", "web-1", "web-2"];

#[test]
fn nothing_is_done_before_something_is_asked_for() {
    let mut world = World::new("Deployment", &json!({}), &THREE, 1);
    world.rollout.spec.restarted_at = None;
    world.settle();
    assert_eq!((world.phase(), world.report().0, world.readings), (Some(Phase::Idle), "NothingRequested", 0));
    let complete = pitstop_api::condition::find(&world.rollout.status.conditions, "Complete").unwrap();
    assert_eq!(complete.status, pitstop_api::ConditionStatus::True, "there is nothing to wait for");
}

#[test]
fn as_many_failures_as_may_be_stop_it() {
    let mut world = World::new("Deployment", &json!({"failureThreshold": 2}), &THREE, 1);
    world.settle();
    world.end("web-0", false);
    assert_eq!(world.open(), ["web-1"], "one may fail");
    world.end("web-1", false);
    assert_eq!((world.open().len(), world.phase()), (0, Some(Phase::Stalled)));
    assert_eq!((world.report().0, world.counts()), ("PodsFailed", (3, 0, 0, 2)));
    let status = &world.rollout.status;
    assert!(pitstop_api::condition::find(&status.conditions, "Stalled").is_some());
    assert_eq!(status.pods_of_interest[0].message, "it did not come up");
    // If a user deletes the request, that Pod is tried again.
    let failed = status.pods_of_interest[0].request.clone();
    world.asked.remove(&(RESTARTS, ObjectKey::new("shop", failed)));
    world.changed(&ObjectKey::new("shop", "web-0"));
    world.settle();
    assert_eq!((world.open(), world.phase()), (vec!["web-0"], Some(Phase::Progressing)));
    let gone =
        ["Failed", "Stalled"].map(|c| pitstop_api::condition::find(&world.rollout.status.conditions, c));
    assert_eq!(gone, [None, None]);
}

#[test]
fn a_failure_at_the_end_is_no_success() {
    let mut world = World::new("Deployment", &json!({"failureThreshold": 2}), &["web-0"], 1);
    world.settle();
    world.end("web-0", false);
    assert_eq!((world.phase(), world.report().0), (Some(Phase::Stalled), "PodsFailed"));
    assert_eq!(world.rollout.status.restarted_at, None);
}

#[test]
fn a_pause_lets_what_has_begun_go_on() {
    let mut world = World::new("Deployment", &json!({}), &THREE, 1);
    world.settle();
    world.rollout.spec.paused = true;
    world.end("web-0", true);
    assert_eq!((world.open().len(), world.phase()), (0, Some(Phase::Paused)));
    world.later(10_000);
    assert_eq!(world.report().0, "Paused", "no progress is expected");
    world.rollout.spec.paused = false;
    world.settle();
    assert_eq!((world.open(), world.report().0), (vec!["web-1"], "Restarting"));
}

#[test]
fn no_progress_for_long_is_told() {
    let mut world =
        World::new("Deployment", &json!({"soakSeconds": 3, "unreadyGracePeriodSeconds": 7}), &THREE, 1);
    world.rollout.spec.progress_deadline_seconds = Some(20);
    world.settle();
    world.later(29);
    assert_eq!(world.report().0, "Restarting");
    world.later(1);
    assert_eq!((world.report().0, world.phase()), ("ProgressDeadlineExceeded", Some(Phase::Stalled)));
    world.end("web-0", true);
    assert_eq!((world.report().0, world.open()), ("Restarting", vec!["web-1"]));
}

#[test]
fn what_lets_no_pod_be_unavailable_needs_a_word() {
    let mut world = World::new("Deployment", &json!({}), &THREE, 0);
    world.settle();
    assert_eq!((world.report().0, world.open().len()), ("NeedsUnavailability", 0));
    world.rollout.spec.strategy = Some(serde_json::from_value(json!({"maxUnavailable": 1})).unwrap());
    world.settle();
    assert_eq!(world.open(), ["web-0"]);
}

#[test]
fn a_workload_that_is_not_there_is_looked_for_again() {
    for (answer, reason) in [
        (Err(Done::Gone), "TargetNotFound"),
        (Ok(Workload { deleting: true, ..Workload::default() }), "TargetNotFound"),
        (Err(Done::Refused("cannot get deployments: forbidden".into())), "TargetUnreadable"),
    ] {
        let mut world = World::new("Deployment", &json!({}), &THREE, 1);
        let real = std::mem::replace(&mut world.workload, answer);
        world.settle();
        assert_eq!((world.report().0, world.phase(), world.readings), (reason, Some(Phase::Stalled), 1));
        world.workload = real;
        assert_eq!(world.plan().wake_at, Some(Mono(10_000)));
        world.later(10);
        assert_eq!(world.open(), ["web-0"]);
    }
}

#[test]
fn what_the_api_server_refuses_to_make_is_told_in_its_words() {
    let mut world = World::new("Deployment", &json!({}), &["web-0", "web-1"], 1);
    world.create = Done::Refused("exceeded quota".into());
    world.settle();
    assert_eq!((world.report().0, world.phase()), ("RequestRefused", Some(Phase::Stalled)));
    assert!(world.report().1.ends_with("exceeded quota"), "{}", world.report().1);
    assert_eq!(world.plan().wake_at, Some(Mono(10_000)));
    world.now = Mono(10_000);
    let before = world.rollout.status.clone();
    for _ in 0..4 {
        world.step();
        assert_eq!(world.rollout.status, before, "another try changes nothing");
    }
    world.create = Done::Effected;
    world.later(10);
    assert_eq!((world.open(), world.report().0), (vec!["web-0"], "Restarting"));
    // A refused Pod does not keep others from being restarted.
    world.create = Done::Refused("no such Pod".into());
    world.end("web-0", true);
    world.create = Done::Effected;
    world.put(pod("web-2"));
    world.settle();
    assert_eq!(world.open(), ["web-2"]);
}

#[test]
fn a_request_that_nobody_sees_is_made_again() {
    let mut world = World::new("Deployment", &json!({}), &["web-0"], 1);
    world.hides_new = true;
    world.settle();
    world.later(29);
    assert_eq!(world.begun, ["web-0"], "the watch may be late");
    world.hides_new = false;
    world.later(1);
    assert_eq!(world.begun, ["web-0", "web-0"], "it was deleted before the watch has shown it");
    world.run();
    assert_eq!(world.phase(), Some(Phase::Complete));
}

#[test]
fn somebody_elses_request_of_that_name_is_a_failure() {
    let mut world = World::new("Deployment", &json!({}), &["web-0"], 1);
    let work_id = child::work_id(&world.rollout, "one");
    let key = child::key(&work_id, &pod("web-0"));
    let asked = Asked {
        kind: RESTARTS,
        uid: "x".into(),
        owner: "other".into(),
        pod: "web-0".into(),
        spec: json!({}),
        ended: Some(true),
        pulled: None,
    };
    world.asked.insert((RESTARTS, key), asked);
    world.settle();
    assert_eq!((world.report().0, world.counts()), ("PodsFailed", (1, 0, 0, 1)));
    assert_eq!(
        world.rollout.status.pods_of_interest[0].message,
        "another client's object has the name of the request"
    );
}

#[test]
fn the_older_rollout_of_a_workload_acts() {
    let mut world = World::new("Deployment", &json!({}), &THREE, 1);
    let blocker = Blocker::Request(Named { kind: super::super::ID, key: ObjectKey::new("shop", "older") });
    world.ahead = Some(Ahead { blocker, until: None, has_pod: false, crowded: false });
    world.settle();
    assert_eq!((world.report().0, world.readings), ("Conflict", 0));
    assert!(world.report().1.contains("shop/older"), "{}", world.report().1);
    world.ahead = None;
    world.settle();
    assert_eq!(world.open(), ["web-0"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut world = World::new("Deployment", &json!({"canary": {"pods": 0}}), &THREE, 1);
    world.settle();
    assert_eq!((world.report().0, world.readings), ("Invalid", 0));
    assert!(world.report().1.starts_with("spec.strategy.canary.pods"), "{}", world.report().1);
}

#[test]
fn a_rollout_that_is_deleted_does_nothing() {
    let mut world = World::new("Deployment", &json!({}), &THREE, 1);
    world.rollout.deleting = true;
    assert!(!world.step());
}

/// A canary Pod failed: the others are not risked, whatever the failure threshold.
#[test]
fn a_canary_that_fails_stops_it() {
    let mut world =
        World::new("Deployment", &json!({"failureThreshold": 3, "canary": {"pods": 1}}), &THREE, 3);
    world.settle();
    assert_eq!((world.open().len(), world.report().0), (1, "WaitingForCanary"));
    world.end("web-0", false);
    assert_eq!(world.open().len(), 0);
    assert_eq!((world.report().0, world.phase()), ("PodsFailed", Some(Phase::Stalled)));
}

/// While nothing is done, the engine does not report the Pods, so earlier knowledge is outdated.
#[test]
fn what_was_known_before_a_stop_is_looked_at_anew() {
    for stop in ["invalid", "conflict", "unreadable", "another controller"] {
        let mut world = World::new("Deployment", &json!({}), &THREE, 1);
        world.settle();
        world.end("web-0", true);
        assert_eq!(world.open(), ["web-1"]);
        let (spec, workload) = (world.rollout.spec.clone(), world.workload.clone());
        match stop {
            "invalid" => world.rollout.spec.progress_deadline_seconds = Some(0),
            "conflict" => {
                let blocker =
                    Blocker::Request(Named { kind: super::super::ID, key: ObjectKey::new("shop", "older") });
                world.ahead = Some(Ahead { blocker, until: None, has_pod: false, crowded: false });
            }
            "unreadable" => world.workload = Err(Done::Refused("forbidden".into())),
            _ => world.workload.as_mut().unwrap().controllers = vec!["owner-2".into()],
        }
        world.later(60);
        // The engine does not report that this Pod is gone.
        world.pods.remove(&ObjectKey::new("shop", "web-2"));
        (world.rollout.spec, world.workload, world.ahead) = (spec, workload, None);
        world.workload.as_mut().unwrap().desired = 2;
        world.later(60);
        assert_eq!((world.counts(), world.open()), ((2, 1, 1, 0), vec!["web-1"]), "{stop}");
        world.end("web-1", true);
        world.later(1);
        assert_eq!(world.phase(), Some(Phase::Complete), "{stop}");
    }
}

/// A rollout that waits for a user or a Pod reads less often, and reads again before it goes on.
#[test]
fn who_waits_asks_for_little() {
    for paused in [true, false] {
        let mut world = World::new("Deployment", &json!({}), &THREE, 1);
        world.rollout.spec.paused = paused;
        world.settle();
        let readings = world.readings;
        for _ in 0..30 {
            world.later(10);
        }
        assert_eq!(world.readings - readings, 5, "within five minutes");
        world.later(30);
        let readings = world.readings;
        let next = if paused { "web-0" } else { "web-1" };
        if paused {
            world.rollout.spec.paused = false;
            world.settle();
        } else {
            world.end("web-0", true);
        }
        assert_eq!((world.readings - readings, world.open()), (1, vec![next]));
    }
}

#[test]
fn a_new_wish_has_its_own_time() {
    let mut world = World::new("Deployment", &json!({}), &THREE, 1);
    world.settle();
    world.later(700);
    assert_eq!(world.report().0, "ProgressDeadlineExceeded");
    world.rollout.spec.restarted_at = Some("two".into());
    world.settle();
    assert_eq!(world.report().0, "Restarting");
}

#[test]
fn a_wish_that_is_taken_back_leaves_nothing() {
    let mut world = World::new("Deployment", &json!({}), &THREE, 1);
    world.settle();
    assert_eq!(world.rollout.status.pods_of_interest.len(), 1);
    world.rollout.spec.restarted_at = None;
    world.settle();
    let status = &world.rollout.status;
    assert_eq!((world.phase(), world.counts()), (Some(Phase::Idle), (0, 0, 0, 0)));
    assert!(status.restart.is_none() && status.pods_of_interest.is_empty() && world.asked.is_empty());
}

#[test]
fn a_new_wish_is_told_once_its_workload_is_read() {
    let mut world = World::new("Deployment", &json!({}), &THREE, 1);
    assert!(matches!(world.plan().status, Some(write) if write.urgency == Urgency::Later));
}

#[test]
fn a_request_that_may_have_been_made_keeps_nobody_from_reading_the_workload() {
    for (later, wish) in [(11, "one"), (1, "two")] {
        let mut world = World::new("Deployment", &json!({}), &THREE, 1);
        world.create = Done::Retry("connection reset".into());
        while world.unknown.is_none() {
            assert!(world.step(), "it comes to a request");
        }
        // The last read is too old, or was for an earlier wish.
        world.create = Done::Effected;
        world.rollout.spec.restarted_at = Some(wish.into());
        world.later(later);
        assert_eq!(world.open(), ["web-0"], "{wish} after {later} s");
    }
}

#[test]
fn another_leader_has_nothing_to_tell_of_what_waits() {
    let mut world = World::new("Deployment", &json!({}), &THREE, 1);
    world.settle();
    world.rollout.spec.paused = true;
    world.end("web-0", true);
    let before = (world.rollout.status.clone(), world.writes);
    world.restart();
    world.settle();
    assert_eq!((world.rollout.status.clone(), world.writes), before);
}
