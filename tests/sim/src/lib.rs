//! The simulated world in one thread and virtual time: the production cores of controller and daemon, and models of all
//! other parts. One seed decides everything.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::similar_names,
    clippy::missing_panics_doc,
    clippy::too_many_lines,
    clippy::needless_pass_by_value,
    clippy::match_same_arms,
    clippy::result_large_err,
    clippy::single_match_else,
    clippy::struct_excessive_bools,
    clippy::should_implement_trait,
    clippy::struct_field_names,
    clippy::unused_self,
    reason = "a test program: what cannot be is a failure of the model"
)]

pub mod commands;
pub mod conform;
pub mod draw;
pub mod node;
pub mod oracle;
pub mod rng;
pub mod scenarios;
pub mod server;
pub mod shrink;
pub mod world;

/// Most of a schedule's cost is the allocation of short-lived objects.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
