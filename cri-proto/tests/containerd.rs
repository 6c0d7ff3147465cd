//! Every call of this crate against a real, private containerd from the `PATH` (see `support`). `cargo xtask test` runs
//! this with Debian's 1.6 and with containerd 2.
//!
//! Needs root, containerd, runc, busybox-static. Without them the tests are skipped with a message, except in CI
//! (`CI=true`), where they fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test; clippy.toml excepts only functions marked as tests, not their helpers"
)]

mod support;

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use pitstop_cri::{Class, ContainerId, Error, Runtime, SandboxId, keys, v1};
use support::{APP_IMAGE, Containerd, NewContainer, PAUSE_IMAGE, Pod, Registry, eventually};
use v1::ContainerState::{ContainerCreated, ContainerExited, ContainerRunning};

/// Exits with code 7 at SIGTERM.
const POLITE: &str = "trap 'exit 7' TERM; while :; do sleep 0.05; done";
/// Ends at SIGKILL only.
const STUBBORN: &str = "trap '' TERM; while :; do sleep 0.05; done";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A well-formed ID that no container has.
fn nobody() -> ContainerId {
    ContainerId::parse(&"a".repeat(64)).unwrap()
}

fn image(reference: &str) -> v1::ImageSpec {
    v1::ImageSpec { image: reference.to_owned(), ..Default::default() }
}

fn running<'a>(name: &'a str, script: &'a str) -> NewContainer<'a> {
    NewContainer { name, script, ..Default::default() }
}

/// Category and class of a call's failure. The text must name the call and the socket.
#[track_caller]
fn failure<T: std::fmt::Debug>(answer: Result<T, Error>, call: &str) -> (&'static str, Class) {
    let error = answer.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("{call} on /")) && text.contains("containerd.sock: "), "{text}");
    (error.category(), error.class())
}

async fn shell(runtime: &Runtime, id: &ContainerId, script: &str) -> Result<v1::ExecSyncResponse, Error> {
    runtime.exec_sync(id, ["/bin/sh", "-c", script].map(str::to_owned).to_vec(), seconds(2)).await
}

async fn state(runtime: &Runtime, id: &ContainerId) -> v1::ContainerState {
    runtime.container_status(id).await.unwrap().known_state()
}

