//! The lists of reasons, which documentation and metrics go by.

use std::collections::BTreeSet;

use super::super::status;

#[test]
fn no_reason_of_an_end_is_named_twice() {
    let all: BTreeSet<&str> = status::REASONS.into_iter().collect();
    assert_eq!(all.len(), status::REASONS.len());
    assert!(status::SUCCESSES.iter().all(|success| all.contains(success)));
}
