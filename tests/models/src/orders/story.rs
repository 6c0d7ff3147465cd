//! Descriptions of paths for people.

use super::control::{self, Call, KINDS};
use super::node;
use super::world::{Late, World};
use super::{Action, Bounds, Fault, Orders, State};
use crate::check::Story;

fn own(world: &World, at: usize, key: &str) -> String {
    match world.controllers[at].calls.get(key) {
        Some(Call::Sent(write)) => control::brief(write),
        Some(Call::Answered(event)) => control::answer(event),
        None => String::new(),
    }
}

fn of_daemon(world: &World, at: usize, key: &str) -> String {
    match world.daemons[at].calls.get(key) {
        Some(node::Call::Sent(call)) => node::brief(call),
        Some(node::Call::Answered(event)) => node::answer(event),
        None => String::new(),
    }
}

fn late(world: &World, at: usize) -> String {
    match &world.late[at] {
        Late::Write(owner, write) => format!("controller {owner}, {}", control::brief(write)),
        Late::Call(instance, call) => format!("{instance}, {}", node::brief(call)),
    }
}

fn container(world: &World, at: usize) -> String {
    let instance = &world.node.instances[at];
    format!("{} ..{} of {}", instance.name, &instance.id[60..], instance.pod_uid)
}

fn fault(world: &World, fault: &Fault) -> String {
    let daemon = |at: &usize| &world.daemons[*at].instance;
    match fault {
        Fault::Lost(at, key) => format!("controller {at} hears no answer: {}", own(world, *at, key)),
        Fault::Refused(at, key) => format!("the server refuses of controller {at}: {}", own(world, *at, key)),
        Fault::Controller(at, applied) => {
            format!(
                "controller {at} is killed, its writes {} effect",
                if *applied { "take" } else { "have no" }
            )
        }
        Fault::Breaks(at, kind) => format!("controller {at}'s watch of {} breaks", KINDS[*kind]),
        Fault::DaemonLost(at, key) => {
            format!("{} hears no answer: {}", daemon(at), of_daemon(world, *at, key))
        }
        Fault::Daemon(at) => format!("{} is killed", daemon(at)),
        Fault::DaemonBreaks(at) => format!("the watch of {} breaks", daemon(at)),
        Fault::Ends(at) => format!("{} ends by itself", container(world, *at)),
        Fault::Late => "time goes on while messages are on their way".to_owned(),
        Fault::Meddling(name) => format!("somebody writes {name}"),
        Fault::Deleted(name) => format!("a user deletes {name}"),
        Fault::Replaced => "the Pod is deleted".to_owned(),
    }
}

impl Story for Orders {
    fn title(&self) -> String {
        let Bounds { name, requests, containers, controllers, daemons, drain, deadline, faults, .. } =
            &self.bounds;
        let bounds = &self.bounds;
        let ways = [
            (bounds.hook, "hook"),
            (bounds.kubelet, "kubelet"),
            (bounds.ordered, "ordered"),
            (bounds.slow, "slow"),
            (bounds.book, "book"),
            (bounds.coarse, "coarse"),
            (drain.is_some(), "drain"),
            (deadline.is_some(), "deadline"),
        ];
        let ways: Vec<&str> = ways.iter().filter(|(is, _)| *is).map(|(_, way)| *way).collect();
        let ways = ways.join(" ");
        format!(
            "orders-{name}({requests} requests, {containers} containers, {controllers} controllers, {daemons} daemons, [{ways}], \
             {} faults)",
            faults.total
        )
    }

    fn describe(&self, state: &State, action: &Action) -> String {
        let world = &*state.world;
        let daemon = |at: &usize| &world.daemons[*at].instance;
        let what = match action {
            Action::Watch(at, kind) => {
                let next = world.controllers[*at].clone().next(*kind, &world.store);
                format!(
                    "controller {at}'s watch of {}: {}",
                    KINDS[*kind],
                    next.map(|e| control::event(&e)).unwrap_or_default()
                )
            }
            Action::Apply(at, key) => format!("the server gets of controller {at}: {}", own(world, *at, key)),
            Action::Answer(at, key) => format!("controller {at} gets: {}", own(world, *at, key)),
            Action::Tick(at) => format!("controller {at}'s timer"),
            Action::DaemonWatch(at) => {
                let next = world.daemons[*at].clone().next(world.store.book.as_ref());
                format!("{}'s watch: {}", daemon(at), next.map(|e| node::event(&e)).unwrap_or_default())
            }
            Action::DaemonApply(at, key) => {
                format!("is done for {}: {}", daemon(at), of_daemon(world, *at, key))
            }
            Action::DaemonAnswer(at, key) => format!("{} gets: {}", daemon(at), of_daemon(world, *at, key)),
            Action::DaemonTick(at) => format!("{}'s timer", daemon(at)),
            Action::Start(at) => format!("the kubelet starts anew {}", container(world, *at)),
            Action::Ready(at) => format!("ready: {}", container(world, *at)),
            Action::EndForImage(at) => format!("the kubelet ends for its image {}", container(world, *at)),
            Action::Publish => "the kubelet writes the Pod's status".to_owned(),
            Action::RemovePod => "the Pod is gone".to_owned(),
            Action::CreatePod => "another Pod comes under its name".to_owned(),
            Action::Advance => format!("time goes on to {} ms", world.wake().map_or(0, |at| at.0)),
            Action::LateApplied(at) => format!("takes effect late: {}", late(world, *at)),
            Action::LateLost(at) => format!("is lost for good: {}", late(world, *at)),
            Action::Create => "a user makes the next request".to_owned(),
            Action::Fault(of) => format!("FAULT {}", fault(world, of)),
        };
        format!("[{}] {what}", world.now)
    }

    fn show(&self, state: &State) -> String {
        let World { store, node, seen, .. } = &*state.world;
        format!("{store:#?}\n{node:#?}\n{seen:#?}")
    }
}
