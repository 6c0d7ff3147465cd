//! The interface of a pure core, so that the same loop drives both programs.

use chrono::{DateTime, Utc};

use super::time::Mono;

/// The current time, as the driver read it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For decisions.
    pub mono: Mono,
    /// Only for writing down.
    pub wall: DateTime<Utc>,
}

/// A pure core: events in, actions out.
pub trait Machine {
    /// The input.
    type Event;
    /// The output.
    type Action;

    /// The event that says that time has passed.
    fn tick() -> Self::Event;

    /// Handles one event and returns the actions.
    fn handle(&mut self, now: Now, event: Self::Event) -> Vec<Self::Action>;

    /// When to send a tick if no event comes; `None` for never.
    fn next_wake(&self, now: Mono) -> Option<Mono>;
}