/// Waits until the container's script has set its traps: an earlier signal would find none.
async fn settled(runtime: &Runtime, id: &ContainerId) {
    eventually("the script runs", || async {
        let children = shell(runtime, id, "cat /proc/1/task/1/children").await.ok()?;
        (!children.stdout.trim_ascii().is_empty()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_runtime_says_what_it_is() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();

    let version = runtime.version().await.unwrap();
    assert_eq!((version.runtime_name.as_str(), version.runtime_api_version.as_str()), ("containerd", "v1"));
    let status = runtime.status().await.unwrap();
    assert!(status.runtime_ready(), "{status:?}");
    // A Pod network is not configured here.
    let network = status.conditions.iter().find(|condition| condition.r#type == "NetworkReady").unwrap();
    assert!(!network.status && !network.message.is_empty(), "{network:?}");

    if version.runtime_version.starts_with("1.") {
        assert_eq!(failure(runtime.cgroup_driver().await, "RuntimeConfig"), ("unimplemented", Class::Fatal));
    } else {
        assert_eq!(runtime.cgroup_driver().await, Ok(Some(v1::CgroupDriver::Cgroupfs)));
    }
}

#[tokio::test]
async fn images_are_listed_and_pulled() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();

    let images = runtime.list_images().await.unwrap();
    let tags: Vec<_> = images.iter().flat_map(|image| &image.repo_tags).collect();
    assert!(
        tags.iter().any(|tag| *tag == APP_IMAGE) && tags.iter().any(|tag| *tag == PAUSE_IMAGE),
        "{tags:?}"
    );
    let app = runtime.image_status(image(APP_IMAGE)).await.unwrap().unwrap();
    assert!(app.id.starts_with("sha256:") && app.size > 1_000_000, "{app:?}");
    assert_eq!(runtime.image_status(image(&app.id)).await.unwrap(), Some(app), "found by its ID as well");
    assert_eq!(runtime.image_status(image("pitstop.test/none:1")).await, Ok(None));

    let registry = Registry::start();
    let good = registry.reference("good:1");
    let reference = runtime.pull_image(image(&good), None, None).await.unwrap();
    let pulled = runtime.image_status(image(&good)).await.unwrap().unwrap();
    assert_eq!((&reference, &pulled.id), (&registry.image_id, &registry.image_id));
    assert_eq!(pulled.repo_tags, [good.as_str()]);
    assert_eq!(pulled.repo_digests, [format!("{}@{}", registry.reference("good"), registry.digest)]);

    let systems = runtime.image_fs_info().await.unwrap().image_filesystems;
    let folders: Vec<_> = systems.into_iter().filter_map(|system| Some(system.fs_id?.mountpoint)).collect();
    assert!(folders.len() == 1 && Path::new(&folders[0]).is_dir(), "{folders:?}");

    let pull =
        async |reference: &str| failure(runtime.pull_image(image(reference), None, None).await, "PullImage");
    assert_eq!(pull("127.0.0.1:1/nobody-listens:1").await, ("other", Class::Retry));
    assert_eq!(pull(&registry.reference("none:1")).await, ("not_found", Class::Conflict));
    assert_eq!(pull(&registry.reference("private:1")).await, ("denied", Class::Invalid));
    assert_eq!(pull("Not A Reference").await, ("invalid", Class::Invalid));
}

#[tokio::test]
async fn a_container_is_told_by_its_id() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let mut one = Pod::run(&containerd, "one").await;
    let hook = r#"{"exec":{"command":["/bin/true"]}}"#;
    let annotations = BTreeMap::from([(keys::PRE_STOP_HANDLER.to_owned(), hook.to_owned())]);
    let app = one.start(NewContainer { annotations, ..running("app", POLITE) }).await;
    let job = one.start(running("job", "exit 3")).await;
    let waiting = one.create(running("waiting", POLITE)).await;

    let status = runtime.container_status(&app).await.unwrap();
    assert_eq!((status.id.as_str(), status.known_state()), (app.as_str(), ContainerRunning));
    assert!(status.started_at >= status.created_at && status.created_at > 0 && status.finished_at == 0);
    let label = |key: &str| status.labels.get(key).map(String::as_str);
    assert_eq!(label(keys::POD_NAME), Some("one"));
    assert_eq!(label(keys::POD_NAMESPACE), Some("test"));
    assert_eq!(label(keys::POD_UID), Some("uid-of-one"));
    assert_eq!(label(keys::CONTAINER_NAME), Some("app"));
    assert_eq!(status.annotations.get(keys::RESTART_COUNT).map(String::as_str), Some("0"));
    assert_eq!(status.annotations.get(keys::PRE_STOP_HANDLER).map(String::as_str), Some(hook));
    assert_eq!(status.image.map(|image| image.image).as_deref(), Some(APP_IMAGE));

    let exited = eventually("the job ends", || async {
        let status = runtime.container_status(&job).await.unwrap();
        (status.known_state() == ContainerExited).then_some(status)
    })
    .await;
    assert_eq!((exited.exit_code, exited.reason.as_str()), (3, "Error"));
    // It may be before started_at: containerd notes the start only after the start call returned.
    assert!(exited.finished_at > exited.created_at, "{exited:?}");
    assert_eq!(state(&runtime, &waiting).await, ContainerCreated);
    let unknown = runtime.container_status(&nobody()).await;
    assert_eq!(failure(unknown, "ContainerStatus"), ("not_found", Class::Conflict));
}

fn labels(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

#[tokio::test]
async fn containers_are_listed() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let mut one = Pod::run(&containerd, "one").await;
    let mut two = Pod::run(&containerd, "two").await;
    let app = one.start(running("app", POLITE)).await;
    let job = one.start(running("job", "exit 3")).await;
    let other = two.start(running("app", POLITE)).await;
    let waiting = two.create(running("waiting", POLITE)).await;

    let list = async |filter| {
        let found = runtime.list_containers(filter).await.unwrap();
        let mut ids: Vec<_> = found.iter().map(|one| ContainerId::parse(&one.id).unwrap()).collect();
        ids.sort();
        ids
    };
    let sorted = |mut ids: Vec<ContainerId>| {
        ids.sort();
        ids
    };
    let with = |label_selector| v1::ContainerFilter { label_selector, ..Default::default() };
    let all = sorted(vec![app.clone(), job.clone(), other.clone(), waiting.clone()]);
    assert_eq!(list(v1::ContainerFilter::default()).await, all);
    assert_eq!(list(with(labels(keys::POD_UID, "uid-of-one"))).await, sorted(vec![app.clone(), job]));
    assert_eq!(list(with(labels(keys::CONTAINER_NAME, "app"))).await, sorted(vec![app.clone(), other]));
    assert_eq!(list(with(labels(keys::POD_NAME, "three"))).await, []);
    let created = v1::ContainerStateValue { state: ContainerCreated as i32 };
    let filter = v1::ContainerFilter { state: Some(created), ..Default::default() };
    assert_eq!(list(filter).await, [waiting]);
    // This is why our IDs are full by construction.
    let prefix = v1::ContainerFilter { id: app.as_str()[..12].to_owned(), ..Default::default() };
    assert_eq!(list(prefix).await, [app]);
}

#[tokio::test]
async fn pods_are_found() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let one = Pod::run(&containerd, "one").await;
    let two = Pod::run(&containerd, "two").await;

    let pod = runtime.pod_sandbox_status(&one.id).await.unwrap();
    let metadata = pod.metadata.clone().unwrap();
    assert_eq!((metadata.name.as_str(), metadata.uid.as_str()), ("one", "uid-of-one"));
    assert_eq!(pod.state(), v1::PodSandboxState::SandboxReady);
    assert_eq!(pod.annotations.get("example.com/team").map(String::as_str), Some("crew"));
    assert_eq!(pod.ips().count(), 0, "its network is the node's");
    let options = pod.linux.and_then(|linux| linux.namespaces).and_then(|namespaces| namespaces.options);
    assert_eq!(options.unwrap().network(), v1::NamespaceMode::Node);
    assert_eq!(runtime.list_pod_sandboxes(v1::PodSandboxFilter::default()).await.unwrap().len(), 2);
    let selector = labels(keys::POD_NAME, "two");
    let filter = v1::PodSandboxFilter { label_selector: selector, ..Default::default() };
    let pods = runtime.list_pod_sandboxes(filter).await.unwrap();
    assert_eq!(pods.iter().map(|pod| pod.id.as_str()).collect::<Vec<_>>(), [two.id.as_str()]);
    let unknown = runtime.pod_sandbox_status(&SandboxId::parse(nobody().as_str()).unwrap()).await;
    assert_eq!(failure(unknown, "PodSandboxStatus"), ("not_found", Class::Conflict));
}

#[tokio::test]
async fn containers_are_stopped() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let mut pod = Pod::run(&containerd, "one").await;
    let ending = async |id: &ContainerId, grace| {
        settled(&runtime, id).await;
        let begin = Instant::now();
        runtime.stop_container(id, grace).await.unwrap();
        let status = runtime.container_status(id).await.unwrap();
        assert_eq!(status.known_state(), ContainerExited);
        (status.exit_code, begin.elapsed())
    };

    let polite = pod.start(running("polite", POLITE)).await;
    let (code, took) = ending(&polite, seconds(20)).await;
    assert!(code == 7 && took < seconds(10), "by SIGTERM, without waiting: {code} after {took:?}");
    runtime.stop_container(&polite, seconds(20)).await.unwrap();
    assert_eq!(
        runtime.container_status(&polite).await.unwrap().exit_code,
        7,
        "a second stop changes nothing"
    );

    let at_once = pod.start(running("at-once", POLITE)).await;
    let (code, _) = ending(&at_once, Duration::ZERO).await;
    assert_eq!(code, 137, "no SIGTERM with a grace of zero");

    let stubborn = pod.start(running("stubborn", STUBBORN)).await;
    let (code, took) = ending(&stubborn, Duration::from_millis(900)).await;
    assert!(code == 137 && took >= seconds(1), "grace is rounded up: {code} after {took:?}");

    let created = pod.create(running("created", POLITE)).await;
    runtime.stop_container(&created, seconds(1)).await.unwrap();
    assert_eq!(state(&runtime, &created).await, ContainerCreated, "success, and nothing happened");
    runtime.stop_container(&nobody(), seconds(1)).await.unwrap();

    // A stop whose caller leaves during the grace never kills; the next stop does.
    let left = pod.start(running("left", STUBBORN)).await;
    settled(&runtime, &left).await;
    let stop = runtime.stop_container(&left, seconds(1));
    assert!(tokio::time::timeout(Duration::from_millis(300), stop).await.is_err());
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(state(&runtime, &left).await, ContainerRunning);
    runtime.stop_container(&left, seconds(1)).await.unwrap();
    assert_eq!(state(&runtime, &left).await, ContainerExited);

    // As when the kubelet has removed it in the meantime.
    pod.remove(&left).await;
    runtime.stop_container(&left, seconds(1)).await.unwrap();
    let gone = runtime.container_status(&left).await;
    assert_eq!(failure(gone, "ContainerStatus"), ("not_found", Class::Conflict));
}

