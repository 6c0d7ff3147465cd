//! Effects of faults.

use pitstop_controller_core::pod::Pod;
use pitstop_daemon_core as daemon;

use super::control::{Call, Controller};
use super::node::{self, Process};
use super::part::Part;
use super::world::{Late, World};
use super::{Bounds, Bug, Fault, Faults};

impl World {
    /// Applies a fault; `None` if it is impossible.
    pub fn go_wrong(&mut self, fault: &Fault, bounds: &Bounds) -> Option<()> {
        let left = &mut self.left;
        left.total -= 1;
        let budget = match fault {
            Fault::Lost(..) | Fault::DaemonLost(..) => &mut left.lost,
            Fault::Refused(..) => &mut left.refused,
            Fault::Controller(..) => &mut left.controller,
            Fault::Daemon(_) => &mut left.daemon,
            Fault::Breaks(..) | Fault::DaemonBreaks(_) => &mut left.breaks,
            Fault::Ends(_) => &mut left.ends,
            Fault::Late => &mut left.late,
            Fault::Meddling(_) => &mut left.meddling,
            Fault::Deleted(_) => &mut left.deleted,
            Fault::Replaced => &mut left.replaced,
        };
        *budget -= 1;
        if left.total == 0 {
            // Unused budgets must not distinguish states.
            *left = Faults::default();
        }
        let now = self.mono();
        match fault {
            Fault::Lost(at, key) => {
                let Some(Call::Sent(write)) = self.controllers[*at].calls.get(key).cloned() else {
                    return None;
                };
                let event = World::unanswered(&write, bounds);
                self.late.push(Late::Write(*at, write));
                self.controllers[*at].calls.insert(key.clone(), Call::Answered(Part::new(event)));
            }
            Fault::Refused(at, key) => {
                let Some(Call::Sent(write)) = self.controllers[*at].calls.get(key).cloned() else {
                    return None;
                };
                let event = World::refused(&write);
                self.controllers[*at].calls.insert(key.clone(), Call::Answered(Part::new(event)));
            }
            Fault::Controller(at, applied) => {
                let old =
                    std::mem::replace(&mut self.controllers[*at], Controller::new(now, bounds.config()));
                let (own, late): (Vec<Late>, Vec<Late>) = std::mem::take(&mut self.late)
                    .into_iter()
                    .partition(|l| matches!(l, Late::Write(owner, _) if owner == at));
                self.late = late;
                let sent = old.calls.into_values().filter_map(|call| match call {
                    Call::Sent(write) => Some(Late::Write(*at, write)),
                    Call::Answered(_) => None,
                });
                for late in own.into_iter().chain(sent).filter(|_| *applied) {
                    if let Late::Write(_, write) = late {
                        self.carry_out(&write, bounds);
                    }
                }
            }
            Fault::Breaks(at, kind) => self.controllers[*at].watches[*kind] = None,
            Fault::DaemonLost(at, key) => self.lose_call(*at, key)?,
            Fault::Daemon(at) => {
                self.lives += 1;
                let ended = match bounds.bug {
                    Some(Bug::HooksForgotten) => daemon::EndedHooks::new(),
                    _ => self.node.ended_hooks.clone(),
                };
                let new = Process::new(*at, self.lives, now, ended);
                let old = std::mem::replace(&mut self.daemons[*at], new);
                for call in old.calls.into_values() {
                    if let node::Call::Sent(call) = call {
                        self.late.push(Late::Call(old.instance.clone(), call));
                    }
                }
            }
            Fault::DaemonBreaks(at) => self.daemons[*at].watch = None,
            Fault::Ends(at) => {
                self.node.instances[*at].running = false;
                self.node.instances[*at].ready = false;
            }
            Fault::Late => self.now = self.wake()?.0,
            Fault::Meddling(name) => {
                let stored = (**self.store.requests.get(name)?).clone();
                self.store.put_request(stored);
            }
            Fault::Deleted(name) => self.store.remove_request(name),
            Fault::Replaced => {
                let pod = (**self.store.pods.get("web")?).clone();
                self.store.put_pod(Pod { deleting: true, ..pod });
            }
        }
        Some(())
    }

    /// A daemon gets no answer to a call.
    fn lose_call(&mut self, at: usize, key: &str) -> Option<()> {
        let process = &mut self.daemons[at];
        let Some(node::Call::Sent(call)) = process.calls.get(key).cloned() else { return None };
        let event = match &*call {
            daemon::Action::Inspect { order_id, .. } => {
                daemon::Event::Inspected(order_id.clone(), Err(node::failure()))
            }
            daemon::Action::RunHook { order_id, .. } => {
                self.node.ended_hooks.insert(order_id.clone(), Some("no answer".into()));
                daemon::Event::HookDone(order_id.clone(), Err("no answer".into()))
            }
            daemon::Action::Stop { order_id, .. } => {
                daemon::Event::Stopped(order_id.clone(), Err(node::failure()))
            }
            daemon::Action::ReadCgroups { .. }
            | daemon::Action::ReadResources { .. }
            | daemon::Action::Resize { .. }
            | daemon::Action::LookAtImage { .. }
            | daemon::Action::Pull { .. }
            | daemon::Action::CancelPull { .. }
            | daemon::Action::WriteBack { .. } => unreachable!("no controller of the model orders that"),
            daemon::Action::WriteStatus { .. } => daemon::Event::StatusWritten(daemon::Outcome::Retry),
        };
        self.late.push(Late::Call(process.instance.clone(), call));
        process.calls.insert(key.to_owned(), node::Call::Answered(Part::new(event)));
        Some(())
    }
}
