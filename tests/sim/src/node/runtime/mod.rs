//! The model of a container runtime that speaks CRI v1: containerd, by option CRI-O.
//!
//! Time is virtual and given by the caller, in milliseconds. A call takes effect when it is made, and its
//! reply arrives [`Options::call_ms`] later. A call that must wait (stop, command, start) replies at the end.
//!
//! Sources: `reference/crr.md` section 4.5, `cri-proto/tests/containerd.rs`, containerd's `pkg/cri/server`
//! and CRI-O's `server` as published. For containerd 1.6 and 2, each fact is compared with the real runtime
//! (`conform::runtime`). CRI-O was read and not run.
//!
//! - An ID may be a prefix of the container's. An unknown ID is `NotFound`, except in a removal, and in a
//!   stop from containerd 1.7 on and in CRI-O (success).
//! - A stop of a container that does not run succeeds without effect, also if it was never started. A timeout
//!   of 0 kills at once. The runtime sends the stop signal once in a container's life, however many stops
//!   come, as long as the runtime lives: it remembers that in memory only. Every stop kills when its own
//!   timeout is over.
//! - A stop whose caller cancels never kills (containerd; CRI-O continues).
//! - A command runs in a running container only, ends with it (137), and is killed at its timeout (`DeadlineExceeded`).
//! - Images: a pull asks the registry when it ends (`super::registry`), and is dropped if its caller cancels.
//!   A name means what it meant at its last pull.
//! - Containers outlive the runtime. It finds those that ended meanwhile with their true time and code.
//!
//! Faults are methods: [`Runtime::down`], [`Runtime::up`], [`Runtime::restart`], [`Runtime::hang`],
//! [`Runtime::fail_next`], [`Runtime::lie_next_stops`], [`Runtime::reboot`], [`Runtime::crash`], [`Runtime::undying`],
//! [`Runtime::break_sandbox`].

mod advance;
mod container;
mod faults;
mod images;
mod options;
mod process;
mod serve;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{BTreeMap, VecDeque};

pub use container::Container;
pub use images::ImageNews;
pub use options::{Flavor, Options};
pub use process::{KILLED, Process};
pub use types::{
    Answer, Call, CallId, Client, Code, ContainerConfig, ContainerInfo, Deed, DeedKind, Failure, Filter, Map,
    Method, Reply, SandboxConfig, SandboxInfo, State,
};

use super::image::Image;
use super::registry::Registry;
use crate::rng::Rng;

/// A runtime with its containers.
#[derive(Clone, Debug)]
pub struct Runtime {
    options: Options,
    rng: Rng,
    boot_id: String,
    containers: BTreeMap<String, Container>,
    sandboxes: BTreeMap<String, SandboxInfo>,
    made: u32,
    mode: Mode,
    /// The runtime's process does nothing before this time.
    hangs_until: u64,
    /// Calls that came while it hung.
    queued: VecDeque<(CallId, Client, Call)>,
    waits: Vec<Wait>,
    /// Replies on their way, with the time when they arrive.
    replies: Vec<(u64, CallId, Client, Reply)>,
    kubelet_replies: Vec<(CallId, Reply)>,
    last_call: u64,
    /// Offset from virtual time to the node's wall clock, in milliseconds.
    wall_offset: i64,
    /// Failures of the next calls of a method, and whether these take effect all the same.
    planned: Vec<(Method, Code, bool)>,
    lies: u32,
    changes: u64,
    changed_at: u64,
    deeds: Vec<Deed>,
    registry: Registry,
    /// By ID.
    images: BTreeMap<String, Image>,
    image_news: Vec<ImageNews>,
    /// No room for images before this time.
    full_until: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Down,
    /// Answers that it is not initialized, until this time.
    Starting(u64),
    Up,
}

/// A call that waits for something.
#[derive(Clone, Debug)]
struct Wait {
    call: CallId,
    client: Client,
    what: Waiting,
}

#[derive(Clone, Debug)]
enum Waiting {
    /// For the end of a container, which is killed at `kill_at`, if set.
    Stop { id: String, kill_at: Option<u64> },
    /// For a container to run.
    Start { id: String },
    /// For the creation of a container.
    Create { at: u64, id: String },
    /// For the end of a command.
    Exec { id: String, ends: u64, code: i32, timeout: Option<u64> },
    /// For a sandbox.
    Sandbox { at: u64, config: SandboxConfig },
    /// For the end of a container, to remove it.
    Remove { id: String },
    /// For the end of all containers of a sandbox.
    StopSandbox { id: String, remove: bool },
    /// For an image.
    Pull { at: u64, image: String },
}

