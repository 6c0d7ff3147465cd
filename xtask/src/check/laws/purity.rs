//! The law that code that decides cannot act: pure crates depend on nothing that waits, connects or calls the system.

use std::collections::BTreeSet;

/// The crates that only decide.
pub(super) const PURE: [&str; 4] =
    ["pitstop-api", "pitstop-cli-core", "pitstop-controller-core", "pitstop-daemon-core"];

/// Crates that a pure crate may not depend on, directly or indirectly.
const IMPURE: [&str; 12] = [
    "axum",
    "hyper",
    "kube-client",
    "kube-runtime",
    "nix",
    "pitstop-cri",
    "pitstop-kit",
    "rand",
    "rustls",
    "tokio",
    "tonic",
    "tracing-subscriber",
];

/// Breaches in the output of `cargo tree --prefix none --format {p}` for a pure crate: lines of `name version
/// (source)`.
pub(super) fn reaches(pure: &str, tree: &str) -> Vec<String> {
    let reached: BTreeSet<_> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    if !reached.contains(pure) {
        return vec![format!("what {pure} reaches is not known: cargo tree does not name it")];
    }
    let say =
        |name: &&str| format!("{pure} reaches {name}; `cargo tree -e normal -p {pure} -i {name}` says how");
    IMPURE.iter().filter(|name| reached.contains(*name)).map(say).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pure_crate_may_have_types_of_kubernetes() {
        let tree = "pitstop-daemon-core v0.1.0 (/src/daemon/core)\nkube v5.0.0\nkube-core v5.0.0\nchrono v0.4.45 (*)\n";
        assert_eq!(reaches("pitstop-daemon-core", tree), [""; 0]);
    }

    #[test]
    fn a_pure_crate_may_not_have_a_client_or_a_runtime() {
        let tree = "pitstop-api v0.1.0 (/src/api)\nkube-client v5.0.0\ntokio v1.54.0\ntokio-util v0.7.0\n";
        assert_eq!(
            reaches("pitstop-api", tree),
            [
                "pitstop-api reaches kube-client; `cargo tree -e normal -p pitstop-api -i kube-client` says how",
                "pitstop-api reaches tokio; `cargo tree -e normal -p pitstop-api -i tokio` says how"
            ]
        );
    }

    #[test]
    fn an_answer_about_another_crate_is_no_answer() {
        assert_eq!(reaches("pitstop-api", "").len(), 1);
    }
}
