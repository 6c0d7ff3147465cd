//! What goes into the daemon's core and what comes out of it.

use std::time::Duration;

use pitstop_api::id::ContainerId;
use pitstop_api::logic::tracked::Versioned;
pub use pitstop_api::logic::watch::Watch;
use pitstop_api::nodework::{Answer, Held, NodeWorkStatus, Observed, Order, RuntimeInfo};

use crate::hook::Hook;
use crate::resize::{Present, Write};

/// The node's `NodeWork`, reduced to what decisions need.
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
    /// `spec.closed`: IDs of orders of which nothing may begin any more.
    pub closed: Vec<String>,
    /// `status`, as this daemon or the one before it wrote it.
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

/// Something happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The book changed.
    Book(Watch<Book>),
    /// A runtime was found, or found again: its name and version.
    Runtime(RuntimeInfo),
    /// The runtime told about an order's container; absent when it knows none of that ID.
    Inspected(String, Result<Option<Facts>, CallFailure>),
    /// The hook of an order's container ended, or its time was over; what went wrong, for people. By then the
    /// executor has recorded it, so that no other process runs it again.
    HookDone(String, Result<(), String>),
    /// The stop of an order's container returned.
    Stopped(String, Result<(), CallFailure>),
    /// The cgroups of an order's container and of its Pod were read, or cannot be. What may pass is the runtime's
    /// trouble; that the container is gone, or its cgroup, is none that passes.
    CgroupsRead(String, Result<Box<Observed>, CallFailure>),
    /// What an order is to change was looked at, or cannot be; as with [`Event::CgroupsRead`].
    ResourcesRead(String, Result<Box<Present>, CallFailure>),
    /// The writes of an order were made, or one failed, and those after it were not made.
    Resized(String, Result<(), CallFailure>),
    /// The runtime told of an order's container and image, or could not.
    ImageSeen(String, Result<Box<Look>, CallFailure>),
    /// The pull of an image ended.
    Pulled(String, Result<(), PullFailure>),
    /// A Pod, by its UID, has what it had, or something failed.
    WrittenBack(String, Result<(), CallFailure>),
    /// The write of the status came back.
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
    /// It failed, perhaps after it took effect, or was refused; worth another try. (An API server that has just
    /// started answers 403 until it has read the roles.)
    Retry,
}

/// Why a call of the runtime, or a look at its node, failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// Whether the same call may work later.
    pub retry: bool,
    /// For people.
    pub message: String,
}

/// A container as the runtime tells it.
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
    /// What it does.
    pub state: ContainerState,
    /// Annotation `io.kubernetes.container.preStopHandler`, raw.
    pub pre_stop: Option<String>,
    /// Annotation `io.kubernetes.container.ports`, raw.
    pub ports: Option<String>,
    /// Annotation `io.kubernetes.pod.terminationGracePeriod`, in seconds.
    pub grace_seconds: Option<i64>,
}

/// What the runtime tells of an order's container and of its image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// The container that the order names; absent when the runtime knows none of that ID.
    pub named: Option<Named>,
    /// The newest container of the order's Pod and container name, where the runtime does not know the named one any more.
    pub heir: Option<Named>,
    /// The image that the order names; absent when the node does not have it.
    pub image: Option<Image>,
    /// The newest container of the order's Pod and container name.
    pub newest: Option<Newest>,
    /// Bytes that are free where the runtime keeps images; absent where nobody asked, or it cannot be seen.
    pub free: Option<u64>,
}

/// A container that an order names, or its heir.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// As for other orders.
    pub facts: Facts,
    /// `image.user_specified_image` of its status: the image as its Pod names it. Empty with runtimes before CRI 1.29.
    pub asked: String,
    /// Other references by which the runtime knows its image.
    pub references: Vec<String>,
}

/// An image that the node has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The runtime's ID of it.
    pub id: String,
    /// `repository@digest`, each.
    pub digests: Vec<String>,
    /// Its size in bytes.
    pub bytes: i64,
}

/// The newest container of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest {
    /// Its ID.
    pub id: ContainerId,
    /// It runs.
    pub runs: bool,
    /// It was started.
    pub started: bool,
    /// The runtime's ID of its image.
    pub image_id: String,
    /// `repository@digest` of its image, each.
    pub digests: Vec<String>,
}

/// Why a pull failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullFailure {
    /// The runtime says that there is no such image.
    pub missing: bool,
    /// Its words, which may be the registry's.
    pub message: String,
}

/// What a container does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerState {
    /// Made, not started. A stop would have no effect on it.
    Created,
    /// It runs.
    Running,
    /// It has ended.
    Exited,
    /// The runtime does not know; a stop is worth a try.
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

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the runtime about an order's container.
    Inspect {
        /// The order.
        order_id: String,
        /// The container.
        container_id: ContainerId,
    },
    /// Run the hook of an order's container, record that it ended, and tell.
    RunHook {
        /// The order.
        order_id: String,
        /// The container.
        container_id: ContainerId,
        /// What to run.
        hook: Hook,
        /// Seconds until it is given up; above 0.
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
        /// The Pod that it belongs to, by which the Pod's cgroup is known.
        pod_uid: String,
    },
    /// Look at what an order is to change: the cgroups of its container and of its Pod.
    ReadResources {
        /// The order.
        order_id: String,
        /// The container.
        container_id: ContainerId,
        /// The Pod that it belongs to, by which the Pod's cgroup is known.
        pod_uid: String,
        /// The container runs, so that its cgroup must be there. Else only the Pod's counts, and that may be gone.
        runs: bool,
        /// Where the Pod's cgroup was once, in case the runtime knows the container no more. Checked before it is used.
        held: Option<String>,
    },
    /// Write into the cgroups of an order's container and of its Pod, one after the other, until one fails.
    Resize {
        /// The order.
        order_id: String,
        /// The container.
        container_id: ContainerId,
        /// The Pod that it belongs to.
        pod_uid: String,
        /// Where the Pod's cgroup is, below the root of a hierarchy.
        cgroup: String,
        /// What to write; never empty.
        writes: Vec<Write>,
    },
    /// Ask the runtime about an order's container, its image, and what runs of that name in its Pod.
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
        /// Ask also how much is free where the runtime keeps images.
        room: bool,
    },
    /// Have the runtime pull an image, without credentials. Of each image there is one pull at a time.
    Pull {
        /// The order that it begins for.
        order_id: String,
        /// The image.
        image: String,
        /// How long it may take.
        limit: Duration,
    },
    /// Give a pull up: no order waits for it any more.
    CancelPull {
        /// The image.
        image: String,
    },
    /// Give a Pod, and those of its containers that still run, what they had: [`give_back`](crate::resize::give_back)
    /// says how.
    WriteBack {
        /// What they had. It was stored in the book, so its path is checked before it is used.
        held: Box<Held>,
    },
    /// Replace the status of the book, if it is still that version.
    WriteStatus {
        /// The version that the status was computed from.
        resource_version: String,
        /// The whole status.
        status: Box<NodeWorkStatus>,
    },
}
