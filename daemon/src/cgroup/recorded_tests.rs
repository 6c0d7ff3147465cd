//! The recorded values of a real cgroup v2 are read again from its files: `cargo xtask cgroup2 --record` wrote both.

use std::collections::BTreeMap;
use std::fs;

use pitstop_api::logic::cgroup::{container_differs, pod_differs};
use pitstop_api::nodework::{Bounds, Cgroup};
use pitstop_api::quantity::Resources;
use pitstop_daemon_core::resize::{Change, Driver, Goal, Present, Seen, in_use, writes};
use serde::Deserialize;
use tempfile::TempDir;

use super::*;

const MIB: i64 = 1 << 20;

/// Kinds of states; each is recorded for both drivers.
const STATES: [&str; 4] =
    ["no limits", "limits and page cache", "a CPU of its own, and swap", "killed for want of memory"];
/// Resources of container and Pod in all states but the first.
const PART: Bounds = Bounds { cpu_request: 500, cpu_limit: Some(500), memory_limit: Some(32 * MIB) };
const WHOLE: Bounds = Bounds { cpu_request: 750, cpu_limit: Some(1000), memory_limit: Some(64 * MIB) };

/// The fixture.
#[derive(Deserialize)]
pub(super) struct Recorded {
    /// The version of the kernel.
    kernel: String,
    /// ID of each container.
    container: String,
    pub(super) states: BTreeMap<String, State>,
}

/// A container in a Pod.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    pod_uid: String,
    cgroups_path: String,
    swaps: String,
    /// Texts of files, by path below the root of the hierarchy.
    pub(super) files: BTreeMap<String, String>,
    read: Read,
}

#[derive(Deserialize)]
struct Read {
    cgroup: String,
    container: Group,
    pod: Group,
    pinned: bool,
    swap: bool,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    cgroup: Cgroup,
    inactive_file: i64,
}

impl Recorded {
    pub(super) fn new() -> Self {
        serde_json::from_str(include_str!("fixtures/v2.json")).unwrap()
    }

    fn id(&self) -> ContainerId {
        ContainerId::parse(&self.container).unwrap()
    }

    pub(super) fn paths(&self, state: &State) -> Paths {
        cgroup::resolve(&state.cgroups_path, &self.id(), &state.pod_uid).unwrap()
    }
}

impl State {
    /// The recorded values.
    pub(super) fn present(&self) -> Present {
        let Read { cgroup, container, pod, pinned, swap } = &self.read;
        let seen = |group: &Group| Some(Seen { cgroup: group.cgroup, inactive_file: group.inactive_file });
        Present {
            cgroup: cgroup.clone(),
            of_container: String::new(),
            version: Version::V2,
            container: seen(container),
            pod: seen(pod),
            pinned: *pinned,
            swap: *swap,
        }
    }

    /// A node with these files.
    fn node(&self) -> (TempDir, Cgroups) {
        let files: Vec<_> = self.files.iter().map(|(path, text)| (path.clone(), text.as_str())).collect();
        let (root, mut cgroups) = tests::node(&files);
        cgroups.swaps = root.path().join("swaps");
        fs::write(&cgroups.swaps, &self.swaps).unwrap();
        (root, cgroups)
    }
}

/// For each state: its driver, its kind, and the values read from its files now.
fn read_again() -> Vec<(String, String, Present)> {
    let recorded = Recorded::new();
    let one = |(name, state): (&String, &State)| {
        let (driver, kind) = name.split_once(", ").unwrap();
        let (_root, cgroups) = state.node();
        let present = cgroups.present(&recorded.paths(state), true).unwrap();
        (driver.to_owned(), kind.to_owned(), present)
    };
    recorded.states.iter().map(one).collect()
}

#[test]
fn every_state_is_there_under_the_names_of_both_drivers() {
    let recorded = Recorded::new();
    assert!(recorded.kernel.starts_with("6."), "{}", recorded.kernel);
    let mut expected: Vec<String> = ["cgroupfs", "systemd"]
        .iter()
        .flat_map(|driver| STATES.map(|kind| format!("{driver}, {kind}")))
        .collect();
    expected.sort();
    assert_eq!(recorded.states.keys().cloned().collect::<Vec<_>>(), expected);
    for (name, state) in &recorded.states {
        let driver = Driver::of(&recorded.paths(state).pod);
        assert_eq!(driver == Driver::Systemd, name.starts_with("systemd"), "{name}");
    }
}

