//! The signal to stop, as a value that every task can wait for.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// Exit code after a second signal: 128 + SIGINT, as shells have it.
const EXIT_FORCED: i32 = 130;

/// Whether the process has been asked to stop. Clones see the same answer.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// Starts the shutdown of its [`Shutdown`]; dropping it does so too.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

impl Trigger {
    /// Asks everything that holds the [`Shutdown`] to stop.
    pub fn start(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// A shutdown that starts with SIGTERM or SIGINT; a second signal ends the process at once.
    ///
    /// Must be called inside a tokio runtime. Fails when the signal handlers cannot be installed.
    pub fn on_signals() -> std::io::Result<Self> {
        let mut term = signal(SignalKind::terminate())?;
        let mut int = signal(SignalKind::interrupt())?;
        let (trigger, shutdown) = Self::manual();
        tokio::spawn(async move {
            let first = either(&mut term, &mut int).await;
            tracing::info!(signal = first, "shutting down");
            trigger.start();
            let second = either(&mut term, &mut int).await;
            tracing::warn!(signal = second, "second signal, exiting at once");
            std::process::exit(EXIT_FORCED);
        });
        Ok(shutdown)
    }

    /// A shutdown that the holder of the [`Trigger`] starts.
    pub fn manual() -> (Trigger, Self) {
        let (tx, rx) = watch::channel(false);
        (Trigger(tx), Self(rx))
    }

    /// Returns once the process has been asked to stop.
    pub async fn wait(&self) {
        let mut rx = self.0.clone();
        // An error means that the trigger is gone, which is a shutdown too.
        let _ = rx.wait_for(|stop| *stop).await;
    }

    /// Whether the process has been asked to stop.
    pub fn is_started(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

/// Waits for either signal and names it.
async fn either(term: &mut Signal, int: &mut Signal) -> &'static str {
    tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_clone_hears_the_trigger() {
        let (trigger, shutdown) = Shutdown::manual();
        let clone = shutdown.clone();
        assert!(!clone.is_started());
        trigger.start();
        clone.wait().await;
        shutdown.wait().await;
        assert!(shutdown.is_started());
    }

    #[tokio::test]
    async fn a_dropped_trigger_is_a_shutdown() {
        let (trigger, shutdown) = Shutdown::manual();
        drop(trigger);
        shutdown.wait().await;
        assert!(shutdown.is_started());
    }
}
