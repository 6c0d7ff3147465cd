//! Hooks in containers of a real containerd, private to the test; see `cri-proto/tests/support`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test, also outside #[test]"
)]

use pitstop_cri::keys;

use super::*;
use crate::runtime::inspect;
use crate::support::{Containerd, NewContainer, Pod, eventually};

fn shell(script: &str) -> Hook {
    Hook::Exec { command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec() }
}

#[tokio::test]
async fn hooks_run_in_their_containers() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let mut pod = Pod::run(&containerd, "one").await;
    let handler = r#"{"exec":{"command":["/bin/sh","-c","echo bye >/tmp/bye"]}}"#;
    let app = NewContainer {
        name: "app",
        script: "while :; do sleep 0.05; done",
        annotations: [(keys::PRE_STOP_HANDLER.to_owned(), handler.to_owned())].into(),
        ..Default::default()
    };
    let id = pod.start(app).await;
    let ask = async |hook, limit| run(Ok(&runtime), &id, hook, limit).await;

    // From the annotation to the effect.
    let facts = inspect(&runtime, &id).await.unwrap().unwrap();
    let hook = pitstop_daemon_core::hook::parse(facts.pre_stop.as_deref().unwrap(), facts.ports.as_deref());
    assert_eq!(ask(hook, 5).await, Ok(()));
    assert_eq!(ask(shell("cat /tmp/bye"), 5).await, Ok(()));

    // What fails, and how.
    let failure = ask(shell("echo out; echo no luck >&2; exit 3"), 5).await.unwrap_err();
    assert_eq!(failure, Failure::new("the preStop command ended with exit code 3", "no luck"));
    let failure = ask(Hook::Exec { command: vec!["/none".into()] }, 5).await.unwrap_err();
    assert_eq!(failure.message, "the preStop command could not be run");
    assert!(failure.detail.starts_with("ExecSync on "), "{failure:?}");
    assert_eq!(ask(shell("dd if=/dev/zero bs=1M count=1 2>/dev/null; exit 3"), 5).await, Ok(()), "too loud");

    // The Pod has the machine's network, so the runtime knows no address of it.
    let get = HttpGet { port: 1, ..HttpGet::default() };
    let failure = ask(Hook::HttpGet(get), 5).await.unwrap_err();
    assert_eq!(failure.message, "the preStop httpGet names no host, and the runtime reports no Pod IP");

    runtime.stop_container(&id, Duration::from_secs(0)).await.unwrap();
    assert!(ask(shell("true"), 5).await.unwrap_err().detail.contains("not possible now"));
}

#[tokio::test]
async fn d20_a_command_that_outlives_the_grace_is_ended() {
    let Some(containerd) = Containerd::start().await else { return };
    let runtime = containerd.client();
    let mut pod = Pod::run(&containerd, "one").await;
    let script = "while :; do sleep 0.05; done";
    let id = pod.start(NewContainer { name: "app", script, ..Default::default() }).await;
    let ask = async |hook, limit| run(Ok(&runtime), &id, hook, limit).await;
    // The second one ends, and leaves a child behind that holds its output open.
    for slow in ["while :; do echo x >>/tmp/beats; sleep 0.02; done", "sleep 60 & echo left"] {
        let failure = ask(shell(slow), 1).await.unwrap_err();
        assert_eq!(failure, Failure::of("the preStop command did not end within 1 s"));
    }
    let silent = shell("a=$(wc -c </tmp/beats); sleep 0.5; [ $a -gt 0 ] && [ $a = $(wc -c </tmp/beats) ]");
    eventually("the command to be gone", || async { ask(silent.clone(), 5).await.ok() }).await;
}
