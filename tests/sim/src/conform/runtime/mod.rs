//! Scripts of CRI calls, and what each comes to: on the model, and on a real containerd in
//! `cri-proto/tests/conformance.rs`. The results must be equal, line by line.
//!
//! A result names no ID, no address and no time: containers have names, codes and states are words, and of a stop it
//! is only told whether it took its whole grace.
//!
//! What the real ones (Debian's containerd 1.6.20, and 2.4.2) taught the model:
//!
//! - Any start that fails ends the container: `Exited` with code 128 and reason `StartError`, with a time of the end and
//!   none of the start; also where only the sandbox does not run.
//! - A stop of an unknown container or sandbox is `NotFound` in 1.6 and a success in 2; its removal is a success. An empty
//!   ID and a prefix of two are `Unknown`, in removals too; in a list they match nothing. IDs in capitals are unknown.
//! - A negative grace kills at once, as 0 does. A container that runs, or is being stopped, can be removed: it is killed
//!   first, and the stop is a success.
//! - A stop that was left has sent its signal for good: a later one sends none, and kills at the end of its own grace.
//!   Only a runtime that starts anew sends it again.
//! - A long stop beside a short one ends with the short one's kill, whichever came first.
//! - A program that is missing is `Unknown`, and 127 when a shell looks for it; the container is none the worse. A
//!   timeout is `DeadlineExceeded`. A command that its container's end kills is no failure but exit code 137.
//! - A sandbox's name (Pod, UID, attempt) and a container's (name, attempt, sandbox) are taken until they are removed, not
//!   until they have ended: another one of that name is `Unknown` in 1.6, `FailedPrecondition` in 2.
//! - What ended while the runtime was away is found with its true exit code.
//!
//! `PATH` says which containerd runs; `cargo xtask test` compares both. Not compared: CRI-O, for want of packages.

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

/// Scripts from seeds.
const GENERATED: u64 = 36;
