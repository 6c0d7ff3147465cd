//! Failures of a Pod that is watched with its new resources.

use pitstop_api::resize::{ContainerStatus, Phase, PodResizeStatus, RollbackOnFailure};

use super::status::{self, End};
use crate::pod::Pod;

/// Whether the Pod was ready when the request was accepted.
pub(super) fn was_ready(status: &PodResizeStatus) -> bool {
    status.target.as_ref().is_some_and(|target| target.ready)
}

/// The failure of a container since acceptance. The container ID identifies the instance that ran then. One more
/// restart is expected if the resize restarts it, or if none ran. `more`: number of other expected restarts.
pub(super) fn failed(
    watch: &RollbackOnFailure,
    container: &ContainerStatus,
    more: i32,
    pod: &Pod,
) -> Option<End> {
    let name = &container.name;
    let status = pod.container(name)?.status.as_ref()?;
    let due = i32::from(container.restarts || container.container_id.is_empty()).saturating_add(more);
    let too_often = status.restart_count > container.restart_count.saturating_add(due);
    let was_killed = !container.container_id.is_empty() && status.oom_killed == container.container_id;
    let killed = was_killed || (too_often && !status.oom_killed.is_empty());
    if killed && watch.oom_kill != Some(false) {
        let text = format!("container {name} has used up its memory");
        return Some(End::new(Phase::RolledBack, status::OOM_KILLED, text));
    }
    if too_often && watch.restarts != Some(false) {
        let text = format!(
            "container {name} has restarted {} time(s)",
            status.restart_count.saturating_sub(container.restart_count)
        );
        return Some(End::new(Phase::RolledBack, status::RESTARTED, text));
    }
    None
}
