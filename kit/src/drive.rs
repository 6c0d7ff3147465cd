//! The loop that drives a pure core: one owner, one event at a time.

use std::time::{Duration, Instant};

use pitstop_api::logic::machine::{Machine, Now};
use pitstop_api::logic::time::Mono;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::Shutdown;
use crate::clock::{self, Monotonic};

/// The current time on both clocks.
pub fn now() -> Now {
    Now { mono: Mono(Monotonic::now()), wall: clock::wall() }
}

/// Feeds events and ticks to the core, and hands each action to `execute`, until the shutdown starts or every
/// sender is gone. `after` sees the core after each step, and how long the step took in the core, for metrics and
/// readiness.
///
/// `execute` must not block: it starts the action and lets the outcome come back as an event.
pub async fn drive<M: Machine>(
    machine: &mut M,
    events: &mut mpsc::Receiver<M::Event>,
    shutdown: &Shutdown,
    mut execute: impl FnMut(M::Action),
    mut after: impl FnMut(&M, Duration),
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
        let begun = Instant::now();
        let actions = machine.handle(now(), event);
        let took = begun.elapsed();
        for action in actions {
            execute(action);
        }
        after(machine, took);
    }
}

/// Runs a future on its own thread, with the timers, sockets and tasks of this runtime. However long the future does
/// not yield, the runtime's other tasks continue.
///
/// Must be called inside a tokio runtime. Tasks that the future spawns run on the runtime's own threads.
pub fn on_own_thread<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(future))
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn what_does_not_yield_keeps_nothing_else_waiting() {
        let (renew, renewed) = channel();
        let planning = on_own_thread(async move {
            tokio::spawn(async move { renew.send(()) });
            let renewed = renewed.recv_timeout(Duration::from_secs(30));
            sleep(Some(Duration::ZERO)).await;
            renewed
        });
        assert_eq!(planning.await.unwrap(), Ok(()));
    }
}
