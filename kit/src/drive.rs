//! The loop that drives a pure core: one owner, one event at a time.

use std::time::Duration;

use pitstop_api::logic::machine::{Machine, Now};
use pitstop_api::logic::time::Mono;
use tokio::sync::mpsc;

use crate::Shutdown;
use crate::clock::{self, Monotonic};

/// The present.
pub fn now() -> Now {
    Now { mono: Mono(Monotonic::now()), wall: clock::wall() }
}

/// Feeds events and ticks to the core, and hands each action to `execute`, until the shutdown starts or every
/// sender is gone. `after` sees the core after each step, for metrics and readiness.
///
/// `execute` must not block: it starts the action and lets the outcome come back as an event.
pub async fn drive<M: Machine>(
    machine: &mut M,
    events: &mut mpsc::Receiver<M::Event>,
    shutdown: &Shutdown,
    mut execute: impl FnMut(M::Action),
    mut after: impl FnMut(&M),
) {
    loop {
        let mono = now().mono;
        let wait = machine.next_wake(mono).map(|at| at.since(mono));
        let event = tokio::select! {
            event = events.recv() => match event {
                Some(event) => event,
                None => return,
            },
            () = sleep(wait) => M::tick(),
            () = shutdown.wait() => return,
        };
        for action in machine.handle(now(), event) {
            execute(action);
        }
        after(machine);
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
