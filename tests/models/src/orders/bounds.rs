//! What is explored: how many there are of everything, and how often things may go wrong.

use pitstop_api::labels;
use pitstop_api::recreate::{
    ContainerRecreateRequestSpec, Mechanism, RecreateContainer, RecreateStrategy, StatusContext,
};
use pitstop_controller_core::pod::Pod;
use pitstop_controller_core::recreate::{Marks, Request, Tense, resolve};
use pitstop_controller_core::{Config, ObjectKey};

use super::{CONTAINERS, NAMESPACE};

/// How often each thing may happen; all of them together at most [`Faults::total`] times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// All together.
    pub total: u8,
    /// A call gets no answer: it took effect, does so later, or never.
    pub lost: u8,
    /// The API server refuses a write.
    pub refused: u8,
    /// A controller is killed and starts anew; its writes are over by then, with or without effect.
    pub controller: u8,
    /// A daemon is killed and starts anew.
    pub daemon: u8,
    /// A container ends by itself.
    pub ends: u8,
    /// Time goes on though something is still to be delivered.
    pub late: u8,
    /// A watch breaks and lists anew.
    pub breaks: u8,
    /// Somebody else writes a request.
    pub meddling: u8,
    /// A user deletes a request.
    pub deleted: u8,
    /// The Pod is deleted, and another one comes under its name.
    pub replaced: u8,
}

impl Faults {
    /// At most `total` faults, of any kind but those that need a scenario of their own.
    pub fn any(total: u8) -> Self {
        Self {
            total,
            lost: total,
            refused: total,
            controller: total,
            daemon: total,
            ends: total,
            late: total,
            breaks: total,
            meddling: total,
            deleted: total,
            replaced: total.min(1),
        }
    }
}

/// A planted fault of the glue; each must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The server ignores the versions that writes rest on.
    NoPrecondition,
    /// The daemon is told that its acknowledgement is stored when it has only been sent.
    ActsUnacknowledged,
    /// The runtime stops the container of that name, whatever its ID.
    StopsByName,
    /// A write that got no answer is told to have been refused.
    LostIsRefused,
    /// The watch of requests does not deliver deletions.
    DeletionDropped,
    /// What ended hooks are is forgotten when the daemon ends.
    HooksForgotten,
    /// The Pod's status is never told again once it was told.
    StatusOnce,
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// A word for the title.
    pub name: &'static str,
    /// Requests: the first is there, the others are made at any time.
    pub requests: usize,
    /// Containers of the Pod, all of which every request names.
    pub containers: usize,
    /// Controllers, all of which believe to lead.
    pub controllers: usize,
    /// Daemons that run on the node.
    pub daemons: usize,
    /// Containers have a preStop hook.
    pub hook: bool,
    /// The kubelet can restart the containers instead.
    pub kubelet: bool,
    /// Seconds of a drain; the Pod then has a readiness gate.
    pub drain: Option<i64>,
    /// Seconds to the requests' deadline.
    pub deadline: Option<i64>,
    /// Restart one container after the other.
    pub ordered: bool,
    /// New containers become ready in a step of their own.
    pub slow: bool,
    /// The node has its book from the beginning, so that orders are added to it.
    pub book: bool,
    /// An answer arrives in the step in which the call is carried out, unless it is lost.
    pub coarse: bool,
    /// Faults.
    pub faults: Faults,
    /// A planted fault.
    pub bug: Option<Bug>,
}

impl Bounds {
    /// One of everything, and no faults.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            requests: 1,
            containers: 1,
            controllers: 1,
            daemons: 1,
            hook: false,
            kubelet: false,
            drain: None,
            deadline: None,
            ordered: false,
            slow: false,
            book: false,
            coarse: false,
            faults: Faults::default(),
            bug: None,
        }
    }

    /// The production times, but that no deadline rescues what hangs.
    pub fn config(&self) -> Config {
        Config { default_active_deadline: None, ..Config::default() }
    }

    /// The `at`th request, as admission lets it in.
    pub fn request(&self, at: usize, pod: Option<&impl std::ops::Deref<Target = Pod>>) -> Request {
        let mut spec = ContainerRecreateRequestSpec {
            pod_name: "web".into(),
            containers: CONTAINERS[..self.containers]
                .iter()
                .map(|name| RecreateContainer { name: (*name).into(), ..RecreateContainer::default() })
                .collect(),
            strategy: Some(RecreateStrategy {
                ordered_recreate: self.ordered,
                unready_grace_period_seconds: self.drain,
                mechanism: (!self.kubelet).then_some(Mechanism::Runtime),
                ..RecreateStrategy::default()
            }),
            active_deadline_seconds: self.deadline,
            ..ContainerRecreateRequestSpec::default()
        };
        let mut admitted = std::collections::BTreeMap::new();
        if let Some(Ok(target)) = pod.map(|pod| resolve(&spec, pod, Tense::Admission)) {
            for (wanted, found) in spec.containers.iter_mut().zip(&target.containers) {
                wanted.status_context = Some(StatusContext {
                    container_id: found.container_id.clone(),
                    restart_count: found.restart_count,
                });
            }
            admitted = [
                (labels::ACTIVE, labels::ACTIVE_TRUE),
                (labels::POD_UID, &target.pod_uid),
                (labels::NODE_NAME, &target.node_name),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        }
        Request {
            key: ObjectKey::new(NAMESPACE, format!("crr-{at}")),
            uid: format!("uid-{at}"),
            created: i64::try_from(at).unwrap(),
            more: Marks { labels: admitted, ..Marks::default() },
            spec,
            ..Request::default()
        }
    }
}
