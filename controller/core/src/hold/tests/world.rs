//! A Pod, its cgroups, its order book, and a daemon that obeys its orders.

use std::collections::{BTreeMap, BTreeSet};

use pitstop_api::nodework::{Bounds, Held, HeldContainer};

use super::super::force::{Force, Wish, bounds, held_pod};
use super::super::settle::{HoldPlan, Holding, settle};
use super::*;

/// The state of the kernel, and the book.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) pod: Option<Pod>,
    pub(super) next_id: u32,
    pub(super) force: Force,
    pub(super) held: Option<Held>,
    pub(super) orders: Vec<Order>,
    pub(super) answers: Vec<Answer>,
    pub(super) answered: BTreeMap<String, Mono>,
    /// By container.
    pub(super) cgroups: BTreeMap<String, Bounds>,
    /// The Pod's.
    pub(super) cgroup: Bounds,
    /// Containers whose instances were given nothing since they restarted.
    pub(super) restarted: BTreeSet<String>,
    pub(super) now: Mono,
    pub(super) placed: usize,
}

pub(super) fn spec_of(pod: &Pod) -> Bounds {
    bounds(&held_pod(pod, |container| container.resources))
}

pub(super) fn answer(order_id: &str, state: AnswerState, reason: Option<AnswerReason>) -> Answer {
    Answer {
        order_id: order_id.to_owned(),
        state,
        reason,
        message: String::new(),
        acknowledged_uptime_seconds: None,
        acknowledged_by: String::new(),
        observed: None,
        image: None,
    }
}

/// The daemon's record of a container before it gives it anything.
pub(super) fn record_of(order: &Order) -> HeldContainer {
    let (name, id) = (order.container.name.clone(), order.container.id.clone());
    HeldContainer { name, id, order: order.id.clone(), ..HeldContainer::default() }
}

impl World {
    pub(super) fn new() -> Self {
        let mut pod = pod();
        for (n, container) in pod.containers.iter_mut().enumerate() {
            let status = container.status.as_mut().unwrap();
            status.container_id = id(u32::try_from(n).unwrap() + 1);
            status.actual = None;
        }
        let cgroups = pod.containers.iter().map(|c| (c.name.clone(), bounds(&c.resources))).collect();
        Self {
            cgroup: spec_of(&pod),
            cgroups,
            pod: Some(pod),
            next_id: 10,
            force: Force::default(),
            held: None,
            restarted: BTreeSet::new(),
            orders: Vec::new(),
            answers: Vec::new(),
            answered: BTreeMap::new(),
            now: Mono(0),
            placed: 0,
        }
    }

    pub(super) fn plan(&self) -> HoldPlan {
        let answer = |order: &Order| self.answers.iter().find(|a| a.order_id == order.id);
        let orders: Vec<_> = self
            .orders
            .iter()
            .map(|order| OrderView { order, answer: answer(order), closed: false })
            .collect();
        settle(
            self.now,
            &Holding {
                pod: self.pod.as_ref(),
                force: &self.force,
                held: self.held.as_ref(),
                orders: &orders,
                answered: &self.answered,
                last_attempt: 0,
                guarded: true,
                awaited: false,
            },
        )
    }

    /// The controller writes the book.
    pub(super) fn control(&mut self) {
        let HoldPlan { orders, .. } = self.plan();
        for order in &orders {
            let before = self.orders.iter().find(|known| known.id == order.id);
            assert!(before.is_none_or(|before| before == order), "an order never changes");
            self.placed += usize::from(before.is_none());
        }
        self.orders = orders;
        self.answers.retain(|answer| self.orders.iter().any(|order| order.id == answer.order_id));
        self.answered.retain(|id, _| self.answers.iter().any(|answer| answer.order_id == *id));
    }

