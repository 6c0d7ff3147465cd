//! The model as a target.

use super::run::Target;
use crate::node::runtime::{Call, CallId, Client, Flavor, Options, Reply, Runtime};

const ME: Client = Client(1);

/// A model of a runtime.
pub struct Model {
    runtime: Runtime,
    now: u64,
    replies: Vec<(CallId, Reply)>,
}

impl Model {
    /// A runtime without containers.
    pub fn new(flavor: Flavor, seed: u64) -> Self {
        let mut runtime = Runtime::new(Options::of(flavor), seed);
        runtime.set_wall(0, 1_700_000_000_000);
        Self { runtime, now: 0, replies: Vec::new() }
    }

    fn turn(&mut self) {
        let replies = self.runtime.advance(self.now);
        self.replies.extend(replies);
    }
}

impl Target for Model {
    type Begun = CallId;

    fn begin(&mut self, call: Call) -> CallId {
        self.runtime.call(self.now, ME, call)
    }

    fn end(&mut self, begun: CallId) -> Reply {
        loop {
            self.turn();
            if let Some(at) = self.replies.iter().position(|r| r.0 == begun) {
                return self.replies.remove(at).1;
            }
            self.now = self.runtime.wake_at().expect("a reply is to come").max(self.now);
        }
    }

    fn leave(&mut self, begun: CallId) {
        self.runtime.cancel(begun);
    }

    fn now(&mut self) -> u64 {
        self.now
    }

    fn pause(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(at) = self.runtime.wake_at().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.turn();
        }
        self.now = end;
    }

    fn settle(&mut self, _: &str) {}

    fn kill(&mut self) {
        self.runtime.down(self.now);
    }

    fn revive(&mut self) {
        self.runtime.up(self.now, 500);
        self.pause(500);
    }
}
