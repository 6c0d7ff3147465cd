//! The frame of a program: logs first, one thread, and a reason that outlives the process when it fails.

use std::fmt::Display;

use crate::CommonArgs;
use crate::{log, termination};

/// Runs a program on the current thread until its future is ready; a failure ends the process with code 1.
///
/// `{:#}` of the error is what the kubelet shows as the reason of the container's end.
pub fn run<E: Display>(common: &CommonArgs, program: impl Future<Output = Result<(), E>>) {
    log::init(&common.log_level, common.log_format);
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            if let Err(error) = runtime.block_on(program) {
                termination::fatal(&format!("{error:#}"));
            }
        }
        Err(error) => termination::fatal(&error),
    }
}
