//! Faults of a runtime.

use super::types::{Code, DeedKind, Method, State};
use super::{Mode, Runtime, uuid};

impl Runtime {
    /// The runtime's process dies: calls in progress are cut, new ones are refused. Containers live on.
    pub fn down(&mut self, now: u64) {
        self.mode = Mode::Down;
        self.hangs_until = 0;
        self.cut(now);
    }

    /// Starts the process again; for `init_ms` it answers that it is not initialized.
    pub fn up(&mut self, now: u64, init_ms: u64) {
        if self.mode == Mode::Down {
            self.mode = Mode::Starting(now + init_ms);
            // A container whose start was cut has no process.
            for container in self.containers.values_mut() {
                if container.starting.take().is_some() && container.began.is_none() {
                    container.exited(0, 255, "Unknown");
                }
            }
        }
    }

    /// Down, then up at once.
    pub fn restart(&mut self, now: u64, init_ms: u64) {
        self.down(now);
        self.up(now, init_ms);
    }

    /// Whether it is up or starting.
    pub fn is_up(&self) -> bool {
        self.mode != Mode::Down
    }

    /// The process does nothing until then; calls wait.
    pub fn hang(&mut self, until: u64) {
        self.hangs_until = self.hangs_until.max(until);
    }

    /// The next call of that method fails with that code, after it takes effect (`applied`) or before.
    pub fn fail_next(&mut self, method: Method, code: Code, applied: bool) {
        self.planned.push((method, code, applied));
    }

    /// The next `count` stops report success but do nothing.
    pub fn lie_next_stops(&mut self, count: u32) {
        self.lies += count;
    }

    /// A container's process ends now with that exit code; for instance 137 if memory ran out.
    pub fn crash(&mut self, now: u64, id: &str, code: i32) {
        if let Some(container) = self.containers.get_mut(id).filter(|c| c.alive(now)) {
            container.end = Some((now, code));
        }
    }

    /// The kernel kills a container's process because memory ran out.
    pub fn run_out_of_memory(&mut self, now: u64, id: &str) {
        if let Some(container) = self.containers.get_mut(id).filter(|c| c.alive(now)) {
            container.process.out_of_memory = true;
            container.end = Some((now, super::KILLED));
        }
    }

    /// A container's process cannot be killed before then.
    pub fn undying(&mut self, now: u64, id: &str, until: u64) {
        if let Some(container) = self.containers.get_mut(id).filter(|c| c.alive(now)) {
            container.undying = until;
            if let Some((at, code)) = container.end {
                container.end = Some((at.max(until), code));
            }
        }
    }

    /// A Pod's sandbox ends by itself, its containers with it: they share its process namespace, or lose its
    /// network.
    pub fn break_sandbox(&mut self, now: u64, id: &str) {
        let Some(sandbox) = self.sandboxes.get_mut(id) else { return };
        sandbox.ready = false;
        for container in self.containers.values_mut().filter(|c| c.info.sandbox == id) {
            if container.alive(now) {
                container.end = Some((now, super::KILLED));
            }
        }
        self.touch(now);
    }

    /// The runtime loses track of a container: its state is `Unknown` although its process lives.
    pub fn lose_track(&mut self, now: u64, id: &str) {
        if let Some(container) = self.containers.get_mut(id).filter(|c| c.info.state == State::Running) {
            container.info.state = State::Unknown;
            self.touch(now);
        }
    }

    /// The node dies and boots: every process has ended, and the boot ID changes. The runtime is down until
    /// [`up`](Self::up). Its records are on disk and show ended containers (exit code 255), or are `wiped`.
    pub fn reboot(&mut self, now: u64, wiped: bool) {
        self.down(now);
        // No caller sees a broken connection: the callers died, too.
        self.replies.clear();
        self.boot_id = uuid(&mut self.rng);
        self.touch(now);
        let alive: Vec<String> =
            self.containers.values().filter(|c| c.alive(now)).map(|c| c.info.id.clone()).collect();
        for id in &alive {
            self.deed(now, id, DeedKind::Ended(255));
        }
        if wiped {
            self.containers.clear();
            self.sandboxes.clear();
            self.wipe_images();
            return;
        }
        for sandbox in self.sandboxes.values_mut() {
            sandbox.ready = false;
        }
        let wall = self.wall(now);
        for container in self.containers.values_mut() {
            container.starting = None;
            if container.alive(now) {
                container.end = Some((now, 255));
            }
            if matches!(container.info.state, State::Running | State::Unknown) {
                container.exited(wall, 255, "Unknown");
            }
        }
    }
}
