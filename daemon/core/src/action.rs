//! Events, which the daemon's core takes, and actions, which it returns.

use std::time::Duration;

use pitstop_api::id::ContainerId;
use pitstop_api::logic::tracked::Versioned;
pub use pitstop_api::logic::watch::Watch;
use pitstop_api::nodework::{Answer, CgroupReading, Held, NodeWorkStatus, Order, RuntimeInfo};

use crate::hook::Hook;
use crate::resize::{Present, Write};

/// The fields of the node's `NodeWork` that decisions need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Book {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// `spec.orders`; not trusted.
    pub orders: Vec<Order>,
    /// `spec.closed`: IDs of orders of which the daemon begins nothing new.
    pub closed: Vec<String>,
    /// `status`, as this or an earlier daemon wrote it.
    pub status: NodeWorkStatus,
}

impl Versioned for Book {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl Book {
    /// The stored answer to an order.
    pub fn answer(&self, order_id: &str) -> Option<&Answer> {
        self.status.answers.iter().find(|a| a.order_id == order_id)
    }
}

/// An input of the core.
#[derive(Clone, Debug)]
pub enum Event {
    /// The book changed.
    Book(Watch<Book>),
    /// A runtime answers, for the first time or again: name and version.
    Runtime(RuntimeInfo),
    /// The runtime's answer about an order's container; `None` if it does not know the ID.
    Inspected(String, Result<Option<Facts>, CallFailure>),
    /// The hook of an order's container ended or timed out; the error is for people. The executor has already recorded
    /// this, so no other process runs the hook again.
    HookDone(String, Result<(), String>),
    /// The call to stop an order's container returned.
    Stopped(String, Result<(), CallFailure>),
    /// The cgroups of an order's container and its Pod, or why they cannot be read. Only a failure of the runtime may
    /// be worth a retry; a missing container or cgroup is final.
    CgroupsRead(String, Result<Box<CgroupReading>, CallFailure>),
    /// The cgroups that an order is to change, or why they cannot be read, as in [`Event::CgroupsRead`].
    ResourcesRead(String, Result<Box<Present>, CallFailure>),
    /// The writes of an order succeeded, or one failed and the later ones were skipped.
    Resized(String, Result<(), CallFailure>),
    /// The runtime's answer about an order's container and image, or why there is none.
    ImageSeen(String, Result<Box<Look>, CallFailure>),
    /// The pull of an image ended.
    Pulled(String, Result<(), PullFailure>),
    /// The original resources of a Pod (by UID) are restored, or not.
    WrittenBack(String, Result<(), CallFailure>),
    /// The outcome of the status write.
    StatusWritten(Outcome),
    /// Time passed.
    Tick,
}

/// How a write ended.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, and nearly always the large one")]
pub enum Outcome {
    /// It took effect; the book as stored.
    Written(Book),
    /// Its precondition failed, or the book is gone.
    Conflict,
    /// It was refused, or failed, perhaps after it took effect. The daemon retries. (An API server that has just
    /// started answers 403 until it has read the roles.)
    Retry,
}

/// Why a runtime call or another operation on the node failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// Whether the same call may work later.
    pub retry: bool,
    /// For people.
    pub message: String,
}

/// A container as the runtime reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Label `io.kubernetes.pod.namespace`.
    pub namespace: String,
    /// Label `io.kubernetes.pod.name`.
    pub pod: String,
    /// Label `io.kubernetes.pod.uid`.
    pub pod_uid: String,
    /// Label `io.kubernetes.container.name`.
    pub container: String,
    /// Its state.
    pub state: ContainerState,
    /// Annotation `io.kubernetes.container.preStopHandler`, raw.
    pub pre_stop: Option<String>,
    /// Annotation `io.kubernetes.container.ports`, raw.
    pub ports: Option<String>,
    /// Annotation `io.kubernetes.pod.terminationGracePeriod`, in seconds.
    pub grace_seconds: Option<i64>,
}

/// What the runtime reports about an order's container and image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The container that the order names; `None` if the runtime does not know its ID.
    pub named: Option<NamedContainer>,
    /// The newest container of the order's Pod and container name, if the runtime no longer knows the named container.
    pub heir: Option<NamedContainer>,
    /// The image that the order names; `None` if the node does not have it.
    pub image: Option<Image>,
    /// The newest container of the order's Pod and container name.
    pub newest: Option<NewestContainer>,
    /// Free bytes in the runtime's image store; `None` if not asked for, or if they cannot be seen.
    pub free: Option<u64>,
}

