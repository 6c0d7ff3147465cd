//! Resizes, in a share of the schedules: beside restarts, or alone.

mod held;

use super::{BEGIN, fault, near};
use crate::rng::Rng;
use crate::world::plan::{ContainerPlan, Fault, PodPlan, Schedule, Step, Timed, Word};
use crate::world::sizing::{Amounts, ResizePlan, Room, Size};

/// Adds resizes to every fourth schedule.
pub(super) fn draw(rng: &mut Rng, schedule: &mut Schedule) {
    if !rng.one_in(4) {
        return;
    }
    if rng.one_in(2) {
        schedule.steps.clear();
    }
    let calm = schedule.faults.is_empty();
    for pod in &mut schedule.pods {
        let never = &*pod.restart_policy == "Never";
        pod.containers.iter_mut().for_each(|c| furnish(rng, c, never));
    }
    schedule.room = room(rng, &schedule.pods);
    let first = schedule.steps.len();
    steps(rng, schedule);
    if schedule.room.millicores.is_some() && rng.one_in(2) {
        crowd(rng, schedule);
    }
    if rng.one_in(5) {
        groups(rng, schedule);
    }
    if !calm {
        faults(rng, schedule, first);
    }
    held::draw(&mut Rng::new(schedule.seed ^ 0x6865_6c64), schedule);
    let mut rng = Rng::new(schedule.seed ^ 0x0071_756f_7461);
    let room = &mut schedule.room;
    room.no_quota = (0..schedule.nodes).filter(|at| rng.one_in(8) && !room.fixed.contains(at)).collect();
}

/// Faults close to the steps from index `first` on.
fn faults(rng: &mut Rng, schedule: &mut Schedule, first: usize) {
    for _ in 0..rng.below(3) {
        let near_by = rng.pick(&schedule.steps[first..]).map_or(BEGIN, |s| s.at);
        let at = (near_by + near(rng)).saturating_sub(300);
        let what = match rng.below(6) {
            0 => Fault::KillController(usize::from(rng.one_in(3)), 100 + rng.below(4000)),
            1 => Fault::HoldWatch(usize::from(rng.one_in(2)), 4, 1000 + rng.below(20_000)),
            2 => Fault::LoseEvents(usize::from(rng.one_in(2)), 4, 200 + rng.below(9000)),
            3 => Fault::LoseAnswers(30 + rng.below(50), 500 + rng.below(9000)),
            _ => fault(rng, schedule),
        };
        schedule.faults.push(Timed { at, what });
    }
}