#[test]
fn what_was_read_there_is_read_here() {
    let recorded = Recorded::new();
    for (name, state) in &recorded.states {
        let (_root, cgroups) = state.node();
        let paths = recorded.paths(state);
        assert_eq!(cgroups.version(), Version::V2);
        let there = Present { of_container: paths.container.clone(), ..state.present() };
        assert_eq!(cgroups.present(&paths, true), Ok(there), "{name}");
        let expected = Present { container: None, pinned: false, swap: false, ..state.present() };
        assert_eq!(cgroups.present(&paths, false), Ok(expected), "{name}");
        let observed = CgroupReading { container: state.read.container.cgroup, pod: state.read.pod.cgroup };
        assert_eq!(cgroups.observe(&paths), Ok(observed), "{name}");
    }
}

/// The values that the cgroups were given, spelled out.
#[test]
fn what_is_read_is_what_was_given() {
    for (driver, kind, present) in read_again() {
        let (container, pod) = (present.container.unwrap(), present.pod.unwrap());
        let given = |seen: Seen| Cgroup { memory_usage: None, ..seen.cgroup };
        let free = Cgroup {
            cpu_period: Some(100_000),
            cpu_weight: Some(1),
            oom_kills: Some(0),
            ..Cgroup::default()
        };
        let limited = |quota, weight, limit, kills| Cgroup {
            cpu_quota: Some(quota),
            cpu_weight: Some(weight),
            memory_limit: Some(limit),
            oom_kills: Some(kills),
            ..free
        };
        let (pinned, swap) = (present.pinned, present.swap);
        let found = (given(container), given(pod), pinned && swap, pinned || swap);
        let expected = match kind.as_str() {
            "no limits" => (free, free, false, false),
            "limits and page cache" => {
                (limited(50_000, 20, 32 * MIB, 0), limited(100_000, 30, 64 * MIB, 0), false, false)
            }
            "a CPU of its own, and swap" => {
                (limited(50_000, 20, 32 * MIB, 0), limited(100_000, 30, 64 * MIB, 0), true, true)
            }
            // A runtime whose weights follow the curve.
            _ => (limited(50_000, 59, 32 * MIB, 1), limited(100_000, 30, 64 * MIB, 1), false, false),
        };
        assert_eq!(found, expected, "{driver}, {kind}");
    }
}

#[test]
fn what_was_given_needs_no_write_and_does_not_differ() {
    let id = Recorded::new().id();
    for (driver, kind, present) in read_again() {
        let (container, pod) = (present.container.unwrap().cgroup, present.pod.unwrap().cgroup);
        let free = Bounds { cpu_request: 0, cpu_limit: None, memory_limit: None };
        let (part, whole) = if kind == "no limits" { (free, free) } else { (PART, WHOLE) };
        let resources = |bounds: Bounds| Resources {
            cpu_request: Some(bounds.cpu_request),
            cpu_limit: bounds.cpu_limit,
            memory_request: None,
            memory_limit: bounds.memory_limit,
        };
        assert_eq!(container_differs(&resources(part), &container), None, "{driver}, {kind}");
        assert_eq!(pod_differs(&resources(whole), &pod), None, "{driver}, {kind}");
        let plan = |part: Bounds, whole: Bounds| {
            let one = Change { present: &container, goal: Goal::of(&part, &container), written: true };
            let all = Change { present: &pod, goal: Goal::of(&whole, &pod), written: true };
            writes(Driver::of(&present.cgroup), Some(all), &[(&id, one)])
        };
        assert_eq!(plan(part, whole), [], "{driver}, {kind}");
        assert_eq!(plan(Bounds { cpu_request: 1000, ..part }, whole).len(), 1);
    }
}

/// 4 MiB are the process's own, and 8 MiB are page cache.
#[test]
fn page_cache_does_not_keep_a_limit_from_shrinking() {
    for (driver, kind, present) in read_again() {
        if kind != "limits and page cache" {
            continue;
        }
        for seen in [present.container.unwrap(), present.pod.unwrap()] {
            assert!(seen.cgroup.memory_usage > Some(12 * MIB), "{driver}: {seen:?}");
            assert!((7 * MIB..9 * MIB).contains(&seen.inactive_file), "{driver}: {seen:?}");
            let refusal = |limit| {
                let small = Bounds { memory_limit: Some(limit), ..PART };
                in_use("container", &seen, &Goal::of(&small, &seen.cgroup), 0)
            };
            assert!(refusal(4 * MIB).is_some() && refusal(8 * MIB).is_none(), "{driver}: {seen:?}");
        }
    }
}
