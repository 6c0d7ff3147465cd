//! Runs preStop hooks as the kubelet does.
//!
//! Sources: `pkg/kubelet/lifecycle/handlers.go` and `executePreStopHook` in
//! `pkg/kubelet/kuberuntime/kuberuntime_container.go`, Kubernetes 1.36. Two things differ. A hook ends with the grace
//! period at the latest; the kubelet leaves a command running. A failure is reported with the hook's kind and its
//! result; the kubelet's event says only that a failure occurred. Output of a command, and words of a server or the
//! runtime, go only into the node's log: they may be secret.

pub mod http;

use std::net::IpAddr;
use std::time::Duration;

use pitstop_api::condition::truncate;
use pitstop_cri::{ContainerId, Error, Runtime, SandboxId, v1};
use pitstop_daemon_core::{CallFailure, Hook, HttpGet};
use pitstop_kit::describe;
use tokio::time::{sleep, timeout};

use http::Loopback;

/// Time for the runtime, beyond the grace period, to report that it killed a command.
const EXEC_MARGIN: Duration = Duration::from_secs(1);
/// Longest quote of a command's own words, in characters.
const MAX_QUOTE: usize = 256;

/// Why a hook failed.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// For everyone: goes into the order's answer, and from there into conditions and events.
    pub message: String,
    /// For the node's log: in the words of the command, the server or the runtime. May be empty.
    pub detail: String,
}

impl Failure {
    fn new(message: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { message: message.into(), detail: detail.into() }
    }

    fn of(message: impl Into<String>) -> Self {
        Self::new(message, "")
    }
}

/// Runs a hook of a container, for at most that many seconds. Only commands, and requests that need the Pod's address,
/// use the runtime.
pub(crate) async fn run(
    runtime: Result<&Runtime, &CallFailure>,
    container_id: &ContainerId,
    hook: Hook,
    limit_seconds: i64,
) -> Result<(), Failure> {
    run_on(runtime, container_id, hook, limit_seconds, Loopback::Refuse).await
}

async fn run_on(
    runtime: Result<&Runtime, &CallFailure>,
    container_id: &ContainerId,
    hook: Hook,
    limit_seconds: i64,
    loopback: Loopback,
) -> Result<(), Failure> {
    let limit = Duration::from_secs(u64::try_from(limit_seconds).unwrap_or_default());
    let late =
        |what: &str| Err(Failure::of(format!("the preStop {what} did not end within {limit_seconds} s")));
    match hook {
        Hook::Exec { command } => {
            let call =
                runtime.map_err(|lost| not_run(&lost.message))?.exec_sync(container_id, command, limit);
            // The runtime kills the command by itself, but then waits for children that hold its output open.
            match timeout(limit.saturating_add(EXEC_MARGIN), call).await {
                Ok(answer) => judge(answer).unwrap_or_else(|| late("command")),
                Err(_) => late("command"),
            }
        }
        Hook::HttpGet(get) => {
            let asked = request(&get, loopback, pod_address(runtime, container_id));
            timeout(limit, asked).await.unwrap_or_else(|_| late("httpGet request"))
        }
        // A sleep cut by the limit is no failure: nothing was left undone.
        Hook::Sleep { seconds } => {
            sleep(limit.min(Duration::from_secs(seconds))).await;
            Ok(())
        }
        Hook::Unsupported { why } => Err(Failure::of(format!("the preStop hook cannot be run: {why}"))),
    }
}

/// How a command ended; `None` after a timeout.
pub fn judge(answer: Result<v1::ExecSyncResponse, Error>) -> Option<Result<(), Failure>> {
    Some(match answer {
        Ok(answer) if answer.exit_code == 0 => Ok(()),
        Ok(answer) => {
            let message = format!("the preStop command ended with exit code {}", answer.exit_code);
            Err(Failure::new(message, quote(&answer.stderr)))
        }
        // The command has ended. Its exit code was lost with its output.
        Err(Error::TooLarge { .. }) => Ok(()),
        Err(Error::Deadline { .. }) => return None,
        Err(error) => Err(not_run(&error)),
    })
}

