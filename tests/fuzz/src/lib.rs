//! Properties that hold for hostile input: one function per edge that receives bytes. It panics when a property breaks.
//!
//! libFuzzer calls them with generated inputs (`cargo xtask fuzz`), a test with the corpora in `corpus/`. Each calls
//! production code. Where random bytes would rarely get far, they are a script: a sequence of events among a few names,
//! IDs and texts.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::too_many_lines,
    reason = "a test program: a property that breaks is a panic"
)]

mod admission_review;
mod annotations;
mod cluster;
mod cri_answers;
mod image_update;
mod node;
mod nodework_spec;
mod nodework_status;
mod prestop_handler;
mod readiness_keys;
mod recreate_request;
mod rollout;

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use admission_review::admission_review;
pub use annotations::annotations;
pub use cri_answers::cri_answers;
pub use image_update::image_update;
pub use nodework_spec::nodework_spec;
pub use nodework_status::nodework_status;
pub use prestop_handler::prestop_handler;
pub use readiness_keys::readiness_keys;
pub use recreate_request::recreate_request;
pub use rollout::rollout;

/// A target: runs an input, and panics when a property breaks.
pub type Target = fn(&[u8]);

/// Every target with the name of its program and corpus folder.
pub const TARGETS: [(&str, Target); 10] = [
    ("admission_review", admission_review),
    ("annotations", annotations),
    ("cri_answers", cri_answers),
    ("image_update", image_update),
    ("nodework_spec", nodework_spec),
    ("nodework_status", nodework_status),
    ("prestop_handler", prestop_handler),
    ("readiness_keys", readiness_keys),
    ("recreate_request", recreate_request),
    ("rollout", rollout),
];

/// Splits an input into `N` texts at zero bytes; missing texts are empty. `None` unless the input is UTF-8.
fn texts<const N: usize>(input: &[u8]) -> Option<[&str; N]> {
    let mut parts = std::str::from_utf8(input).ok()?.splitn(N, '\0');
    Some([(); N].map(|()| parts.next().unwrap_or_default()))
}

/// Parses JSON, and asserts that writing and reading it again changes nothing.
fn read<T: DeserializeOwned + Serialize + PartialEq + Debug>(text: &str) -> Option<T> {
    let first: T = serde_json::from_str(text).ok()?;
    let written = serde_json::to_string(&first).expect("what was read can be written");
    let second: T = serde_json::from_str(&written).expect("what was written can be read");
    let again = serde_json::to_string(&second).expect("what was read can be written");
    assert_eq!(written, again, "writing and reading again changes nothing");
    Some(second)
}

/// Reasons why the schema of a kind refuses an object.
fn refusals(kind: &str, object: &impl Serialize) -> Vec<String> {
    pitstop_sim::server::refusals(kind, &serde_json::to_value(object).expect("an object can be written"))
}
