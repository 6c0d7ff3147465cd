//! The requests by which a rollout restarts and updates Pods.

use std::collections::BTreeMap;

use pitstop_api::image_update::{self, ContainerImage, PodImageUpdateSpec};
use pitstop_api::quantity::Resource;
use pitstop_api::recreate::{
    self, ContainerRecreateRequestSpec, FailurePolicy, RecreateContainer, RecreateStrategy,
};
use pitstop_api::resize::{
    self, Amount, ContainerResize, NewResources, PodRef, PodResizeSpec, RollbackOnFailure,
};
use pitstop_api::{MAX_SECONDS, labels};

use super::Rollout;
use super::work::Payload;
use crate::deed::Child;
use crate::key::{KindId, ObjectKey};
use crate::kind::Lookup;
use crate::pod::{Container, ContainerKind, Pod};
use crate::template::{Image, Size};

/// Kinds of the requests that restart Pods, and that give them images and resources.
pub(super) const RESTARTS: KindId = KindId::new(recreate::KIND);
pub(super) const UPDATES: KindId = KindId::new(image_update::KIND);
pub(super) const RESIZES: KindId = KindId::new(resize::KIND);
/// All these kinds.
pub(super) const KINDS: [KindId; 3] = [RESTARTS, UPDATES, RESIZES];

/// Bytes of the Pod's name in the request's name. A label value must be able to hold the name of a recreate request.
const MAX_NAME: usize = 49;
/// Bytes after the Pod's name: a dash, five digits for the restart or the update, and eight for the Pod.
const TAIL: usize = 14;
/// Seconds that a Pod may take beyond drain and soak.
const LIMIT: i64 = 3_600;

/// ID of a restart or update, which the names of all its requests contain.
pub(super) fn work_id(rollout: &Rollout, of: &str) -> String {
    format!("{:05x}", labels::hash(&format!("{} {of}", rollout.uid)) & 0xf_ffff)
}

/// Key of the Pod's request. A later Pod of the same name has another key.
pub(super) fn key(work_id: &str, pod: &Pod) -> ObjectKey {
    key_for(work_id, &pod.key, &pod.uid)
}

/// The same for the Pod of that UID.
pub(super) fn key_for(work_id: &str, ObjectKey { namespace, name }: &ObjectKey, uid: &str) -> ObjectKey {
    let kept: String = name.chars().take(MAX_NAME).collect();
    let tail = format!("{work_id}{:08x}", labels::hash(&format!("{name} {uid}")) & 0xffff_ffff);
    ObjectKey::new(namespace, format!("{}-{tail}", kept.trim_end_matches(['-', '.'])))
}

/// Whether the request is part of that restart or update.
pub(super) fn is_of(work_id: &str, key: &ObjectKey) -> bool {
    let tail = key.name.len().checked_sub(TAIL).and_then(|at| key.name.get(at..));
    tail.and_then(|tail| tail.strip_prefix('-')).is_some_and(|tail| tail.starts_with(work_id))
}

/// The containers to restart. A container that never started is left out: it starts with what is new.
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

/// Seconds for which a Pod is drained first.
pub(super) fn drain(rollout: &Rollout) -> Option<i64> {
    rollout.spec.strategy.as_ref().and_then(|strategy| strategy.unready_grace_period_seconds)
}

/// The request to make. `soak`: seconds that new containers must run.
pub(super) fn child(
    rollout: &Rollout,
    work_id: &str,
    pod: &Pod,
    payload: Payload,
    soak: i64,
) -> serde_json::Result<Child> {
    match payload {
        Payload::Restart(containers) => restart(rollout, work_id, pod, containers, soak),
        Payload::Images(images) => update(rollout, work_id, pod, images, soak),
        Payload::Resources(sizes) => resize(rollout, work_id, pod, &sizes, soak),
    }
}

/// The Pod of such a request.
pub(super) fn pod_of(child: &Child) -> ObjectKey {
    let name = if child.kind == RESTARTS { "/podName" } else { "/podRef/name" };
    let name = child.spec.pointer(name).and_then(|name| name.as_str()).unwrap_or_default();
    ObjectKey::new(&child.key.namespace, name)
}

/// Whether the request acts on its Pod as soon as it exists.
pub(super) fn begins(child: &Child) -> bool {
    child.spec.pointer("/suspend").and_then(serde_json::Value::as_bool) != Some(true)
}

