//! What a pure core looks like from outside, so that both programs are driven by the same loop.

use chrono::{DateTime, Utc};

use super::time::Mono;

/// The present, as the driver read it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Decides.
    pub mono: Mono,
    /// Is only written down.
    pub wall: DateTime<Utc>,
}

/// A pure core: events in, actions out.
pub trait Machine {
    /// What happens to it.
    type Event;
    /// What it wants done.
    type Action;

    /// The event that says that time has passed.
    fn tick() -> Self::Event;

    /// Takes in one event and gives back what to do.
    fn handle(&mut self, now: Now, event: Self::Event) -> Vec<Self::Action>;

    /// When to send a tick though nothing happened.
    fn next_wake(&self, now: Mono) -> Option<Mono>;
}
