//! The decisions and pictures of `kubectl pitstop`: targets, the requests to make, the tree of a workload,
//! and the meaning of reasons. No I/O and no clock: time comes in as a value.

mod blockers;
pub mod cancel;
pub mod change;
pub mod changes;
pub mod chosen;
pub mod containers;
pub mod doctor;
pub mod draw;
pub mod duration;
pub mod enable;
pub mod explain;
mod fold;
pub mod follow;
pub mod known;
pub mod naming;
pub mod node;
pub mod opt_in;
pub mod page;
pub mod plain;
pub mod ready;
pub mod reasons;
pub mod resize;
pub mod restart;
pub mod rollouts;
pub mod scope;
pub mod selected;
pub mod set_image;
pub mod share;
pub mod strategy;
pub mod summary;
pub mod switch;
pub mod target;
pub mod tree;
pub mod undo;
pub mod workload;
