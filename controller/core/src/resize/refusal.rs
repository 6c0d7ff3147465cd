//! Meaning of refusals by the API server and the kubelet.

use std::time::Duration;

use pitstop_api::resize::Phase;

use super::observe::Refusals;
use crate::outcome::NOT_SERVED;
use crate::time::Mono;

/// Number of unknown refusals after which no retry follows, once [`PATIENCE`] has passed too.
const TRIES: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(10);

/// How a refused request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) phase: Phase,
    pub(super) reason: &'static str,
}

/// Reasons of ends after a refusal, except [`REFUSED`].
pub(super) const REASONS: [&str; 8] = [
    "NodeCapacity",
    "QoSChange",
    "Quota",
    "LimitRange",
    "Unsupported",
    "UnsupportedContainer",
    STATIC_MANAGER,
    SWAP,
];
/// The container has swap.
pub(super) const SWAP: &str = "Swap";
/// The container has exclusive CPUs or memory.
pub(super) const STATIC_MANAGER: &str = "StaticManager";
/// A refusal with an unknown text.
pub(super) const REFUSED: &str = "Refused";
/// An infeasible resize with an unknown text.
pub(super) const INFEASIBLE: &str = "Infeasible";

/// Texts of the API server (Kubernetes 1.32 to 1.36) with their meaning. None of them goes away by itself.
const WORDS: [(&str, Phase, &str); 16] = [
    ("node didn't have enough", Phase::Infeasible, "NodeCapacity"),
    ("Pod QOS Class may not change", Phase::Failed, "QoSChange"),
    ("Pod QoS is immutable", Phase::Failed, "QoSChange"),
    ("exceeded quota", Phase::Failed, "Quota"),
    ("usage per Container is", Phase::Failed, "LimitRange"),
    ("usage per Pod is", Phase::Failed, "LimitRange"),
    ("limit to request ratio per", Phase::Failed, "LimitRange"),
    ("without support for resize", Phase::Failed, "Unsupported"),
    (NOT_SERVED, Phase::Failed, "Unsupported"),
    ("memory limits cannot be added", Phase::Failed, "Unsupported"),
    ("only supported on linux nodes", Phase::Failed, "UnsupportedContainer"),
    ("static pods cannot be resized", Phase::Failed, "UnsupportedContainer"),
    ("windows pods cannot be resized", Phase::Failed, "UnsupportedContainer"),
    ("pods with pod-level resources", Phase::Failed, "UnsupportedContainer"),
    ("init containers are immutable", Phase::Failed, "UnsupportedContainer"),
    ("memory limits cannot be decreased", Phase::Failed, "Unsupported"),
];

/// How a request ends after this refusal; `None` while a retry is useful. An API server that has just started refuses
/// requests until it knows the roles.
pub(super) fn end(refused: &Refusals, now: Mono) -> Option<Meaning> {
    let known = WORDS.into_iter().find(|(words, ..)| refused.text.contains(words));
    if let Some((_, phase, reason)) = known {
        return Some(Meaning { phase, reason });
    }
    for_good(refused, now).then_some(Meaning { phase: Phase::Failed, reason: REFUSED })
}

/// Whether refusals came so often, and for so long, that another try is useless, whatever their text.
pub(super) fn for_good(refused: &Refusals, now: Mono) -> bool {
    refused.times >= TRIES && refused.since.after(PATIENCE) <= now
}

/// Reason of a resize that the kubelet calls infeasible.
pub(super) fn infeasible(text: &str) -> &'static str {
    let words = [
        ("enough capacity", "NodeCapacity"),
        ("swap", "Swap"),
        ("Manager", "StaticManager"),
        ("static-pods", "UnsupportedContainer"),
    ];
    words.into_iter().find(|(words, _)| text.contains(words)).map_or(INFEASIBLE, |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(times: u32, text: &str) -> Refusals {
        Refusals { times, text: text.to_owned(), ..Refusals::default() }
    }

    #[test]
    fn known_words_end_a_request_at_once_and_others_when_they_are_said_again() {
        for (text, phase, reason) in [
            (
                "pods \"web\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 9000, allocatable: 2000",
                Phase::Infeasible,
                "NodeCapacity",
            ),
            (
                "Pod \"web\" is invalid: spec: Invalid value: \"Guaranteed\": Pod QOS Class may not change as a result of resizing",
                Phase::Failed,
                "QoSChange",
            ),
            (
                "pods \"web\" is forbidden: exceeded quota: q, requested: requests.cpu=400m, used: requests.cpu=100m, limited: requests.cpu=300m",
                Phase::Failed,
                "Quota",
            ),
            (
                "pods \"web\" is forbidden: [maximum cpu usage per Container is 1, but limit is 2]",
                Phase::Failed,
                "LimitRange",
            ),
            ("spec: Forbidden: Pod running on node without support for resize", Phase::Failed, "Unsupported"),
        ] {
            assert_eq!(end(&refused(1, text), Mono(0)), Some(Meaning { phase, reason }), "{text}");
        }
        let starting = "pods \"web\" is forbidden: User \"x\" cannot patch resource \"pods/resize\"";
        assert_eq!(end(&refused(2, starting), Mono(60_000)), None, "too few");
        assert_eq!(end(&refused(3, starting), Mono(9_999)), None, "too soon");
        assert_eq!(end(&refused(3, starting), Mono(10_000)).map(|m| m.reason), Some(REFUSED));
    }

    #[test]
    fn every_word_has_a_reason_that_is_listed() {
        for (_, _, reason) in WORDS {
            assert!(REASONS.contains(&reason), "{reason}");
        }
        for (text, reason) in [
            ("Node didn't have enough capacity: cpu, requested: 9000, capacity: 2000", "NodeCapacity"),
            ("In-place resize of containers with swap is not supported.", "Swap"),
            (
                "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"",
                "StaticManager",
            ),
            ("In-place resize of static-pods is not supported", "UnsupportedContainer"),
            ("what nobody has said yet", INFEASIBLE),
        ] {
            assert_eq!(infeasible(text), reason, "{text}");
            assert!(reason == INFEASIBLE || REASONS.contains(&reason), "{reason}");
        }
    }
}
