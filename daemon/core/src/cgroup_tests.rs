//! Paths and files of cgroups.

use std::path::{Component, Path};

use proptest::prelude::*;
use serde_json::json;

use super::*;

const UID: &str = "0eb8c2ee-2805-4222-b6b3-e8134389e5f1";
const ID: &str = "b7a04dfe7903adf2a6bea06ebdfe81fc59c2b443d9d9330a63ef21ac8e7defde";

fn id() -> ContainerId {
    ContainerId::parse(ID).unwrap()
}

fn resolved(path: &str) -> Result<Paths, String> {
    resolve(path, &id(), UID)
}

#[test]
fn paths_of_both_drivers_and_runtimes_are_understood() {
    let systemd = "kubepods.slice/kubepods-burstable.slice/\
                   kubepods-burstable-pod0eb8c2ee_2805_4222_b6b3_e8134389e5f1.slice";
    let slice = systemd.rsplit_once('/').unwrap().1;
    for (path, pod, container) in [
        // containerd, cgroupfs: burstable, guaranteed, and below a root of the node's own.
        (format!("/kubepods/burstable/pod{UID}/{ID}"), format!("kubepods/burstable/pod{UID}"), ID.to_owned()),
        (format!("/kubepods/pod{UID}/{ID}"), format!("kubepods/pod{UID}"), ID.to_owned()),
        (
            format!("/lab/node1/kubepods/besteffort/pod{UID}/{ID}"),
            format!("lab/node1/kubepods/besteffort/pod{UID}"),
            ID.to_owned(),
        ),
        // CRI-O.
        (format!("/kubepods/pod{UID}/crio-{ID}"), format!("kubepods/pod{UID}"), format!("crio-{ID}")),
        // systemd.
        (format!("{slice}:cri-containerd:{ID}"), systemd.to_owned(), format!("cri-containerd-{ID}.scope")),
        (format!("{slice}:crio:{ID}"), systemd.to_owned(), format!("crio-{ID}.scope")),
    ] {
        let container = format!("{pod}/{container}");
        assert_eq!(resolved(&path), Ok(Paths { pod, container }), "{path}");
    }
}

#[test]
fn what_leads_elsewhere_is_refused_by_name() {
    let pod = format!("pod{UID}");
    for (path, why) in [
        (String::new(), "is neither an absolute path nor a systemd path"),
        (format!("kubepods/{pod}/{ID}"), "is neither an absolute path nor a systemd path"),
        (format!("a.slice:b:c:{ID}"), "is neither"),
        (format!("{pod}.slice::{ID}"), "is neither"),
        (format!(":cri-containerd:{ID}"), "is neither"),
        (format!("{pod}.scope:cri-containerd:{ID}"), "is neither"),
        (format!("a--{}.slice:cri-containerd:{ID}", pod.replace('-', "_")), "is neither"),
        ("/".to_owned(), "has the invalid part \"\""),
        (format!("//{pod}/{ID}"), "has the invalid part \"\""),
        (format!("/{pod}/{ID}/"), "has the invalid part \"\""),
        (format!("/../{pod}/{ID}"), "has the invalid part \"..\""),
        (format!("/./{pod}/{ID}"), "has the invalid part \".\""),
        (format!("/a\n/{pod}/{ID}"), "has the invalid part"),
        (format!("/a\0/{pod}/{ID}"), "has the invalid part"),
        (format!("/{}/{pod}/{ID}", "a".repeat(256)), "has the invalid part"),
        (format!("/{}{pod}/{ID}", "a/".repeat(2100)), "is too long"),
        (format!("../{pod}.slice:cri-containerd:{ID}"), "has the invalid part"),
        (format!("/{ID}"), "names no cgroup of a Pod"),
        (format!("/{pod}/{}", &ID[..63]), "does not end in the container's ID"),
        (format!("/{pod}/{ID}/init"), "does not end in the container's ID"),
        (format!("/kubepods/{ID}"), "is not in the cgroup of Pod"),
        (format!("/pod{}/{ID}", &UID[1..]), "is not in the cgroup of Pod"),
        (format!("/{pod}/other/{ID}"), "is not in the cgroup of Pod"),
        (format!("/{pod}x/{ID}"), "is not in the cgroup of Pod"),
    ] {
        let error = resolved(&path).unwrap_err();
        assert!(error.contains(why), "{path:?}: {error}");
        assert!(error.len() < 450, "{error}");
    }
    assert!(resolve(&format!("/pod/{ID}"), &id(), "").is_err());
}

