//! A real containerd as a target of the simulator's scripts. Its calls are raw: the crate's client hides the runtime's
//! answer to a stop of nothing.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pitstop_cri::{keys, v1};
use pitstop_sim::conform::runtime::{Shape, Target};
use pitstop_sim::node::runtime::{
    Answer, Call, Code, ContainerConfig, ContainerInfo, Failure, Filter, Reply, SandboxConfig, SandboxInfo,
    State,
};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};

use crate::support::pods::{
    self, CreateContainerRequest, CreateContainerResponse, LinuxContainerConfig,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, PodSandboxConfig,
    RunPodSandboxRequest, RunPodSandboxResponse, try_call,
};
use crate::support::{APP_IMAGE, Containerd};

/// Longest time of a script's call.
const LIMIT: Duration = Duration::from_mins(5);

pub(crate) struct Real<'a> {
    containerd: &'a Containerd,
    tokio: Handle,
    calls: Grpc<Channel>,
    /// Configurations of the sandboxes; `CreateContainer` needs them.
    configs: Vec<PodSandboxConfig>,
    began: Instant,
}

impl<'a> Real<'a> {
    pub(crate) fn new(containerd: &'a Containerd, tokio: Handle) -> Self {
        let endpoint = Endpoint::from_shared(format!("unix://{}", containerd.socket().display())).unwrap();
        let _inside = tokio.enter();
        let calls = Grpc::new(endpoint.connect_lazy());
        Self { containerd, tokio, calls, configs: Vec::new(), began: Instant::now() }
    }

    fn sandbox_config(&self, config: SandboxConfig) -> PodSandboxConfig {
        let SandboxConfig { name, namespace, uid, attempt, labels } = config;
        let cgroup_parent = self.containerd.cgroup_of(&uid);
        PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata { name, uid, namespace, attempt }),
            labels: Arc::unwrap_or_clone(labels),
            annotations: BTreeMap::new(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent,
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(on_the_node()),
                }),
            }),
        }
    }
}

