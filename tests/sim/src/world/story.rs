//! What a run did: a hash of all decisions and, on demand, readable lines.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};

use chrono::DateTime;
use pitstop_controller_core::deed::{CommitStep, Deed};
use pitstop_controller_core::{Action, Status, Write};

/// The record of one schedule.
#[derive(Default)]
pub struct Story {
    hash: DefaultHasher,
    /// Lines are kept.
    pub verbose: bool,
    /// The lines.
    pub lines: Vec<String>,
}

impl Story {
    /// An empty record; lines are kept only when `verbose`.
    pub fn new(verbose: bool) -> Self {
        Self { verbose, ..Self::default() }
    }

    /// A decision of production code: part of the hash.
    pub fn decides(&mut self, now: u64, who: &str, what: &str) {
        (now, who, what).hash(&mut self.hash);
        self.line(now, who, what);
    }

    /// A line that is not part of the hash.
    pub fn note(&mut self, now: u64, who: &str, what: impl FnOnce() -> String) {
        if self.verbose {
            self.line(now, who, &what());
        }
    }

    fn line(&mut self, now: u64, who: &str, what: &str) {
        if self.verbose {
            self.lines.push(format!("{:>9}.{:03} {who:<14} {what}", now / 1000, now % 1000));
        }
    }

    /// The hash so far.
    pub fn hash(&self) -> u64 {
        self.hash.finish()
    }
}

/// An action as text without wall times: clocks of machines may be wrong, and decisions may not depend on them.
pub fn decision(action: &Action) -> String {
    let mut action = action.clone();
    match &mut action {
        Action::Write { write: Write::Status { status: Status::Recreate(status), .. }, .. } => {
            status.completion_time = status.completion_time.map(|_| DateTime::UNIX_EPOCH);
            status.conditions.iter_mut().for_each(|c| c.last_transition_time = DateTime::UNIX_EPOCH);
        }
        Action::Write { write: Write::Status { status: Status::Resize(status), .. }, .. } => {
            status.completion_time = status.completion_time.map(|_| DateTime::UNIX_EPOCH);
            status.conditions.iter_mut().for_each(|c| c.last_transition_time = DateTime::UNIX_EPOCH);
        }
        Action::Write { write: Write::Status { status: Status::Image(status), .. }, .. } => {
            status.completion_time = status.completion_time.map(|_| DateTime::UNIX_EPOCH);
            status.conditions.iter_mut().for_each(|c| c.last_transition_time = DateTime::UNIX_EPOCH);
        }
        Action::Write { write: Write::Status { status: Status::Rollout(status), .. }, .. } => {
            let restart = status.restart.iter_mut();
            restart.for_each(|r| r.newest_pod = r.newest_pod.map(|_| DateTime::UNIX_EPOCH));
            status.history.iter_mut().for_each(|roll| roll.completed_at = DateTime::UNIX_EPOCH);
            status.conditions.iter_mut().for_each(|c| c.last_transition_time = DateTime::UNIX_EPOCH);
        }
        Action::Do { deed: Deed::Commit(commit), .. } => {
            commit.active.created = 0;
            if let CommitStep::Keep(set) | CommitStep::Void(set) = &mut commit.step {
                set.created = 0;
            }
        }
        Action::Write { write: Write::Metadata { annotations, .. }, .. } => {
            annotations.values_mut().flatten().for_each(String::clear);
        }
        _ => {}
    }
    format!("{action:?}")
}