/// Nothing of the configuration may get into an answer or a log.
#[test]
fn the_path_is_found_and_nothing_else_is_told() {
    let spec = json!({"runtimeSpec": {
        "process": {"env": ["PASSWORD=secret"]},
        "linux": {"cgroupsPath": "/kubepods/a", "resources": {}},
    }, "pid": 7});
    assert_eq!(path_in(&spec.to_string()), Ok("/kubepods/a".to_owned()));
    let secret = "secret".repeat(100);
    for bad in [
        String::new(),
        "{}".to_owned(),
        json!({"runtimeSpec": {"linux": {}}}).to_string(),
        json!({"runtimeSpec": {"linux": {"cgroupsPath": 7}}}).to_string(),
        json!({"runtimeSpec": {"linux": secret}}).to_string(),
        json!({"runtimeSpec": secret}).to_string(),
        secret.clone(),
    ] {
        let error = path_in(&bad).unwrap_err();
        assert!(
            error.starts_with("the runtime's verbose answer has no info.runtimeSpec.linux.cgroupsPath"),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
}

fn files<'a>(all: &'a [(&'a str, &'a str)]) -> impl Fn(Controller, &str) -> Result<String, String> + 'a {
    |controller, name| {
        let of = if controller == Controller::Cpu { "cpu." } else { "memory." };
        assert!(name.starts_with(of));
        all.iter()
            .find(|(n, _)| *n == name)
            .map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| format!("no {name}"))
    }
}

/// A container of this project's own cluster, on Linux 6.
const V1: [(&str, &str); 6] = [
    ("cpu.cfs_quota_us", "-1\n"),
    ("cpu.cfs_period_us", "100000\n"),
    ("cpu.shares", "10\n"),
    ("memory.limit_in_bytes", "50331648\n"),
    ("memory.usage_in_bytes", "1433600\n"),
    ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
];

/// As the kernel's documentation of cgroup v2 shows them.
const V2: [(&str, &str); 5] = [
    ("cpu.max", "50000 100000\n"),
    ("cpu.weight", "39\n"),
    ("memory.max", "134217728\n"),
    ("memory.current", "4096\n"),
    ("memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"),
];

fn with<'a, const N: usize>(
    mut all: [(&'a str, &'a str); N],
    name: &str,
    text: &'a str,
) -> [(&'a str, &'a str); N] {
    all.iter_mut().find(|(n, _)| *n == name).unwrap().1 = text;
    all
}

