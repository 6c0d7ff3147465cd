//! Reports of a failed preStop hook.

use super::super::status::notes;
use super::*;
use crate::change::Note;

fn hook_failure(scene: &Scene) -> Option<(&str, &str)> {
    let conditions = &scene.request.status.conditions;
    let found = conditions.iter().find(|c| c.type_ == conditions::PRE_STOP_HOOK_FAILED)?;
    assert_eq!(found.status, ConditionStatus::True, "the condition is there only when one has failed");
    Some((found.reason.as_str(), found.message.as_str()))
}

/// The warnings for the change from `before` to now.
fn warnings(scene: &Scene, before: &ContainerRecreateRequestStatus) -> Vec<(String, String)> {
    let warn = |note: Note| note.warning.then(|| (note.reason.to_owned(), note.message));
    notes(&scene.request, before).into_iter().filter_map(warn).collect()
}

const APP: &str = "container app: told so, and the stop went ahead";

#[test]
fn it_is_told_by_a_condition_and_one_event_and_the_request_completes() {
    let mut scene = Scene::ordered(&["app", "sidecar"]);
    scene.answer("app", AnswerState::Acknowledged, Some(AnswerReason::PreStopHookFailed));
    let before = scene.request.status.clone();
    let write = scene.plan().status.unwrap();
    scene.request.status = write.status;
    assert_eq!(hook_failure(&scene), Some(("FailedPreStopHook", APP)));
    let event = format!("Request shop/crr: {APP}");
    assert_eq!(warnings(&scene, &before), [("FailedPreStopHook".to_owned(), event)]);

    let before = scene.request.status.clone();
    scene.answer("app", AnswerState::Done, Some(AnswerReason::PreStopHookFailed));
    scene.answer("sidecar", AnswerState::Acknowledged, Some(AnswerReason::PreStopHookFailed));
    scene.restarts("app", true);
    scene.restarts("sidecar", true);
    scene.settle();
    let both = format!("{APP}; container sidecar: told so, and the stop went ahead");
    assert_eq!(hook_failure(&scene), Some(("FailedPreStopHook", both.as_str())));
    let event = "Request shop/crr: container sidecar: told so, and the stop went ahead".to_owned();
    assert_eq!(warnings(&scene, &before), [("FailedPreStopHook".to_owned(), event)]);
    assert_ended(&scene, "Complete", "");
    assert_eq!(
        scene.states(),
        [state("app", Phase::Succeeded, true), state("sidecar", Phase::Succeeded, true)]
    );

    // The condition stays when the orders are gone.
    let before = scene.request.clone();
    scene.orders.clear();
    scene.settle();
    assert_eq!(scene.request, before);
}

#[test]
fn one_that_fails_after_the_end_is_told_with_the_record_of_the_stop() {
    let mut scene = Scene::ordered(&["app"]);
    scene.request.spec.active_deadline_seconds = Some(3);
    scene.acknowledge("app");
    scene.at(3 * S).settle();
    let before = scene.request.clone();
    scene.answer("app", AnswerState::Acknowledged, Some(AnswerReason::PreStopHookFailed));
    scene.settle();
    assert_eq!(scene.request, before, "nothing but that record changes after the end");
    scene.answer("app", AnswerState::Done, Some(AnswerReason::PreStopHookFailed));
    scene.settle();
    assert_eq!(hook_failure(&scene), Some(("FailedPreStopHook", APP)));
    assert_eq!(scene.states(), [state("app", Phase::Recreating, true)]);
    assert_eq!(warnings(&scene, &before.status).len(), 1);
    assert!(scene.orders.is_empty());
}

#[test]
fn without_a_failure_there_is_no_condition() {
    let mut scene = Scene::ordered(&["app"]);
    scene.answer("app", AnswerState::Done, Some(AnswerReason::EndedByItself));
    scene.restarts("app", true);
    scene.settle();
    assert_eq!(hook_failure(&scene), None);
}
