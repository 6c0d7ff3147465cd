//! Checks that the tests make on the conditions of every kind.

use pitstop_api::condition::{self, Condition, ConditionStatus};

/// Asserts that the conditions agree with each other, and that each reason is `known`.
#[track_caller]
pub(crate) fn agree(conditions: &[Condition], over: bool, known: impl Fn(&Condition) -> bool) {
    let shown = |type_| {
        let found = condition::find(conditions, type_)?;
        Some((found.status == ConditionStatus::True, found.reason.as_str(), found.message.as_str()))
    };
    let complete = shown(condition::COMPLETE).unwrap();
    assert_eq!(shown(condition::RECONCILING).unwrap().0, !over);
    let failed = (over && !complete.0).then_some((true, complete.1, complete.2));
    assert_eq!((shown(condition::FAILED), shown(condition::STALLED)), (failed, failed));
    for condition in conditions {
        assert!(known(condition), "{}: {}", condition.type_, condition.reason);
    }
}
