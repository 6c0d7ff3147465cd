//! A container in the runtime, and its real process.

use std::sync::Arc;

use super::process::Process;
use super::types::{ContainerConfig, ContainerInfo, State};
use crate::node::image::Image;

/// A container: what the runtime believes (`info`), and what its process really does.
#[derive(Clone, Debug)]
pub struct Container {
    /// What lists and statuses show.
    pub info: ContainerInfo,
    /// How its process behaves.
    pub process: Process,
    /// When it runs, while it is being started.
    pub(super) starting: Option<u64>,
    /// When its process began; None before.
    pub(super) began: Option<u64>,
    /// When its process ends or ended, and its exit code.
    pub(super) end: Option<(u64, i32)>,
    /// Whether the runtime remembers that it sent the stop signal. Lost when the runtime restarts.
    pub(super) signalled: bool,
    /// Number of stop signals that its process got.
    pub(super) signals: u32,
    /// Its process cannot be killed before this time (it hangs in the kernel).
    pub(super) undying: u64,
}

impl Container {
    pub(super) fn new(
        id: String,
        sandbox: String,
        made_of: &Image,
        now: i64,
        config: ContainerConfig,
    ) -> Self {
        let ContainerConfig { name, attempt, image, labels, annotations, process } = config;
        let info = ContainerInfo {
            id,
            sandbox,
            name,
            attempt,
            image,
            image_ref: made_of.reference().to_owned(),
            image_id: made_of.id.clone(),
            labels: Arc::clone(&labels),
            annotations: Arc::clone(&annotations),
            state: State::Created,
            created_at: now,
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: String::new(),
        };
        Self {
            info,
            process,
            starting: None,
            began: None,
            end: None,
            signalled: false,
            signals: 0,
            undying: 0,
        }
    }

    /// Whether its process lives at that time, whatever the runtime believes.
    pub fn alive(&self, now: u64) -> bool {
        self.began.is_some() && self.end.is_none_or(|(at, _)| at > now)
    }

    /// When its process ended, in virtual milliseconds.
    pub fn ended_at(&self, now: u64) -> Option<u64> {
        self.end.filter(|(at, _)| *at <= now).map(|(at, _)| at)
    }

    /// Lets the process end no later than that.
    pub(super) fn end_by(&mut self, at: u64, code: i32) {
        let at = at.max(self.undying);
        if self.end.is_none_or(|(planned, _)| planned > at) {
            self.end = Some((at, code));
        }
    }

    /// Records its end.
    pub(super) fn exited(&mut self, wall: i64, code: i32, reason: &str) {
        self.info.state = State::Exited;
        self.info.finished_at = wall;
        self.info.exit_code = code;
        reason.clone_into(&mut self.info.reason);
    }
}
