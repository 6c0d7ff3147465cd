//! What the pure cores of both programs share: time as data, back-off as data, the API server's answers, watches and
//! the objects tracked from them, and the meaning of failed pulls.

pub mod answer;
pub mod backoff;
pub mod cgroup;
pub mod machine;
pub mod pull;
pub mod time;
pub mod tracked;
pub mod watch;
