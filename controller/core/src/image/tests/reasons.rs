//! The lists of reasons, which documentation and metrics go by, and the events.

use std::collections::BTreeSet;

use chrono::DateTime;
use pitstop_api::condition::{self, Progress, Summary};
use pitstop_api::image_update::{PodImageUpdateStatus, Target};
use serde_json::json;

use super::super::status;
use super::asked;
use crate::owner::Owner;

#[test]
fn no_reason_of_an_end_is_named_twice() {
    let all: BTreeSet<&str> = status::REASONS.into_iter().collect();
    assert_eq!(all.len(), status::REASONS.len());
    assert!(status::SUCCESSES.iter().all(|success| all.contains(success)));
}

#[test]
fn of_a_rollouts_request_only_a_failure_has_an_event() {
    let events = |progress: Progress, owner: Option<Owner>| {
        let mut update = asked(&json!({}));
        update.owner = owner;
        let status = &mut update.status;
        status.target = Some(Target { pod_uid: "pod-1".into(), node_name: "node1".into() });
        status.completion_time = Some(DateTime::UNIX_EPOCH);
        let summary = Summary { progress, phase: "Over", reason: "Why", message: "text" };
        condition::record(&mut status.conditions, summary, DateTime::UNIX_EPOCH, Some(1));
        let notes = status::notes(&update, &PodImageUpdateStatus::default());
        notes.iter().map(|note| note.reason).collect::<Vec<_>>()
    };
    assert_eq!(events(Progress::Succeeded, None), ["ImageUpdateStarted", "ImageUpdateCompleted"]);
    assert_eq!(events(Progress::Failed, None), ["ImageUpdateStarted", "ImageUpdateFailed"]);
    assert_eq!(events(Progress::Succeeded, Some(Owner::default())), Vec::<&str>::new());
    assert_eq!(events(Progress::Failed, Some(Owner::default())), ["ImageUpdateFailed"]);
}