impl Runtime {
    /// A runtime that is up, without containers. The seed determines the IDs.
    pub fn new(options: Options, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x0072_756e_7469_6d65);
        let boot_id = uuid(&mut rng);
        Self {
            options,
            rng,
            boot_id,
            containers: BTreeMap::new(),
            sandboxes: BTreeMap::new(),
            made: 0,
            mode: Mode::Up,
            hangs_until: 0,
            queued: VecDeque::new(),
            waits: Vec::new(),
            replies: Vec::new(),
            kubelet_replies: Vec::new(),
            last_call: 0,
            wall_offset: 0,
            planned: Vec::new(),
            lies: 0,
            changes: 0,
            changed_at: 0,
            deeds: Vec::new(),
            registry: Registry::default(),
            images: BTreeMap::new(),
            image_news: Vec::new(),
            full_until: 0,
        }
    }

    /// How it behaves.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// `/proc/sys/kernel/random/boot_id` of the node.
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Sets the node's wall clock, in milliseconds since the epoch: the source of container times.
    pub fn set_wall(&mut self, now: u64, wall: i64) {
        self.wall_offset = wall - now.cast_signed();
    }

    /// Makes a call. [`advance`](Self::advance) returns its reply, for the kubelet
    /// [`take_replies`](Self::take_replies).
    pub fn call(&mut self, now: u64, client: Client, call: Call) -> CallId {
        self.last_call += 1;
        let id = CallId(self.last_call);
        if self.mode == Mode::Down {
            self.reply(now, id, client, Err(unavailable("connect: no such file or directory")));
        } else if self.hangs(now) {
            self.queued.push_back((id, client, call));
        } else {
            self.take_up(now, id, client, call);
        }
        id
    }

    /// The caller cancels: its reply never comes. The module doc says what the runtime then does not do.
    pub fn cancel(&mut self, call: CallId) {
        self.replies.retain(|r| r.1 != call);
        self.kubelet_replies.retain(|r| r.0 != call);
        self.queued.retain(|q| q.0 != call);
        let goes_on = self.options.flavor == Flavor::Crio;
        self.waits.retain_mut(|w| {
            if w.call != call {
                return true;
            }
            // No client receives a later reply.
            w.client = NOBODY;
            match w.what {
                Waiting::Stop { .. } => goes_on,
                Waiting::Exec { .. } | Waiting::Sandbox { .. } | Waiting::Pull { .. } => false,
                _ => true,
            }
        });
    }

    /// The call continues, but its reply never comes.
    fn drop_reply(&mut self, call: CallId) {
        self.replies.retain(|r| r.1 != call);
        self.waits.iter_mut().filter(|w| w.call == call).for_each(|w| w.client = NOBODY);
    }

    /// A client's process dies: all its calls are cancelled.
    pub fn cancel_all(&mut self, client: Client) {
        let waiting = self.waits.iter().filter(|w| w.client == client).map(|w| w.call);
        let queued = self.queued.iter().filter(|q| q.1 == client).map(|q| q.0);
        let replied = self.replies.iter().filter(|r| r.2 == client).map(|r| r.1);
        let all: Vec<CallId> = waiting.chain(queued).chain(replied).collect();
        for call in all {
            self.cancel(call);
        }
        if client == Client::KUBELET {
            self.kubelet_replies.clear();
        }
    }

    /// The kubelet's replies since the last call.
    pub fn take_replies(&mut self) -> Vec<(CallId, Reply)> {
        std::mem::take(&mut self.kubelet_replies)
    }

    /// The containers, by ID.
    pub fn containers(&self) -> &BTreeMap<String, Container> {
        &self.containers
    }

    /// The sandboxes, by ID.
    pub fn sandboxes(&self) -> &BTreeMap<String, SandboxInfo> {
        &self.sandboxes
    }

    /// Whether a read would be answered now.
    pub fn answers(&self, now: u64) -> bool {
        self.mode == Mode::Up && !self.hangs(now)
    }

    /// Counts the changes that a list would show.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// When the last such change was.
    pub fn changed_at(&self) -> u64 {
        self.changed_at
    }

    /// What happened since the last call, for oracles.
    pub fn take_deeds(&mut self) -> Vec<Deed> {
        std::mem::take(&mut self.deeds)
    }

    fn touch(&mut self, at: u64) {
        self.changes += 1;
        self.changed_at = self.changed_at.max(at);
    }

    fn hangs(&self, now: u64) -> bool {
        now < self.hangs_until
    }

    /// Nanoseconds of the node's wall clock.
    fn wall(&self, at: u64) -> i64 {
        (at.cast_signed() + self.wall_offset).saturating_mul(1_000_000)
    }

    fn reply(&mut self, now: u64, call: CallId, client: Client, reply: Reply) {
        if client != NOBODY {
            self.replies.push((now + self.options.call_ms.max(1), call, client, reply));
        }
    }

    fn deed(&mut self, at: u64, id: &str, kind: DeedKind) {
        self.deeds.push(Deed { at, id: id.to_owned(), kind });
    }

    fn new_id(&mut self) -> String {
        self.made += 1;
        (0..4).fold(String::new(), |text, _| format!("{text}{:016x}", self.rng.next()))
    }
}

/// The caller of a call whose reply is dropped.
const NOBODY: Client = Client(u32::MAX);

fn unavailable(message: &str) -> Failure {
    Failure { code: Code::Unavailable, message: message.to_owned() }
}

fn uuid(rng: &mut Rng) -> String {
    let (a, b) = (rng.next(), rng.next());
    let low = |n: u64, bits: u32| n & ((1 << bits) - 1);
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        low(a, 32),
        low(a >> 32, 16),
        low(a >> 48, 12),
        low(b, 12),
        low(b >> 12, 48)
    )
}

pub(in crate::node) use serve::gone;
