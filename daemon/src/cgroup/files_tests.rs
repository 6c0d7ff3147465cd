use std::fs;
use std::path::Path;

use pitstop_api::nodework::Cgroup;
use tempfile::TempDir;

use super::super::recorded_tests::{Recorded, State};
use super::*;

const POD: &str = "kubepods/burstable/pod1";
const CONTAINER: &str = "kubepods/burstable/pod1/abc";

/// A recorded state of a real v2.
fn recorded() -> (Recorded, State) {
    let mut recorded = Recorded::new();
    let state = recorded.states.remove("cgroupfs, no limits").unwrap();
    (recorded, state)
}

struct Node {
    root: TempDir,
    cgroups: Cgroups,
}

impl Node {
    fn new(files: &[(&str, &str, &str)], swaps: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let swap_file = root.path().join("swaps");
        fs::write(&swap_file, swaps).unwrap();
        let mut cgroups = Cgroups::new(root.path());
        cgroups.swaps = swap_file;
        let node = Self { root, cgroups };
        for (hierarchy, file, text) in files {
            for group in [POD, CONTAINER] {
                node.put(&format!("{hierarchy}/{group}/{file}"), text);
            }
        }
        node
    }

    /// The hierarchies as this project's own cluster has them.
    fn v1() -> Self {
        let files = [
            ("cpu", "cpu.shares", "102\n"),
            ("cpu", "cpu.cfs_quota_us", "-1\n"),
            ("cpu", "cpu.cfs_period_us", "100000\n"),
            ("memory", "memory.limit_in_bytes", "50331648\n"),
            ("memory", "memory.memsw.limit_in_bytes", "50331648\n"),
            ("memory", "memory.usage_in_bytes", "1433600\n"),
            ("memory", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
            ("memory", "memory.stat", "cache 811008\ninactive_file 1\ntotal_inactive_file 405504\n"),
            ("cpuset", "cpuset.cpus", "0-1\n"),
            ("cpuset", "cpuset.mems", "0\n"),
        ];
        Self::new(&files, "Filename\tType\tSize\tUsed\tPriority\n/dev/vdb partition 1 0 -2\n")
    }

    /// A recorded real v2, without limits.
    fn v2() -> Self {
        let (recorded, state) = recorded();
        let paths = recorded.paths(&state);
        let node = Self::new(&[], "Filename\tType\tSize\tUsed\tPriority\n/dev/vdb partition 1 0 -2\n");
        for (path, text) in &state.files {
            node.put(&path.replace(&paths.container, CONTAINER).replace(&paths.pod, POD), text);
        }
        node
    }

    fn path(&self, file: &str) -> std::path::PathBuf {
        self.root.path().join("sys/fs/cgroup").join(Path::new(file.trim_start_matches('/')))
    }

    fn put(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    fn present(&self, container: bool) -> Result<Present, String> {
        self.cgroups.present(&Paths { pod: POD.into(), container: CONTAINER.into() }, container)
    }
}

#[test]
fn what_is_there_and_what_decides_is_read_on_both_versions() {
    let cgroup = Cgroup {
        cpu_period: Some(100_000),
        cpu_shares: Some(102),
        memory_limit: Some(50_331_648),
        memory_usage: Some(1_433_600),
        oom_kills: Some(0),
        ..Cgroup::default()
    };
    let seen = Some(Seen { cgroup, inactive_file: 405_504 });
    let (cgroup, version) = (POD.to_owned(), Version::V1);
    let of_container = CONTAINER.to_owned();
    let v1 =
        Present { cgroup, of_container, version, container: seen, pod: seen, pinned: false, swap: false };
    let v2 = Present { cgroup: POD.to_owned(), of_container: CONTAINER.to_owned(), ..recorded().1.present() };
    for (node, expected) in [(Node::v1(), v1), (Node::v2(), v2)] {
        assert_eq!(node.present(true).unwrap(), expected);
        let ended = Present { container: None, of_container: String::new(), ..expected };
        assert_eq!(node.present(false).unwrap(), ended);
    }
}

#[test]
fn cpus_and_memory_nodes_of_its_own_are_seen() {
    for (node, hierarchy, end) in [(Node::v1(), "cpuset/", ""), (Node::v2(), "", ".effective")] {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let all = node.text(&format!("{hierarchy}{POD}/{file}{end}"));
            let file = format!("{hierarchy}{CONTAINER}/{file}{end}");
            node.put(&file, "1\n");
            assert!(node.present(true).unwrap().pinned, "{file}");
            node.put(&file, &all);
            assert!(!node.present(true).unwrap().pinned, "{file}");
        }
    }
}

/// On a node without swap, or without the files, none can be used.
#[test]
fn swap_that_may_be_used_is_seen() {
    for (node, file, most) in [
        (Node::v1(), "memory/kubepods/burstable/pod1/abc/memory.memsw.limit_in_bytes", "60331648\n"),
        (Node::v2(), "kubepods/burstable/pod1/abc/memory.swap.max", "max\n"),
    ] {
        assert!(!node.present(true).unwrap().swap);
        node.put(file, most);
        assert!(node.present(true).unwrap().swap);
        let swaps = node.root.path().join("swaps");
        fs::write(&swaps, "Filename\tType\tSize\tUsed\tPriority\n").unwrap();
        assert!(!node.present(true).unwrap().swap);
        fs::remove_file(&swaps).unwrap();
        assert!(node.present(true).unwrap().swap, "nobody knows");
        fs::remove_file(node.path(file)).unwrap();
        assert!(!node.present(true).unwrap().swap);
    }
    assert!(Node::v1().cgroups.counts_swap(POD) && !Node::v2().cgroups.counts_swap(POD));
}

#[test]
fn what_is_missing_is_told_and_the_pod_may_be_gone_only_with_its_container() {
    for (node, file) in [
        (Node::v1(), "memory/kubepods/burstable/pod1/memory.stat"),
        (Node::v2(), "kubepods/burstable/pod1/memory.stat"),
    ] {
        node.put(file, "anon 1\n");
        assert!(node.present(true).unwrap_err().starts_with("memory.stat has no "));
        fs::remove_file(node.path(file)).unwrap();
        for container in [true, false] {
            let failure = node.present(container).unwrap_err();
            assert!(failure.contains("pod1/memory.stat: No such file"), "{failure}");
        }
        for hierarchy in ["cpu", "memory", ""] {
            let _ = fs::remove_dir_all(node.path(&format!("{hierarchy}/kubepods")));
        }
        assert!(node.present(true).is_err());
        assert_eq!(node.present(false).unwrap().pod, None);
    }
}

#[test]
fn a_pods_values_are_written_as_each_version_takes_them() {
    let quota = |quota| Setting::Quota { quota, period: 100_000 };
    for (setting, v1, v2) in [
        (Setting::Shares(1024), ("cpu/", "cpu.shares", "1024"), ("cpu.weight", "39")),
        (Setting::Weight(79), ("cpu/", "cpu.shares", "79"), ("cpu.weight", "79")),
        (quota(Some(50_000)), ("cpu/", "cpu.cfs_quota_us", "50000"), ("cpu.max", "50000 100000")),
        (quota(None), ("cpu/", "cpu.cfs_quota_us", "-1"), ("cpu.max", "max 100000")),
        (Setting::Memory(Some(7)), ("memory/", "memory.limit_in_bytes", "7"), ("memory.max", "7")),
        (Setting::Memory(None), ("memory/", "memory.limit_in_bytes", "-1"), ("memory.max", "max")),
    ] {
        let (hierarchy, v1_file, v1_text) = v1;
        for (node, file, text) in [
            (Node::v1(), format!("{hierarchy}{POD}/{v1_file}"), v1_text),
            (Node::v2(), format!("{POD}/{}", v2.0), v2.1),
        ] {
            node.put(&file, "");
            node.cgroups.write(POD, setting).unwrap();
            assert_eq!(node.text(&file), text, "{setting:?}");
        }
    }
}

#[test]
fn a_write_that_fails_names_file_and_value_and_makes_no_file() {
    let node = Node::v2();
    let file = format!("{POD}/memory.max");
    fs::remove_file(node.path(&file)).unwrap();
    let failure = node.cgroups.write(POD, Setting::Memory(Some(7))).unwrap_err();
    assert!(failure.retry, "the Pod may have ended");
    assert!(
        failure.message.starts_with("cannot write \"7\" to ") && failure.message.contains(&file),
        "{failure:?}"
    );
    assert!(!node.path(&file).exists());
    // A folder cannot be written to.
    fs::create_dir(node.path(&file)).unwrap();
    let failure = node.cgroups.write(POD, Setting::Memory(None)).unwrap_err();
    assert!(!failure.retry && failure.message.contains("Is a directory"), "{failure:?}");
}

#[test]
fn memory_is_reclaimed_as_each_version_takes_it() {
    for (node, file, text) in
        [(Node::v1(), "memory/", "memory.force_empty"), (Node::v2(), "", "memory.reclaim")]
            .map(|(node, hierarchy, file)| (node, format!("{hierarchy}{CONTAINER}/{file}"), file))
    {
        let failure = node.cgroups.reclaim(CONTAINER, 4096).unwrap_err();
        assert!(!failure.retry && failure.message.contains("cannot reclaim memory"), "{failure:?}");
        assert!(
            node.cgroups.reclaim("kubepods/gone", 4096).unwrap_err().retry,
            "the container may have ended"
        );
        node.put(&file, "");
        node.cgroups.reclaim(CONTAINER, 4096).unwrap();
        assert_eq!(node.text(&file), if text == "memory.reclaim" { "4096" } else { "0" });
    }
}
