//! What the pure cores of both programs share: time as data, back-off as data, watches and the
//! objects tracked from them.

pub mod backoff;
pub mod machine;
pub mod time;
pub mod tracked;
pub mod watch;
