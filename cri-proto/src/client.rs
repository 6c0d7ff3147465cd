//! The connection to one runtime, and one method for each call.

use std::{collections::BTreeMap, future::Future, path::Path, sync::Arc, time::Duration};

use tonic::{
    Response, Status,
    transport::{Channel, Endpoint},
};

use crate::{
    Call, ContainerId, Deadlines, Error, SandboxId,
    deadlines::whole_seconds,
    v1::{self, image_service_client::ImageServiceClient, runtime_service_client::RuntimeServiceClient},
};

/// Largest answer that is read, in bytes: what the kubelet allows and runtimes send. A larger one is refused by
/// its announced size, before it is stored.
pub const LIST_ANSWER_LIMIT: usize = 16 * 1024 * 1024;

/// Largest answer of `ExecSync`, in bytes. Far less than the other limit, because the container decides how much it
/// prints. A daemon with little memory may run a command for each of 64 orders at once.
pub const EXEC_ANSWER_LIMIT: usize = 256 * 1024;

/// Largest answer of a verbose `ContainerStatus`, in bytes. It holds the environment of the container. The kernel
/// bounds that to some MiB together with all arguments; it is rarely more than some KiB.
pub const INFO_ANSWER_LIMIT: usize = 2 * 1024 * 1024;

/// Opens a client for the runtime that listens on the unix socket `path`.
///
/// The first call connects, and so does the first one after the connection broke. So a runtime that is missing now, or
/// restarts later, needs no new client; calls in between fail as [`Error::Unreachable`]. Fails only for a path that is
/// not UTF-8.
///
/// Must be called inside a tokio runtime.
pub fn connect(path: &Path, deadlines: Deadlines) -> Result<Runtime, Error> {
    let socket: Arc<Path> = path.into();
    let invalid =
        |detail: String| Error::Invalid { call: Call { name: "connect", socket: path.into() }, detail };
    let text = path.to_str().ok_or_else(|| invalid("the path is not UTF-8".to_owned()))?;
    // No HTTP/2 pings: Go's gRPC servers close connections that ping more than once in five minutes. A unix socket
    // reports at once when its other end dies, and the deadlines handle a runtime that hangs.
    let endpoint =
        Endpoint::from_shared(format!("unix://{text}")).map_err(|error| invalid(error.to_string()))?;
    Ok(Runtime { channel: endpoint.connect_lazy(), socket, deadlines })
}

/// A client of one container runtime. Clones share the connection; calls may run side by side.
///
/// Every method is one CRI call, made once. Its failure is an [`Error`].
///
/// Dropping a method's future before it is ready cancels the call in the runtime. For
/// [`stop_container`](Self::stop_container) that can mean that SIGKILL is never sent: run it in a task of its own.
#[derive(Clone, Debug)]
pub struct Runtime {
    channel: Channel,
    socket: Arc<Path>,
    deadlines: Deadlines,
}

// === the runtime itself

impl Runtime {
    /// The socket that this client talks to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// `Version`: name and version of the runtime.
    pub async fn version(&self) -> Result<v1::VersionResponse, Error> {
        let mut client = self.runtime();
        self.call("Version", self.deadlines.read, client.version(v1::VersionRequest::default())).await
    }

    /// `Status`: whether the runtime and its network are ready.
    pub async fn status(&self) -> Result<v1::RuntimeStatus, Error> {
        let mut client = self.runtime();
        let answer =
            self.call("Status", self.deadlines.read, client.status(v1::StatusRequest::default())).await?;
        self.require("Status", "status", answer.status)
    }

    /// `RuntimeConfig`: the cgroup driver; `None` if the answer lacks it.
    ///
    /// [`Error::Unimplemented`] from older runtimes, containerd 1.6 among them.
    pub async fn cgroup_driver(&self) -> Result<Option<v1::CgroupDriver>, Error> {
        let mut client = self.runtime();
        let request = v1::RuntimeConfigRequest {};
        let answer = self.call("RuntimeConfig", self.deadlines.read, client.runtime_config(request)).await?;
        Ok(answer.linux.and_then(|linux| v1::CgroupDriver::try_from(linux.cgroup_driver).ok()))
    }
}

