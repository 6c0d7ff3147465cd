//! The model of a node: container runtime and kubelet, in virtual milliseconds.
//!
//! [`Node`] holds both and runs them together. The world moves it by [`Node::advance`] and passes on what its
//! kubelet's watch delivers. Pods say how their containers behave ([`behaviour`]).

pub mod behaviour;
pub mod cgroups;
pub mod image;
pub mod keys;
pub mod kubelet;
pub mod registry;
pub mod runtime;

use std::sync::Arc;

use serde_json::Value;

use self::kubelet::{Kubelet, Write};
use self::runtime::{CallId, Reply, Runtime};
use crate::rng::Rng;

/// A node.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its container runtime.
    pub runtime: Runtime,
    /// Its kubelet.
    pub kubelet: Kubelet,
    rng: Rng,
}

/// Output of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// Replies to calls of the runtime, except the kubelet's.
    pub replies: Vec<(CallId, Reply)>,
    /// The kubelet's writes to the API server.
    pub writes: Vec<Write>,
}

impl Node {
    /// A node whose runtime and kubelet run.
    pub fn new(name: &str, runtime: runtime::Options, kubelet: kubelet::Options, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6e6f_6465);
        let runtime = Runtime::new(runtime, rng.next());
        let mut kubelet = Kubelet::new(name, kubelet, &mut rng);
        kubelet.start(0, &[]);
        Self { runtime, kubelet, rng }
    }

    /// Does everything that is due. `wall` is the node's own clock, in milliseconds since the epoch.
    pub fn advance(&mut self, now: u64, wall: i64) -> Output {
        let mut output = Output::default();
        self.runtime.set_wall(now, wall);
        loop {
            output.replies.extend(self.runtime.advance(now));
            output.writes.extend(self.kubelet.advance(now, wall, &mut self.runtime, &mut self.rng));
            if self.wake_at().is_none_or(|at| at > now) {
                return output;
            }
        }
    }

    /// When [`advance`](Self::advance) has something to do next.
    pub fn wake_at(&self) -> Option<u64> {
        [self.runtime.wake_at(), self.kubelet.wake_at(&self.runtime)].into_iter().flatten().min()
    }

    /// The node loses its power. Runtime and kubelet are down until [`boot`](Self::boot). `wiped`: the
    /// runtime's records are lost.
    pub fn crash(&mut self, now: u64, wiped: bool) {
        self.kubelet.down(&mut self.runtime);
        self.runtime.reboot(now, wiped);
    }

    /// The node runs again; these Pods are bound to it.
    pub fn boot(&mut self, now: u64, pods: &[Arc<Value>]) {
        self.runtime.up(now, 200);
        self.kubelet.start(now, pods);
    }
}
