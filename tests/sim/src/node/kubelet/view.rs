//! A Pod as the kubelet's last look at the runtime showed it.

use crate::node::keys;
use crate::node::runtime::{ContainerInfo, Runtime, State};

/// The Pod's containers and sandboxes, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) containers: Vec<Seen>,
    pub(super) sandboxes: Vec<SeenSandbox>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) info: ContainerInfo,
    /// When it ended, in virtual milliseconds.
    pub(super) ended: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenSandbox {
    pub(super) id: String,
    pub(super) ready: bool,
    pub(super) attempt: u32,
    pub(super) ip: String,
}

impl View {
    pub(super) fn of(uid: &str, now: u64, runtime: &Runtime) -> Self {
        let label = |info: &ContainerInfo| info.labels.get(keys::POD_UID).is_some_and(|u| u == uid);
        let of_pod = runtime.containers().values().filter(|c| label(&c.info));
        let mut containers: Vec<_> =
            of_pod.map(|c| Seen { ended: c.ended_at(now), info: c.info.clone() }).collect();
        containers.sort_by_key(|c| std::cmp::Reverse((c.info.attempt, c.info.created_at)));
        let of_pod = runtime.sandboxes().values().filter(|s| s.config.uid == uid);
        let mut sandboxes: Vec<_> = of_pod
            .map(|s| SeenSandbox {
                id: s.id.clone(),
                ready: s.ready,
                attempt: s.config.attempt,
                ip: s.ip.clone(),
            })
            .collect();
        sandboxes.sort_by_key(|s| std::cmp::Reverse(s.attempt));
        Self { containers, sandboxes }
    }

    /// The instances of a container, newest first.
    pub(super) fn of_name<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Seen> {
        self.containers.iter().filter(move |c| c.info.name == name)
    }

    pub(super) fn newest(&self, name: &str) -> Option<&Seen> {
        self.containers.iter().find(|c| c.info.name == name)
    }

    /// Containers whose process may live.
    pub(super) fn alive(&self) -> impl Iterator<Item = &Seen> {
        self.containers.iter().filter(|c| matches!(c.info.state, State::Running | State::Unknown))
    }

    /// The newest sandbox, if it is ready.
    pub(super) fn sandbox(&self) -> Option<&SeenSandbox> {
        self.sandboxes.first().filter(|s| s.ready)
    }
}
