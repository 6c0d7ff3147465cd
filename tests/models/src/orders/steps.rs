//! The possible next steps, and their effects.

use pitstop_controller_core::kinds::Watched;
use pitstop_controller_core::pod::Pod;
use pitstop_controller_core::{Event, Mono, Watch};
use pitstop_daemon_core as daemon;

use super::control::Call;
use super::part::Part;
use super::world::{Late, World};
use super::{Action, Bounds, Bug, Fault, node, promise};

impl World {
    /// Adds the steps that need no fault.
    pub fn fair(&self, bounds: &Bounds, actions: &mut Vec<Action>) {
        let now = self.mono();
        for (at, controller) in self.controllers.iter().enumerate() {
            for (kind, watch) in controller.watches.iter().enumerate() {
                if watch.as_ref().is_none_or(|w| !w.is_empty()) {
                    actions.push(Action::Watch(at, kind));
                }
            }
            for (key, call) in &controller.calls {
                actions.push(match call {
                    Call::Sent(_) => Action::Apply(at, key.clone()),
                    Call::Answered(_) => Action::Answer(at, key.clone()),
                });
            }
            if controller.index.wake_at().is_some_and(|wake| wake <= now) {
                actions.push(Action::Tick(at));
            }
        }
        for (at, process) in self.daemons.iter().enumerate() {
            if process.watch.as_ref().is_none_or(|w| !w.is_empty()) {
                actions.push(Action::DaemonWatch(at));
            }
            for (key, call) in &process.calls {
                actions.push(match call {
                    node::Call::Sent(_) => Action::DaemonApply(at, key.clone()),
                    node::Call::Answered(_) => Action::DaemonAnswer(at, key.clone()),
                });
            }
            if process.daemon.wake_at().is_some_and(|wake| wake <= now) {
                actions.push(Action::DaemonTick(at));
            }
        }
        let Some(pod) = self.store.pods.get("web") else {
            actions.push(Action::CreatePod);
            return;
        };
        if pod.deleting {
            actions.push(Action::RemovePod);
            return;
        }
        for (at, instance) in self.node.newest().filter(|(_, i)| i.pod_uid == pod.uid) {
            let image = pod.container(&instance.name).map(|c| c.image.as_str());
            if !instance.running {
                actions.push(Action::Start(at));
            } else if image != Some(instance.image.as_str()) {
                actions.push(Action::EndForImage(at));
            } else if !instance.ready {
                actions.push(Action::Ready(at));
            }
        }
        let published = (&pod.containers, pod.ready);
        let stale = (&self.node.status(pod, bounds.kubelet), self.node.ready(pod)) != published;
        if stale && !(bounds.bug == Some(Bug::StatusOnce) && pod.containers[0].status.is_some()) {
            actions.push(Action::Publish);
        }
    }

    /// Time of the next wake-up of a process.
    pub fn wake(&self) -> Option<Mono> {
        let controllers = self.controllers.iter().filter_map(|c| c.index.wake_at());
        controllers.chain(self.daemons.iter().filter_map(|d| d.daemon.wake_at())).min()
    }

    pub fn faults(&self, pending: bool, actions: &mut Vec<Action>) {
        let left = self.left;
        let mut add = |budget: u8, fault: Fault| {
            if budget > 0 {
                actions.push(Action::Fault(fault));
            }
        };
        for (at, controller) in self.controllers.iter().enumerate() {
            // A lost answer equals a lost write that takes effect at once.
            for (key, _) in controller.calls.iter().filter(|(_, call)| matches!(call, Call::Sent(_))) {
                add(left.lost, Fault::Lost(at, key.clone()));
                add(left.refused, Fault::Refused(at, key.clone()));
            }
            let writes = controller.calls.values().any(|c| matches!(c, Call::Sent(_)))
                || self.late.iter().any(|l| matches!(l, Late::Write(owner, _) if *owner == at));
            add(left.controller, Fault::Controller(at, false));
            add(left.controller * u8::from(writes), Fault::Controller(at, true));
            for (kind, watch) in controller.watches.iter().enumerate() {
                add(left.breaks * u8::from(watch.is_some()), Fault::Breaks(at, kind));
            }
        }
        for (at, process) in self.daemons.iter().enumerate() {
            for (key, _) in process.calls.iter().filter(|(_, call)| matches!(call, node::Call::Sent(_))) {
                add(left.lost, Fault::DaemonLost(at, key.clone()));
            }
            add(left.daemon, Fault::Daemon(at));
            add(left.breaks * u8::from(process.watch.is_some()), Fault::DaemonBreaks(at));
        }
        let pod = self.store.pods.get("web").filter(|p| !p.deleting);
        for (at, instance) in self.node.newest() {
            if pod.is_some_and(|p| p.uid == instance.pod_uid) && instance.running {
                add(left.ends, Fault::Ends(at));
            }
        }
        if pending && self.wake().is_some() {
            add(left.late, Fault::Late);
        }
        for name in self.store.requests.keys() {
            add(left.meddling, Fault::Meddling(name.clone()));
            add(left.deleted, Fault::Deleted(name.clone()));
        }
        add(left.replaced * u8::from(pod.is_some()), Fault::Replaced);
    }