// === containers and pods

impl Runtime {
    /// `ListContainers`: containers in any state that match the filter; the default one matches all.
    pub async fn list_containers(&self, filter: v1::ContainerFilter) -> Result<Vec<v1::Container>, Error> {
        let mut client = self.runtime();
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let answer =
            self.call("ListContainers", self.deadlines.read, client.list_containers(request)).await?;
        Ok(answer.containers)
    }

    /// `ContainerStatus`: the status of one container; [`Error::NotFound`] if it does not exist.
    pub async fn container_status(&self, id: &ContainerId) -> Result<v1::ContainerStatus, Error> {
        let mut client = self.runtime();
        let request = v1::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
        let answer =
            self.call("ContainerStatus", self.deadlines.read, client.container_status(request)).await?;
        self.require("ContainerStatus", "status", answer.status)
    }

    /// `ContainerStatus`, verbose: the status, and the runtime's own record (JSON under `info` with containerd and
    /// CRI-O). The record holds the container's environment, and with it secrets. An answer above [`INFO_ANSWER_LIMIT`]
    /// is [`Error::TooLarge`].
    pub async fn container_info(
        &self,
        id: &ContainerId,
    ) -> Result<(v1::ContainerStatus, BTreeMap<String, String>), Error> {
        let mut client = self.runtime().max_decoding_message_size(INFO_ANSWER_LIMIT);
        let request = v1::ContainerStatusRequest { container_id: id.to_string(), verbose: true };
        let answer =
            self.call("ContainerStatus", self.deadlines.read, client.container_status(request)).await?;
        Ok((self.require("ContainerStatus", "status", answer.status)?, answer.info))
    }

    /// `ListPodSandbox`: sandboxes in any state that match the filter; the default one matches all.
    pub async fn list_pod_sandboxes(
        &self,
        filter: v1::PodSandboxFilter,
    ) -> Result<Vec<v1::PodSandbox>, Error> {
        let mut client = self.runtime();
        let request = v1::ListPodSandboxRequest { filter: Some(filter) };
        let answer =
            self.call("ListPodSandbox", self.deadlines.read, client.list_pod_sandbox(request)).await?;
        Ok(answer.items)
    }

