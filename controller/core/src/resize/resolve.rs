//! From a request and its Pod to the new resources of each container, or the reason for a refusal.

use std::collections::BTreeMap;

use pitstop_api::condition::truncate;
use pitstop_api::quantity::{Resource, Resources};
use pitstop_api::resize::{
    Amount, ContainerResize, ContainerStatus, NewResources, PodResizeSpec, Restart, Values, validate,
};
use pitstop_api::text::quoted;

use super::evict;
use super::judge::{Changed, ended_for_good};
use super::mechanism::choose;
use super::shrink;
use crate::config::Config;
use crate::hold::Force;
use crate::hold::admission::CONTAINER;
use crate::pod::{Container, ContainerKind, ContainerState, Pod};

/// Longest container ID that is stored, in characters: the field's limit in the schema.
const MAX_CONTAINER_ID: usize = 128;

/// Why a request cannot be carried out on its Pod: a reason of [`super::REASONS`], and a sentence.
pub(super) type Rejection = (&'static str, String);

/// The request is not valid for its Pod.
pub(super) const INVALID: &str = "Invalid";
/// A container would restart, which the request forbids.
pub(super) const WOULD_RESTART: &str = "PolicyWouldRestart";

/// Whether a request can be accepted for the Pod as it is.
pub fn is_possible(spec: &PodResizeSpec, pod: &Pod, force: &Force, config: &Config) -> bool {
    let is_pod = spec.pod_ref.uid.as_ref().is_none_or(|uid| *uid == pod.uid);
    let choice = || resolve(spec, pod, force).and_then(|containers| choose(spec, &containers, pod, config));
    is_pod && validate(spec).is_ok() && choice().is_ok()
}

/// New resources of each container, in the order of the spec, computed from the resources in force.
pub(super) fn resolve(
    spec: &PodResizeSpec,
    pod: &Pod,
    force: &Force,
) -> Result<Vec<ContainerStatus>, Rejection> {
    if pod.mirror {
        return Err((
            CONTAINER,
            format!("Pod {} mirrors a static Pod; change that Pod's file on the node", pod.key),
        ));
    }
    if let Some((field, text)) = evict::eviction_field(spec).zip(evict::refusal_to_evict(pod)) {
        return Err((INVALID, format!("{field}: {text}")));
    }
    let containers = spec
        .containers
        .iter()
        .enumerate()
        .map(|(i, wanted)| container(&format!("spec.containers[{i}]"), wanted, pod, force))
        .collect::<Result<Vec<_>, Rejection>>()?;
    if let Some(text) = shrink::too_many(spec, &containers) {
        return Err((INVALID, text));
    }
    if spec.restart.unwrap_or_default() == Restart::Never
        && let Some(restarted) = containers.iter().find(|c| c.restarts)
    {
        let text = format!(
            "the resizePolicy of container {} asks for a restart, and spec.restart is Never; take IfPolicyRequires to \
             allow it",
            restarted.name
        );
        return Err((WOULD_RESTART, text));
    }
    Ok(containers)
}

fn container(
    field: &str,
    wanted: &ContainerResize,
    pod: &Pod,
    force: &Force,
) -> Result<ContainerStatus, Rejection> {
    let found = resizable(field, &wanted.name, pod)?;
    let from = force.wants(found);
    let to = changed(&format!("{field}.resources"), &wanted.resources, from)?;
    fits(&to).map_err(|text| (INVALID, format!("{field}: container {} {text}", wanted.name)))?;
    Ok(resolved(found, &from, &to))
}

/// The container of that name, if it can be resized.
fn resizable<'a>(field: &str, name: &str, pod: &'a Pod) -> Result<&'a Container, Rejection> {
    let found = pod.container(name).ok_or_else(|| {
        let names: Vec<&str> = pod.containers.iter().map(|c| c.name.as_str()).collect();
        let (name, names) = (quoted(name), names.join(", "));
        let text = format!("{field}.name: Pod {} has no container {name}; it has {names}", pod.key);
        (INVALID, truncate(&text, pitstop_api::condition::MAX_MESSAGE))
    })?;
    let never = match found.kind {
        ContainerKind::Init => format!("init container {name} ends before the Pod begins its work"),
        ContainerKind::Ephemeral => format!("ephemeral container {name} has no resources"),
        ContainerKind::Main | ContainerKind::Sidecar if ended_for_good(pod, found) => {
            format!("container {name} has ended, and will not run again")
        }
        ContainerKind::Main | ContainerKind::Sidecar => return Ok(found),
    };
    Err((CONTAINER, format!("{field}.name: {never}")))
}

/// Resources of a container after the change.
fn changed(field: &str, wanted: &NewResources, from: Resources) -> Result<Resources, Rejection> {
    let mut to = from;
    let set = |list: &str, amounts: &BTreeMap<String, Amount>, resource: Resource, slot: &mut Option<i64>| {
        let Some(amount) = amounts.get(resource.as_str()) else { return Ok(()) };
        let field = format!("{field}.{list}.{resource}");
        let resolved = amount.resolve(resource, *slot).map_err(|why| (INVALID, format!("{field}: {why}")))?;
        if list == "limits" && resolved == 0 {
            let text = "a limit cannot be 0; a limit cannot be removed in place";
            return Err((INVALID, format!("{field}: {text}")));
        }
        *slot = Some(resolved);
        Ok(())
    };
    set("requests", &wanted.requests, Resource::Cpu, &mut to.cpu_request)?;
    set("requests", &wanted.requests, Resource::Memory, &mut to.memory_request)?;
    set("limits", &wanted.limits, Resource::Cpu, &mut to.cpu_limit)?;
    set("limits", &wanted.limits, Resource::Memory, &mut to.memory_limit)?;
    // As in the API server, a limit without a request is also the request.
    to.cpu_request = to.cpu_request.or(to.cpu_limit);
    to.memory_request = to.memory_request.or(to.memory_limit);
    Ok(to)
}

/// Checks that no request exceeds its limit.
fn fits(to: &Resources) -> Result<(), String> {
    let pairs = [
        (Resource::Cpu, to.cpu_request, to.cpu_limit),
        (Resource::Memory, to.memory_request, to.memory_limit),
    ];
    for (resource, request, limit) in pairs {
        if let (Some(request), Some(limit)) = (request, limit)
            && request > limit
        {
            return Err(format!(
                "would request {} of {resource}, more than its limit of {}; name both requests and limits",
                resource.show(request),
                resource.show(limit)
            ));
        }
    }
    Ok(())
}

fn resolved(found: &Container, from: &Resources, to: &Resources) -> ContainerStatus {
    let status = found.status.as_ref();
    let running = status.filter(|s| s.state == ContainerState::Running);
    let mut container = ContainerStatus {
        name: found.name.clone(),
        container_id: running.map_or_else(String::new, |s| truncate(&s.container_id, MAX_CONTAINER_ID)),
        restart_count: status.map_or(0, |s| s.restart_count),
        restarts: false,
        original: Values::from(from),
        desired: Values::from(to),
        allocated: None,
        actual: None,
        cgroup: None,
    };
    let changed = Changed::of(&container);
    container.restarts =
        (changed.cpu() && found.restart_for.cpu) || (changed.memory() && found.restart_for.memory);
    container
}
