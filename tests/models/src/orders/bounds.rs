//! Bounds of the exploration: numbers of objects and processes, and of faults.

use pitstop_api::labels;
use pitstop_api::recreate::{
    ContainerRecreateRequestSpec, Mechanism, RecreateContainer, RecreateStrategy, StatusContext,
};
use pitstop_controller_core::pod::Pod;
use pitstop_controller_core::recreate::{Metadata, Moment, Request, resolve};
use pitstop_controller_core::{Config, ObjectKey};

use super::{CONTAINERS, NAMESPACE};

/// How often each fault may happen; in total at most [`Faults::total`] times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Bound of the sum.
    pub total: u8,
    /// A call gets no answer: it took effect, does so later, or never.
    pub lost: u8,
    /// The API server refuses a write.
    pub refused: u8,
    /// A controller is killed and restarts. Its earlier writes then have taken effect or never do.
    pub controller: u8,
    /// A daemon is killed and restarts.
    pub daemon: u8,
    /// A container ends by itself.
    pub ends: u8,
    /// Time advances although messages are undelivered.
    pub late: u8,
    /// A watch breaks and lists anew.
    pub breaks: u8,
    /// Another client writes a request.
    pub meddling: u8,
    /// A user deletes a request.
    pub deleted: u8,
    /// The Pod is deleted, and a new Pod gets its name.
    pub replaced: u8,
}

impl Faults {
    /// At most `total` faults of any kind, but at most one replaced Pod.
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

/// A planted bug of the model's glue. The model must find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The server ignores the resource versions of writes.
    NoPrecondition,
    /// The daemon learns that its acknowledgement is stored when it is only sent.
    ActsUnacknowledged,
    /// The runtime stops the newest container with that name, whatever its ID.
    StopsByName,
    /// A write without an answer is reported as refused.
    LostIsRefused,
    /// The watch of requests does not deliver deletions.
    DeletionDropped,
    /// A restarted daemon does not know which hooks ended.
    HooksForgotten,
    /// The kubelet writes the Pod's status only once.
    StatusOnce,
}

/// Bounds of the exploration.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// A word for the title.
    pub name: &'static str,
    /// Requests. The first exists at the start, users create the others at any time.
    pub requests: usize,
    /// Containers of the Pod. Every request names all of them.
    pub containers: usize,
    /// Controllers that all believe to lead.
    pub controllers: usize,
    /// Daemons that run on the node.
    pub daemons: usize,
    /// Containers have a preStop hook.
    pub hook: bool,
    /// The kubelet can restart the containers instead.
    pub kubelet: bool,
    /// Drain time, in seconds; the Pod then has a readiness gate. `None`: no drain.
    pub drain: Option<i64>,
    /// Deadline of the requests, in seconds; `None` for no deadline.
    pub deadline: Option<i64>,
    /// Restart one container after the other.
    pub ordered: bool,
    /// New containers become ready in a separate step.
    pub slow: bool,
    /// The node's book exists at the start, so that writes add orders to it.
    pub book: bool,
    /// An answer arrives in the step that carries out the call, unless it is lost.
    pub coarse: bool,
    /// Faults.
    pub faults: Faults,
    /// A planted bug; `None` for the correct glue.
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

    /// The production configuration without the default deadline, which would hide requests that hang.
    pub fn config(&self) -> Config {
        Config { default_active_deadline: None, ..Config::default() }
    }

    /// The `at`th request, after admission.
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
        if let Some(Ok(target)) = pod.map(|pod| resolve(&spec, pod, Moment::Admission)) {
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
            more: Metadata { labels: admitted, ..Metadata::default() },
            spec,
            ..Request::default()
        }
    }
}