#[test]
fn files_of_both_versions_are_understood() {
    let v1 = Cgroup {
        cpu_quota: None,
        cpu_period: Some(100_000),
        cpu_shares: Some(10),
        cpu_weight: None,
        memory_limit: Some(50_331_648),
        memory_usage: Some(1_433_600),
        oom_kills: Some(0),
    };
    assert_eq!(read(Version::V1, files(&V1)), Ok(v1));
    let limited = with(V1, "cpu.cfs_quota_us", "20000\n");
    assert_eq!(read(Version::V1, files(&limited)), Ok(Cgroup { cpu_quota: Some(20_000), ..v1 }));
    // Without a limit, with pages of 4 and of 64 KiB.
    for most in ["9223372036854771712\n", "9223372036854710272\n"] {
        let free = with(V1, "memory.limit_in_bytes", most);
        assert_eq!(read(Version::V1, files(&free)), Ok(Cgroup { memory_limit: None, ..v1 }));
    }
    let old = with(V1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n");
    assert_eq!(read(Version::V1, files(&old)), Ok(Cgroup { oom_kills: None, ..v1 }));

    let v2 = Cgroup {
        cpu_quota: Some(50_000),
        cpu_period: Some(100_000),
        cpu_shares: None,
        cpu_weight: Some(39),
        memory_limit: Some(134_217_728),
        memory_usage: Some(4096),
        oom_kills: Some(2),
    };
    assert_eq!(read(Version::V2, files(&V2)), Ok(v2));
    let free = with(with(V2, "cpu.max", "max 100000\n"), "memory.max", "max\n");
    assert_eq!(read(Version::V2, files(&free)), Ok(Cgroup { cpu_quota: None, memory_limit: None, ..v2 }));
}

/// Read as "no limit", such a file would be false proof.
#[test]
fn a_file_that_is_missing_or_odd_is_no_limit_of_none() {
    for (version, all) in [(Version::V1, V1.as_slice()), (Version::V2, V2.as_slice())] {
        for (name, _) in all {
            let missing: Vec<_> = all.iter().filter(|(n, _)| n != name).copied().collect();
            assert_eq!(read(version, files(&missing)), Err(format!("no {name}")));
            for odd in ["", "x", "1 2 3", "-5 -5", "99999999999999999999", "max max", "1\n2"] {
                let mut all = all.to_vec();
                all.iter_mut().find(|(n, _)| n == name).unwrap().1 = odd;
                // These files may have lines of any names.
                if !matches!(*name, "memory.events" | "memory.oom_control") {
                    let error = read(version, files(&all)).unwrap_err();
                    assert!(error.starts_with(*name) && error.contains("is not understood"), "{error}");
                }
            }
        }
    }
    let odd = with(V2, "memory.events", "oom_kill many\n");
    assert!(read(Version::V2, files(&odd)).unwrap_err().starts_with("memory.events holds \"many\""));
}

/// Paths built from valid and invalid parts.
fn any_path() -> impl Strategy<Value = String> {
    let parts =
        ["/", "..", ".", "-", ":", ".slice", ".scope", "a", "kubepods", "pod", UID, ID, "\0", "\\", "é"];
    let built =
        prop::collection::vec(prop::sample::select(parts.to_vec()), 0..14).prop_map(|parts| parts.concat());
    let near = (any::<prop::sample::Index>(), prop::sample::select(parts.to_vec())).prop_map(|(at, what)| {
        let mut path = format!("/kubepods/burstable/pod{UID}/{ID}");
        path.insert_str(at.index(path.len() + 1), what);
        path
    });
    prop_oneof![built, near, ".{0,200}"]
}

proptest! {
    #[test]
    fn no_path_leads_out_of_the_root_or_to_another_pod(path in any_path()) {
        if let Ok(Paths { pod, container }) = resolved(&path) {
            for group in [&pod, &container] {
                let plain = Path::new(group).components().all(|part| matches!(part, Component::Normal(_)));
                prop_assert!(plain, "{group:?}");
                prop_assert!(Path::new("/sys/fs/cgroup").join(group).starts_with("/sys/fs/cgroup"));
            }
            let (above, own) = container.rsplit_once('/').unwrap();
            prop_assert_eq!(above, &pod);
            prop_assert!(own.contains(ID));
            let last = pod.rsplit('/').next().unwrap();
            prop_assert!(last.contains(UID) || last.contains(&UID.replace('-', "_")));
        }
    }

    #[test]
    fn no_text_breaks_it(info in ".{0,200}", text in "(max|oom_kill|[0-9 \\-\n]|.){0,30}") {
        drop(path_in(&info));
        for version in [Version::V1, Version::V2] {
            if let Ok(cgroup) = read(version, |_, _| Ok(text.clone())) {
                let numbers = [cgroup.cpu_quota, cgroup.cpu_period, cgroup.memory_limit, cgroup.oom_kills];
                prop_assert!(numbers.into_iter().flatten().all(|number| number >= 0));
            }
        }
    }
}

#[test]
fn page_cache_that_is_not_written_to_disk_yet_cannot_be_dropped() {
    for (version, text) in [
        (Version::V2, "anon 9\ninactive_file 100\nfile_dirty 30\nfile_writeback 20\n"),
        (Version::V1, "inactive_file 1\ntotal_inactive_file 100\ntotal_dirty 30\ntotal_writeback 20\n"),
    ] {
        assert_eq!(inactive_file(version, text), Ok(50));
        // Unwritten pages may also be active ones.
        assert_eq!(inactive_file(version, &text.replace(" 30", " 90")), Ok(0));
        assert_eq!(inactive_file(version, &text.replace("dirty", "other")), Ok(80));
        assert!(inactive_file(version, &text.replace(" 30", " x")).unwrap_err().contains("memory.stat"));
        assert!(inactive_file(version, "anon 9\n").unwrap_err().contains("inactive_file"));
    }
}
