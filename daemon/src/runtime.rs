//! Conversion of the runtime's answers for the core.

use std::collections::BTreeMap;
use std::time::Duration;

use pitstop_api::condition::truncate;
use pitstop_api::text::quoted;
use pitstop_cri::{Class, ContainerId, Error, Runtime, keys, v1};
use pitstop_daemon_core::{CallFailure, ContainerState, Facts, cgroup};
use pitstop_kit::describe;

/// Asks about a container; `None` if the runtime does not know the ID.
pub(crate) async fn inspect(runtime: &Runtime, id: &ContainerId) -> Result<Option<Facts>, CallFailure> {
    let answer = runtime.container_status(id).await;
    facts_from(id, answer)
}

/// Facts from the answer about a container; `None` if the runtime does not know the ID.
pub fn facts_from(
    id: &ContainerId,
    answer: Result<v1::ContainerStatus, Error>,
) -> Result<Option<Facts>, CallFailure> {
    match answer {
        Ok(status) if status.id == id.as_str() => Ok(Some(facts(&status))),
        // Runtimes resolve ID prefixes; a container with another ID is not the named one.
        Ok(_) | Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(failure(&error)),
    }
}

/// Path of a container's cgroup, as the runtime was told: `linux.cgroupsPath` of its OCI configuration.
pub(crate) async fn cgroups_path(runtime: &Runtime, id: &ContainerId) -> Result<String, CallFailure> {
    let never = |message: String| CallFailure { retry: false, message };
    let (status, info) = runtime.container_info(id).await.map_err(|error| match error {
        Error::NotFound { .. } => never(describe(&error)),
        error => failure(&error),
    })?;
    // Runtimes resolve ID prefixes.
    if status.id != id.as_str() {
        return Err(never(format!("the runtime returned container {}", quoted(&truncate(&status.id, 80)))));
    }
    let info = info.get("info").map_or("", String::as_str);
    cgroup::path_in(info).map_err(never)
}

/// Stops a container; `grace_seconds` lie between the stop signal and the kill.
pub(crate) async fn stop(runtime: &Runtime, id: &ContainerId, grace_seconds: i64) -> Result<(), CallFailure> {
    let grace = Duration::from_secs(u64::try_from(grace_seconds).unwrap_or_default());
    runtime.stop_container(id, grace).await.map_err(|error| failure(&error))
}

/// Changes the resources of a container.
pub(crate) async fn update(
    runtime: &Runtime,
    id: &ContainerId,
    resources: v1::LinuxContainerResources,
) -> Result<(), CallFailure> {
    runtime.update_container_resources(id, resources).await.map_err(|error| failure(&error))
}

pub(crate) fn failure(error: &Error) -> CallFailure {
    CallFailure { retry: matches!(error.class(), Class::Retry | Class::Conflict), message: describe(error) }
}

fn facts(status: &v1::ContainerStatus) -> Facts {
    let label = |key| text(&status.labels, key);
    Facts {
        namespace: label(keys::POD_NAMESPACE),
        pod: label(keys::POD_NAME),
        pod_uid: label(keys::POD_UID),
        container: label(keys::CONTAINER_NAME),
        state: match status.known_state() {
            v1::ContainerState::ContainerCreated => ContainerState::Created,
            v1::ContainerState::ContainerRunning => ContainerState::Running,
            v1::ContainerState::ContainerExited => ContainerState::Exited,
            v1::ContainerState::ContainerUnknown => ContainerState::Unknown,
        },
        pre_stop: status.annotations.get(keys::PRE_STOP_HANDLER).cloned(),
        ports: status.annotations.get(keys::PORTS).cloned(),
        grace_seconds: status.annotations.get(keys::TERMINATION_GRACE_PERIOD).and_then(|s| s.parse().ok()),
    }
}

fn text(map: &BTreeMap<String, String>, key: &str) -> String {
    map.get(key).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_annotations_of_the_kubelet_are_understood() {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let status = v1::ContainerStatus {
            state: v1::ContainerState::ContainerRunning.into(),
            labels: map(&[
                (keys::POD_NAMESPACE, "ns"),
                (keys::POD_NAME, "web"),
                (keys::POD_UID, "u"),
                (keys::CONTAINER_NAME, "app"),
            ]),
            annotations: map(&[
                (keys::TERMINATION_GRACE_PERIOD, "7"),
                (keys::PRE_STOP_HANDLER, "{}"),
                (keys::PORTS, "[]"),
            ]),
            ..v1::ContainerStatus::default()
        };
        assert_eq!(
            facts(&status),
            Facts {
                namespace: "ns".into(),
                pod: "web".into(),
                pod_uid: "u".into(),
                container: "app".into(),
                state: ContainerState::Running,
                pre_stop: Some("{}".into()),
                ports: Some("[]".into()),
                grace_seconds: Some(7),
            }
        );
    }

    #[test]
    fn nonsense_counts_as_absent() {
        let status = v1::ContainerStatus {
            state: 99,
            annotations: [(keys::TERMINATION_GRACE_PERIOD.to_owned(), "soon".to_owned())].into(),
            ..v1::ContainerStatus::default()
        };
        assert_eq!(facts(&status), Facts::default());
    }
}
