//! Choice of the mechanism of a resize.

use pitstop_api::resize::{AfterWait, ContainerStatus, Mechanism, PodResizeSpec, Restart};

use super::resolve::{Rejection, WOULD_RESTART};
use super::shrink::reclaims;
use crate::config::Config;
use crate::hold::admission::UNSUPPORTED;
use crate::pod::{Container, ContainerKind, ContainerState, Pod};

/// Chooses the mechanism of the request: `Api` or `Cri`.
///
/// A kubelet that resizes reports the resources of every running container; the API server checks the same
/// (`ValidatePodResize` of Kubernetes). The daemon must not bypass such a kubelet: from Kubernetes 1.33 on, the next
/// resize overwrites the daemon's values with the kubelet's record.
pub(super) fn choose(
    spec: &PodResizeSpec,
    containers: &[ContainerStatus],
    pod: &Pod,
    config: &Config,
) -> Result<Mechanism, Rejection> {
    let asked = spec.mechanism.unwrap_or_default();
    let no = |text: String| Err((UNSUPPORTED, text));
    if reclaims(spec) && !config.resize_cri {
        return no(
            "spec.memoryShrink.reclaim: pitstop's daemons may not make the kernel reclaim memory; apply deploy/components/resize-cri"
                .to_owned(),
        );
    }
    let Some(unreported) = unreported(pod) else {
        return match asked {
            Mechanism::Auto | Mechanism::Api => Ok(Mechanism::Api),
            Mechanism::Cri if !runs(pod) => no(
                "spec.mechanism: no container of the Pod runs, so the controller cannot tell whether its kubelet resizes by itself"
                    .to_owned(),
            ),
            Mechanism::Cri => no(
                "spec.mechanism: the kubelet of the Pod's node resizes by itself, and would overwrite what \
                 CRI sets; take Auto or API"
                    .to_owned(),
            ),
        };
    };
    let why = format!(
        "the kubelet of the Pod's node does not resize: the Pod's status has no resources of container \
         {unreported} (resizing needs Kubernetes 1.33 or later on API server and node)"
    );
    match asked {
        Mechanism::Api => no(format!("{why}; spec.mechanism CRI may work")),
        Mechanism::Auto | Mechanism::Cri if !config.resize_cri => {
            no(format!("{why}; to let pitstop's daemons resize, apply deploy/components/resize-cri"))
        }
        Mechanism::Auto | Mechanism::Cri => choose_cri(spec, containers),
    }
}

/// Chooses `Cri`, unless the request needs a kubelet that resizes.
fn choose_cri(spec: &PodResizeSpec, containers: &[ContainerStatus]) -> Result<Mechanism, Rejection> {
    let restarts = containers.iter().find(|c| c.restarts).filter(|_| spec.restart != Some(Restart::Always));
    if let Some(container) = restarts {
        let text = format!(
            "the resizePolicy of container {} asks for a restart; with CRI, set spec.restart: Always",
            container.name
        );
        return Err((WOULD_RESTART, text));
    }
    let shrink = spec.memory_shrink.as_ref();
    let keeps = spec.on_deferred.as_ref().is_some_and(|d| d.then == Some(AfterWait::Keep));
    if shrink.is_some_and(|shrink| shrink.step.is_some()) {
        return Err((UNSUPPORTED, "spec.memoryShrink.step: CRI lowers a limit in one step, once the memory in use allows it; leave it out".to_owned()));
    }
    if keeps {
        let text = "spec.onDeferred.then: Keep needs a kubelet that resizes, and this one does not; take Fail or Evict";
        return Err((UNSUPPORTED, text.to_owned()));
    }
    Ok(Mechanism::Cri)
}

/// A running container whose resources the kubelet does not report.
fn unreported(pod: &Pod) -> Option<&str> {
    let unreported = |c: &&Container| {
        c.status.as_ref().is_some_and(|s| s.state == ContainerState::Running && s.actual.is_none())
    };
    let mut containers = pod.containers.iter().filter(|c| c.kind != ContainerKind::Ephemeral);
    containers.find(unreported).map(|c| c.name.as_str())
}

fn runs(pod: &Pod) -> bool {
    pod.containers.iter().any(|c| c.status.as_ref().is_some_and(|s| s.state == ContainerState::Running))
}
