//! The requests by which a rollout restarts Pods.

use std::collections::BTreeMap;

use pitstop_api::recreate::{
    ContainerRecreateRequestSpec, FailurePolicy, KIND, RecreateContainer, RecreateStrategy,
};
use pitstop_api::{MAX_SECONDS, labels};

use super::Rollout;
use crate::deed::Child;
use crate::key::{KindId, ObjectKey};
use crate::pod::{Container, ContainerKind, Pod};

/// Their kind.
pub(super) const CHILD: KindId = KindId::new(KIND);

/// How much of a Pod's name is in theirs, in bytes: a recreate request has a name that a label value can hold.
const MAX_NAME: usize = 49;
/// What follows the Pod's name: a dash, five digits for the restart, and eight for the Pod.
const TAIL: usize = 14;
/// Seconds that the restart of a Pod may take beside what it is told to wait.
const LIMIT: i64 = 3_600;

/// What the names of the requests of one restart have in common.
pub(super) fn mark(rollout: &Rollout, restarted_at: &str) -> String {
    format!("{:05x}", labels::hash(&format!("{} {restarted_at}", rollout.uid)) & 0xf_ffff)
}

/// The request by which that Pod is restarted: another Pod of its name has another one.
pub(super) fn key(mark: &str, pod: &Pod) -> ObjectKey {
    let ObjectKey { namespace, name } = &pod.key;
    let kept: String = name.chars().take(MAX_NAME).collect();
    let tail = format!("{mark}{:08x}", labels::hash(&format!("{name} {}", pod.uid)) & 0xffff_ffff);
    ObjectKey::new(namespace, format!("{}-{tail}", kept.trim_end_matches(['-', '.'])))
}

/// It is of that restart.
pub(super) fn is_of(mark: &str, key: &ObjectKey) -> bool {
    let tail = key.name.len().checked_sub(TAIL).and_then(|at| key.name.get(at..));
    tail.and_then(|tail| tail.strip_prefix('-')).is_some_and(|tail| tail.starts_with(mark))
}

/// The containers of the Pod that a restart means. One that has yet to start for the first time starts with what is new.
pub(super) fn containers<'a>(rollout: &'a Rollout, pod: &'a Pod) -> impl Iterator<Item = &'a Container> {
    let named = rollout.spec.restart.as_ref().map_or(&[][..], |restart| &restart.containers);
    pod.containers.iter().filter(move |container| {
        let runs_on = matches!(container.kind, ContainerKind::Main | ContainerKind::Sidecar);
        let began = container.status.as_ref().is_some_and(|status| !status.container_id.is_empty());
        runs_on
            && began
            && if named.is_empty() {
                container.kind == ContainerKind::Main
            } else {
                named.contains(&container.name)
            }
    })
}

/// Seconds for which a Pod is kept out of service first.
pub(super) fn drain(rollout: &Rollout) -> Option<i64> {
    rollout.spec.strategy.as_ref().and_then(|strategy| strategy.unready_grace_period_seconds)
}

/// The request to make. `soak`: seconds that new containers must have run.
pub(super) fn child(rollout: &Rollout, mark: &str, pod: &Pod, soak: i64) -> serde_json::Result<Child> {
    let containers = containers(rollout, pod)
        .map(|container| RecreateContainer { name: container.name.clone(), ..RecreateContainer::default() });
    let drain = drain(rollout);
    let strategy = RecreateStrategy {
        failure_policy: Some(FailurePolicy::Fail),
        unready_grace_period_seconds: drain,
        min_started_seconds: i32::try_from(soak).unwrap_or(i32::MAX),
        ..RecreateStrategy::default()
    };
    let spec = ContainerRecreateRequestSpec {
        pod_name: pod.key.name.clone(),
        containers: containers.collect(),
        strategy: Some(strategy),
        active_deadline_seconds: Some(
            LIMIT.saturating_add(soak).saturating_add(drain.unwrap_or_default()).min(MAX_SECONDS),
        ),
        ..ContainerRecreateRequestSpec::default()
    };
    Ok(Child {
        kind: CHILD,
        key: key(mark, pod),
        // Of a Pod that is another one by then, nothing is restarted.
        labels: BTreeMap::from([(labels::POD_UID.to_owned(), pod.uid.clone())]),
        spec: serde_json::to_value(spec)?,
    })
}
