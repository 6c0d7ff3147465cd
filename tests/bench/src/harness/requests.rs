//! Requests to restart the container of a Pod of [`super::pods`].

use kube::ResourceExt;
use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::recreate::{
    ContainerRecreateRequest, ContainerRecreateRequestSpec, Mechanism, Phase, RecreateContainer,
    RecreateStrategy, conditions,
};

use super::pods::CONTAINER;

/// A request with the Pod's name and that mechanism.
pub(crate) fn restart(pod: &str, mechanism: Mechanism) -> ContainerRecreateRequest {
    let containers = vec![RecreateContainer { name: CONTAINER.to_owned(), ..RecreateContainer::default() }];
    let spec = ContainerRecreateRequestSpec {
        pod_name: pod.to_owned(),
        containers,
        strategy: Some(RecreateStrategy { mechanism: Some(mechanism), ..RecreateStrategy::default() }),
        ..ContainerRecreateRequestSpec::default()
    };
    ContainerRecreateRequest::new(pod, spec)
}

/// Whether an ended request restarted its container; `None` if `seen` has not ended or has another name.
pub(crate) fn outcome(name: &str, seen: &ContainerRecreateRequest) -> Option<bool> {
    let status = seen.status.as_ref().filter(|_| seen.name_any() == name)?;
    (status.phase == Some(Phase::Completed)).then(|| {
        let complete = condition::find(&status.conditions, conditions::COMPLETE);
        complete.is_some_and(|c| c.status == ConditionStatus::True)
    })
}
