//! Writes of a daemon into control groups, one after the other: a process can die between two of them.

use std::collections::VecDeque;

use pitstop_api::nodework::Held;
use pitstop_daemon_core::resize::Write;
use pitstop_daemon_core::{CallFailure, Event};

use super::{DaemonProcess, Machine};
use crate::world::effect::{Effect, Out, Writing};

/// Writes that were decided together.
pub(super) struct Chain {
    why: Why,
    /// UID of the Pod.
    pod: String,
    writes: VecDeque<Write>,
}

/// Purpose of the writes.
enum Why {
    /// An order.
    Order(String),
    /// The book is gone: the Pod gets its original resources back.
    Back(Box<Held>),
}

impl DaemonProcess {
    pub(super) fn resize(&mut self, order_id: String, pod: String, writes: Vec<Write>) -> Effect {
        self.go_on(Chain { why: Why::Order(order_id), pod, writes: writes.into() }).unwrap()
    }

    pub(super) fn write_back(&mut self, now: u64, held: Box<Held>, machine: &mut Machine<'_>) -> Out {
        match machine.cgroups.owed(now, machine.runtime, &held) {
            Ok(writes) => {
                let pod = held.pod.uid.clone();
                let chain = Chain { why: Why::Back(held), pod: pod.clone(), writes: writes.into() };
                match self.go_on(chain) {
                    Some(effect) => Out { effects: vec![effect], ..Out::default() },
                    None => self.core(now, Event::WrittenBack(pod, Ok(())), machine),
                }
            }
            Err(failure) => self.core(now, Event::WrittenBack(held.pod.uid, Err(failure)), machine),
        }
    }

    /// Begins the next write; None if none is left.
    fn go_on(&mut self, mut chain: Chain) -> Option<Effect> {
        let write = chain.writes.pop_front()?;
        self.writes += 1;
        let order_id = match &chain.why {
            Why::Order(id) => Some(id.clone()),
            Why::Back(_) => None,
        };
        let writing = Writing { token: self.writes, order_id, pod: chain.pod.clone(), write };
        self.chains.insert(self.writes, chain);
        Some(Effect::Write(writing))
    }

    /// A write ended.
    pub fn wrote(
        &mut self,
        now: u64,
        token: u64,
        result: Result<(), CallFailure>,
        machine: &mut Machine<'_>,
    ) -> Out {
        let Some(chain) = self.chains.remove(&token) else { return Out::default() };
        if result.is_ok() && !chain.writes.is_empty() {
            let effects = self.go_on(chain).into_iter().collect();
            return Out { effects, ..Out::default() };
        }
        let event = match chain.why {
            Why::Order(id) => Event::Resized(id, result),
            Why::Back(held) => {
                let left = || machine.cgroups.owed(now, machine.runtime, &held);
                let missing = || CallFailure { retry: true, message: "the write had no effect".to_owned() };
                let seen = result.and_then(|()| if left()?.is_empty() { Ok(()) } else { Err(missing()) });
                Event::WrittenBack(chain.pod, seen)
            }
        };
        self.core(now, event, machine)
    }
}
