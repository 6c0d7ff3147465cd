//! From a request and its Pod to the exact container instances, or to the reason why not.

use std::fmt;

use pitstop_api::Invalid;
use pitstop_api::id::split_reference;
use pitstop_api::recreate::{
    ContainerRecreateRequestSpec, MAX_CONTAINER_ID, StatusContext, Target, TargetContainer,
};
use pitstop_api::text::quoted;

use super::mechanism::choose;
use crate::pod::{Container, ContainerKind, Pod};

/// Why a request cannot be carried out on its Pod.
pub type Refusal = Invalid;

/// When the question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tense {
    /// At admission: what is filled in then must be empty now.
    Admission,
    /// Later: what was filled in is used.
    Accepted,
}

/// Finds the instances that the request's containers are, or the first reason to refuse.
///
/// Order and wording follow `OpenKruise`'s admission.
pub fn resolve(spec: &ContainerRecreateRequestSpec, pod: &Pod, tense: Tense) -> Result<Target, Refusal> {
    let refuse =
        |text: &dyn fmt::Display| Err(Refusal::new("spec.podName", format!("{text}: Pod {}", pod.key)));
    if pod.gone() {
        return refuse(&"not allowed to recreate containers in an inactive Pod");
    }
    let Some(node) = &pod.node else {
        return refuse(&"not allowed to recreate containers in a pending Pod");
    };
    if pod.mirror {
        return refuse(&"not allowed to recreate containers in a static Pod; change its file on the node");
    }
    let strategy = spec.strategy.as_ref();
    let forced = strategy.is_some_and(|s| s.force_recreate);
    let mut containers = Vec::with_capacity(spec.containers.len());
    for (i, wanted) in spec.containers.iter().enumerate() {
        let field = format!("spec.containers[{i}]");
        if tense == Tense::Admission {
            let filled = [
                ("preStop", wanted.pre_stop.is_some()),
                ("ports", !wanted.ports.is_empty()),
                ("statusContext", wanted.status_context.is_some()),
            ];
            if let Some((name, _)) = filled.into_iter().find(|(_, set)| *set) {
                let text = "preStop, ports and statusContext are read-only fields; leave them empty";
                return Err(Refusal::new(format!("{field}.{name}"), text));
            }
        }
        let refuse =
            |text: String| Err(Refusal::new(format!("{field}.name"), format!("{text}: Pod {}", pod.key)));
        let name = &wanted.name;
        let Some(container) = pod.container(name) else {
            return refuse(format!("container {name} not found in Pod"));
        };
        if let Err(text) = servable(container) {
            return refuse(text);
        }
        // A forced request is about the instance that runs now, whatever ran when it was made; a status of the
        // Pod with a lower restart count is older than that.
        let newer = |context: &&StatusContext| {
            let now = container.status.as_ref().filter(|s| !s.container_id.is_empty());
            forced && now.is_some_and(|s| s.restart_count >= context.restart_count)
        };
        let context = wanted
            .status_context
            .as_ref()
            .filter(|_| tense == Tense::Accepted)
            .filter(|context| !newer(context));
        let (id, restart_count) = match (context, &container.status) {
            (Some(context), _) => (&context.container_id, context.restart_count),
            (None, None) => return refuse(format!("not found {name} containerStatus in Pod Status")),
            (None, Some(status)) => (&status.container_id, status.restart_count),
        };
        if id.is_empty() {
            return refuse(format!(
                "no containerID in {name} containerStatus, maybe the container has not been initialized"
            ));
        }
        // What does not fit the request's status could not be written down.
        if id.len() > MAX_CONTAINER_ID {
            return refuse(format!("containerID of {name} is longer than {MAX_CONTAINER_ID} bytes"));
        }
        if split_reference(id).is_err() {
            return refuse(format!(
                "containerID {} of {name} is not of the form <runtime>://<64 hex digits>",
                quoted(id)
            ));
        }
        let pin = choose(strategy, pod, container).map_err(|text| {
            Refusal::new("spec.strategy.mechanism", format!("container {name}: {text}: Pod {}", pod.key))
        })?;
        containers.push(TargetContainer { name: name.clone(), container_id: id.clone(), restart_count, pin });
    }
    let mechanism = strategy.and_then(|s| s.mechanism);
    Ok(Target { pod_uid: pod.uid.clone(), node_name: node.clone(), containers, mechanism })
}

/// Whether a container of that kind can be restarted.
fn servable(container: &Container) -> Result<(), String> {
    let name = &container.name;
    match container.kind {
        ContainerKind::Init => {
            Err(format!("{name} is an init container, which runs only while its Pod starts"))
        }
        ContainerKind::Ephemeral => {
            Err(format!("{name} is an ephemeral container, which Kubernetes never starts again"))
        }
        ContainerKind::Main | ContainerKind::Sidecar => Ok(()),
    }
}
