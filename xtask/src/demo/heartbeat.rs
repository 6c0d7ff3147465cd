//! Prints signs of life while a step prints nothing for a long time.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Instant;

use crate::progress::{HEARTBEAT, note, seconds};

/// Runs a step, and prints a sign of life every few seconds.
pub(super) fn with_heartbeat<T>(what: &'static str, run: impl FnOnce() -> T) -> T {
    let (running, ended) = mpsc::channel();
    let beat = std::thread::spawn(move || {
        let start = Instant::now();
        while ended.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
            note(format!("{what}: still at it after {}", seconds(start.elapsed())));
        }
    });
    let result = run();
    drop::<Sender<()>>(running);
    // A panic does not matter: the thread only prints.
    let _ = beat.join();
    result
}