#[tokio::test]
async fn commands_run_in_containers() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let mut pod = Pod::run(&containerd, "one").await;
    let id = pod.start(running("app", POLITE)).await;

    let answer = shell(&runtime, &id, "echo out; echo err >&2; exit 3").await.unwrap();
    assert_eq!((&answer.stdout[..], &answer.stderr[..], answer.exit_code), (&b"out\n"[..], &b"err\n"[..], 3));
    assert_eq!(shell(&runtime, &id, "kill -9 $$").await.unwrap().exit_code, 137);

    let begin = Instant::now();
    let slow = ["/bin/sleep", "60"].map(str::to_owned).to_vec();
    let late = runtime.exec_sync(&id, slow.clone(), seconds(1)).await;
    assert_eq!(failure(late, "ExecSync"), ("deadline", Class::Retry));
    assert!(begin.elapsed() < seconds(8), "the runtime ended it, before our own deadline of eleven seconds");
    let endless = runtime.exec_sync(&id, slow, Duration::ZERO).await;
    assert_eq!(failure(endless, "ExecSync"), ("invalid", Class::Invalid));

    // The runtime ends a command whose caller leaves.
    let marker = shell(&runtime, &id, "sleep 1; echo late >/tmp/late");
    assert!(tokio::time::timeout(Duration::from_millis(400), marker).await.is_err());
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_ne!(shell(&runtime, &id, "cat /tmp/late").await.unwrap().exit_code, 0);

    // Output: within our limit; above it; above the runtime's own limit for messages.
    let zeros = async |blocks: u16| {
        shell(&runtime, &id, &format!("dd if=/dev/zero bs=64k count={blocks} 2>/dev/null")).await
    };
    assert_eq!(zeros(3).await.unwrap().stdout.len(), 3 << 16);
    assert_eq!(failure(zeros(5).await, "ExecSync"), ("too_large", Class::Fatal));
    assert_eq!(failure(zeros(320).await, "ExecSync"), ("too_large", Class::Fatal));

    let none = runtime.exec_sync(&id, vec!["/none".to_owned()], seconds(2)).await;
    assert_eq!(failure(none, "ExecSync"), ("other", Class::Retry));
    assert_eq!(failure(shell(&runtime, &nobody(), "true").await, "ExecSync"), ("not_found", Class::Conflict));
    runtime.stop_container(&id, seconds(5)).await.unwrap();
    assert_eq!(failure(shell(&runtime, &id, "true").await, "ExecSync"), ("state", Class::Conflict));
}

