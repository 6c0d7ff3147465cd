//! A namespace with small Pods to work on.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Namespace, Pod, PodSpec, ResourceRequirements, ServiceAccount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use pitstop_cri::ContainerId;

use super::tape::Tape;

/// Name of the measured container.
pub(crate) const CONTAINER: &str = "app";
/// Time between the stop signal and the kill. The container ends at the signal.
pub(crate) const GRACE: Duration = Duration::from_secs(GRACE_SECONDS.unsigned_abs());
const GRACE_SECONDS: i64 = 5;

/// An image that every cluster of `tests/cluster` has.
const IMAGE: &str = "pitstop.dev/test/busybox:1";
/// Process 1 of a container ends at a signal only if it handles the signal. With the `crash` image the script exits at
/// once.
const SCRIPT: &str = "[ \"$VERSION\" = crash ] && exit 1; trap 'exit 0' TERM; sleep 86400 & wait";
const LABEL: &str = "pitstop.dev/bench";
/// Longest wait for all Pods, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

/// A namespace of the benchmark. Call [`Ns::close`] at the end.
pub(crate) struct Ns {
    pub(crate) client: Client,
    pub(crate) namespace: String,
}

impl Ns {
    /// Measures in a new namespace named after `purpose`, then deletes it.
    pub(crate) async fn within<T>(
        client: &Client,
        purpose: &str,
        measure: impl AsyncFnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        let ns = Self::open(client, purpose).await?;
        let measured = measure(&ns).await;
        let closed = ns.close().await;
        let measured = measured?;
        closed?;
        Ok(measured)
    }

    /// Creates the namespace, and removes those of interrupted runs.
    async fn open(client: &Client, purpose: &str) -> Result<Self> {
        let api: Api<Namespace> = Api::all(client.clone());
        for old in api.list(&ListParams::default().labels(LABEL)).await? {
            // It may be terminating already.
            let _ = api.delete(&old.name_any(), &DeleteParams::default()).await;
        }
        let namespace = Namespace {
            metadata: ObjectMeta {
                generate_name: Some(format!("pitstop-bench-{purpose}-")),
                labels: Some([(LABEL.to_owned(), "true".to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        let made = api.create(&PostParams::default(), &namespace).await.context("cannot make a namespace")?;
        let ns = Self { client: client.clone(), namespace: made.name_any() };
        ns.account().await?;
        Ok(ns)
    }

    /// Waits for the namespace's ServiceAccount: no Pod is admitted without it.
    async fn account(&self) -> Result<()> {
        let begin = Instant::now();
        let mut accounts = Tape::<ServiceAccount>::start(self.api()).await?;
        accounts
            .find(begin, PATIENCE, "the default ServiceAccount", |account| {
                (account.name_any() == "default").then_some(())
            })
            .await?;
        Ok(())
    }

    /// The namespace's objects of a kind.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Starts Pods and waits until they are ready.
    pub(crate) async fn start(&self, names: &[String]) -> Result<()> {
        self.start_sized(names, &ResourceRequirements::default()).await
    }

    /// Starts Pods whose containers have these resources, and waits until they are ready.
    pub(crate) async fn start_sized(&self, names: &[String], resources: &ResourceRequirements) -> Result<()> {
        let api: Api<Pod> = self.api();
        let begin = Instant::now();
        let mut tape = Tape::start(api.clone()).await?;
        for name in names {
            api.create(&PostParams::default(), &pod(name, resources))
                .await
                .with_context(|| format!("cannot create Pod {name}"))?;
        }
        for name in names {
            let ready =
                |pod: &Pod| (pod.name_any() == *name).then(|| ready_container(pod)).flatten().map(drop);
            tape.find(begin, PATIENCE, &format!("Pod {name} to be ready"), ready).await?;
        }
        Ok(())
    }

    /// Deletes every Pod and waits until the node has room again.
    pub(crate) async fn clear(&self) -> Result<()> {
        let api: Api<Pod> = self.api();
        api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        let begin = Instant::now();
        while !api.list_metadata(&ListParams::default()).await?.items.is_empty() {
            if begin.elapsed() > PATIENCE {
                bail!("the Pods are not gone after {} s", PATIENCE.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    /// Deletes the namespace. Kubernetes deletes its contents in the background.
    pub(crate) async fn close(self) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client);
        api.delete(&self.namespace, &DeleteParams::default()).await.context("cannot delete the namespace")?;
        Ok(())
    }
}

fn pod(name: &str, resources: &ResourceRequirements) -> Pod {
    let text = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
    Pod {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(PodSpec {
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            termination_grace_period_seconds: Some(GRACE_SECONDS),
            containers: vec![Container {
                name: CONTAINER.to_owned(),
                image: Some(IMAGE.to_owned()),
                command: text(&["sh", "-c", SCRIPT]),
                resources: Some(resources.clone()),
                ..Container::default()
            }],
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

/// Status of the Pod's container, if it is ready.
pub(crate) fn ready_container(pod: &Pod) -> Option<&ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == CONTAINER && status.ready)
}

/// Whether `seen` is that Pod and an instance of its container has failed.
pub(crate) fn failed(seen: &Pod, pod: &str) -> bool {
    let statuses = seen.status.iter().filter_map(|status| status.container_statuses.as_ref()).flatten();
    let of = statuses.filter(|status| seen.name_any() == pod && status.name == CONTAINER);
    of.flat_map(|status| [&status.state, &status.last_state])
        .filter_map(|state| state.as_ref()?.terminated.as_ref())
        .any(|ended| ended.exit_code != 0)
}

/// Whether `seen` is that Pod and a container other than `old` is ready.
pub(crate) fn replaced(seen: &Pod, pod: &str, old: &ContainerId) -> bool {
    seen.name_any() == pod
        && ready_container(seen)
            .and_then(|status| status.container_id.as_deref())
            .is_some_and(|id| !id.ends_with(old.as_str()))
}