fn not_run(why: &dyn std::fmt::Display) -> Failure {
    Failure::new("the preStop command could not be run", why.to_string())
}

/// The beginning of what a command printed, on one line.
fn quote(output: &[u8]) -> String {
    // A character has at most four bytes.
    let head = output.get(..MAX_QUOTE * 4).unwrap_or(output);
    let text = String::from_utf8_lossy(head);
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).collect();
    truncate(words.into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>().join(" ").as_str(), MAX_QUOTE)
}

/// Sends the request; `pod` finds the Pod's address, and is awaited only if the hook names no host.
async fn request(
    get: &HttpGet,
    loopback: Loopback,
    pod: impl Future<Output = Result<IpAddr, Failure>>,
) -> Result<(), Failure> {
    let host = match &get.host {
        Some(host) => host.clone(),
        None => pod.await?.to_string(),
    };
    let failed = |why: String| Failure::new("the preStop httpGet request failed", why);
    http::get(get, &host, loopback).await.map_err(failed)
}

/// The first address of the container's Pod.
async fn pod_address(
    runtime: Result<&Runtime, &CallFailure>,
    container_id: &ContainerId,
) -> Result<IpAddr, Failure> {
    let none = |why: &dyn std::fmt::Display| {
        let message = "the preStop httpGet names no host, and the runtime reports no Pod IP";
        Failure::new(message, why.to_string())
    };
    let runtime = runtime.map_err(|lost| none(&lost.message))?;
    let filter = v1::ContainerFilter { id: container_id.to_string(), ..Default::default() };
    let containers = runtime.list_containers(filter).await.map_err(|error| none(&error))?;
    let sandbox = sandbox_of(&containers, container_id).map_err(|why| none(&why))?;
    let status = runtime.pod_sandbox_status(&sandbox).await.map_err(|error| none(&error))?;
    address(&status).ok_or_else(|| none(&"the Pod's sandbox has no address"))
}

/// The sandbox of the container with exactly that ID; the answer may list others.
pub fn sandbox_of(containers: &[v1::Container], container_id: &ContainerId) -> Result<SandboxId, String> {
    let container = containers.iter().find(|c| c.id == *container_id);
    let sandbox = container.ok_or("the container is gone")?.pod_sandbox_id.as_str();
    SandboxId::parse(sandbox).map_err(|error| describe(&error))
}

/// The first address of a sandbox, as the kubelet takes it. Only a ready sandbox counts: the address of another may
/// belong to another Pod by now.
///
/// A Pod on the node's network has no address there. The kubelet's hooks fail then, too.
pub fn address(sandbox: &v1::PodSandboxStatus) -> Option<IpAddr> {
    let ready = sandbox.state == i32::from(v1::PodSandboxState::SandboxReady);
    sandbox.ips().next().filter(|_| ready)?.parse().ok()
}

