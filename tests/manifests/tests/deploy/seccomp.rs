//! The daemon's seccomp profile, and which installation uses it.

use std::collections::BTreeSet;

use pitstop_manifests_test::object::{list, text};
use pitstop_manifests_test::{Object, root};
use serde_json::{Value, json};

use super::folders::{default, with};

fn profile() -> Value {
    let text = std::fs::read_to_string(root().join("deploy/seccomp/pitstop-daemon.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn of_daemon(objects: &[Object]) -> Value {
    let workload = objects.iter().find(|o| o.kind() == "DaemonSet").unwrap();
    workload.pod().unwrap()["spec"]["securityContext"]["seccompProfile"].clone()
}

#[test]
fn the_base_needs_no_file_on_nodes_and_the_component_names_it() {
    assert_eq!(of_daemon(&default()), json!({"type": "RuntimeDefault"}));
    let own = json!({"type": "Localhost", "localhostProfile": "pitstop/pitstop-daemon.json"});
    assert_eq!(of_daemon(&with("seccomp")), own);
}

#[test]
fn the_profile_lists_what_is_allowed_and_it_is_little() {
    let profile = profile();
    assert_eq!(text(&profile, "/defaultAction"), "SCMP_ACT_ERRNO");
    // One architecture: no second set of call numbers.
    assert_eq!(profile["architectures"], json!(["SCMP_ARCH_X86_64"]));
    let mut names = BTreeSet::new();
    for rule in list(&profile, "/syscalls") {
        assert_eq!(text(rule, "/action"), "SCMP_ACT_ALLOW");
        names.extend(list(rule, "/names").iter().filter_map(Value::as_str));
    }
    assert!(names.len() <= 60, "{}", names.len());
    // Calls that affect other processes, namespaces or the kernel, or bypass the list.
    for never in [
        "bpf",
        "chmod",
        "chown",
        "clone3",
        "fork",
        "init_module",
        "io_uring_setup",
        "ioctl",
        "keyctl",
        "kill",
        "mount",
        "open_by_handle_at",
        "perf_event_open",
        "process_vm_readv",
        "ptrace",
        "setns",
        "setuid",
        "unshare",
        "userfaultfd",
        "vfork",
    ] {
        assert!(!names.contains(never), "{never}");
    }
}

#[test]
fn arguments_are_narrowed_where_a_call_does_much() {
    // CLONE_NEW* of clone(2) without CLONE_NEWTIME, which shares its bit with the child's exit signal.
    const NEW_NAMESPACES: u64 = 0x7e02_0000;
    let equal = |value: u64| json!([{"index": 0, "value": value, "op": "SCMP_CMP_EQ"}]);
    let none = json!([{"index": 0, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]);
    let profile = profile();
    for (name, expected) in [
        ("clone", vec![none]),
        // AF_UNIX, AF_INET, AF_INET6: not AF_NETLINK, AF_PACKET, AF_ALG or AF_VSOCK.
        ("socket", vec![equal(1), equal(2), equal(10)]),
        ("socketpair", vec![equal(1)]),
    ] {
        let rules =
            list(&profile, "/syscalls").iter().filter(|rule| list(rule, "/names").contains(&json!(name)));
        let found: Vec<Value> = rules.map(|rule| rule["args"].clone()).collect();
        assert_eq!(found, expected, "{name}");
    }
}
