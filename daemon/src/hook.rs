//! Runs preStop hooks as the kubelet does it.
//!
//! Sources: `pkg/kubelet/lifecycle/handlers.go` and `executePreStopHook` in
//! `pkg/kubelet/kuberuntime/kuberuntime_container.go`, Kubernetes 1.36. What differs: a hook that is not over when the
//! grace is ends here (the kubelet leaves a command running), and the text of a failure goes no further than the
//! order's answer, cut short, where the kubelet's event says no more than that there was one.

mod http;
mod tls;

use std::net::IpAddr;
use std::time::Duration;

use pitstop_api::condition::truncate;
use pitstop_cri::{ContainerId, Error, Runtime, SandboxId, v1};
use pitstop_daemon_core::{Hook, HttpGet};
use tokio::time::{sleep, timeout};

use http::Loopback;

/// What the runtime may take beyond the grace to say that it killed a command.
const EXEC_MARGIN: Duration = Duration::from_secs(1);
/// Longest quote of a command's own words, in characters.
const MAX_QUOTE: usize = 256;

/// Runs a hook of a container, for at most that many seconds. An error is for people.
pub(crate) async fn run(
    runtime: &Runtime,
    container_id: &str,
    hook: Hook,
    limit_seconds: i64,
) -> Result<(), String> {
    run_on(runtime, container_id, hook, limit_seconds, Loopback::Refuse).await
}

async fn run_on(
    runtime: &Runtime,
    container_id: &str,
    hook: Hook,
    limit_seconds: i64,
    loopback: Loopback,
) -> Result<(), String> {
    let limit = Duration::from_secs(u64::try_from(limit_seconds).unwrap_or_default());
    let late = || format!("did not end within {limit_seconds} s");
    match hook {
        Hook::Exec { command } => {
            let id = parse(container_id)?;
            let call = runtime.exec_sync(&id, command, limit);
            // The runtime kills the command by itself. It waits on, though, for children that hold its output open.
            match timeout(limit.saturating_add(EXEC_MARGIN), call).await {
                Ok(answer) => judge(answer).unwrap_or_else(|| Err(format!("the preStop command {}", late()))),
                Err(_) => Err(format!("the preStop command {}", late())),
            }
        }
        Hook::HttpGet(get) => {
            let request = request(runtime, container_id, &get, loopback);
            let result = timeout(limit, request).await.unwrap_or_else(|_| Err(late()));
            result.map_err(|why| format!("preStop httpGet: {why}"))
        }
        // Time that is over is no failure: nothing was left undone.
        Hook::Sleep { seconds } => {
            sleep(limit.min(Duration::from_secs(seconds))).await;
            Ok(())
        }
        Hook::Unsupported { why } => Err(format!("cannot run the preStop hook: {why}")),
    }
}

/// How a command ended; nothing when it ran into its timeout.
fn judge(answer: Result<v1::ExecSyncResponse, Error>) -> Option<Result<(), String>> {
    Some(match answer {
        Ok(answer) if answer.exit_code == 0 => Ok(()),
        Ok(answer) => {
            let quote = quote(&answer.stderr);
            let colon = if quote.is_empty() { "" } else { ": " };
            Err(format!("the preStop command ended with exit code {}{colon}{quote}", answer.exit_code))
        }
        // It has ended. Its exit code went with its output.
        Err(Error::TooLarge { .. }) => Ok(()),
        Err(Error::Deadline { .. }) => return None,
        Err(error) => Err(format!("cannot run the preStop command: {error}")),
    })
}

/// The beginning of what a command printed, on one line.
fn quote(output: &[u8]) -> String {
    // Four bytes are the longest character.
    let head = output.get(..MAX_QUOTE * 4).unwrap_or(output);
    let text = String::from_utf8_lossy(head);
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).collect();
    truncate(words.into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ").as_str(), MAX_QUOTE)
}

async fn request(
    runtime: &Runtime,
    container_id: &str,
    get: &HttpGet,
    loopback: Loopback,
) -> Result<(), String> {
    if let Some(host) = &get.host {
        return http::get(get, host, loopback).await;
    }
    let address = pod_address(runtime, container_id).await?;
    http::get(get, &address.to_string(), loopback).await
}

