//! Cgroups of a real containerd's containers, private to the test; see `cri-proto/tests/support`.

use std::time::Duration;

use pitstop_api::logic::cgroup::container_differs;
use pitstop_api::quantity::Resources;
use pitstop_cri::v1;

use super::*;
use crate::support::{Containerd, NewContainer, Pod};

#[tokio::test]
async fn the_runtime_says_where_a_cgroup_is_and_the_kernel_what_it_holds() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let mut pod = Pod::run(&containerd, "one").await;
    let limit = 64 << 20;
    let resources = v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 256,
        memory_limit_in_bytes: limit,
        ..Default::default()
    };
    let script = "while :; do sleep 0.05; done";
    let id = pod.start(NewContainer { name: "app", script, resources, ..Default::default() }).await;
    let cgroups = Cgroups::new(Path::new("/"));
    let read = async |id: &ContainerId, uid| cgroups.read(&runtime, id, uid).await;

    let observed = read(&id, "uid-of-one").await.unwrap();
    let wanted = Resources {
        cpu_request: Some(250),
        cpu_limit: Some(500),
        memory_request: None,
        memory_limit: Some(limit),
    };
    assert_eq!(container_differs(&wanted, &observed.container), None, "{observed:?}");
    assert!(observed.container.memory_usage > Some(0) && observed.pod.memory_usage > Some(0), "{observed:?}");
    // No kubelet has set up the Pod's cgroup.
    assert_eq!((observed.pod.cpu_quota, observed.pod.memory_limit), (None, None));

    let more = v1::LinuxContainerResources { cpu_quota: 70_000, cpu_shares: 512, ..Default::default() };
    runtime.update_container_resources(&id, more).await.unwrap();
    let observed = read(&id, "uid-of-one").await.unwrap();
    let wanted = Resources { cpu_request: Some(500), cpu_limit: Some(700), ..wanted };
    assert_eq!(container_differs(&wanted, &observed.container), None, "{observed:?}");

    // No retry helps with these: the core asks whether the container still exists.
    runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    let unknown = ContainerId::parse(&"0".repeat(64)).unwrap();
    for (id, uid, why) in [
        (&id, "uid-of-two", "is not in the cgroup of Pod \"uid-of-two\""),
        (&id, "uid-of-one", "No such file"),
        (&unknown, "uid-of-one", "not found"),
    ] {
        let failure = read(id, uid).await.unwrap_err();
        assert!(!failure.retry && failure.message.contains(why), "{failure:?}");
    }
}
