//! Conditions in the JSON shape of `metav1.Condition`.
//!
//! An own struct, so that this crate needs no second time type (see `docs/adr/0003-time-types.md`).

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest `message`, in characters; longer ones are cut by [`Condition::new`].
pub const MAX_MESSAGE: usize = 1024;
/// Longest `reason`, in characters; some come from the kubelet.
const MAX_REASON: usize = 128;

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is not known.
    Unknown,
}

/// One observation about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Name of the condition.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// `metadata.generation` that the condition was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// When `status` last changed, on the controller's clock; for people, never compared.
    pub last_transition_time: DateTime<Utc>,
    /// One `CamelCase` word for programs.
    #[schemars(length(min = 1, max = 128))]
    pub reason: String,
    /// A sentence for people.
    #[schemars(length(max = 1024))]
    pub message: String,
}

impl Condition {
    /// A condition whose `message` is cut to [`MAX_MESSAGE`] characters.
    pub fn new(
        type_: &str,
        status: ConditionStatus,
        reason: &str,
        message: &str,
        now: DateTime<Utc>,
        generation: Option<i64>,
    ) -> Self {
        Self {
            type_: type_.to_owned(),
            status,
            observed_generation: generation,
            last_transition_time: now,
            reason: truncate(reason, MAX_REASON),
            message: truncate(message, MAX_MESSAGE),
        }
    }
}

/// Puts `new` in the place of the condition of its type, keeping the transition time when the status stays.
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
    fn messages_are_bounded() {
        let long = "ä".repeat(5000);
        let c = Condition::new("A", ConditionStatus::True, "X", &long, at(0), None);
        assert_eq!(c.message.chars().count(), MAX_MESSAGE);
    }
}
