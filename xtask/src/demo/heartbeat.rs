//! A sign of life now and then while something runs that prints nothing for long.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Instant;

use crate::progress::{HEARTBEAT, note, seconds};

/// Runs, and says every few seconds that it still does.
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
    // It only prints.
    let _ = beat.join();
    result
}
