//! The calls of CRI v1 that pitstop and the kubelet make, and their answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::process::Process;

/// Labels or annotations; shared, because every read copies them.
pub type Map = Arc<BTreeMap<String, String>>;

/// A call in progress. Unique in a runtime, restarts included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// A connection to the runtime. If the client's process dies, its calls are cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Client(pub u32);

impl Client {
    /// The kubelet's connection; its replies go to [`Runtime::take_replies`](super::Runtime::take_replies).
    pub const KUBELET: Self = Self(0);
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// `Version`.
    Version,
    /// `Status`.
    Status,
    /// `ListContainers`.
    ListContainers(Filter),
    /// `ContainerStatus`.
    ContainerStatus {
        /// Container, or a prefix of its ID.
        id: String,
    },
    /// `StopContainer`.
    StopContainer {
        /// Container, or a prefix of its ID.
        id: String,
        /// Seconds between stop signal and kill; 0 or less kills at once.
        timeout_s: i64,
    },
    /// `CreateContainer`.
    CreateContainer {
        /// Sandbox, or a prefix of its ID.
        sandbox: String,
        /// The container.
        config: ContainerConfig,
    },
    /// `StartContainer`.
    StartContainer {
        /// Container, or a prefix of its ID.
        id: String,
    },
    /// `RemoveContainer`.
    RemoveContainer {
        /// Container, or a prefix of its ID.
        id: String,
    },
    /// `ExecSync`.
    ExecSync {
        /// Container, or a prefix of its ID.
        id: String,
        /// Program and arguments.
        cmd: Vec<String>,
        /// Seconds until the command is killed; 0 for never.
        timeout_s: i64,
    },
    /// `RunPodSandbox`.
    RunPodSandbox(SandboxConfig),
    /// `StopPodSandbox`.
    StopPodSandbox {
        /// Sandbox, or a prefix of its ID.
        id: String,
    },
    /// `RemovePodSandbox`.
    RemovePodSandbox {
        /// Sandbox, or a prefix of its ID.
        id: String,
    },
    /// `ListPodSandbox`, without a filter.
    ListPodSandbox,
    /// `PodSandboxStatus`.
    PodSandboxStatus {
        /// Sandbox, or a prefix of its ID.
        id: String,
    },
    /// `PullImage`; the kubelet has credentials for private registries.
    PullImage {
        /// The image.
        image: String,
    },
}

/// The name of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// `Version`.
    Version,
    /// `Status`.
    Status,
    /// `ListContainers`.
    ListContainers,
    /// `ContainerStatus`.
    ContainerStatus,
    /// `StopContainer`.
    StopContainer,
    /// `CreateContainer`.
    CreateContainer,
    /// `StartContainer`.
    StartContainer,
    /// `RemoveContainer`.
    RemoveContainer,
    /// `ExecSync`.
    ExecSync,
    /// `RunPodSandbox`.
    RunPodSandbox,
    /// `StopPodSandbox`.
    StopPodSandbox,
    /// `RemovePodSandbox`.
    RemovePodSandbox,
    /// `ListPodSandbox`.
    ListPodSandbox,
    /// `PodSandboxStatus`.
    PodSandboxStatus,
    /// `PullImage`.
    PullImage,
}

impl Call {
    /// Its name.
    pub fn method(&self) -> Method {
        match self {
            Self::Version => Method::Version,
            Self::Status => Method::Status,
            Self::ListContainers(_) => Method::ListContainers,
            Self::ContainerStatus { .. } => Method::ContainerStatus,
            Self::StopContainer { .. } => Method::StopContainer,
            Self::CreateContainer { .. } => Method::CreateContainer,
            Self::StartContainer { .. } => Method::StartContainer,
            Self::RemoveContainer { .. } => Method::RemoveContainer,
            Self::ExecSync { .. } => Method::ExecSync,
            Self::RunPodSandbox(_) => Method::RunPodSandbox,
            Self::StopPodSandbox { .. } => Method::StopPodSandbox,
            Self::RemovePodSandbox { .. } => Method::RemovePodSandbox,
            Self::ListPodSandbox => Method::ListPodSandbox,
            Self::PodSandboxStatus { .. } => Method::PodSandboxStatus,
            Self::PullImage { .. } => Method::PullImage,
        }
    }
}

/// Which containers to list; all fields must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Container, or a prefix of its ID; empty for any.
    pub id: String,
    /// Sandbox, or a prefix of its ID; empty for any.
    pub sandbox: String,
    /// State; None for any.
    pub state: Option<State>,
    /// Labels with their values.
    pub labels: BTreeMap<String, String>,
}

