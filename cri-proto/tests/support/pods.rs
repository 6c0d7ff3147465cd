//! Pods and containers for the tests.
//!
//! Making them takes CRI calls that pitstop must not be able to make, so they are not in `cri.proto`. The few
//! messages are written out here, with the names and numbers of CRI v1 and only the fields that the tests set.

use std::collections::BTreeMap;

use pitstop_cri::{ContainerId, SandboxId, keys, v1};
use tonic::{
    Status,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};

use super::{APP_IMAGE, Containerd};

/// A Pod in the runtime, labelled as the kubelet does it. It has the machine's network, so needs no CNI.
pub(crate) struct Pod {
    calls: Grpc<Channel>,
    config: PodSandboxConfig,
    /// ID of its sandbox.
    pub(crate) id: SandboxId,
}

/// Settings of a new container.
#[derive(Clone, Default)]
pub(crate) struct NewContainer<'a> {
    /// Name of the container in its Pod.
    pub(crate) name: &'a str,
    /// The script that its shell runs.
    pub(crate) script: &'a str,
    /// Annotations beside the kubelet's restart count.
    pub(crate) annotations: BTreeMap<String, String>,
    /// Limits at the start.
    pub(crate) resources: v1::LinuxContainerResources,
    /// Number of earlier containers of that name.
    pub(crate) attempt: u32,
    /// Image; `None` for the tests' own.
    pub(crate) image: Option<&'a str>,
}

impl Pod {
    /// Makes a Pod `name` in the namespace `test`, with the UID `uid-of-NAME`.
    pub(crate) async fn run(containerd: &Containerd, name: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("unix://{}", containerd.socket().display())).unwrap();
        let mut calls = Grpc::new(endpoint.connect_lazy());
        let uid = format!("uid-of-{name}");
        let node = v1::NamespaceMode::Node as i32;
        let config = PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.clone(),
                namespace: "test".to_owned(),
                attempt: 0,
            }),
            labels: map(&[(keys::POD_NAME, name), (keys::POD_NAMESPACE, "test"), (keys::POD_UID, &uid)]),
            annotations: map(&[("example.com/team", "crew")]),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: containerd.cgroup_of(&uid),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(v1::NamespaceOption { network: node, ..Default::default() }),
                }),
            }),
        };
        let request = RunPodSandboxRequest { config: Some(config.clone()) };
        let answer: RunPodSandboxResponse = call(&mut calls, "RunPodSandbox", request).await;
        let id = SandboxId::parse(&answer.pod_sandbox_id).unwrap();
        Self { calls, config, id }
    }

    /// Makes a container and starts it.
    pub(crate) async fn start(&mut self, container: NewContainer<'_>) -> ContainerId {
        let id = self.create(container).await;
        let request = StartContainerRequest { container_id: id.to_string() };
        let _: Empty = call(&mut self.calls, "StartContainer", request).await;
        id
    }

    /// Removes a container.
    pub(crate) async fn remove(&mut self, id: &ContainerId) {
        let request = RemoveContainerRequest { container_id: id.to_string() };
        let _: Empty = call(&mut self.calls, "RemoveContainer", request).await;
    }

    /// Makes a container without starting it.
    pub(crate) async fn create(&mut self, container: NewContainer<'_>) -> ContainerId {
        let mut annotations = container.annotations;
        annotations.insert(keys::RESTART_COUNT.to_owned(), container.attempt.to_string());
        let image = container.image.unwrap_or(APP_IMAGE);
        let mut labels = self.config.labels.clone();
        labels.insert(keys::CONTAINER_NAME.to_owned(), container.name.to_owned());
        let network = self.config.linux.as_ref().and_then(|linux| linux.security_context.clone());
        let request = CreateContainerRequest {
            pod_sandbox_id: self.id.to_string(),
            config: Some(ContainerConfig {
                metadata: Some(v1::ContainerMetadata {
                    name: container.name.to_owned(),
                    attempt: container.attempt,
                }),
                image: Some(v1::ImageSpec { image: image.to_owned(), ..Default::default() }),
                command: vec!["/bin/sh".to_owned(), "-c".to_owned(), container.script.to_owned()],
                labels,
                annotations,
                linux: Some(LinuxContainerConfig {
                    resources: Some(container.resources),
                    security_context: Some(LinuxContainerSecurityContext {
                        namespace_options: network.and_then(|context| context.namespace_options),
                    }),
                }),
            }),
            sandbox_config: Some(self.config.clone()),
        };
        let answer: CreateContainerResponse = call(&mut self.calls, "CreateContainer", request).await;
        ContainerId::parse(&answer.container_id).unwrap()
    }
}

/// One call of the runtime service.
async fn call<Q, A>(calls: &mut Grpc<Channel>, name: &str, request: Q) -> A
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    try_call(calls, name, request).await.unwrap_or_else(|status| panic!("{name}: {status}"))
}

/// One call; the error is the runtime's status.
pub(crate) async fn try_call<Q, A>(calls: &mut Grpc<Channel>, name: &str, request: Q) -> Result<A, Status>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    calls.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::try_from(format!("/runtime.v1.RuntimeService/{name}")).unwrap();
    let codec = tonic_prost::ProstCodec::<Q, A>::default();
    Ok(calls.unary(tonic::Request::new(request), path, codec).await?.into_inner())
}

/// An ordered map of texts.
fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

// === messages of CRI v1

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RunPodSandboxRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RunPodSandboxResponse {
    #[prost(string, tag = "1")]
    pub(crate) pod_sandbox_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PodSandboxConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<v1::PodSandboxMetadata>,
    #[prost(btree_map = "string, string", tag = "6")]
    pub(crate) labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "7")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub(crate) linux: Option<LinuxPodSandboxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LinuxPodSandboxConfig {
    #[prost(string, tag = "1")]
    pub(crate) cgroup_parent: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) security_context: Option<LinuxSandboxSecurityContext>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LinuxSandboxSecurityContext {
    #[prost(message, optional, tag = "1")]
    pub(crate) namespace_options: Option<v1::NamespaceOption>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CreateContainerRequest {
    #[prost(string, tag = "1")]
    pub(crate) pod_sandbox_id: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pub(crate) sandbox_config: Option<PodSandboxConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CreateContainerResponse {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<v1::ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    pub(crate) image: Option<v1::ImageSpec>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) command: Vec<String>,
    #[prost(btree_map = "string, string", tag = "9")]
    pub(crate) labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "10")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[prost(message, optional, tag = "15")]
    pub(crate) linux: Option<LinuxContainerConfig>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LinuxContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) resources: Option<v1::LinuxContainerResources>,
    #[prost(message, optional, tag = "2")]
    pub(crate) security_context: Option<LinuxContainerSecurityContext>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LinuxContainerSecurityContext {
    #[prost(message, optional, tag = "3")]
    pub(crate) namespace_options: Option<v1::NamespaceOption>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StartContainerRequest {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RemoveContainerRequest {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Empty {}