impl Target for Real<'_> {
    type Begun = JoinHandle<Reply>;

    fn begin(&mut self, call: Call) -> JoinHandle<Reply> {
        let calls = self.calls.clone();
        let request = match call {
            Call::RunPodSandbox(config) => {
                let config = self.sandbox_config(config);
                self.configs.push(config.clone());
                Request::RunPodSandbox(config)
            }
            Call::CreateContainer { sandbox, config } => {
                let pod = self.configs.first().unwrap().clone();
                Request::Create(Box::new(container(sandbox, config, pod)))
            }
            other => Request::Plain(other),
        };
        self.tokio.spawn(async move {
            tokio::time::timeout(LIMIT, request.send(calls)).await.expect("the runtime answers")
        })
    }

    fn end(&mut self, begun: JoinHandle<Reply>) -> Reply {
        self.tokio.block_on(begun).unwrap()
    }

    fn leave(&mut self, begun: JoinHandle<Reply>) {
        begun.abort();
    }

    fn now(&mut self) -> u64 {
        self.began.elapsed().as_millis().try_into().unwrap()
    }

    fn pause(&mut self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    /// A signal before the script has set its traps would find none.
    fn settle(&mut self, id: &str) {
        let cmd = ["cat", "/proc/1/task/1/children"].map(str::to_owned).to_vec();
        let request = v1::ExecSyncRequest { container_id: id.to_owned(), cmd, timeout: 30 };
        let ended = Instant::now() + Duration::from_mins(1);
        loop {
            let mut calls = self.calls.clone();
            let request = request.clone();
            let answer: Result<v1::ExecSyncResponse, _> =
                self.tokio.block_on(async { try_call(&mut calls, "ExecSync", request).await });
            if answer.is_ok_and(|a| !a.stdout.trim_ascii().is_empty()) {
                return;
            }
            assert!(Instant::now() < ended, "the script of {id} does not run");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn kill(&mut self) {
        self.containerd.kill();
    }

    fn revive(&mut self) {
        self.containerd.switch_on();
        let ended = Instant::now() + Duration::from_mins(1);
        loop {
            let begun = self.begin(Call::ListContainers(Filter::default()));
            if self.end(begun).is_ok() {
                return;
            }
            assert!(Instant::now() < ended, "containerd does not come back");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A call as it is sent.
enum Request {
    RunPodSandbox(PodSandboxConfig),
    Create(Box<CreateContainerRequest>),
    Plain(Call),
}

/// The form of most requests.
#[derive(Clone, PartialEq, prost::Message)]
struct Named {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Nothing {}

impl Request {
    async fn send(self, mut calls: Grpc<Channel>) -> Reply {
        let calls = &mut calls;
        match self {
            Self::RunPodSandbox(config) => {
                let request = RunPodSandboxRequest { config: Some(config) };
                let answer: Result<RunPodSandboxResponse, _> =
                    try_call(calls, "RunPodSandbox", request).await;
                answer.map(|a| Answer::Created(a.pod_sandbox_id)).map_err(|status| failure(&status))
            }
            Self::Create(request) => {
                let answer: Result<CreateContainerResponse, _> =
                    try_call(calls, "CreateContainer", *request).await;
                answer.map(|a| Answer::Created(a.container_id)).map_err(|status| failure(&status))
            }
            Self::Plain(call) => plain(calls, call).await.map_err(|status| failure(&status)),
        }
    }
}

async fn plain(calls: &mut Grpc<Channel>, call: Call) -> Result<Answer, Status> {
    let named = async |calls: &mut Grpc<Channel>, name: &str, id: String| {
        try_call::<_, Nothing>(calls, name, Named { id }).await.map(|_| Answer::Done)
    };
    match call {
        Call::Version => {
            let a: v1::VersionResponse = try_call(calls, "Version", v1::VersionRequest::default()).await?;
            Ok(Answer::Version(a.runtime_name, a.runtime_version))
        }
        Call::Status => {
            let a: v1::StatusResponse = try_call(calls, "Status", v1::StatusRequest::default()).await?;
            Ok(Answer::Status(a.status.unwrap().runtime_ready()))
        }
        Call::ListContainers(filter) => {
            let request = v1::ListContainersRequest { filter: Some(wire(filter)) };
            let a: v1::ListContainersResponse = try_call(calls, "ListContainers", request).await?;
            Ok(Answer::Containers(a.containers.into_iter().map(listed).collect()))
        }
        Call::ContainerStatus { id } => {
            let request = v1::ContainerStatusRequest { container_id: id, verbose: false };
            let a: v1::ContainerStatusResponse = try_call(calls, "ContainerStatus", request).await?;
            Ok(Answer::Container(Box::new(status(a.status.unwrap()))))
        }
        Call::StopContainer { id, timeout_s } => {
            let request = v1::StopContainerRequest { container_id: id, timeout: timeout_s };
            try_call::<_, Nothing>(calls, "StopContainer", request).await.map(|_| Answer::Done)
        }
        Call::ExecSync { id, cmd, timeout_s } => {
            let request = v1::ExecSyncRequest { container_id: id, cmd, timeout: timeout_s };
            let a: v1::ExecSyncResponse = try_call(calls, "ExecSync", request).await?;
            Ok(Answer::Exec(a.exit_code))
        }
        Call::StartContainer { id } => named(calls, "StartContainer", id).await,
        Call::RemoveContainer { id } => named(calls, "RemoveContainer", id).await,
        Call::StopPodSandbox { id } => named(calls, "StopPodSandbox", id).await,
        Call::RemovePodSandbox { id } => named(calls, "RemovePodSandbox", id).await,
        Call::PodSandboxStatus { id } => {
            let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id, verbose: false };
            let a: v1::PodSandboxStatusResponse = try_call(calls, "PodSandboxStatus", request).await?;
            Ok(Answer::Sandbox(Box::new(sandbox(a.status.unwrap()))))
        }
        Call::ListPodSandbox
        | Call::RunPodSandbox(_)
        | Call::CreateContainer { .. }
        | Call::PullImage { .. } => {
            unreachable!("no script lists sandboxes or pulls, and the others are sent elsewhere")
        }
    }
}

// === from the model's words to the wire's and back

fn on_the_node() -> v1::NamespaceOption {
    v1::NamespaceOption { network: v1::NamespaceMode::Node as i32, ..Default::default() }
}

fn container(sandbox: String, config: ContainerConfig, pod: PodSandboxConfig) -> CreateContainerRequest {
    let ContainerConfig { name, attempt, image, labels, annotations, process } = config;
    let job = |code| Shape::Job(code);
    let mut shapes = vec![Shape::Polite, Shape::Stubborn, Shape::Second, Shape::Missing];
    shapes.extend(process.runs.map(|(_, code)| job(code)));
    let shape = shapes.into_iter().find(|s| s.process() == process).expect("a shape");
    let command = match shape {
        Shape::Missing => vec!["/none".to_owned()],
        shape => vec!["/bin/sh".to_owned(), "-c".to_owned(), shape.shell()],
    };
    let image = if image == "app:1" { APP_IMAGE.to_owned() } else { format!("pitstop.test/{image}") };
    CreateContainerRequest {
        pod_sandbox_id: sandbox,
        config: Some(pods::ContainerConfig {
            metadata: Some(v1::ContainerMetadata { name, attempt }),
            image: Some(v1::ImageSpec { image, ..Default::default() }),
            command,
            labels: Arc::unwrap_or_clone(labels),
            annotations: Arc::unwrap_or_clone(annotations),
            linux: Some(LinuxContainerConfig {
                resources: Some(v1::LinuxContainerResources::default()),
                security_context: Some(LinuxContainerSecurityContext {
                    namespace_options: Some(on_the_node()),
                }),
            }),
        }),
        sandbox_config: Some(pod),
    }
}

fn wire(filter: Filter) -> v1::ContainerFilter {
    let number = |state| match state {
        State::Created => v1::ContainerState::ContainerCreated as i32,
        State::Running => v1::ContainerState::ContainerRunning as i32,
        State::Exited => v1::ContainerState::ContainerExited as i32,
        State::Unknown => v1::ContainerState::ContainerUnknown as i32,
    };
    v1::ContainerFilter {
        id: filter.id,
        pod_sandbox_id: filter.sandbox,
        state: filter.state.map(|state| v1::ContainerStateValue { state: number(state) }),
        label_selector: filter.labels,
    }
}

fn state(state: v1::ContainerState) -> State {
    match state {
        v1::ContainerState::ContainerCreated => State::Created,
        v1::ContainerState::ContainerRunning => State::Running,
        v1::ContainerState::ContainerExited => State::Exited,
        v1::ContainerState::ContainerUnknown => State::Unknown,
    }
}

fn listed(one: v1::Container) -> ContainerInfo {
    let state = state(one.known_state());
    let metadata = one.metadata.unwrap();
    ContainerInfo {
        id: one.id,
        sandbox: one.pod_sandbox_id,
        name: metadata.name,
        attempt: metadata.attempt,
        image: String::new(),
        image_ref: one.image_ref,
        image_id: one.image_id,
        labels: Arc::new(one.labels),
        annotations: Arc::new(one.annotations),
        state,
        created_at: one.created_at,
        started_at: 0,
        finished_at: 0,
        exit_code: 0,
        reason: String::new(),
    }
}

fn status(one: v1::ContainerStatus) -> ContainerInfo {
    let state = state(one.known_state());
    assert_eq!(one.annotations.get(keys::RESTART_COUNT).map(String::as_str), Some("0"));
    let metadata = one.metadata.unwrap();
    ContainerInfo {
        id: one.id,
        sandbox: String::new(),
        name: metadata.name,
        attempt: metadata.attempt,
        image: one.image.unwrap().image,
        image_ref: one.image_ref,
        image_id: one.image_id,
        labels: Arc::new(one.labels),
        annotations: Arc::new(one.annotations),
        state,
        created_at: one.created_at,
        started_at: one.started_at,
        finished_at: one.finished_at,
        exit_code: one.exit_code,
        reason: one.reason,
    }
}

fn sandbox(one: v1::PodSandboxStatus) -> SandboxInfo {
    let ready = one.state() == v1::PodSandboxState::SandboxReady;
    let ip = one.ips().next().unwrap_or_default().to_owned();
    let metadata = one.metadata.unwrap();
    let config = SandboxConfig {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        attempt: metadata.attempt,
        labels: Arc::new(one.labels),
    };
    SandboxInfo { id: one.id, config, ready, created_at: one.created_at, ip }
}

fn failure(status: &Status) -> Failure {
    let code = match status.code() {
        // A status that this process made from a broken connection carries its cause.
        _ if status.source().is_some() => Code::Unavailable,
        tonic::Code::Unavailable => Code::Unavailable,
        tonic::Code::Cancelled => Code::Cancelled,
        tonic::Code::InvalidArgument => Code::InvalidArgument,
        tonic::Code::DeadlineExceeded => Code::DeadlineExceeded,
        tonic::Code::NotFound => Code::NotFound,
        tonic::Code::FailedPrecondition => Code::FailedPrecondition,
        tonic::Code::PermissionDenied => Code::PermissionDenied,
        tonic::Code::ResourceExhausted => Code::ResourceExhausted,
        tonic::Code::Unimplemented => Code::Unimplemented,
        tonic::Code::Internal => Code::Internal,
        _ => Code::Unknown,
    };
    Failure { code, message: status.message().to_owned() }
}
