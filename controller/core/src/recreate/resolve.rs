//! From a request and its Pod to the exact container instances, or the reason for a refusal.

use pitstop_api::Invalid;
use pitstop_api::id::split_reference;
use pitstop_api::recreate::{
    ContainerRecreateRequestSpec, MAX_CONTAINER_ID, RecreateContainer, StatusContext, Target, TargetContainer,
};
use pitstop_api::text::quoted;

use super::mechanism::choose;
use crate::pod::{Container, ContainerKind, Pod};

/// Why a request cannot be carried out on its Pod.
pub type Refusal = Invalid;

/// When the request is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// At admission: fields that admission fills in must be empty.
    Admission,
    /// Later: the filled-in fields are used.
    Accepted,
}

/// Finds the instances of the request's containers, or the first reason to refuse.
///
/// Order and wording follow `OpenKruise`'s admission.
pub fn resolve(spec: &ContainerRecreateRequestSpec, pod: &Pod, moment: Moment) -> Result<Target, Refusal> {
    let refusal = |field: String, text: String| Refusal::new(field, format!("{text}: Pod {}", pod.key));
    let node = node(pod).map_err(|text| refusal("spec.podName".to_owned(), text.to_owned()))?;
    let strategy = spec.strategy.as_ref();
    let forced = strategy.is_some_and(|s| s.force_recreate);
    let mut containers = Vec::with_capacity(spec.containers.len());
    for (i, wanted) in spec.containers.iter().enumerate() {
        let field = format!("spec.containers[{i}]");
        if moment == Moment::Admission {
            left_empty(&field, wanted)?;
        }
        let context = wanted.status_context.as_ref().filter(|_| moment == Moment::Accepted);
        let named = |text| refusal(format!("{field}.name"), text);
        let name = &wanted.name;
        let container = restartable(pod, name).map_err(named)?;
        let (id, restart_count) = instance(container, context, forced).map_err(named)?;
        let pin = choose(strategy, pod, container).map_err(|text| {
            refusal("spec.strategy.mechanism".to_owned(), format!("container {name}: {text}"))
        })?;
        containers.push(TargetContainer {
            name: name.clone(),
            container_id: id.to_owned(),
            restart_count,
            pin,
        });
    }
    let mechanism = strategy.and_then(|s| s.mechanism);
    Ok(Target { pod_uid: pod.uid.clone(), node_name: node.to_owned(), containers, mechanism })
}

/// The node of a Pod whose containers can be restarted, or why they cannot.
fn node(pod: &Pod) -> Result<&str, &'static str> {
    if pod.gone() {
        return Err("not allowed to recreate containers in an inactive Pod");
    }
    let node = pod.node.as_deref().ok_or("not allowed to recreate containers in a pending Pod")?;
    if pod.mirror {
        return Err("not allowed to recreate containers in a static Pod; change its file on the node");
    }
    Ok(node)
}

/// Refuses fields that only admission fills in.
fn left_empty(field: &str, wanted: &RecreateContainer) -> Result<(), Refusal> {
    let filled = [
        ("preStop", wanted.pre_stop.is_some()),
        ("ports", !wanted.ports.is_empty()),
        ("statusContext", wanted.status_context.is_some()),
    ];
    let Some((name, _)) = filled.into_iter().find(|(_, set)| *set) else { return Ok(()) };
    let text = "preStop, ports and statusContext are read-only fields; leave them empty";
    Err(Refusal::new(format!("{field}.{name}"), text))
}

/// The container of that name, if it is of a kind that can be restarted.
fn restartable<'a>(pod: &'a Pod, name: &str) -> Result<&'a Container, String> {
    let container = pod.container(name).ok_or_else(|| format!("container {name} not found in Pod"))?;
    match container.kind {
        ContainerKind::Init => {
            Err(format!("{name} is an init container, which runs only while its Pod starts"))
        }
        ContainerKind::Ephemeral => {
            Err(format!("{name} is an ephemeral container, which Kubernetes never starts again"))
        }
        ContainerKind::Main | ContainerKind::Sidecar => Ok(container),
    }
}

/// ID and restart count of the requested instance. `context`: the instance that ran when the request was made.
fn instance<'a>(
    container: &'a Container,
    context: Option<&'a StatusContext>,
    forced: bool,
) -> Result<(&'a str, i32), String> {
    let name = &container.name;
    // A forced request is about the instance that runs now, not the one at its creation. A Pod status with a lower
    // restart count is outdated.
    let newer = |context: &&StatusContext| {
        let now = container.status.as_ref().filter(|s| !s.container_id.is_empty());
        forced && now.is_some_and(|s| s.restart_count >= context.restart_count)
    };
    let (id, restart_count) = match (context.filter(|context| !newer(context)), &container.status) {
        (Some(context), _) => (&context.container_id, context.restart_count),
        (None, None) => return Err(format!("not found {name} containerStatus in Pod Status")),
        (None, Some(status)) => (&status.container_id, status.restart_count),
    };
    if id.is_empty() {
        return Err(format!(
            "no containerID in {name} containerStatus, maybe the container has not been initialized"
        ));
    }
    // The request's status cannot store a longer ID.
    if id.len() > MAX_CONTAINER_ID {
        return Err(format!("containerID of {name} is longer than {MAX_CONTAINER_ID} bytes"));
    }
    if split_reference(id).is_err() {
        return Err(format!(
            "containerID {} of {name} is not of the form <runtime>://<64 hex digits>",
            quoted(id)
        ));
    }
    Ok((id, restart_count))
}
