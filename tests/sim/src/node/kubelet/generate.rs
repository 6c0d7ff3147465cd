//! Makes the Pod's status from the runtime's state.

use std::collections::BTreeMap;

use pitstop_api::quantity::Resources;

use super::pod::{Amounts, Kind, Pod, PodContainer};
use super::sizes::{Sizes, shown};
use super::status::{Condition, ContainerState, ContainerStatus, PodStatus, Running, Terminated, rfc3339};
use super::view::Seen;
use super::worker::Worker;
use crate::node::cgroups::read_back;
use crate::node::runtime::State;

/// Inputs of a status besides the Pod and the runtime.
pub(super) struct Inputs<'a> {
    /// Nanoseconds of the node's wall clock.
    pub(super) wall: i64,
    /// The runtime's name.
    pub(super) runtime: &'a str,
    pub(super) host_ip: &'a str,
    pub(super) sizes: &'a Sizes,
}

impl Worker {
    /// The current status. `over`: no container will run again.
    pub(super) fn generate(&self, inputs: &Inputs<'_>, over: bool) -> PodStatus {
        let pod = &self.pod;
        let one = |c: &PodContainer| self.container_status(c, inputs, over);
        let inits: Vec<_> = pod.containers.iter().filter(|c| c.kind != Kind::Main).map(one).collect();
        let mains: Vec<_> = pod.of_kind(Kind::Main).map(one).collect();
        // A terminal phase never changes.
        let phase = match self.status.as_ref().map(|s| s.phase.as_str()) {
            Some(last @ ("Succeeded" | "Failed")) => last,
            _ => phase(pod, &inits, &mains, over),
        };
        let mut conditions = self.conditions(inputs, phase, &inits, &mains);
        conditions.extend(self.size_conditions(inputs));
        PodStatus {
            phase: phase.to_owned(),
            conditions,
            init_container_statuses: inits,
            container_statuses: mains,
            host_ip: inputs.host_ip.to_owned(),
            pod_ip: self.view.sandbox().map(|s| s.ip.clone()).unwrap_or_default(),
            start_time: self.start_time.clone().unwrap_or_else(|| rfc3339(inputs.wall)),
            observed_generation: self.synced,
        }
    }

    fn container_status(&self, spec: &PodContainer, inputs: &Inputs<'_>, over: bool) -> ContainerStatus {
        let old = self.old(&spec.name);
        let mut instances = self.view.of_name(&spec.name);
        let Some(newest) = instances.next() else { return self.missing(spec, old, over) };
        let reference = format!("{}://{}", inputs.runtime, newest.info.id);
        let mut state = state_of(newest, &reference);
        let mut last = instances
            .next()
            .map(|s| state_of(s, &format!("{}://{}", inputs.runtime, s.info.id)))
            .unwrap_or_default();
        if last == ContainerState::default()
            && let Some(old) = old
        {
            // If the previous instance was removed, keep the end that was reported.
            let other = old.state.terminated.as_ref().filter(|_| old.container_id != reference);
            last.terminated = other.or(old.last_state.terminated.as_ref()).cloned();
        }
        let restart = !over && self.wants_start(spec, newest);
        if restart && let Some((reason, message)) = self.reasons.get(&spec.name) {
            if state.terminated.is_some() {
                last = state;
            }
            state = ContainerState::waiting(reason, message);
        }
        let running = state.running.is_some();
        let resizes = !inputs.sizes.fixed;
        let done = spec.kind == Kind::Init && state.terminated.as_ref().is_some_and(|t| t.exit_code == 0);
        let probed = self.ready.get(&newest.info.id).copied().unwrap_or(false);
        ContainerStatus {
            name: spec.name.clone(),
            ready: done || (running && (spec.ready_after(&newest.info) == Some(0) || probed)),
            started: Some(running),
            state,
            last_state: last,
            restart_count: newest.info.attempt.cast_signed(),
            image: newest.info.image.clone(),
            image_id: newest.info.image_ref.clone(),
            container_id: reference,
            allocated_resources: resizes
                .then(|| inputs.sizes.allocated(&self.pod.uid, spec))
                .and_then(|a| allocated(&a)),
            resources: resizes.then(|| {
                if running {
                    let size = inputs.sizes.cgroups.reported(&newest.info);
                    resources(size.cpu_request.map(read_back), &size)
                } else {
                    let admitted = inputs.sizes.allocated(&self.pod.uid, spec);
                    resources(admitted.cpu_request, &admitted)
                }
            }),
        }
    }

