//! What `kubectl pitstop` decides and draws: what a target means, which object asks for what, the tree of a workload,
//! and what a reason means. No I/O and no clock: time comes in as a value.

pub mod changes;
pub mod draw;
pub mod duration;
pub mod plain;
pub mod scope;
pub mod standing;
pub mod target;
pub mod tree;
