//! Scripts of CRI calls, run on the model and, in `cri-proto/tests/conformance.rs`, on a real containerd. The
//! results must be equal, line by line.
//!
//! A result has no ID, address or time. It uses names of containers, and words for codes and states. About
//! the duration of a stop, it says only whether the stop took its whole grace.
//!
//! Facts from real runtimes (Debian's containerd 1.6.20, and 2.4.2):
//!
//! - Any start that fails ends the container: `Exited` with code 128 and reason `StartError`, with an end
//!   time but no start time; also if only the sandbox does not run.
//! - A stop of an unknown container or sandbox is `NotFound` in 1.6 and a success in 2; its removal is a
//!   success. An empty ID and an ambiguous prefix are `Unknown`, in removals too; in a list they match
//!   nothing. IDs in capitals are unknown.
//! - A negative grace kills at once, as 0 does. A container that runs, or is being stopped, can be removed:
//!   the runtime kills it first, and the stop succeeds.
//! - A cancelled stop has sent its signal for good: a later stop sends none, and kills at the end of its own
//!   grace. Only a restarted runtime sends the signal again.
//! - A long stop beside a short stop ends with the short stop's kill, whichever came first.
//! - A missing program is `Unknown`, and 127 if a shell looks for it; the container is not affected. A
//!   timeout is `DeadlineExceeded`. A command that is killed by its container's end has exit code 137; it is
//!   no failure.
//! - A sandbox's name (Pod, UID, attempt) and a container's (name, attempt, sandbox) are taken until they are
//!   removed, not until they have ended: a second use of that name is `Unknown` in 1.6, `FailedPrecondition`
//!   in 2.
//! - A container that ended while the runtime was down is found with its true exit code.
//!
//! `PATH` selects the containerd; `cargo xtask test` compares both. CRI-O is not compared, for lack of
//! packages.

mod fixed;
mod generated;
mod model;
mod run;
mod script;
#[cfg(test)]
mod tests;

pub use model::Model;
pub use run::{Target, run};
pub use script::{Op, Script, Shape};

/// All scripts: those written by hand, then those from seeds.
pub fn scripts() -> Vec<Script> {
    let mut all = fixed::scripts();
    all.extend((0..GENERATED).map(generated::script));
    all
}

/// Number of scripts from seeds.
const GENERATED: u64 = 36;
