//! What metrics count: decided here, counted by the surrounding program. No label gets more values with more objects.

use std::time::Duration;

use pitstop_api::nodework::AnswerState;

use crate::key::KindId;

/// One thing to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A request ended, and its end is stored.
    Ended {
        /// Its kind.
        kind: KindId,
        /// It succeeded.
        complete: bool,
        /// Reason of its last condition; one of [`crate::kind::About::reasons`].
        reason: &'static str,
    },
    /// A stage of a request is over.
    Took {
        /// The stage.
        stage: Stage,
        /// From when this process saw it begin until it saw it end. Not measured if it began before this process led.
        duration: Duration,
    },
    /// A Pod that a rollout has begun to change is in service again.
    RolloutGap {
        /// From when this process saw it not ready until it saw it ready again.
        duration: Duration,
    },
}

/// A part of a request's course.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Of the request: from its acceptance, when the drain begins, until containers may be stopped.
    Drain,
    /// Of a container: from when its order is in the book, or its image pinned, until it is seen ended.
    Stop,
    /// Of a container: from when it is seen ended until the new one is seen ready.
    Start,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Drain, Self::Stop, Self::Start];

    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Stop => "stop",
            Self::Start => "start",
        }
    }
}

/// Orders in books, by the daemon's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderCounts {
    /// Not answered yet.
    pub placed: usize,
    /// The daemon acts on it.
    pub acknowledged: usize,
    /// Carried out.
    pub done: usize,
    /// The daemon refused it.
    pub refused: usize,
    /// The daemon tried and failed.
    pub failed: usize,
}

impl OrderCounts {
    /// Counts one more order.
    pub(crate) fn add(&mut self, answer: Option<AnswerState>) {
        let count = match answer {
            None => &mut self.placed,
            Some(AnswerState::Acknowledged) => &mut self.acknowledged,
            Some(AnswerState::Done) => &mut self.done,
            Some(AnswerState::Refused) => &mut self.refused,
            Some(AnswerState::Failed) => &mut self.failed,
        };
        *count = count.saturating_add(1);
    }

    /// Replaces the counts `old` by `new`.
    pub(crate) fn replace(&mut self, old: &Self, new: &Self) {
        let each = [
            (&mut self.placed, old.placed, new.placed),
            (&mut self.acknowledged, old.acknowledged, new.acknowledged),
            (&mut self.done, old.done, new.done),
            (&mut self.refused, old.refused, new.refused),
            (&mut self.failed, old.failed, new.failed),
        ];
        for (count, old, new) in each {
            *count = count.saturating_sub(old).saturating_add(new);
        }
    }

    /// Each count with its name in metrics.
    pub fn by_state(&self) -> [(&'static str, usize); 5] {
        [
            ("placed", self.placed),
            ("acknowledged", self.acknowledged),
            ("done", self.done),
            ("refused", self.refused),
            ("failed", self.failed),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the one label of a metric, as the reference lists them.
    fn listed(metric: &str) -> Vec<&'static str> {
        let reference = include_str!("../../../docs/reference/metrics.md");
        let row = reference.lines().find(|row| row.starts_with(&format!("| `{metric}`"))).unwrap();
        let values = row.split_once("`: ").and_then(|(_, rest)| rest.split_once(" |")).unwrap().0;
        values.split(", ").map(|value| value.trim_matches('`')).collect()
    }

    #[test]
    fn stages_and_states_go_by_the_names_that_the_reference_lists() {
        let names = Stage::ALL.map(Stage::as_str);
        assert_eq!(names.to_vec(), listed("pitstop_controller_stage_duration_seconds"));
        let names = OrderCounts::default().by_state().map(|(name, _)| name);
        assert_eq!(names.to_vec(), listed("pitstop_controller_orders_open"));
    }

    #[test]
    fn every_order_counts_once_under_the_answer_that_it_has() {
        let answers = [
            None,
            Some(AnswerState::Acknowledged),
            Some(AnswerState::Done),
            Some(AnswerState::Refused),
            Some(AnswerState::Failed),
        ];
        let mut counts = OrderCounts::default();
        for (times, answer) in (1..).zip(answers) {
            (0..times).for_each(|_| counts.add(answer));
        }
        assert_eq!(counts.by_state().map(|(_, count)| count), [1, 2, 3, 4, 5]);
        let mut all = OrderCounts { placed: 7, failed: 9, ..counts };
        all.replace(&counts, &OrderCounts { done: 1, ..OrderCounts::default() });
        assert_eq!(all.by_state().map(|(_, count)| count), [6, 0, 1, 0, 4]);
    }
}