/// Configuration of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    /// Name of the Pod.
    pub name: String,
    /// Namespace of the Pod.
    pub namespace: String,
    /// UID of the Pod.
    pub uid: String,
    /// Number of earlier sandboxes of the Pod.
    pub attempt: u32,
    /// Labels.
    pub labels: Map,
}

/// Configuration of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerConfig {
    /// Name in the Pod.
    pub name: String,
    /// Number of earlier containers of that name in the Pod.
    pub attempt: u32,
    /// The image as the Pod names it.
    pub image: String,
    /// Labels.
    pub labels: Map,
    /// Annotations.
    pub annotations: Map,
    /// How its process behaves.
    pub process: Process,
}

/// `ContainerState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Made, not started.
    Created,
    /// It runs.
    Running,
    /// It has ended.
    Exited,
    /// The runtime lost track of it.
    Unknown,
}

/// A container as lists and statuses show it. Times are nanoseconds of the node's wall clock, 0 for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerInfo {
    /// 64 hexadecimal digits.
    pub id: String,
    /// Its sandbox.
    pub sandbox: String,
    /// Name in the Pod.
    pub name: String,
    /// Number of earlier containers of that name in the Pod.
    pub attempt: u32,
    /// The requested image.
    pub image: String,
    /// `<repository>@sha256:<digest>`, or a bare digest if no repository is known.
    pub image_ref: String,
    /// The ID of its image.
    pub image_id: String,
    /// Labels.
    pub labels: Map,
    /// Annotations.
    pub annotations: Map,
    /// State.
    pub state: State,
    /// When it was made.
    pub created_at: i64,
    /// When it was started.
    pub started_at: i64,
    /// When it ended.
    pub finished_at: i64,
    /// Exit code.
    pub exit_code: i32,
    /// `Completed`, `Error`, `StartError`, `Unknown`; empty before the end.
    pub reason: String,
}

/// A sandbox as lists and statuses show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxInfo {
    /// 64 hexadecimal digits.
    pub id: String,
    /// Its configuration.
    pub config: SandboxConfig,
    /// `SANDBOX_READY`.
    pub ready: bool,
    /// When it was made, in nanoseconds of the node's wall clock.
    pub created_at: i64,
    /// The Pod's address.
    pub ip: String,
}

/// The answer to a successful call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Version`: name and version of the runtime.
    Version(String, String),
    /// To `Status`: whether `RuntimeReady` is true.
    Status(bool),
    /// To `ListContainers`, by ID.
    Containers(Vec<ContainerInfo>),
    /// To `ContainerStatus`.
    Container(Box<ContainerInfo>),
    /// To `ListPodSandbox`, by ID.
    Sandboxes(Vec<SandboxInfo>),
    /// To `PodSandboxStatus`.
    Sandbox(Box<SandboxInfo>),
    /// To `CreateContainer` and `RunPodSandbox`: the new ID.
    Created(String),
    /// To `ExecSync`: the exit code.
    Exec(i32),
    /// To all other calls.
    Done,
}

/// The gRPC codes that runtimes answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// The caller cancelled.
    Cancelled,
    /// containerd's code for most of its failures.
    Unknown,
    /// A bad request.
    InvalidArgument,
    /// A timeout of the call itself.
    DeadlineExceeded,
    /// No such container.
    NotFound,
    /// Wrong state.
    FailedPrecondition,
    /// No right to do that.
    PermissionDenied,
    /// Too much of something.
    ResourceExhausted,
    /// No such call.
    Unimplemented,
    /// A failure of the runtime.
    Internal,
    /// The socket is missing, refuses or broke.
    Unavailable,
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub code: Code,
    /// For people. Where pitstop reads it, the runtime's own words.
    pub message: String,
}

/// Result of a call.
pub type Reply = Result<Answer, Failure>;

/// An event that really happened, for oracles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    /// When, in virtual milliseconds.
    pub at: u64,
    /// The container.
    pub id: String,
    /// The event.
    pub kind: DeedKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeedKind {
    /// A stop with effect was accepted: its client and its grace in seconds.
    StopAsked(Client, i64),
    /// The stop signal was sent.
    Term,
    /// SIGKILL was sent.
    Kill,
    /// A command was started in it.
    Exec(Client, Vec<String>),
    /// Its process began.
    Started,
    /// Its process ended with that code.
    Ended(i32),
}