    /// The daemon acknowledges the first unanswered order, and makes no progress with it.
    pub(super) fn hinder(&mut self) {
        let known = |order: &&Order| self.answers.iter().all(|answer| answer.order_id != order.id);
        let Some(order) = self.orders.iter().find(known).cloned() else { return };
        let resize = order.action.resize.clone().unwrap();
        // For an ended instance, only the Pod's part may fail.
        let (runs, pod_alone) = (self.runs(&order), resize.pod.is_some() && !resize.hold);
        if self.pod.is_none() || !(runs && resize.container.is_some() || !runs && pod_alone) {
            return;
        }
        self.answers.push(answer(&order.id, AnswerState::Acknowledged, Some(AnswerReason::MemoryInUse)));
        let held = self.held.get_or_insert_with(|| Held { pod: order.pod.clone(), ..Held::default() });
        held.given = None;
        let name = order.container.name.clone();
        let at = held.containers.iter().position(|c| c.name == name && c.id == order.container.id);
        if let Some(at) = at {
            let record = &mut held.containers[at];
            if runs {
                record.before = record.given.take().or(record.before);
            }
        } else {
            held.containers.retain(|c| c.name != name);
            held.containers.push(record_of(&order));
        }
    }

    /// The daemon carries out all unanswered orders, then those without progress.
    pub(super) fn obey(&mut self) {
        let answered = |order: &Order| self.answers.iter().find(|a| a.order_id == order.id).map(|a| a.state);
        let (fresh, known): (Vec<Order>, Vec<Order>) =
            self.orders.iter().cloned().partition(|order| answered(order).is_none());
        let hindered = known.into_iter().filter(|o| answered(o) == Some(AnswerState::Acknowledged));
        let open: Vec<Order> = fresh.into_iter().chain(hindered).collect();
        for order in open {
            self.answers.retain(|answer| answer.order_id != order.id);
            let (state, reason) = if self.carry_out(&order) {
                (AnswerState::Done, None)
            } else {
                (AnswerState::Refused, Some(AnswerReason::NotRunning))
            };
            self.answered.insert(order.id.clone(), self.now);
            self.answers.push(answer(&order.id, state, reason));
            self.safe();
        }
    }

    /// Whether the instance that the order names runs.
    pub(super) fn runs(&self, order: &Order) -> bool {
        self.pod.as_ref().and_then(|pod| pod.container(&order.container.name)).is_some_and(|c| {
            let status = c.status.as_ref().unwrap();
            let own = status.container_id.ends_with(order.container.id.as_str());
            status.state == ContainerState::Running && own
        })
    }

    pub(super) fn carry_out(&mut self, order: &Order) -> bool {
        let name = &order.container.name;
        let resize = order.action.resize.as_ref().unwrap();
        let runs = self.runs(order);
        if resize.hold && !runs {
            return false;
        }
        let held = self.held.get_or_insert_with(|| Held { pod: order.pod.clone(), ..Held::default() });
        held.containers.retain(|c| c.name != *name);
        if let (Some(own), true) = (resize.container, runs) {
            self.cgroups.insert(name.clone(), own);
            self.restarted.remove(name);
        }
        if let (Some(own), true) = (resize.pod, self.pod.is_some()) {
            self.cgroup = own;
            held.given = Some(own);
        }
        if resize.hold {
            held.containers.push(HeldContainer { given: resize.container, ..record_of(order) });
        }
        self.held = self.held.take().filter(|held| !held.containers.is_empty());
        true
    }

    /// The Pod may use at least as much as all its containers together. A container that just restarted may use more
    /// than it was given before, and will be given that again.
    pub(super) fn safe(&self) {
        let Some(pod) = &self.pod else { return };
        let limit = |get: fn(&Bounds) -> Option<i64>| {
            let runs = |c: &&Container| c.status.as_ref().unwrap().state == ContainerState::Running;
            let running = pod.containers.iter().filter(runs);
            let record = |name: &str| self.held.as_ref()?.containers.iter().find(|c| c.name == name);
            let counts = |c: &Container| {
                let own = get(&self.cgroups[&c.name])?;
                let Some(record) = record(&c.name) else { return Some(own) };
                let restarted = self.restarted.contains(&c.name).then_some(0);
                let given = record.given.or(record.before).map_or(restarted, |given| get(&given));
                Some(given.map_or(own, |given| own.min(given)))
            };
            let all: Option<Vec<i64>> = running.map(counts).collect();
            all.map(|all| all.iter().sum::<i64>())
        };
        for get in [|b: &Bounds| b.memory_limit, |b: &Bounds| b.cpu_limit] {
            if let (Some(own), Some(all)) = (get(&self.cgroup), limit(get)) {
                assert!(own >= all, "{own} < {all}");
            }
        }
    }