/// The request, suspended: the node pulls the images, and the Pod stays as it is. None if it pulls none.
pub(super) fn suspended(child: Child) -> Option<Child> {
    let Child { kind, key, labels, mut spec } = child;
    spec.as_object_mut().filter(|_| kind == UPDATES)?.insert("suspend".to_owned(), true.into());
    Some(Child { kind, key, labels, spec })
}

/// Whether another owner's request has begun with the Pod.
pub(super) fn others_begun(lookup: &dyn Lookup<Rollout>, pod: &ObjectKey) -> bool {
    KINDS.into_iter().any(|kind| lookup.others_begun(kind, pod))
}

/// Seconds until a request ends at the latest.
fn limit(rollout: &Rollout, soak: i64) -> i64 {
    LIMIT.saturating_add(soak).saturating_add(drain(rollout).unwrap_or_default()).min(MAX_SECONDS)
}

fn update(
    rollout: &Rollout,
    work_id: &str,
    pod: &Pod,
    images: Vec<Image>,
    soak: i64,
) -> serde_json::Result<Child> {
    let containers =
        images.into_iter().map(|Image { container, image, .. }| ContainerImage { name: container, image });
    let spec = PodImageUpdateSpec {
        pod_ref: PodRef { name: pod.key.name.clone(), uid: Some(pod.uid.clone()) },
        containers: containers.collect(),
        unready_grace_period_seconds: drain(rollout),
        observe_seconds: Some(soak),
        active_deadline_seconds: Some(limit(rollout, soak)),
        ..PodImageUpdateSpec::default()
    };
    let spec = serde_json::to_value(spec)?;
    Ok(Child { kind: UPDATES, key: key(work_id, pod), labels: BTreeMap::new(), spec })
}

fn resize(
    rollout: &Rollout,
    work_id: &str,
    pod: &Pod,
    sizes: &[Size],
    soak: i64,
) -> serde_json::Result<Child> {
    let amounts = |of: [(Resource, Option<i64>); 2]| -> BTreeMap<String, Amount> {
        let given = of.into_iter().filter_map(|(resource, amount)| Some((resource, amount?)));
        given.map(|(resource, amount)| (resource.to_string(), Amount::of(resource, amount))).collect()
    };
    let containers = sizes.iter().map(|Size { container, resources: of, .. }| ContainerResize {
        name: container.clone(),
        resources: NewResources {
            requests: amounts([(Resource::Cpu, of.cpu_request), (Resource::Memory, of.memory_request)]),
            limits: amounts([(Resource::Cpu, of.cpu_limit), (Resource::Memory, of.memory_limit)]),
        },
    });
    let watched = RollbackOnFailure { observe_seconds: soak, ..RollbackOnFailure::default() };
    let spec = PodResizeSpec {
        pod_ref: PodRef { name: pod.key.name.clone(), uid: Some(pod.uid.clone()) },
        containers: containers.collect(),
        rollback_on_failure: (soak > 0).then_some(watched),
        active_deadline_seconds: Some(limit(rollout, soak)),
        ..PodResizeSpec::default()
    };
    let spec = serde_json::to_value(spec)?;
    Ok(Child { kind: RESIZES, key: key(work_id, pod), labels: BTreeMap::new(), spec })
}

fn restart(
    rollout: &Rollout,
    work_id: &str,
    pod: &Pod,
    containers: Vec<String>,
    soak: i64,
) -> serde_json::Result<Child> {
    let containers =
        containers.into_iter().map(|name| RecreateContainer { name, ..RecreateContainer::default() });
    let strategy = RecreateStrategy {
        failure_policy: Some(FailurePolicy::Fail),
        unready_grace_period_seconds: drain(rollout),
        min_started_seconds: i32::try_from(soak).unwrap_or(i32::MAX),
        ..RecreateStrategy::default()
    };
    let spec = ContainerRecreateRequestSpec {
        pod_name: pod.key.name.clone(),
        containers: containers.collect(),
        strategy: Some(strategy),
        active_deadline_seconds: Some(limit(rollout, soak)),
        ..ContainerRecreateRequestSpec::default()
    };
    Ok(Child {
        kind: RESTARTS,
        key: key(work_id, pod),
        // A later Pod of the same name must not be restarted.
        labels: BTreeMap::from([(labels::POD_UID.to_owned(), pod.uid.clone())]),
        spec: serde_json::to_value(spec)?,
    })
}