    /// The conditions about a new size; each is True.
    fn size_conditions(&self, inputs: &Inputs<'_>) -> Vec<Condition> {
        let pending = self.pending.clone().map(|(reason, message)| ("PodResizePending", reason, message));
        let error = self.size_error.clone().map_or(("", String::new()), |message| ("Error", message));
        let in_progress = self.missized(inputs.sizes).then_some(("PodResizeInProgress", error.0, error.1));
        let of = |(type_, reason, message): (&str, &str, String)| {
            let before = self.old_condition(type_).filter(|c| c.reason == reason);
            let time = before.and_then(|c| c.last_transition_time.clone());
            Condition {
                type_: type_.to_owned(),
                status: "True".to_owned(),
                reason: reason.to_owned(),
                message,
                last_transition_time: Some(time.unwrap_or_else(|| rfc3339(inputs.wall))),
                observed_generation: Some(self.pod.generation),
            }
        };
        pending.into_iter().chain(in_progress).map(of).collect()
    }

    /// The status of a container of which the runtime has no instance.
    fn missing(&self, spec: &PodContainer, old: Option<&ContainerStatus>, over: bool) -> ContainerStatus {
        let default = if self.pod.containers.iter().any(|c| c.kind != Kind::Main) {
            "PodInitializing"
        } else {
            "ContainerCreating"
        };
        let mut status = ContainerStatus {
            name: spec.name.clone(),
            image: spec.image.clone(),
            state: ContainerState::waiting(default, ""),
            started: Some(false),
            ..ContainerStatus::default()
        };
        if let Some(old) = old {
            if old.state.terminated.is_some() {
                return ContainerStatus { ready: false, started: Some(false), ..old.clone() };
            }
            status.restart_count = old.restart_count;
            status.last_state = old.last_state.clone();
            if old.state.running.is_some() {
                // It ran, and no longer exists.
                if status.last_state.terminated.is_none() {
                    status.last_state.terminated = Some(Terminated {
                        exit_code: 137,
                        reason: "ContainerStatusUnknown".to_owned(),
                        ..Terminated::default()
                    });
                }
                if self.pod.deleting.is_none() {
                    status.restart_count += 1;
                }
            }
        }
        if !over && let Some((reason, message)) = self.reasons.get(&spec.name) {
            status.state = ContainerState::waiting(reason, message);
        }
        status
    }

    /// `ShouldContainerBeRestarted` for a container with instances.
    pub(super) fn wants_start(&self, spec: &PodContainer, newest: &Seen) -> bool {
        match newest.info.state {
            State::Running => false,
            State::Created | State::Unknown => true,
            State::Exited if self.pod.deleting.is_some() => false,
            State::Exited if spec.kind == Kind::Init && newest.info.exit_code == 0 => false,
            State::Exited => spec.should_restart(self.pod.policy, newest.info.exit_code),
        }
    }

    fn conditions(
        &self,
        inputs: &Inputs<'_>,
        phase: &str,
        inits: &[ContainerStatus],
        mains: &[ContainerStatus],
    ) -> Vec<Condition> {
        let pod = &self.pod;
        let kind = |s: &ContainerStatus| pod.container(&s.name).map(|c| c.kind);
        let initialized = phase == "Succeeded"
            || inits.iter().all(|s| match kind(s) {
                Some(Kind::Sidecar) => s.started == Some(true),
                _ => s.ready,
            })
            || mains.iter().any(|s| !s.container_id.is_empty());
        let counted = inits.iter().filter(|s| kind(s) == Some(Kind::Sidecar)).chain(mains);
        let unready: Vec<&str> = counted.filter(|s| !s.ready).map(|s| s.name.as_str()).collect();
        let containers = match phase {
            "Succeeded" => ("False", "PodCompleted", String::new()),
            "Failed" => ("False", "PodFailed", String::new()),
            _ if unready.is_empty() => ("True", "", String::new()),
            _ => {
                let message = format!("containers with unready status: [{}]", unready.join(" "));
                ("False", "ContainersNotReady", message)
            }
        };
        let closed: Vec<String> = pod
            .gates
            .iter()
            .filter_map(|gate| match pod.gate_open(gate) {
                Some(true) => None,
                Some(false) => {
                    Some(format!("the status of pod readiness gate \"{gate}\" is not \"True\", but False"))
                }
                None => {
                    Some(format!("corresponding condition of pod readiness gate \"{gate}\" does not exist."))
                }
            })
            .collect();
        let ready = if containers.0 == "True" && !closed.is_empty() {
            ("False", "ReadinessGatesNotReady", closed.join(", "))
        } else {
            containers.clone()
        };
        let truth = |open: bool| if open { "True" } else { "False" };
        let sandbox = (truth(self.view.sandbox().is_some()), "", String::new());
        let init = if initialized {
            ("True", "", String::new())
        } else {
            ("False", "ContainersNotInitialized", "containers with incomplete status".to_owned())
        };
        [
            ("PodReadyToStartContainers", sandbox),
            ("Initialized", init),
            ("Ready", ready),
            ("ContainersReady", containers),
            ("PodScheduled", ("True", "", String::new())),
        ]
        .into_iter()
        .map(|(type_, (status, reason, message))| {
            let before = self.old_condition(type_).filter(|c| c.status == status);
            let time = before.and_then(|c| c.last_transition_time.clone());
            Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                last_transition_time: Some(time.unwrap_or_else(|| rfc3339(inputs.wall))),
                observed_generation: Some(pod.generation),
            }
        })
        .collect()
    }
}

