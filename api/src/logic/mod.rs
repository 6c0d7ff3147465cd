//! What the pure cores of both programs share: time as data, back-off as data, objects tracked from a watch.

pub mod backoff;
pub mod time;
pub mod tracked;
