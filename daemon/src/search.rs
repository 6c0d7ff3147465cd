//! Finds the container runtime, also after it restarts: the I/O around [`Search`].
//!
//! While the runtime answers, this costs one look at a few files every ten seconds, and no call. After a failed call of
//! the executor, the search looks at once, and makes the runtime prove that it is there.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pitstop_api::condition::truncate;
use pitstop_api::logic::time::Mono;
use pitstop_api::nodework::{MAX_PULL_SECONDS, RuntimeInfo};
use pitstop_cri::{Deadlines, Runtime, v1};
use pitstop_daemon_core::{CallFailure, Event, Search, SocketId};
use pitstop_kit::clock::Monotonic;
use pitstop_kit::describe;
use pitstop_kit::health::Condition;
use tokio::sync::{Notify, mpsc, watch};
use tracing::{info, warn};

use crate::metrics::DaemonMetrics;

/// Longest reason for a missing runtime, in characters.
const MAX_REASON: usize = 1024;
/// Longest time of a pull; each is cancelled when its orders' time is over.
const LONGEST_PULL: Duration = Duration::from_secs(MAX_PULL_SECONDS.unsigned_abs());

/// Access to the runtime, for all callers. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    current: watch::Receiver<Option<Runtime>>,
    doubt: Arc<Notify>,
}

/// The end of the link that the search holds.
pub(crate) struct Finder {
    current: watch::Sender<Option<Runtime>>,
    doubt: Arc<Notify>,
}

/// Both ends; no runtime is known yet.
pub(crate) fn link() -> (Finder, Link) {
    let (sender, current) = watch::channel(None);
    let doubt = Arc::new(Notify::new());
    (Finder { current: sender, doubt: Arc::clone(&doubt) }, Link { current, doubt })
}

impl Link {
    /// The runtime, if one is known to answer.
    pub(crate) fn runtime(&self) -> Result<Runtime, CallFailure> {
        let lost = || CallFailure { retry: true, message: "no container runtime answers".to_owned() };
        self.current.borrow().clone().ok_or_else(lost)
    }

    /// A call failed: the runtime may be gone.
    pub(crate) fn doubt(&self) {
        self.doubt.notify_one();
    }
}

/// Looks for the runtime as long as the process lives. `ready` holds while one answers, and otherwise says why not.
pub(crate) async fn run(
    mut search: Search,
    finder: Finder,
    ready: Condition,
    metrics: DaemonMetrics,
    events: mpsc::Sender<Event>,
) {
    let mut logged = String::new();
    // The socket of the runtime that callers use.
    let mut current = None;
    loop {
        let (seen, mut trouble) = look(&search);
        let ask = search.look(now(), &seen);
        if !search.found() {
            let mut answered = None;
            for asked in ask {
                let Some(path) = search.candidates().get(asked.0) else { continue };
                match connect(path).await {
                    Ok((runtime, info)) => {
                        answered = Some(asked);
                        if answered != current {
                            let RuntimeInfo { name, version } = &info;
                            info!(name, version, socket = %path.display(), "the container runtime answers");
                            finder.current.send_replace(Some(runtime));
                            let _ = events.send(Event::Runtime(info)).await;
                        }
                        break;
                    }
                    Err(error) => trouble.push(describe(&error)),
                }
            }
            search.answered(now(), answered);
            current = answered;
            metrics.runtime(search.found());
            if search.found() {
                ready.set(true);
                logged.clear();
            } else {
                finder.current.send_replace(None);
                let why = reason(&search, &trouble);
                ready.unmet(&why);
                if why != logged {
                    warn!(why, "waits for the container runtime");
                    logged = why;
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(search.wait(now())) => {}
            () = finder.doubt.notified() => search.doubt(),
        }
    }
}

fn now() -> Mono {
    Mono(Monotonic::now())
}

/// The existing sockets, and the errors that may hide others.
fn look(search: &Search) -> (Vec<Option<SocketId>>, Vec<String>) {
    let mut trouble = Vec::new();
    let seen = search.candidates().iter().map(|path| match fs::metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            let changed = (found.ctime(), found.ctime_nsec());
            Some(SocketId { device: found.dev(), inode: found.ino(), changed })
        }
        Ok(_) => {
            trouble.push(format!("{} is no socket", path.display()));
            None
        }
        Err(error) => {
            if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
                trouble.push(format!("{}: {}", path.display(), describe(&error)));
            }
            None
        }
    });
    (seen.collect(), trouble)
}

/// A client of the runtime behind a socket, if it speaks CRI v1.
async fn connect(path: &Path) -> Result<(Runtime, RuntimeInfo), pitstop_cri::Error> {
    let deadlines = Deadlines { pull: LONGEST_PULL, ..Deadlines::default() };
    let runtime = pitstop_cri::connect(path, deadlines)?;
    let info = runtime_info(&runtime.version().await?);
    Ok((runtime, info))
}

/// The runtime's name and version, within the bounds of the `NodeWork`'s schema.
pub fn runtime_info(version: &v1::VersionResponse) -> RuntimeInfo {
    RuntimeInfo {
        name: truncate(&version.runtime_name, 64),
        version: truncate(&version.runtime_version, 128),
    }
}

/// Why there is no runtime.
fn reason(search: &Search, trouble: &[String]) -> String {
    if trouble.is_empty() {
        let paths: Vec<String> = search.candidates().iter().map(|path| path.display().to_string()).collect();
        return truncate(&format!("there is no socket at {}", paths.join(", ")), MAX_REASON);
    }
    truncate(&trouble.join("; "), MAX_REASON)
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