    pub(super) fn restart(&mut self, n: usize) {
        let Some(pod) = &mut self.pod else { return };
        let container = &mut pod.containers[n];
        self.next_id += 1;
        let status = container.status.as_mut().unwrap();
        status.container_id = id(self.next_id);
        status.state = ContainerState::Running;
        self.cgroups.insert(container.name.clone(), bounds(&container.resources));
        self.restarted.insert(container.name.clone());
    }

    pub(super) fn crash(&mut self, n: usize) {
        let Some(pod) = &mut self.pod else { return };
        let status = pod.containers[n].status.as_mut().unwrap();
        status.state = ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: String::new() };
    }

    pub(super) fn want(&mut self, n: usize, wish: Option<(i64, i64)>) {
        let name = ["app", "proxy"][n].to_owned();
        match wish {
            None => drop(self.force.containers.remove(&name)),
            Some((cpu, memory)) => {
                let resources = Resources {
                    cpu_request: Some(cpu),
                    cpu_limit: Some(cpu),
                    memory_request: Some(memory * MI),
                    memory_limit: Some(memory * MI),
                };
                self.force.containers.insert(name, Wish { resources, ..Wish::default() });
            }
        }
    }

    /// A request wants what the spec says.
    pub(super) fn want_spec(&mut self, n: usize) {
        let Some(pod) = &self.pod else { return };
        let Container { name, resources, .. } = &pod.containers[n];
        self.force.containers.insert(name.clone(), Wish { resources: *resources, ..Wish::default() });
    }

    /// Acts until nothing is left to do. Then all must be right.
    pub(super) fn rest(&mut self) {
        for _ in 0..40 {
            self.control();
            self.obey();
            let HoldPlan { orders, wake_at } = self.plan();
            if orders.is_empty() && wake_at.is_none() {
                self.control();
                return self.right();
            }
            self.now = self.now.after(std::time::Duration::from_secs(31));
        }
        panic!("does not come to rest: {:?} {:?}", self.orders, self.held);
    }

    /// Checks that all is as it should be.
    pub(super) fn right(&self) {
        assert_eq!(self.orders, [], "nothing stays in the book");
        let Some(pod) = &self.pod else {
            assert_eq!(self.held, None);
            return;
        };
        for container in &pod.containers {
            if container.status.as_ref().unwrap().state == ContainerState::Running {
                let wanted = bounds(&self.force.wants(container));
                assert_eq!(self.cgroups[&container.name], wanted, "{}", container.name);
            }
        }
        let all_run =
            pod.containers.iter().all(|c| c.status.as_ref().unwrap().state == ContainerState::Running);
        let as_specified =
            pod.containers.iter().all(|c| bounds(&self.force.wants(c)) == bounds(&c.resources));
        if all_run && as_specified {
            assert_eq!(self.cgroup, spec_of(pod), "the Pod keeps nothing that nobody asks for");
        }
        if self.force.containers.is_empty() {
            assert_eq!((&self.held, self.cgroup), (&None, spec_of(pod)), "all is given back");
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Happens {
    Wants(usize, Option<(i64, i64)>),
    WantsSpec(usize),
    Restarts(usize),
    Crashes(usize),
    Controls,
    Obeys,
    Hinders,
    Goes,
}

pub(super) fn happens() -> impl Strategy<Value = Happens> {
    let n = 0..2_usize;
    prop_oneof![
        4 => (n.clone(), proptest::option::of((50..500_i64, 32..512_i64))).prop_map(|(n, wish)| Happens::Wants(n, wish)),
        1 => n.clone().prop_map(Happens::WantsSpec),
        2 => n.clone().prop_map(Happens::Restarts),
        1 => n.prop_map(Happens::Crashes),
        4 => Just(Happens::Controls),
        3 => Just(Happens::Obeys),
        1 => Just(Happens::Hinders),
        1 => Just(Happens::Goes),
    ]
}

pub(super) fn play(story: &[Happens]) {
    let mut world = World::new();
    for happens in story {
        match *happens {
            Happens::Wants(n, wish) => world.want(n, wish),
            Happens::WantsSpec(n) => world.want_spec(n),
            Happens::Restarts(n) => world.restart(n),
            Happens::Crashes(n) => world.crash(n),
            Happens::Controls => world.control(),
            Happens::Obeys => world.obey(),
            Happens::Hinders => world.hinder(),
            Happens::Goes => world.pod = None,
        }
    }
    world.rest();
    // Once nothing is wanted, all is given back.
    (0..2).for_each(|n| world.want(n, None));
    world.rest();
}
