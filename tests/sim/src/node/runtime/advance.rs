//! Events of the runtime as time passes.

use super::types::{Answer, CallId, Client, Code, DeedKind, Failure, Reply, SandboxInfo, State};
use super::{Mode, Runtime, Waiting};

impl Runtime {
    /// Does everything that is due; returns the replies that are due, except the kubelet's.
    pub fn advance(&mut self, now: u64) -> Vec<(CallId, Reply)> {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.happen(at);
        }
        if self.hangs(now) || self.replies.is_empty() {
            return Vec::new();
        }
        let mut due: Vec<_> = self.replies.extract_if(.., |r| r.0 <= now).collect();
        due.sort_by_key(|r| (r.0, r.1));
        let (kubelet, others): (Vec<_>, Vec<_>) = due.into_iter().partition(|r| r.2 == Client::KUBELET);
        self.kubelet_replies.extend(kubelet.into_iter().map(|r| (r.1, r.3)));
        others.into_iter().map(|r| (r.1, r.3)).collect()
    }

    /// When [`advance`](Self::advance) has something to do next.
    pub fn wake_at(&self) -> Option<u64> {
        let reply = self.replies.iter().map(|r| r.0.max(self.hangs_until)).min();
        let kubelet = (!self.kubelet_replies.is_empty()).then_some(0);
        [self.next_event(), reply, kubelet].into_iter().flatten().min()
    }

    fn next_event(&self) -> Option<u64> {
        let starting = match self.mode {
            Mode::Down => return None,
            Mode::Starting(until) => Some(until),
            Mode::Up => None,
        };
        if let Some(until) = starting {
            return Some(until.max(self.hangs_until));
        }
        let containers = self.containers.values().filter_map(|c| {
            let ends = || c.end.filter(|_| runs(c.info.state)).map(|(at, _)| at);
            c.starting.or_else(ends)
        });
        let waits = self.waits.iter().filter_map(|w| match &w.what {
            Waiting::Stop { kill_at, .. } => *kill_at,
            Waiting::Exec { ends, timeout, .. } => Some(timeout.map_or(*ends, |t| t.min(*ends))),
            Waiting::Create { at, .. } | Waiting::Sandbox { at, .. } | Waiting::Pull { at, .. } => Some(*at),
            Waiting::StopSandbox { id, .. } => self.sandbox_ended(id).then_some(0),
            Waiting::Start { .. } | Waiting::Remove { .. } => None,
        });
        let thaw = (!self.queued.is_empty()).then_some(self.hangs_until);
        containers.chain(waits).chain(thaw).map(|at| at.max(self.hangs_until)).min()
    }

    fn happen(&mut self, at: u64) {
        if let Mode::Starting(until) = self.mode
            && until <= at
        {
            self.mode = Mode::Up;
            self.touch(at);
        }
        for (call, client, request) in std::mem::take(&mut self.queued) {
            self.take_up(at, call, client, request);
        }
        if self.mode != Mode::Up {
            return;
        }
        self.begin(at);
        self.kill_late(at);
        self.notice(at);
        self.settle(at);
    }

    /// Runs the containers that are being started, or fails them.
    fn begin(&mut self, at: u64) {
        let wall_offset = self.wall_offset;
        let wall = |at: u64| (at.cast_signed() + wall_offset) * 1_000_000;
        let mut began = Vec::new();
        let mut any = false;
        for container in self.containers.values_mut() {
            let Some(starts) = container.starting.filter(|starts| *starts <= at) else { continue };
            container.starting = None;
            if container.process.start_fails {
                container.exited(wall(starts), 128, "StartError");
            } else {
                container.info.state = State::Running;
                container.info.started_at = wall(starts);
                container.began = Some(starts);
                container.end = container.process.runs.map(|(ms, code)| (starts + ms, code));
                began.push((starts, container.info.id.clone()));
            }
            any = true;
        }
        if any {
            self.touch(at);
        }
        for (starts, id) in began {
            self.deed(starts, &id, DeedKind::Started);
        }
    }

    /// Kills the containers of stops whose timeout is over.
    fn kill_late(&mut self, at: u64) {
        let late: Vec<String> = self
            .waits
            .iter_mut()
            .filter_map(|w| match &mut w.what {
                Waiting::Stop { id, kill_at } if kill_at.is_some_and(|due| due <= at) => {
                    *kill_at = None;
                    Some(id.clone())
                }
                _ => None,
            })
            .collect();
        for id in late {
            self.kill(at, &id);
        }
    }

    /// Records the processes that ended.
    pub(super) fn notice(&mut self, at: u64) {
        let wall_offset = self.wall_offset;
        let mut ended = Vec::new();
        for container in self.containers.values_mut().filter(|c| runs(c.info.state)) {
            let Some((end, code)) = container.end.filter(|(end, _)| *end <= at) else { continue };
            let reason = match code {
                0 => "Completed",
                super::KILLED if container.process.out_of_memory => "OOMKilled",
                _ => "Error",
            };
            container.exited((end.cast_signed() + wall_offset) * 1_000_000, code, reason);
            ended.push((end, container.info.id.clone(), code));
        }
        if !ended.is_empty() {
            self.touch(at);
        }
        for (end, id, code) in ended {
            self.deed(end, &id, DeedKind::Ended(code));
        }
    }

    /// Answers the calls that have what they waited for.
    fn settle(&mut self, at: u64) {
        let mut done = Vec::new();
        let mut waits = std::mem::take(&mut self.waits);
        waits.retain(|w| match self.outcome(at, &w.what) {
            None => true,
            Some(reply) => {
                done.push((w.call, w.client, w.what.clone(), reply));
                false
            }
        });
        self.waits = waits;
        for (call, client, what, mut reply) in done {
            match what {
                Waiting::Remove { id } => self.forget(at, &id),
                Waiting::StopSandbox { id, remove } => self.end_sandbox(at, &id, remove),
                Waiting::Sandbox { config, .. } => reply = Ok(Answer::Created(self.make_sandbox(at, config))),
                Waiting::Pull { image, .. } => {
                    reply = self.fetch(at, client, &image).map(|_| Answer::Done);
                }
                _ => {}
            }
            self.reply(at, call, client, reply);
        }
    }

    fn outcome(&self, at: u64, what: &Waiting) -> Option<Reply> {
        // A container that was removed meanwhile counts as ended.
        let container = |id: &str| self.containers.get(id);
        let ended = |id: &str| container(id).is_none_or(|c| c.info.state == State::Exited);
        match what {
            Waiting::Stop { id, .. } | Waiting::Remove { id } => ended(id).then_some(Ok(Answer::Done)),
            Waiting::Start { id } => match container(id) {
                Some(c) if c.starting.is_some() => None,
                Some(c) if c.process.start_fails => Some(Err(Failure {
                    code: Code::Unknown,
                    message: "failed to create containerd task: runc create failed: no such file".to_owned(),
                })),
                _ => Some(Ok(Answer::Done)),
            },
            Waiting::Create { at: due, id } => (*due <= at).then(|| Ok(Answer::Created(id.clone()))),
            Waiting::Sandbox { at: due, .. } | Waiting::Pull { at: due, .. } => {
                (*due <= at).then_some(Ok(Answer::Done))
            }
            Waiting::Exec { id, ends, code, timeout } => {
                let over = timeout.filter(|t| *t <= at && t < ends);
                match (over, *ends <= at) {
                    _ if ended(id) => Some(Ok(Answer::Exec(super::KILLED))),
                    (Some(_), _) => Some(Err(Failure {
                        code: Code::DeadlineExceeded,
                        message: "failed to exec in container: timeout exceeded".to_owned(),
                    })),
                    (None, true) => Some(Ok(Answer::Exec(*code))),
                    (None, false) => None,
                }
            }
            Waiting::StopSandbox { id, .. } => self.sandbox_ended(id).then_some(Ok(Answer::Done)),
        }
    }

    fn sandbox_ended(&self, id: &str) -> bool {
        !self.containers.values().any(|c| c.info.sandbox == *id && runs(c.info.state))
    }

    fn end_sandbox(&mut self, at: u64, id: &str, remove: bool) {
        self.touch(at);
        if remove {
            self.containers.retain(|_, c| c.info.sandbox != *id);
            self.sandboxes.remove(id);
        } else if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.ready = false;
        }
    }

    fn make_sandbox(&mut self, at: u64, config: super::SandboxConfig) -> String {
        let id = self.new_id();
        let host = self.made % 250 + 2;
        let info = SandboxInfo {
            id: id.clone(),
            config,
            ready: true,
            created_at: self.wall(at),
            ip: format!("10.244.{}.{host}", self.made / 250 % 250),
        };
        self.sandboxes.insert(id.clone(), info);
        self.touch(at);
        id
    }

    /// The runtime's process dies: its calls fail, and its memory is lost.
    pub(super) fn cut(&mut self, now: u64) {
        let waits = std::mem::take(&mut self.waits);
        let replies = std::mem::take(&mut self.replies);
        let queued = std::mem::take(&mut self.queued);
        let calls = waits.into_iter().map(|w| (w.call, w.client));
        let calls = calls.chain(replies.into_iter().map(|r| (r.1, r.2)));
        let calls: Vec<_> = calls.chain(queued.into_iter().map(|q| (q.0, q.1))).collect();
        for (call, client) in calls {
            self.reply(now, call, client, Err(super::unavailable("error reading from server: EOF")));
        }
        for container in self.containers.values_mut() {
            container.signalled = false;
        }
    }
}

/// Whether the runtime waits for the container's end.
fn runs(state: State) -> bool {
    matches!(state, State::Running | State::Unknown)
}
