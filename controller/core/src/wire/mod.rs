//! Between API objects and decisions: what the API server sends becomes what the core decides on ([`observe`]), and
//! actions become requests whose answers become events ([`Exchange`]).
//!
//! Pure, so that the simulator sends and reads what the program does.

mod amounts;
mod books;
mod budgets;
mod conditions;
mod deeds;
mod denial;
mod exchange;
mod metadata;
mod node;
pub mod observe;
#[cfg(test)]
#[path = "parked_tests.rs"]
mod parked;
mod pods;
mod policies;
mod puller;
mod reading;
mod requests;
mod revisions;
mod sets;
mod slim;
mod survey;
mod volumes;
mod workload;

pub use exchange::{Exchange, Over, Step};
pub use requests::HttpRequest;