fn amounts(all: &[(&'static str, Option<String>)]) -> Amounts {
    let present = all.iter().filter_map(|(name, amount)| Some(((*name).into(), amount.clone()?.into())));
    present.collect()
}

fn millicores(amount: u64) -> String {
    if amount.is_multiple_of(1000) { (amount / 1000).to_string() } else { format!("{amount}m") }
}

/// Gives a container a size and a memory use.
fn furnish(rng: &mut Rng, container: &mut ContainerPlan, never: bool) {
    if rng.one_in(12) {
        return;
    }
    let (cpu, memory) = (10 * (5 + rng.below(45)), 32 * (2 + rng.below(7)));
    // Mostly Burstable: with a limit above the request, or without one.
    let above = |rng: &mut Rng, amount: u64, least: u64| match rng.below(4) {
        0 => None,
        1 => Some(amount),
        _ => Some(amount + least * (1 + rng.below(8))),
    };
    let (cpu_limit, memory_limit) = (above(rng, cpu, 50), above(rng, memory, 32));
    let bytes = |amount: u64| format!("{amount}Mi");
    container.size = Size {
        requests: amounts(&[("cpu", Some(millicores(cpu))), ("memory", Some(bytes(memory)))]),
        limits: amounts(&[("cpu", cpu_limit.map(millicores)), ("memory", memory_limit.map(bytes))]),
        restarts: Vec::new(),
    };
    if !never && rng.one_in(4) {
        let all: &[&[&'static str]] = &[&["cpu"], &["memory"], &["cpu", "memory"]];
        container.size.restarts = rng.pick(all).unwrap().iter().map(|r| (*r).into()).collect();
    }
    if rng.one_in(2) {
        let uses = memory * (20 + rng.below(60)) / 100;
        container.behaviour = container.behaviour.replacen('{', &format!("{{\"uses\":{uses},"), 1);
    }
}

/// CPU request of a container, in millicores.
fn requested(container: &ContainerPlan) -> i64 {
    let text = container.size.requests.get("cpu").map_or("0", |text| text);
    text.strip_suffix('m').map_or_else(|| text.parse::<i64>().unwrap() * 1000, |m| m.parse().unwrap())
}

fn room(rng: &mut Rng, pods: &[PodPlan]) -> Room {
    let all: i64 = pods.iter().flat_map(|p| &p.containers).map(requested).sum();
    let more = |rng: &mut Rng| 100 + i64::try_from(rng.below(2000)).unwrap();
    Room {
        millicores: rng.one_in(2).then(|| all + more(rng)),
        quota: rng.one_in(8).then(|| all + more(rng) / 4),
        kubelets_judge: rng.one_in(2),
        fixed: Vec::new(),
        no_quota: Vec::new(),
    }
}

fn steps(rng: &mut Rng, schedule: &mut Schedule) {
    let mut at = BEGIN;
    let many = 1 + rng.below(3);
    for n in 0..many {
        at += if rng.one_in(3) { rng.below(60) } else { rng.below(12_000) };
        let pod = schedule.pods[usize::from(rng.one_in(5))].clone();
        let plan = resize(rng, &pod, n);
        let (name, kept, observe) = (plan.name.clone(), plan.kept, plan.observe);
        schedule.steps.push(Timed { at, what: Step::Resize(Box::new(plan)) });
        let mut later = |rng: &mut Rng, what: Step| {
            let at = at + near(rng);
            schedule.steps.push(Timed { at, what });
            at
        };
        if kept || rng.one_in(8) {
            let deleted = later(rng, Step::DeleteResize(name.clone()));
            if kept {
                schedule.steps.push(Timed { at: deleted + 40_000, what: Step::FreeResize(name) });
            }
            continue;
        }
        let container = rng.pick(&pod.containers).unwrap().name;
        let more = i64::try_from(rng.below(300)).unwrap();
        match rng.below(12) {
            0 | 1 => drop(later(rng, Step::CancelResize(name))),
            2 | 3 => {
                let amount = Some(millicores(50 + 10 * rng.below(60)));
                let (requests, limits) = if rng.one_in(2) {
                    (amounts(&[("cpu", amount)]), Amounts::new())
                } else {
                    (Amounts::new(), amounts(&[("cpu", Some("2".to_owned()))]))
                };
                later(rng, Step::SetSize(pod.name, container, requests, limits));
            }
            4 => drop(later(rng, Step::DeletePod(pod.name))),
            5 => drop(later(rng, Step::Crash(pod.name, container, 1))),
            6 | 7 if observe.is_some() => drop(later(rng, Step::Bloat(pod.name, container, more))),
            8 => {
                // Another client restores the original size.
                let Some(plan) = pod.containers.first() else { continue };
                let (requests, limits) = (plan.size.requests.clone(), plan.size.limits.clone());
                later(rng, Step::SetSize(pod.name, plan.name.clone(), requests, limits));
            }
            _ => {}
        }
    }
}

/// A node that has no room for a while.
fn crowd(rng: &mut Rng, schedule: &mut Schedule) {
    let node = schedule.pods[0].node;
    let own: i64 =
        schedule.pods.iter().filter(|p| p.node == node).flat_map(|p| &p.containers).map(requested).sum();
    let left = i64::try_from(rng.below(60)).unwrap();
    let others = schedule.room.millicores.unwrap_or(own) - own - left;
    schedule.steps.push(Timed { at: BEGIN - 2000, what: Step::Crowd(node, others) });
    if !rng.one_in(4) {
        let at = BEGIN + 1000 + rng.below(40_000);
        schedule.steps.push(Timed { at, what: Step::Crowd(node, 0) });
    }
    // Most requests set how long they wait for room.
    for step in &mut schedule.steps {
        if let Step::Resize(plan) = &mut step.what
            && plan.deferred.is_none()
            && rng.one_in(2)
        {
            plan.deferred = Some(i64::try_from(rng.below(25)).unwrap());
        }
    }
}

/// Control groups that cannot be read, or that apply writes late.
fn groups(rng: &mut Rng, schedule: &mut Schedule) {
    let node = schedule.pods[0].node;
    let what = if rng.one_in(3) {
        Fault::HideCgroups(node, 2000 + rng.below(60_000))
    } else {
        Fault::SlowCgroups(node, 40_000, 300 + rng.below(20_000))
    };
    schedule.faults.push(Timed { at: BEGIN - 1000, what });
}

fn resize(rng: &mut Rng, pod: &PodPlan, n: u64) -> ResizePlan {
    let mut containers: Vec<&ContainerPlan> = pod.containers.iter().collect();
    match rng.below(4) {
        0 => containers.reverse(),
        1 | 2 => containers.truncate(1),
        _ => {}
    }
    let mut asked: Vec<(Word, Amounts, Amounts)> = containers
        .into_iter()
        .map(|container| {
            let (requests, limits) = wanted(rng, &container.size);
            (container.name.clone(), requests, limits)
        })
        .collect();
    if rng.one_in(40) {
        asked[0].0 = "nope".into();
    }
    let seconds = |rng: &mut Rng, least: i64, more: u64| least + i64::try_from(rng.below(more)).unwrap();
    let kept = rng.one_in(14);
    ResizePlan {
        name: format!("prs-{n}"),
        pod: pod.name.clone(),
        pinned: rng.one_in(3),
        containers: asked,
        restart: rng.pick(&[None, None, Some("Never"), Some("IfPolicyRequires")]).unwrap().map(Word::from),
        deferred: rng.one_in(4).then(|| seconds(rng, 0, 25)),
        observe: rng.one_in(3).then(|| seconds(rng, 1, 20)),
        deadline: rng.one_in(2).then(|| seconds(rng, 3, 40)),
        ttl: rng.one_in(4).then(|| i32::try_from(rng.below(20)).unwrap()),
        dry_run: rng.one_in(8),
        kept,
        mechanism: None,
    }
}

/// Requests and limits of a `PodResize`; most are possible.
fn wanted(rng: &mut Rng, size: &Size) -> (Amounts, Amounts) {
    let has = |amounts: &Amounts, name: &str| amounts.contains_key(name);
    let both = |name: &'static str, change: &str| {
        let of = |amounts: &Amounts| has(amounts, name).then(|| change.to_owned());
        (amounts(&[(name, of(&size.requests))]), amounts(&[(name, of(&size.limits))]))
    };
    let one = |list: usize, name: &'static str, amount: &str| {
        let amounts = amounts(&[(name, Some(amount.to_owned()))]);
        if list == 0 { (amounts, Amounts::new()) } else { (Amounts::new(), amounts) }
    };
    if size.requests.is_empty() {
        return one(usize::from(rng.one_in(2)), "cpu", "200m");
    }
    match rng.below(14) {
        0..=2 => both("cpu", rng.pick(&["+50%", "x2", "x3", "+20%"]).unwrap()),
        3 | 4 => both("cpu", rng.pick(&["-50%", "x0.3", "-10%"]).unwrap()),
        5 | 6 => both("memory", rng.pick(&["+50%", "x2"]).unwrap()),
        7 | 8 => both("memory", rng.pick(&["-50%", "x0.2", "-20%"]).unwrap()),
        9 => {
            let all = [("cpu", Some("330m".to_owned())), ("memory", Some("96Mi".to_owned()))];
            let above = [("cpu", Some("1".to_owned())), ("memory", Some("640Mi".to_owned()))];
            (amounts(&all), amounts(&above))
        }
        10 => one(0, "cpu", &millicores(20 + rng.below(400))),
        11 => one(1, "cpu", "3"),
        12 => one(0, "cpu", "64"),
        _ => both("cpu", "x1"),
    }
}