/// A container that an order names, or its heir.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedContainer {
    /// Labels, annotations and state.
    pub facts: Facts,
    /// `image.user_specified_image` of its status: the image as its Pod names it. Empty with runtimes before CRI 1.29.
    pub asked: String,
    /// Other references by which the runtime knows its image.
    pub references: Vec<String>,
}

/// An image that the node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The runtime's image ID.
    pub id: String,
    /// Digests, as `repository@digest`.
    pub digests: Vec<String>,
    /// Its size in bytes.
    pub bytes: i64,
}

/// The newest container of a Pod and container name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestContainer {
    /// Its ID.
    pub id: ContainerId,
    /// Whether it runs.
    pub runs: bool,
    /// Whether it was started.
    pub started: bool,
    /// The runtime's ID of its image.
    pub image_id: String,
    /// Digests of its image, as `repository@digest`.
    pub digests: Vec<String>,
}

/// Why a pull failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFailure {
    /// Whether the runtime says that the image does not exist.
    pub missing: bool,
    /// The runtime's message, which may quote the registry.
    pub message: String,
}

/// State of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerState {
    /// Created, not started. A stop has no effect.
    Created,
    /// It runs.
    Running,
    /// It has ended.
    Exited,
    /// Unknown to the runtime; the daemon still tries a stop.
    #[default]
    Unknown,
}

impl ContainerState {
    /// For logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Unknown => "unknown",
        }
    }
}

/// A task for the executor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the runtime about an order's container.
    Inspect {
        /// The order.
        order_id: String,
        /// The container.
        container_id: ContainerId,
    },
    /// Run the hook of an order's container, record its end, and report it.
    RunHook {
        /// The order.
        order_id: String,
        /// The container.
        container_id: ContainerId,
        /// What to run.
        hook: Hook,
        /// Time limit in seconds; above 0.
        limit_seconds: i64,
    },
    /// Stop an order's container.
    Stop {
        /// The order.
        order_id: String,
        /// The container.
        container_id: ContainerId,
        /// Seconds between the stop signal and the kill.
        grace_seconds: i64,
    },
    /// Read the cgroups of an order's container and of its Pod.
    ReadCgroups {
        /// The order.
        order_id: String,
        /// The container.
        container_id: ContainerId,
        /// UID of the container's Pod, which names the Pod's cgroup.
        pod_uid: String,
    },
    /// Read the cgroups that an order is to change: its container's and its Pod's.
    ReadResources {
        /// The order.
        order_id: String,
        /// The container.
        container_id: ContainerId,
        /// UID of the container's Pod, which names the Pod's cgroup.
        pod_uid: String,
        /// If true, the container's cgroup must exist. If false, only the Pod's counts, and may be missing.
        runs: bool,
        /// Recorded path of the Pod's cgroup, for a container that the runtime no longer knows. Checked before use.
        held: Option<String>,
    },
    /// Make the writes to the cgroups of an order's container and Pod in sequence, until one fails.
    Resize {
        /// The order.
        order_id: String,
        /// The container.
        container_id: ContainerId,
        /// The Pod that it belongs to.
        pod_uid: String,
        /// Path of the Pod's cgroup below the root of a hierarchy.
        cgroup: String,
        /// What to write; never empty.
        writes: Vec<Write>,
    },
    /// Ask the runtime about an order's container and image, and the newest container of that name in the Pod.
    LookAtImage {
        /// The order.
        order_id: String,
        /// The container that it names.
        container_id: ContainerId,
        /// The Pod that it belongs to.
        pod_uid: String,
        /// Its name.
        container: String,
        /// The image.
        image: String,
        /// Whether to ask for the free bytes in the image store.
        room: bool,
    },
    /// Have the runtime pull an image, without credentials. Each image has one pull at a time.
    Pull {
        /// The order that starts it.
        order_id: String,
        /// The image.
        image: String,
        /// How long it may take.
        limit: Duration,
    },
    /// Cancel a pull that no order waits for any more.
    CancelPull {
        /// The image.
        image: String,
    },
    /// Restore the original resources of a Pod and of its running containers; see
    /// [`give_back`](crate::resize::give_back).
    WriteBack {
        /// The original resources. They come from the book, so the path is checked before use.
        held: Box<Held>,
    },
    /// Replace the status of the book, if its version is unchanged.
    WriteStatus {
        /// The version that the status was computed from.
        resource_version: String,
        /// The whole status.
        status: Box<NodeWorkStatus>,
    },
}
