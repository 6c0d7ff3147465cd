//! A Pod for tests.

use pitstop_api::quantity::Resources;

use crate::action::Event;
use crate::key::ObjectKey;
use crate::pod::{Container, ContainerState, ContainerStatus, Controller, Pod};
use crate::{recreate, resize};

pub(crate) const MI: i64 = 1 << 20;

pub(crate) fn id(n: u32) -> String {
    format!("containerd://{n:064x}")
}

/// 100m to 200m of CPU, 64Mi to 128Mi of memory, running.
pub(crate) fn container(name: &str) -> Container {
    let resources = Resources {
        cpu_request: Some(100),
        cpu_limit: Some(200),
        memory_request: Some(64 * MI),
        memory_limit: Some(128 * MI),
    };
    let status = ContainerStatus {
        container_id: id(1),
        ready: true,
        state: ContainerState::Running,
        allocated: Some(Resources { cpu_limit: None, memory_limit: None, ..resources }),
        actual: Some(resources),
        ..ContainerStatus::default()
    };
    Container { name: name.into(), resources, status: Some(status), ..Container::default() }
}

/// A controller of this kind.
pub(crate) fn controller(kind: &str) -> Controller {
    Controller { kind: kind.into(), uid: "owner-1".into() }
}

pub(crate) fn pod() -> Pod {
    Pod {
        key: ObjectKey::new("shop", "web"),
        uid: "pod-1".into(),
        controller: Some(Box::new(controller("StatefulSet"))),
        resource_version: "1".into(),
        generation: Some(1),
        observed_generation: Some(1),
        node: Some("node1".into()),
        ready: true,
        containers: vec![container("app"), container("proxy")],
        ..Pod::default()
    }
}

/// Empty lists, for every kind except restarts and resizes.
pub(crate) fn other_lists() -> Vec<Event> {
    Event::none_but(&[recreate::ID, resize::ID])
}
