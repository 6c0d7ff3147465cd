//! The frame of a program: logs first, one thread, and a failure reason that outlives the process.

use std::error::Error;

use crate::{CommonArgs, describe};
use crate::{log, termination};

/// Runs a program on the current thread until its future is ready; a failure ends the process with code 1.
///
/// The error, with its causes, is what the kubelet shows as the reason of the container's end.
pub fn run<E: Into<Box<dyn Error + Send + Sync>>>(
    common: &CommonArgs,
    program: impl Future<Output = Result<(), E>>,
) {
    log::init(&common.log_level, common.log_format);
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            if let Err(error) = runtime.block_on(program) {
                let error: Box<dyn Error + Send + Sync> = error.into();
                termination::fatal(&describe(&*error));
            }
        }
        Err(error) => termination::fatal(&describe(&error)),
    }
}