    /// `PodSandboxStatus`: the status of one sandbox; [`Error::NotFound`] if it does not exist.
    pub async fn pod_sandbox_status(&self, id: &SandboxId) -> Result<v1::PodSandboxStatus, Error> {
        let mut client = self.runtime();
        let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), verbose: false };
        let answer =
            self.call("PodSandboxStatus", self.deadlines.read, client.pod_sandbox_status(request)).await?;
        self.require("PodSandboxStatus", "status", answer.status)
    }

    /// `StopContainer`: the stop signal, then SIGKILL after `grace` (rounded up to whole seconds). Ready when the
    /// container is gone, after `grace` plus [`Deadlines::stop_margin`] at the latest.
    ///
    /// A `grace` of zero kills at once. A container that is unknown, has exited or was never started is a success too,
    /// so confirm with [`container_status`](Self::container_status). (CRI defines an unknown container as a success.
    /// containerd 1.6 answers "not found", which this method treats as a success.)
    pub async fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<(), Error> {
        let mut client = self.runtime();
        let timeout = whole_seconds(grace);
        let request = v1::StopContainerRequest { container_id: id.to_string(), timeout };
        let limit = whole(timeout).saturating_add(self.deadlines.stop_margin);
        match self.call("StopContainer", limit, client.stop_container(request)).await {
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// `ExecSync`: runs `command` (program and arguments, no shell) in a container until it ends, or until the
    /// runtime kills it after `timeout` (rounded up to whole seconds): then [`Error::Deadline`].
    ///
    /// A `timeout` of zero is refused: the runtime would take it for none. The exit code is part of the answer,
    /// whatever it is. An answer above [`EXEC_ANSWER_LIMIT`] is [`Error::TooLarge`].
    pub async fn exec_sync(
        &self,
        id: &ContainerId,
        command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, Error> {
        if timeout.is_zero() {
            let detail = "a command needs a timeout above zero".to_owned();
            return Err(Error::Invalid { call: self.call_info("ExecSync"), detail });
        }
        let mut client = self.runtime().max_decoding_message_size(EXEC_ANSWER_LIMIT);
        let timeout = whole_seconds(timeout);
        let request = v1::ExecSyncRequest { container_id: id.to_string(), cmd: command, timeout };
        let limit = whole(timeout).saturating_add(self.deadlines.exec_margin);
        self.call("ExecSync", limit, client.exec_sync(request)).await
    }

    /// `UpdateContainerResources`: changes the limits of a container; fields left at zero or empty stay as they are.
    /// Read the result back with [`container_status`](Self::container_status) and from the cgroup.
    pub async fn update_container_resources(
        &self,
        id: &ContainerId,
        resources: v1::LinuxContainerResources,
    ) -> Result<(), Error> {
        let mut client = self.runtime();
        let request = v1::UpdateContainerResourcesRequest {
            container_id: id.to_string(),
            linux: Some(resources),
            ..Default::default()
        };
        let call = client.update_container_resources(request);
        self.call("UpdateContainerResources", self.deadlines.update, call).await.map(drop)
    }
}

// === images

impl Runtime {
    /// `ListImages`: the images on this node.
    pub async fn list_images(&self) -> Result<Vec<v1::Image>, Error> {
        let mut client = self.images();
        let request = v1::ListImagesRequest::default();
        let answer = self.call("ListImages", self.deadlines.read, client.list_images(request)).await?;
        Ok(answer.images)
    }

    /// `ImageStatus`: one image by reference or ID; `None` if it is not on this node.
    pub async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, Error> {
        let mut client = self.images();
        let request = v1::ImageStatusRequest { image: Some(image), verbose: false };
        let answer = self.call("ImageStatus", self.deadlines.read, client.image_status(request)).await?;
        Ok(answer.image)
    }

    /// `PullImage`: fetches an image and returns its reference as containers carry it in `image_ref`. Ready when the
    /// whole image is there, after [`Deadlines::pull`] at the latest. `sandbox` names the Pod, for runtimes with
    /// signature rules per namespace.
    pub async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox: Option<v1::PodSandboxConfig>,
    ) -> Result<String, Error> {
        let mut client = self.images();
        let request = v1::PullImageRequest { image: Some(image), auth, sandbox_config: sandbox };
        let answer = self.call("PullImage", self.deadlines.pull, client.pull_image(request)).await?;
        Ok(answer.image_ref)
    }

    /// `ImageFsInfo`: the file systems that keep images. The runtime does not report their free space.
    pub async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, Error> {
        let mut client = self.images();
        let request = v1::ImageFsInfoRequest {};
        self.call("ImageFsInfo", self.deadlines.read, client.image_fs_info(request)).await
    }
}

// === what all calls share

impl Runtime {
    fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone()).max_decoding_message_size(LIST_ANSWER_LIMIT)
    }

    fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone()).max_decoding_message_size(LIST_ANSWER_LIMIT)
    }

    fn call_info(&self, name: &'static str) -> Call {
        Call { name, socket: Arc::clone(&self.socket) }
    }

    /// Waits for a call, at most for `limit`. After that, it drops the call's future, which resets the stream: so the
    /// runtime learns that no client waits.
    async fn call<T>(
        &self,
        name: &'static str,
        limit: Duration,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(limit, call).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(Error::from_status(self.call_info(name), limit, &status)),
            Err(_) => Err(Error::Deadline { call: self.call_info(name), limit, detail: String::new() }),
        }
    }

    fn require<T>(&self, name: &'static str, field: &'static str, value: Option<T>) -> Result<T, Error> {
        value.ok_or_else(|| Error::Incomplete { call: self.call_info(name), field })
    }
}

/// Seconds from the wire as a duration.
fn whole(seconds: i64) -> Duration {
    Duration::from_secs(seconds.unsigned_abs())
}
