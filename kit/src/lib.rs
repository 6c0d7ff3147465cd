//! What both programs share at the edge: arguments, logs, metrics, health, shutdown, clocks, client, watch.
//!
//! One file per concern. Nothing here decides anything about Kubernetes objects; it carries facts to the pure
//! `*-core` crates and keeps the process observable.

pub mod args;
pub mod class;
pub mod client;
pub mod clock;
pub mod describe;
pub mod drive;
pub mod guard;
pub mod health;
pub mod log;
pub mod metrics;
pub mod program;
pub mod shutdown;
pub mod termination;
pub mod time;
pub mod watch;

pub use args::CommonArgs;
pub use class::{Class, classify, failure};
pub use describe::{describe, shown};
pub use drive::{drive, now, on_own_thread};
pub use health::Readiness;
pub use metrics::Metrics;
pub use shutdown::Shutdown;
pub use watch::{Watch, WatchMetrics};