#[cfg(test)]
#[path = "hook/containerd_tests.rs"]
mod containerd_tests;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pitstop_cri::{Call, Deadlines};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn ended(exit_code: i32, stderr: &'static [u8]) -> v1::ExecSyncResponse {
        v1::ExecSyncResponse { exit_code, stderr: stderr.into(), ..Default::default() }
    }

    fn id() -> ContainerId {
        ContainerId::parse(&"a".repeat(64)).unwrap()
    }

    fn lost() -> CallFailure {
        CallFailure { retry: true, message: "no container runtime answers".to_owned() }
    }

    fn call() -> Call {
        Call { name: "ExecSync", socket: Path::new("/s").into() }
    }

    #[test]
    fn commands_are_judged_by_their_exit_code() {
        assert_eq!(judge(Ok(ended(0, b"noise"))), Some(Ok(())));
        let message = "the preStop command ended with exit code 3";
        assert_eq!(
            judge(Ok(ended(3, b" no such\n\tfile \x1b\xff"))),
            Some(Err(Failure::new(message, "no such file \u{fffd}")))
        );
        assert_eq!(judge(Ok(ended(3, b"\n"))), Some(Err(Failure::of(message))));
        let loud = Error::TooLarge { call: call(), detail: String::new() };
        assert_eq!(judge(Err(loud)), Some(Ok(())));
        let late = Error::Deadline { call: call(), limit: Duration::ZERO, detail: String::new() };
        assert_eq!(judge(Err(late)), None);
        let gone = Error::NotFound { call: call(), detail: "gone".into() };
        let failure = judge(Err(gone)).unwrap().unwrap_err();
        assert_eq!(failure.message, "the preStop command could not be run");
        assert!(failure.detail.contains("not found: gone"));
    }

    #[test]
    fn quotes_are_short() {
        assert_eq!(quote("ä".repeat(9_000).as_bytes()), "ä".repeat(MAX_QUOTE));
        assert_eq!(quote(&[0xff; 9_000]).chars().count(), MAX_QUOTE);
    }

    #[tokio::test(start_paused = true)]
    async fn d18_a_sleep_takes_its_time_and_ends_with_the_grace() {
        for (seconds, limit, took) in [(7, 30, 7), (30, 7, 7), (0, 7, 0), (u64::MAX, 7, 7)] {
            let start = tokio::time::Instant::now();
            assert_eq!(run(Err(&lost()), &id(), Hook::Sleep { seconds }, limit).await, Ok(()));
            assert_eq!(start.elapsed().as_secs(), took);
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for https in [false, true] {
            let get = HttpGet { https, host: Some("127.0.0.1".into()), port, ..HttpGet::default() };
            let failure =
                run_on(Err(&lost()), &id(), Hook::HttpGet(get), 1, Loopback::Allow).await.unwrap_err();
            assert_eq!(failure, Failure::of("the preStop httpGet request did not end within 1 s"));
        }
    }

    #[tokio::test]
    async fn what_cannot_be_run_fails() {
        let runtime = pitstop_cri::connect(Path::new("/none"), Deadlines::default()).unwrap();
        let fails = async |hook| run(Ok(&runtime), &id(), hook, 7).await.unwrap_err();
        let unsupported = Hook::Unsupported { why: "tcpSocket is not supported".into() };
        let message = "the preStop hook cannot be run: tcpSocket is not supported";
        assert_eq!(fails(unsupported).await, Failure::of(message));
        let exec = Hook::Exec { command: vec!["a".into()] };
        assert!(fails(exec.clone()).await.detail.contains("cannot be reached"));
        let failure = run(Err(&lost()), &id(), exec, 7).await.unwrap_err();
        assert_eq!(failure, not_run(&"no container runtime answers"));
        let get = HttpGet { port: 80, ..HttpGet::default() };
        let failure = fails(Hook::HttpGet(get)).await;
        assert_eq!(failure.message, "the preStop httpGet names no host, and the runtime reports no Pod IP");
        assert!(failure.detail.starts_with("ListContainers on /none"), "{failure:?}");
    }

    #[tokio::test]
    async fn d17_http_get_without_a_host_goes_to_the_pod_ip() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let get = HttpGet {
            port: listener.local_addr().unwrap().port(),
            path: "/bye".into(),
            ..HttpGet::default()
        };
        let network = v1::PodSandboxNetworkStatus { ip: "127.0.0.1".into(), ..Default::default() };
        let mut sandbox = v1::PodSandboxStatus { network: Some(network), ..Default::default() };
        assert_eq!(sandbox.state, i32::from(v1::PodSandboxState::SandboxReady));
        let asked = request(&get, Loopback::Allow, std::future::ready(Ok(address(&sandbox).unwrap())));
        let served = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 17];
            stream.read_exact(&mut head).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            String::from_utf8(head).unwrap()
        };
        let (result, head) = tokio::join!(asked, served);
        assert_eq!((result, head.as_str()), (Ok(()), "GET /bye HTTP/1.1"));

        sandbox.state = v1::PodSandboxState::SandboxNotready.into();
        assert_eq!(address(&sandbox), None, "it may be another Pod's by now");
        let failure = Failure::of("no address");
        let asked = request(&get, Loopback::Allow, std::future::ready(Err(failure)));
        assert_eq!(asked.await, Err(Failure::of("no address")));
    }
}
