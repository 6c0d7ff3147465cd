//! Resources of a real containerd's containers, private to the test; see `cri-proto/tests/support`.

use std::path::Path;

use pitstop_api::logic::cgroup::container_differs;
use pitstop_api::nodework::{Bounds, HeldContainer};
use pitstop_api::quantity::Resources;
use pitstop_daemon_core::resize::{Change, Goal, writes};

use super::*;
use crate::support::{Containerd, NewContainer, Pod, through_systemd};

const MB: i64 = 1 << 20;

fn plan(present: &Present, id: &ContainerId, container: &Bounds, pod: &Bounds, written: bool) -> Vec<Write> {
    let change = |seen: &Seen, bounds: &Bounds| Goal::of(bounds, &seen.cgroup);
    let (of_container, of_pod) = (present.container.as_ref().unwrap(), present.pod.as_ref().unwrap());
    let of_container =
        Change { present: &of_container.cgroup, goal: change(of_container, container), written };
    let of_pod = Change { present: &of_pod.cgroup, goal: change(of_pod, pod), written };
    writes(Driver::of(&present.cgroup), Some(of_pod), &[(id, of_container)])
}

fn resizer() -> Resizer {
    Resizer { cgroups: Cgroups::new(Path::new("/")), systemd: Systemd::new(Path::new("/")) }
}

/// A running container with few resources.
async fn small(pod: &mut Pod) -> ContainerId {
    let resources = v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 20_000,
        cpu_shares: 102,
        memory_limit_in_bytes: 32 * MB,
        ..Default::default()
    };
    let script = "while :; do sleep 0.05; done";
    pod.start(NewContainer { name: "app", script, resources, ..Default::default() }).await
}

async fn record(runtime: &Runtime, id: &ContainerId, before: &Present) -> Held {
    let container = HeldContainer {
        name: "app".into(),
        id: id.to_string(),
        original: before.container.unwrap().cgroup,
        ..HeldContainer::default()
    };
    let facts = runtime::inspect(runtime, id).await.unwrap().unwrap();
    Held {
        pod: OrderPod { namespace: facts.namespace, name: facts.pod, uid: facts.pod_uid },
        cgroup: before.cgroup.clone(),
        original: before.pod.unwrap().cgroup,
        containers: vec![container],
        ..Held::default()
    }
}

/// If systemd manages the cgroups, makes it write its values into their files again.
fn reload() {
    if through_systemd() {
        assert!(std::process::Command::new("systemctl").arg("daemon-reload").status().unwrap().success());
    }
}

#[tokio::test]
async fn a_container_and_its_pod_grow_shrink_and_get_back_what_they_had() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let mut pod = Pod::run(&containerd, "one").await;
    let (id, resizer) = (small(&mut pod).await, resizer());
    let look = async || *resizer.look(&runtime, &id, "uid-of-one", true, None).await.unwrap();

    let before = look().await;
    assert!(!before.pinned, "{before:?}");
    let bounds =
        |cpu, memory| Bounds { cpu_request: cpu, cpu_limit: Some(cpu), memory_limit: Some(memory * MB) };
    for (n, (cpu, memory)) in [(500, 64), (300, 48)].into_iter().enumerate() {
        let wanted = bounds(cpu, memory);
        let writes = plan(&look().await, &id, &wanted, &wanted, n > 0);
        assert!(!writes.is_empty());
        resizer.apply(&runtime, &before.cgroup, &writes, false).await.unwrap();
        reload();
        let after = look().await;
        assert_eq!(plan(&after, &id, &wanted, &wanted, true), [], "{after:?}");
        let resources = Resources {
            cpu_request: Some(cpu),
            cpu_limit: Some(cpu),
            memory_request: None,
            memory_limit: Some(memory * MB),
        };
        assert_eq!(container_differs(&resources, &after.container.unwrap().cgroup), None);
    }

    let held = record(&runtime, &id, &before).await;
    resizer.write_back(&runtime, &held).await.unwrap();
    reload();
    let after = look().await;
    let limits = |seen: Option<Seen>| {
        let cgroup = seen.unwrap().cgroup;
        (cgroup.cpu_quota, cgroup.cpu_shares, cgroup.cpu_weight, cgroup.memory_limit)
    };
    assert_eq!((limits(after.container), limits(after.pod)), (limits(before.container), limits(before.pod)));
}

#[tokio::test]
async fn the_pod_of_a_container_that_has_ended_is_found_by_the_runtime_and_then_by_the_record() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let mut pod = Pod::run(&containerd, "one").await;
    let (id, resizer) = (small(&mut pod).await, resizer());
    let look = async |runs| *resizer.look(&runtime, &id, "uid-of-one", runs, None).await.unwrap();
    let before = look(true).await;
    let held = record(&runtime, &id, &before).await;
    runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    let ended = look(false).await;
    assert_eq!((ended.container, ended.cgroup.as_str()), (None, before.cgroup.as_str()));
    assert!(ended.pod.is_some());
    resizer.write_back(&runtime, &held).await.unwrap();
    let unknown = ContainerId::parse(&"0".repeat(64)).unwrap();
    let by_record =
        resizer.look(&runtime, &unknown, "uid-of-one", false, Some(&before.cgroup)).await.unwrap();
    assert_eq!(
        by_record.pod.map(|seen| seen.cgroup.cpu_shares),
        ended.pod.map(|seen| seen.cgroup.cpu_shares)
    );
    for (uid, held) in [("uid-of-two", Some(before.cgroup.as_str())), ("uid-of-one", None)] {
        let nothing = resizer.look(&runtime, &unknown, uid, false, held).await.unwrap();
        assert_eq!(nothing.pod, None);
    }
    let failure = resizer.look(&runtime, &unknown, "uid-of-one", true, None).await.unwrap_err();
    assert!(!failure.retry, "{failure:?}");
}
