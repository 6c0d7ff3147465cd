//! Laws about the whole dependency graph, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata};

/// Each crate of the workspace, and our crates that it may use outside tests: `api` <- `*/core` <- programs.
const ARROWS: [(&str, &[&str]); 19] = [
    ("pitstop-api", &[]),
    ("pitstop-cri", &["pitstop-api"]),
    ("pitstop-kit", &["pitstop-api"]),
    ("pitstop-cli-core", &["pitstop-api"]),
    ("kubectl-pitstop", &["pitstop-api", "pitstop-cli-core", "pitstop-kit"]),
    ("pitstop-controller-core", &["pitstop-api"]),
    ("pitstop-daemon-core", &["pitstop-api"]),
    ("pitstop-controller", &["pitstop-api", "pitstop-controller-core", "pitstop-kit"]),
    ("pitstop-daemon", &["pitstop-api", "pitstop-cri", "pitstop-daemon-core", "pitstop-kit"]),
    ("pitstop-sim", &["pitstop-api", "pitstop-controller-core", "pitstop-daemon-core"]),
    ("pitstop-models", &["pitstop-api", "pitstop-controller-core", "pitstop-daemon-core"]),
    ("pitstop-e2e", &["pitstop-api", "pitstop-cri", "pitstop-kit", "pitstop-manifests-test", "pitstop-sim"]),
    // The daemon's core plays nodes. The controller's core is only for the renewal period of the lease. Images and
    // their registry are those of the tests.
    (
        "pitstop-bench",
        &[
            "pitstop-api",
            "pitstop-controller-core",
            "pitstop-cri",
            "pitstop-daemon-core",
            "pitstop-e2e",
            "pitstop-kit",
        ],
    ),
    ("pitstop-attacks", &["pitstop-e2e"]),
    ("pitstop-cgroup2", &["pitstop-api", "pitstop-cri", "pitstop-daemon", "pitstop-daemon-core"]),
    ("pitstop-chaos", &["pitstop-api", "pitstop-e2e", "pitstop-sim"]),
    (
        "pitstop-fuzz",
        &[
            "pitstop-api",
            "pitstop-controller",
            "pitstop-controller-core",
            "pitstop-cri",
            "pitstop-daemon",
            "pitstop-daemon-core",
            "pitstop-kit",
            "pitstop-models",
            "pitstop-sim",
        ],
    ),
    ("pitstop-manifests-test", &[]),
    ("xtask", &["pitstop-api"]),
];

/// Crates whose types our crates share: a second version would be a second set of types.
const SINGLES: [&str; 9] = [
    "k8s-openapi",
    "kube",
    "kube-client",
    "kube-core",
    "kube-derive",
    "kube-runtime",
    "prost",
    "rustls",
    "tonic",
];

/// Crates that duplicate others in the tree, and do not build into small static programs.
const ABSENT: [&str; 5] = ["aws-lc-rs", "aws-lc-sys", "native-tls", "openssl", "openssl-sys"];

/// Dependencies between our crates that point the wrong way.
pub(super) fn arrows(metadata: &Metadata) -> Vec<String> {
    let law: BTreeMap<_, _> = ARROWS.into();
    let mut breaches = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let Some(allowed) = law.get(name) else {
            breaches.push(format!(
                "{name} has no place in the dependency law: name it in xtask/src/check/laws/graph.rs"
            ));
            continue;
        };
        let members = package.dependencies.iter().filter(|dependency| dependency.path.is_some());
        for dependency in members.filter(|dependency| dependency.kind != DependencyKind::Development) {
            if !allowed.contains(&dependency.name.as_str()) {
                breaches.push(format!("{name} may not use {}", dependency.name));
            }
        }
    }
    breaches
}

/// Crates of [`SINGLES`] that have several versions.
pub(super) fn singles(metadata: &Metadata) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<_>> = BTreeMap::new();
    for package in &metadata.packages {
        versions.entry(&package.name).or_default().insert(&package.version);
    }
    let mut breaches = Vec::new();
    for name in SINGLES {
        if let Some(found) = versions.get(name).filter(|found| found.len() > 1) {
            let list = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            breaches.push(format!("{name} is there in {} versions: {list}", found.len()));
        }
    }
    breaches
}