    /// Takes a step; `None` if it is impossible.
    pub fn take(&mut self, action: &Action, bounds: &Bounds) -> Option<()> {
        match action {
            Action::Watch(at, kind) => {
                let event = self.controllers[*at].next(*kind, &self.store)?;
                let gone = matches!(*event, Event::Objects(Watched::Recreate(Watch::Gone(_))));
                if !(bounds.bug == Some(Bug::DeletionDropped) && gone) {
                    self.step(*at, &event);
                }
            }
            Action::Apply(at, key) => {
                let Some(Call::Sent(write)) = self.controllers[*at].calls.get(key).cloned() else {
                    return None;
                };
                let answer = Part::new(self.carry_out(&write, bounds));
                if bounds.coarse {
                    self.controllers[*at].calls.remove(key);
                    self.step(*at, &answer);
                } else {
                    self.controllers[*at].calls.insert(key.clone(), Call::Answered(answer));
                }
            }
            Action::Answer(at, key) => {
                let Some(Call::Answered(event)) = self.controllers[*at].calls.remove(key) else {
                    return None;
                };
                self.step(*at, &event);
            }
            Action::Tick(at) => self.step(*at, &Part::of(Event::Tick, "tick")),
            Action::DaemonWatch(at) => {
                let event = self.daemons[*at].next(self.store.book.as_ref())?;
                self.step_daemon(*at, &event, bounds);
            }
            Action::DaemonApply(at, key) => {
                let process = &self.daemons[*at];
                let Some(node::Call::Sent(call)) = process.calls.get(key).cloned() else { return None };
                let instance = process.instance.clone();
                let answer = Part::new(self.carry_out_call(&instance, &call, bounds));
                if bounds.coarse {
                    self.daemons[*at].calls.remove(key);
                    self.step_daemon(*at, &answer, bounds);
                } else {
                    self.daemons[*at].calls.insert(key.clone(), node::Call::Answered(answer));
                }
            }
            Action::DaemonAnswer(at, key) => {
                let Some(node::Call::Answered(event)) = self.daemons[*at].calls.remove(key) else {
                    return None;
                };
                self.step_daemon(*at, &event, bounds);
            }
            Action::DaemonTick(at) => self.step_daemon(*at, &Part::of(daemon::Event::Tick, "tick"), bounds),
            Action::Start(at) => {
                let old = self.node.instances[*at].clone();
                let pod = self.store.pods.get("web")?.clone();
                self.node.start(&pod, &old.name, old.restarts + 1, !bounds.slow);
            }
            Action::Ready(at) => self.node.instances[*at].ready = true,
            Action::EndForImage(at) => self.end_for_image(*at),
            Action::Publish => {
                let pod = self.store.pods.get("web")?.clone();
                let containers = self.node.status(&pod, bounds.kubelet);
                let ready = self.node.ready(&pod);
                self.store.put_pod(Pod { containers, ready, ..(*pod).clone() });
            }
            Action::RemovePod => {
                let uid = self.store.pods.get("web")?.uid.clone();
                self.node.instances.retain(|i| i.pod_uid != uid);
                self.store.remove_pod("web");
            }
            Action::CreatePod => self.add_pod(bounds, "pod-2"),
            Action::Advance => self.now = self.wake()?.0,
            Action::LateApplied(at) => match self.late.remove(*at) {
                Late::Write(_, write) => {
                    self.carry_out(&write, bounds);
                }
                Late::Call(instance, call) => {
                    self.carry_out_call(&instance, &call, bounds);
                }
            },
            Action::LateLost(at) => {
                self.late.remove(*at);
            }
            Action::Create => {
                let at = usize::from(self.requested);
                self.requested += 1;
                self.add_request(bounds, at);
            }
            Action::Fault(fault) => return self.go_wrong(fault, bounds),
        }
        Some(())
    }

    fn step(&mut self, at: usize, event: &Part<Event>) {
        let now = self.mono();
        let single = self.controllers[at].step(now, event);
        self.check(single, promise::ONE_WRITE);
    }
}