#[tokio::test]
async fn limits_are_changed() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let mut pod = Pod::run(&containerd, "one").await;
    let mebibytes = |count: i64| count << 20;
    let resources = v1::LinuxContainerResources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 256,
        memory_limit_in_bytes: mebibytes(64),
        ..Default::default()
    };
    let id = pod.start(NewContainer { resources, ..running("app", POLITE) }).await;
    // Only on a machine with cgroup v1; the runtime's own record is compared everywhere.
    let cgroup = format!("{}/{}", containerd.cgroup_of("uid-of-one"), id.as_str());
    let in_cgroup = |hierarchy, file, wanted: i64| {
        let found = Containerd::cgroup_file(hierarchy, &cgroup, file);
        assert!(found.is_none_or(|found| found == wanted.to_string()), "{file} is not {wanted}");
    };
    in_cgroup("cpu", "cpu.cfs_quota_us", 50_000);

    let change = |cpu_quota, memory_limit_in_bytes| v1::LinuxContainerResources {
        cpu_quota,
        memory_limit_in_bytes,
        ..Default::default()
    };
    runtime.update_container_resources(&id, change(70_000, mebibytes(96))).await.unwrap();
    in_cgroup("cpu", "cpu.cfs_quota_us", 70_000);
    in_cgroup("cpu", "cpu.cfs_period_us", 100_000);
    in_cgroup("cpu", "cpu.shares", 256);
    in_cgroup("memory", "memory.limit_in_bytes", mebibytes(96));
    let status = runtime.container_status(&id).await.unwrap();
    let stored = status.linux_resources().unwrap();
    assert_eq!((stored.cpu_quota, stored.cpu_period, stored.cpu_shares), (70_000, 100_000, 256));
    assert_eq!(stored.memory_limit_in_bytes, mebibytes(96));
    assert_eq!(status.known_state(), ContainerRunning, "nothing was restarted");
    let (status, info) = runtime.container_info(&id).await.unwrap();
    assert_eq!(status.id, id.as_str());
    assert!(info["info"].contains(&format!(r#""cgroupsPath":"{cgroup}""#)), "{info:?}");
    assert_eq!(
        failure(runtime.container_info(&nobody()).await, "ContainerStatus"),
        ("not_found", Class::Conflict)
    );

    let unknown = runtime.update_container_resources(&nobody(), change(10_000, 0)).await;
    assert_eq!(failure(unknown, "UpdateContainerResources"), ("not_found", Class::Conflict));
}

#[tokio::test]
async fn a_runtime_that_comes_later_is_met_by_the_same_client() {
    let Some(containerd) = Containerd::boxed() else { return };
    let runtime = containerd.client();
    let missing = runtime.version().await;
    assert!(missing.as_ref().unwrap_err().to_string().contains("No such file or directory"), "{missing:?}");
    assert_eq!(failure(missing, "Version"), ("unreachable", Class::Retry));

    containerd.switch_on();
    // Until it is ready, every failure must be "unreachable".
    let found = eventually("the same client works", || async {
        let answer = runtime.list_containers(v1::ContainerFilter::default()).await;
        if let Err(error) = &answer {
            assert_eq!(error.category(), "unreachable", "{error}");
        }
        answer.ok()
    })
    .await;
    assert!(found.is_empty());
}

#[tokio::test]
async fn a_killed_runtime_is_met_again_after_its_restart() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let mut pod = Pod::run(&containerd, "one").await;
    let id = pod.start(running("app", STUBBORN)).await;
    settled(&runtime, &id).await;

    // Killed while a stop is under way.
    let stop = tokio::spawn({
        let (runtime, id) = (runtime.clone(), id.clone());
        async move { runtime.stop_container(&id, seconds(30)).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    containerd.kill();
    assert_eq!(failure(stop.await.unwrap(), "StopContainer"), ("unreachable", Class::Retry));
    assert_eq!(failure(runtime.version().await, "Version"), ("unreachable", Class::Retry));

    containerd.switch_on();
    eventually("containerd is back", || async {
        // Another client: the old one's first call after the restart must succeed.
        containerd.client().list_containers(v1::ContainerFilter::default()).await.ok()
    })
    .await;
    assert_eq!(state(&runtime, &id).await, ContainerRunning, "containers outlive the runtime");
    runtime.stop_container(&id, seconds(1)).await.unwrap();
    assert_eq!(state(&runtime, &id).await, ContainerExited);
}
