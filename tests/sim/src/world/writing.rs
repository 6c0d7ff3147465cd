//! Writes of daemons into control groups.

use pitstop_daemon_core::CallFailure;
use pitstop_daemon_core::resize::Write;

use super::effect::Writing;
use super::processes::{Kind, Pid, Process, Role};
use super::{Happening, World};

/// Deadline of a call to a runtime that hangs, in milliseconds, as in `cri-proto/src/deadlines.rs`.
const PATIENCE: u64 = 10_000;

impl World {
    pub(super) fn write(&mut self, pid: Pid, writing: &Writing, effect: Option<usize>) {
        let Some(Process { role: Role::Daemon(at), name, .. }) = self.processes.get(&pid) else { return };
        let (now, name, node) = (self.now, name.clone(), &mut self.nodes[*at]);
        // A daemon writes files for a Pod's group, and calls the runtime for a container's.
        let called = matches!(writing.write, Write::Container { .. });
        let (result, wait) = if called && !node.runtime.answers(now) {
            let failure = CallFailure { retry: true, message: "the runtime does not answer".to_owned() };
            (Err(failure), if node.runtime.is_up() { PATIENCE } else { 2 })
        } else {
            let cgroups = node.kubelet.cgroups_mut();
            let (result, touched) = cgroups.touch(now, &node.runtime, &writing.pod, &writing.write);
            if let Some(touched) = touched {
                self.story.note(now, &name, || format!("writes {touched:?}"));
                let by = format!("{name}-{pid}");
                let order = writing.order_id.as_deref();
                self.oracle.touched(now, (&by, &node.name), order, &touched, &self.server);
            }
            (result, if called { 2 + self.rng.below(8) } else { 0 })
        };
        let token = writing.token;
        self.queue.push(now + wait, Happening::Wrote { to: pid, token, result, effect });
    }

    pub(super) fn wrote(
        &mut self,
        to: Pid,
        token: u64,
        result: Result<(), CallFailure>,
        effect: Option<usize>,
    ) {
        if let Some(until) = self.paused(to) {
            return self.queue.push(until, Happening::Wrote { to, token, result, effect });
        }
        let Some(process) = self.processes.get_mut(&to) else { return };
        if let Err(failure) = &result {
            self.story.note(self.now, &process.name, || format!("cannot write: {}", failure.message));
        }
        let (Kind::Daemon(daemon), Role::Daemon(at)) = (&mut process.kind, process.role) else { return };
        let out = daemon.wrote(self.now, token, result, &mut self.nodes[at].machine(daemon.record));
        self.carry_out_known(to, out, effect);
    }
}