/// The first address of the container's Pod, as the kubelet takes it: from the sandbox, and only while that is ready,
/// since the address of another one may be somebody else's by now.
///
/// A Pod on the node's network has none there. The kubelet's hooks fail then, too.
async fn pod_address(runtime: &Runtime, container_id: &str) -> Result<IpAddr, String> {
    let filter = v1::ContainerFilter { id: container_id.to_owned(), ..Default::default() };
    let containers = runtime.list_containers(filter).await.map_err(|error| error.to_string())?;
    let container = containers.iter().find(|c| c.id == container_id);
    let sandbox = container.ok_or("the container is gone")?.pod_sandbox_id.as_str();
    let sandbox = SandboxId::parse(sandbox).map_err(|error| error.to_string())?;
    let status = runtime.pod_sandbox_status(&sandbox).await.map_err(|error| error.to_string())?;
    let ready = status.state == i32::from(v1::PodSandboxState::SandboxReady);
    let address = status.ips().next().filter(|_| ready);
    address
        .and_then(|address| address.parse().ok())
        .ok_or_else(|| "the hook names no host, and the runtime no address of the Pod".to_owned())
}

fn parse(id: &str) -> Result<ContainerId, String> {
    ContainerId::parse(id).map_err(|error| error.to_string())
}

#[cfg(test)]
#[path = "hook/containerd_tests.rs"]
mod containerd_tests;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pitstop_cri::{Call, Deadlines};

    use super::*;

    fn ended(exit_code: i32, stderr: &'static [u8]) -> v1::ExecSyncResponse {
        v1::ExecSyncResponse { exit_code, stderr: stderr.into(), ..Default::default() }
    }

    fn call() -> Call {
        Call { name: "ExecSync", socket: Path::new("/s").into() }
    }

    #[test]
    fn commands_are_judged_by_their_exit_code() {
        assert_eq!(judge(Ok(ended(0, b"noise"))), Some(Ok(())));
        let text = "the preStop command ended with exit code 3: no such file \u{fffd}";
        assert_eq!(judge(Ok(ended(3, b" no such\n\tfile \x1b\xff"))), Some(Err(text.to_owned())));
        assert_eq!(
            judge(Ok(ended(3, b"\n"))).unwrap().unwrap_err(),
            "the preStop command ended with exit code 3"
        );
        let loud = Error::TooLarge { call: call(), detail: String::new() };
        assert_eq!(judge(Err(loud)), Some(Ok(())));
        let late = Error::Deadline { call: call(), limit: Duration::ZERO, detail: String::new() };
        assert_eq!(judge(Err(late)), None);
        let gone = Error::NotFound { call: call(), detail: "gone".into() };
        assert!(judge(Err(gone)).unwrap().unwrap_err().contains("not found: gone"));
    }

    #[test]
    fn quotes_are_short() {
        assert_eq!(quote("ä".repeat(9_000).as_bytes()), "ä".repeat(MAX_QUOTE));
        assert_eq!(quote(&[0xff; 9_000]).chars().count(), MAX_QUOTE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleep_ends_with_the_grace() {
        let runtime = pitstop_cri::connect(Path::new("/none"), Deadlines::default()).unwrap();
        for (seconds, limit, took) in [(7, 30, 7), (30, 7, 7), (0, 7, 0), (u64::MAX, 7, 7)] {
            let start = tokio::time::Instant::now();
            assert_eq!(run(&runtime, "", Hook::Sleep { seconds }, limit).await, Ok(()));
            assert_eq!(start.elapsed().as_secs(), took);
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let runtime = pitstop_cri::connect(Path::new("/none"), Deadlines::default()).unwrap();
        let port = listener.local_addr().unwrap().port();
        for https in [false, true] {
            let get = HttpGet { https, host: Some("127.0.0.1".into()), port, ..HttpGet::default() };
            let start = tokio::time::Instant::now();
            let failure = run_on(&runtime, "", Hook::HttpGet(get), 1, Loopback::Allow).await.unwrap_err();
            assert_eq!(failure, "preStop httpGet: did not end within 1 s");
            assert!(start.elapsed() < Duration::from_secs(5));
        }
    }

    #[tokio::test]
    async fn what_cannot_be_run_fails() {
        let runtime = pitstop_cri::connect(Path::new("/none"), Deadlines::default()).unwrap();
        let id = "a".repeat(64);
        let fails = async |id: &str, hook| run(&runtime, id, hook, 7).await.unwrap_err();
        let unsupported = Hook::Unsupported { why: "tcpSocket is not supported".into() };
        assert_eq!(fails(&id, unsupported).await, "cannot run the preStop hook: tcpSocket is not supported");
        let exec = Hook::Exec { command: vec!["a".into()] };
        assert!(fails(&id, exec.clone()).await.contains("cannot be reached"));
        assert!(fails("short", exec).await.contains("not a full ID"));
        let get = HttpGet { port: 80, ..HttpGet::default() };
        assert!(fails(&id, Hook::HttpGet(get)).await.starts_with("preStop httpGet: ListContainers on /none"));
    }
}