fn allocated(admitted: &Resources) -> Option<BTreeMap<String, String>> {
    let requests = shown(admitted.cpu_request, admitted.memory_request);
    (!requests.is_empty()).then_some(requests)
}

fn resources(cpu_request: Option<i64>, size: &Resources) -> Amounts {
    Amounts {
        requests: shown(cpu_request, size.memory_request),
        limits: shown(size.cpu_limit, size.memory_limit),
    }
}

fn state_of(seen: &Seen, reference: &str) -> ContainerState {
    let info = &seen.info;
    match info.state {
        State::Created | State::Unknown => ContainerState::waiting("", ""),
        State::Running => ContainerState {
            running: Some(Running { started_at: rfc3339(info.started_at) }),
            ..ContainerState::default()
        },
        State::Exited => ContainerState {
            terminated: Some(Terminated {
                exit_code: info.exit_code,
                reason: info.reason.clone(),
                started_at: Some(rfc3339(info.started_at)),
                finished_at: Some(rfc3339(info.finished_at)),
                container_id: reference.to_owned(),
            }),
            ..ContainerState::default()
        },
    }
}

/// `getPhase`.
fn phase(pod: &Pod, inits: &[ContainerStatus], mains: &[ContainerStatus], over: bool) -> &'static str {
    let mut pending_init = false;
    for status in inits {
        if pod.container(&status.name).is_none_or(|c| c.kind != Kind::Init) {
            continue;
        }
        let ended = status.state.terminated.as_ref();
        let ended = ended.or(status.state.waiting.as_ref().and(status.last_state.terminated.as_ref()));
        let again = |code| pod.container(&status.name).is_some_and(|c| c.should_restart(pod.policy, code));
        match ended {
            Some(t) if t.exit_code == 0 => {}
            Some(t) if !again(t.exit_code) => return "Failed",
            _ => pending_init = true,
        }
    }
    // A container counts as stopped if it ended, or waits for its next start.
    let exit = |s: &ContainerStatus| {
        let ended = s.state.terminated.as_ref();
        ended.or(s.state.waiting.as_ref().and(s.last_state.terminated.as_ref())).map(|t| t.exit_code)
    };
    let running = mains.iter().filter(|s| s.state.running.is_some()).count();
    let stopped = mains.iter().filter(|s| s.state.running.is_none() && exit(s).is_some()).count();
    let waiting = mains.len() - running - stopped;
    let begun = mains.iter().any(|s| !s.container_id.is_empty());
    if over && running == 0 {
        let all_good = mains.iter().all(|s| exit(s) == Some(0));
        return if all_good { "Succeeded" } else { "Failed" };
    }
    if (pending_init && !begun) || waiting > 0 {
        return "Pending";
    }
    let again = |s: &ContainerStatus| {
        let spec = pod.container(&s.name);
        spec.zip(exit(s)).is_some_and(|(spec, code)| spec.should_restart(pod.policy, code))
    };
    if running > 0 || mains.iter().any(again) {
        return "Running";
    }
    if mains.iter().all(|s| exit(s) == Some(0)) { "Succeeded" } else { "Failed" }
}
