//! The steps that a Pod needs: `computePodActions` of `pkg/kubelet/kuberuntime/kuberuntime_manager.go`,
//! Kubernetes 1.36.

use super::pod::{Kind, PodContainer, Policy};
use super::sizes::{Need, Sizes};
use super::view::Seen;
use super::worker::{Step, Worker};
use crate::node::keys;
use crate::node::runtime::State;

impl Worker {
    /// The steps of a pass, in order.
    pub(super) fn plan(&self, sizes: &Sizes) -> Vec<Step> {
        match self.view.sandbox() {
            None => self.plan_sandbox(),
            Some(sandbox) => self.plan_containers(&sandbox.id.clone(), sizes),
        }
    }

    /// Kills all living containers at once, and stops the sandboxes.
    pub(super) fn plan_kill(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let alive: Vec<String> = self.view.alive().map(|c| c.info.id.clone()).collect();
        if !alive.is_empty() {
            steps.push(Step::Kill(alive));
        }
        let sandboxes = self.view.sandboxes.iter().filter(|s| s.ready);
        steps.extend(sandboxes.map(|s| Step::StopSandbox(s.id.clone())));
        steps
    }

    fn plan_sandbox(&self) -> Vec<Step> {
        let mut steps = self.plan_kill();
        let pod = &self.pod;
        let attempt = self.view.sandboxes.first().map_or(0, |s| s.attempt + 1);
        if pod.policy == Policy::Never && attempt != 0 && !self.view.containers.is_empty() {
            return steps;
        }
        let succeeded = |c: &PodContainer| {
            let newest = self.view.newest(&c.name);
            newest.is_some_and(|n| n.info.state == State::Exited && n.info.exit_code == 0)
        };
        let once = |c: &PodContainer| c.policy.unwrap_or(pod.policy) == Policy::OnFailure;
        let start: Vec<_> = pod.of_kind(Kind::Main).filter(|c| !(once(c) && succeeded(c))).collect();
        if start.is_empty() && pod.of_kind(Kind::Main).any(|c| self.view.newest(&c.name).is_some()) {
            return steps;
        }
        steps.push(Step::RunSandbox(attempt));
        match pod.containers.first() {
            Some(first) if first.kind != Kind::Main => steps.push(Step::Start(first.name.clone())),
            _ => steps.extend(start.into_iter().map(|c| Step::Start(c.name.clone()))),
        }
        steps
    }

    fn plan_containers(&self, sandbox: &str, sizes: &Sizes) -> Vec<Step> {
        let here =
            |name| self.view.containers.iter().find(|c| c.info.name == name && c.info.sandbox == sandbox);
        let changed = |spec: &PodContainer, seen: &Seen| {
            // Whatever the restart policy: its definition changed, or its new size needs a restart.
            changed(spec, seen) || sizes.need(&self.pod.uid, spec, &seen.info) == Need::Restarted
        };
        let (mut kill, mut start) = (Vec::new(), Vec::new());
        let begun = self.pod.of_kind(Kind::Main).any(|c| here(c.name.as_str()).is_some());
        for spec in self.pod.containers.iter().filter(|c| c.kind != Kind::Main) {
            match (spec.kind, here(spec.name.as_str())) {
                // Init containers never run again once the Pod is initialized.
                (Kind::Init, _) if begun => {}
                (Kind::Init, Some(seen)) if seen.info.state == State::Running => return Vec::new(),
                (Kind::Init, Some(seen)) if seen.info.state == State::Exited => match seen.info.exit_code {
                    0 => {}
                    code if !spec.should_restart(self.pod.policy, code) => return self.plan_kill(),
                    _ => return vec![Step::Start(spec.name.clone())],
                },
                (Kind::Sidecar, Some(seen)) if seen.info.state == State::Running => {
                    if changed(spec, seen) {
                        kill.push(Step::Kill(vec![seen.info.id.clone()]));
                        start.push(Step::Start(spec.name.clone()));
                    }
                }
                _ => {
                    start.push(Step::Start(spec.name.clone()));
                    if !begun {
                        return start;
                    }
                }
            }
        }
        let mut keep = 0;
        let mut mains = 0;
        for spec in self.pod.of_kind(Kind::Main) {
            let Some(seen) = self.view.newest(&spec.name) else {
                start.push(Step::Start(spec.name.clone()));
                mains += 1;
                continue;
            };
            match seen.info.state {
                State::Running if changed(spec, seen) => {
                    kill.push(Step::Kill(vec![seen.info.id.clone()]));
                }
                State::Running => {
                    keep += 1;
                    continue;
                }
                State::Unknown => kill.push(Step::Kill(vec![seen.info.id.clone()])),
                State::Created | State::Exited if self.wants_start(spec, seen) => {}
                State::Created | State::Exited => continue,
            }
            start.push(Step::Start(spec.name.clone()));
            mains += 1;
        }
        if keep == 0 && mains == 0 {
            // Sidecars alone do not keep a Pod alive.
            return self.plan_kill();
        }
        kill.into_iter().chain(start).chain(self.plan_sizes(sizes)).collect()
    }
}

/// Whether the container was made from another definition.
fn changed(spec: &PodContainer, seen: &Seen) -> bool {
    seen.info.annotations.get(keys::HASH) != Some(&spec.hash())
}