/// Crates of [`ABSENT`] that are in the tree.
pub(super) fn absences(metadata: &Metadata) -> Vec<String> {
    let present: BTreeSet<_> = metadata.packages.iter().map(|package| package.name.as_str()).collect();
    let say = |name: &&str| format!("{name} is in the tree; `cargo tree -i {name}` says why");
    ABSENT.iter().filter(|name| present.contains(*name)).map(say).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A crate of ours, and our crates that it uses, each with the kind of dependency.
    fn member(name: &str, uses: &[(&str, Option<&str>)]) -> Value {
        let uses = uses.iter().map(|(name, kind)| {
            json!({ "name": name, "kind": kind, "path": format!("/src/{name}"), "req": "*", "optional": false,
                    "uses_default_features": true, "features": [] })
        });
        package(name, "0.1.0", &uses.collect::<Vec<_>>())
    }

    fn foreign(name: &str, version: &str) -> Value {
        package(name, version, &[])
    }

    fn package(name: &str, version: &str, uses: &[Value]) -> Value {
        json!({ "id": format!("{name}@{version}"), "name": name, "version": version, "dependencies": uses,
                "manifest_path": "/Cargo.toml", "targets": [], "features": {} })
    }

    fn metadata(packages: &[Value]) -> Metadata {
        let member = |package: &&Value| package["version"] == "0.1.0";
        let members: Vec<_> = packages.iter().filter(member).map(|package| &package["id"]).collect();
        let json = json!({ "packages": packages, "workspace_members": members, "workspace_root": "/",
                           "target_directory": "/target", "version": 1 });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn arrows_that_point_down_are_fine() {
        let tree = metadata(&[
            member("pitstop-api", &[]),
            member("pitstop-daemon-core", &[("pitstop-api", None)]),
            member(
                "pitstop-daemon",
                &[("pitstop-daemon-core", None), ("pitstop-kit", None), ("pitstop-cri", None)],
            ),
        ]);
        assert_eq!(arrows(&tree), [""; 0]);
    }

    #[test]
    fn arrows_that_point_up_or_across_are_breaches() {
        let tree = metadata(&[
            member("pitstop-api", &[("pitstop-kit", None)]),
            member("pitstop-daemon-core", &[("pitstop-cri", None)]),
            member("pitstop-controller", &[("pitstop-daemon-core", Some("build"))]),
        ]);
        assert_eq!(
            arrows(&tree),
            [
                "pitstop-api may not use pitstop-kit",
                "pitstop-daemon-core may not use pitstop-cri",
                "pitstop-controller may not use pitstop-daemon-core"
            ]
        );
    }

    #[test]
    fn tests_may_use_what_they_like() {
        assert_eq!(arrows(&metadata(&[member("pitstop-cri", &[("pitstop-kit", Some("dev"))])])), [""; 0]);
    }

    #[test]
    fn a_crate_that_the_law_does_not_know_is_a_breach() {
        assert!(arrows(&metadata(&[member("pitstop-new", &[])]))[0].starts_with("pitstop-new has no place"));
    }

    #[test]
    fn a_second_kube_is_a_breach() {
        let tree = metadata(&[
            foreign("kube", "4.2.0"),
            foreign("kube", "5.0.0"),
            foreign("syn", "1.0.0"),
            foreign("syn", "2.0.0"),
        ]);
        assert_eq!(singles(&tree), ["kube is there in 2 versions: 4.2.0, 5.0.0"]);
    }

    #[test]
    fn the_other_crypto_is_a_breach() {
        let tree = metadata(&[foreign("ring", "0.17.14"), foreign("aws-lc-rs", "1.19.0")]);
        assert_eq!(absences(&tree), ["aws-lc-rs is in the tree; `cargo tree -i aws-lc-rs` says why"]);
    }
}
