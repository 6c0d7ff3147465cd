//! Conditions in the JSON shape of `metav1.Condition`, and those that every kind of request has.
//!
//! An own struct, so that this crate needs no second time type (see `docs/adr/0003-time-types.md`).
//!
//! `Complete` and `Failed` are as on a Job. `Reconciling` and `Stalled` are those of kstatus, by which Flux and Helm wait
//! (<https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>). [`record`] writes all four, and
//! [`phase`] reads the phase from them, so that they cannot contradict each other.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Serialize};

/// Condition type: True if the request succeeded; if False, the reason says why it waits or failed.
pub const COMPLETE: &str = "Complete";
/// Condition type: True, with the reason, if the request failed; otherwise absent.
pub const FAILED: &str = "Failed";
/// Condition type: True until the request ends, then False; the reason is its phase.
pub const RECONCILING: &str = "Reconciling";
/// Condition type: [`FAILED`] under kstatus' name.
pub const STALLED: &str = "Stalled";

/// Longest `message`, in characters; [`Condition::new`] cuts longer ones.
pub const MAX_MESSAGE: usize = 1024;

/// `metav1.Condition`'s patterns of `type` (a qualified name) and `reason`.
pub(crate) const TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known.
    Unknown,
}

/// One observation about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Name of the condition.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316), regex(pattern = TYPE))]
    pub type_: String,
    /// Whether the condition holds.
    pub status: ConditionStatus,
    /// `metadata.generation` that the condition was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// When `status` last changed, by the controller's clock. Informational: pitstop never compares it.
    pub last_transition_time: DateTime<Utc>,
    /// One `CamelCase` word of a fixed set, for programs.
    #[schemars(length(min = 1, max = 128), regex(pattern = REASON))]
    pub reason: String,
    /// A sentence for people.
    #[schemars(length(max = 1024))]
    pub message: String,
}

impl Condition {
    /// A condition whose `message` is cut to [`MAX_MESSAGE`] characters. Texts of other programs belong there: type and
    /// reason are from a fixed set.
    pub fn new(
        type_: &'static str,
        status: ConditionStatus,
        reason: &'static str,
        message: &str,
        now: DateTime<Utc>,
        generation: Option<i64>,
    ) -> Self {
        Self {
            type_: type_.to_owned(),
            status,
            observed_generation: generation,
            last_transition_time: now,
            reason: reason.to_owned(),
            message: truncate(message, MAX_MESSAGE),
        }
    }
}

/// Whether a request is open, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has not ended.
    Open,
    /// It ended with success.
    Succeeded,
    /// It ended without success.
    Failed,
}

/// How far a request is.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    /// Whether it has ended.
    pub progress: Progress,
    /// Its phase.
    pub phase: &'static str,
    /// Why it waits, or how it ended.
    pub reason: &'static str,
    /// The reason in a sentence.
    pub message: &'a str,
}

/// Writes [`COMPLETE`] and [`RECONCILING`], and for a failed request [`FAILED`] and [`STALLED`].
pub fn record(
    conditions: &mut Vec<Condition>,
    summary: Summary<'_>,
    now: DateTime<Utc>,
    generation: Option<i64>,
) {
    let Summary { progress, phase, reason, message } = summary;
    let is = |holds: bool| if holds { ConditionStatus::True } else { ConditionStatus::False };
    let failed = progress == Progress::Failed;
    let all = [
        (COMPLETE, is(progress == Progress::Succeeded), reason, true),
        (FAILED, ConditionStatus::True, reason, failed),
        (RECONCILING, is(progress == Progress::Open), phase, true),
        (STALLED, ConditionStatus::True, reason, failed),
    ];
    for (type_, status, reason, _) in all.into_iter().filter(|(.., applies)| *applies) {
        set(conditions, Condition::new(type_, status, reason, message, now, generation));
    }
}

/// The phase: the reason of [`RECONCILING`].
pub fn phase<'a, P: Deserialize<'a>>(conditions: &'a [Condition]) -> Option<P> {
    let reason = &find(conditions, RECONCILING)?.reason;
    P::deserialize(StrDeserializer::<Error>::new(reason)).ok()
}

/// Replaces the condition of that type, or adds it. The transition time stays if the status does.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) {
    match conditions.iter_mut().find(|c| c.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time;
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

/// The condition of that type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// The first `max` characters of `text`.
pub fn truncate(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap()
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let mut all = vec![Condition::new("A", ConditionStatus::False, "X", "", at(1), None)];
        set(&mut all, Condition::new("A", ConditionStatus::False, "Y", "m", at(2), None));
        assert_eq!((all[0].reason.as_str(), all[0].last_transition_time), ("Y", at(1)));
        set(&mut all, Condition::new("A", ConditionStatus::True, "Z", "m", at(3), None));
        assert_eq!(all[0].last_transition_time, at(3));
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn what_is_told_of_a_request_agrees_and_failures_alone_tell_of_a_failure() {
        #[derive(Debug, PartialEq, Deserialize)]
        enum Phase {
            Working,
            Over,
        }
        let shown = |conditions: &[Condition]| -> Vec<String> {
            conditions.iter().map(|c| format!("{}={:?}/{}", c.type_, c.status, c.reason)).collect()
        };
        let summary = |progress, phase, reason| Summary { progress, phase, reason, message: "m" };
        let mut all = Vec::new();
        assert_eq!(phase::<Phase>(&all), None);
        record(&mut all, summary(Progress::Open, "Working", "Waits"), at(1), Some(2));
        assert_eq!(shown(&all), ["Complete=False/Waits", "Reconciling=True/Working"]);
        assert_eq!(phase(&all), Some(Phase::Working));
        assert!(all.iter().all(|c| c.message == "m" && c.observed_generation == Some(2)));

        let mut failed = all.clone();
        record(&mut failed, summary(Progress::Failed, "Over", "Why"), at(2), None);
        let expected =
            ["Complete=False/Why", "Reconciling=False/Over", "Failed=True/Why", "Stalled=True/Why"];
        assert_eq!(shown(&failed), expected);
        record(&mut all, summary(Progress::Succeeded, "Over", "Complete"), at(2), None);
        assert_eq!(shown(&all), ["Complete=True/Complete", "Reconciling=False/Over"]);
        assert_eq!(phase(&all), Some(Phase::Over));
        record(&mut all, summary(Progress::Open, "Elsewhere", "Waits"), at(3), None);
        assert_eq!(phase::<Phase>(&all), None, "a phase of another version is none");
    }

    #[test]
    fn messages_are_bounded() {
        let long = "ä".repeat(5000);
        let c = Condition::new("A", ConditionStatus::True, "X", &long, at(0), None);
        assert_eq!(c.message.chars().count(), MAX_MESSAGE);
    }
}
