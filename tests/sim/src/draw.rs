//! From a seed to a schedule.
//!
//! Most schedules are small: two Pods, a few requests close together, a few faults close to them. Much of what fails in
//! such systems needs only two or three events at the right time.

mod parks;
mod resizes;
mod rollouts;
mod selected;
mod updates;

use crate::rng::Rng;
use crate::world::clock::Clock;
use crate::world::imaging::Images;
use crate::world::plan::{
    Clocks, ContainerPlan, Fault, Forgery, HookPlan, PodPlan, RequestPlan, Schedule, Skew, Step, Timed, Word,
};
use crate::world::sizing::{Room, Size};

/// Time of the first steps, in milliseconds: processes and Pods are up by then.
const BEGIN: u64 = 8_000;
const HOUR: i64 = 3_600_000;

/// The schedule of a seed.
pub fn schedule(seed: u64) -> Schedule {
    let mut rng = Rng::new(seed ^ 0x7069_7473_746f_7000);
    let nodes = 2;
    let pods = vec![pod(&mut rng, "web", nodes), pod(&mut rng, "db", nodes)];
    let mut schedule = Schedule {
        seed,
        name: format!("seed {seed}"),
        nodes,
        replicas: 2,
        default_deadline: 60 + rng.below(120),
        clocks: clocks(&mut rng),
        pods,
        skew: skew(&mut Rng::new(seed ^ 0x0073_6b65_7773)),
        room: Room::default(),
        images: Images::default(),
        workload: None,
        most_open: most_open(&mut Rng::new(seed ^ 0x0062_6f75_6e64)),
        steps: Vec::new(),
        faults: Vec::new(),
        crash: None,
    };
    rollouts::workload(&mut Rng::new(seed ^ 0x776f_726b), &mut schedule);
    steps(&mut rng, &mut schedule);
    others(&mut Rng::new(seed ^ 0x6f74_6865_7273), &mut schedule);
    // One in six draws no faults here, to show the undisturbed world.
    if !rng.one_in(6) {
        faults(&mut rng, &mut schedule);
    }
    resizes::draw(&mut Rng::new(seed ^ 0x7265_7369_7a65), &mut schedule);
    updates::draw(&mut Rng::new(seed ^ 0x696d_6167_6573), &mut schedule);
    rollouts::draw(&mut Rng::new(seed ^ 0x726f_6c6c), &mut schedule);
    parks::draw(&mut Rng::new(seed ^ 0x7061_726b), &mut schedule);
    selected::draw(&mut Rng::new(seed ^ 0x7365_6c65_6374), &mut schedule);
    schedule
}

fn most_open(rng: &mut Rng) -> Option<usize> {
    rng.one_in(8).then(|| usize::try_from(1 + rng.below(3)).unwrap())
}

fn skew(rng: &mut Rng) -> Skew {
    Skew { controllers: rng.one_in(4), daemons: rng.one_in(4) }
}

fn clocks(rng: &mut Rng) -> Clocks {
    let mut clock = |boot: u64, rates: bool| {
        let wrong_by = match rng.below(5) {
            0 => 12 * HOUR,
            1 => -12 * HOUR,
            2 => i64::try_from(rng.below(4000)).unwrap() - 2000,
            _ => 0,
        };
        let percent = if rates { rng.pick(&[100, 100, 100, 100, 100, 99, 101]).unwrap() } else { 100 };
        Clock { boot, epoch: 0, percent, wrong_by }
    };
    Clocks {
        server: clock(0, false),
        controllers: vec![clock(5_000_000, true), clock(77_000, true)],
        nodes: vec![clock(777_000, true), clock(1_000, true)],
    }
}

fn pod(rng: &mut Rng, name: &str, nodes: usize) -> PodPlan {
    let gates: &[&[&'static str]] = &[
        &[],
        &[],
        &["KruisePodReady"],
        &["KruisePodReady"],
        &["pitstop.dev/ready"],
        &["KruisePodReady", "pitstop.dev/ready"],
    ];
    let names: &[(&'static str, bool)] = match rng.below(3) {
        0 => &[("app", false)],
        1 => &[("app", false), ("sidecar", false)],
        _ => &[("proxy", true), ("app", false)],
    };
    PodPlan {
        name: name.to_owned(),
        node: usize::try_from(rng.below(nodes as u64)).unwrap(),
        containers: names.iter().map(|(name, sidecar)| container(rng, name, *sidecar)).collect(),
        restart_policy: rng
            .pick(&["Always", "Always", "Always", "Always", "OnFailure", "Never"])
            .unwrap()
            .into(),
        grace: rng.pick(&[30, 10, 5, 2]).unwrap(),
        gates: rng.pick(gates).unwrap().iter().map(|g| (*g).into()).collect(),
        controlled: !rng.one_in(4),
    }
}

fn container(rng: &mut Rng, name: &'static str, sidecar: bool) -> ContainerPlan {
    let term = match rng.below(6) {
        0 => "null".to_owned(),
        1 => "[3000,0]".to_owned(),
        n => format!("[{},{}]", 50 * n, 143),
    };
    let ready = rng.pick(&[0, 200, 1500, 4000]).unwrap();
    let start = rng.pick(&[20, 200, 900]).unwrap();
    let runs = match rng.below(8) {
        // The second instance crashes, so a third one follows.
        0 => format!(r#","runs":[null,[{},1]]"#, 300 + rng.below(4000)),
        // Every instance crashes.
        1 if rng.one_in(3) => format!(r#","runs":[[{},1]],"repeat":true"#, 2000 + rng.below(9000)),
        _ => String::new(),
    };
    let took = rng.pick(&[100, 900, 2500, 8000]).unwrap();
    let code = u8::from(rng.one_in(4));
    let hook = match rng.below(5) {
        0 | 1 => Some(HookPlan::Exec),
        2 => Some(HookPlan::Sleep(1)),
        _ => None,
    };
    let behaviour =
        format!(r#"{{"start":{start},"term":{term},"ready":{ready},"hook":[{took},{code}]{runs}}}"#);
    ContainerPlan {
        name: name.into(),
        sidecar,
        hook,
        behaviour,
        size: Size::default(),
        restarts: None,
        pulls: None,
    }
}

fn steps(rng: &mut Rng, schedule: &mut Schedule) {
    let mut at = BEGIN;
    let requests = 1 + rng.below(4);
    for n in 0..requests {
        at += if rng.one_in(3) { 0 } else { rng.below(9000) };
        let pod = usize::from(rng.one_in(4));
        let what = Step::Create(Box::new(request(rng, &schedule.pods[pod], n)));
        schedule.steps.push(Timed { at, what });
        if rng.one_in(5) {
            let name = format!("crr-{}", rng.below(n + 1));
            let what = if rng.one_in(3) { Step::Touch(name) } else { Step::Delete(name) };
            schedule.steps.push(Timed { at: at + near(rng), what });
        }
    }
    // Reuse the name of an earlier request.
    if rng.one_in(6) {
        let again = request(rng, &schedule.pods[0], 0);
        schedule.steps.push(Timed { at: at + 2000 + rng.below(40_000), what: Step::Create(Box::new(again)) });
    }
    let others = rng.below(4).saturating_sub(1);
    for _ in 0..others {
        let pod = schedule.pods[usize::from(rng.one_in(3))].clone();
        let container = rng.pick(&pod.containers).unwrap().name;
        let what = match rng.below(8) {
            0 => Step::DeletePod(pod.name),
            1 if rng.one_in(2) => Step::ForceDeletePod(pod.name),
            2 | 3 => Step::Meddle(pod.name),
            4 => Step::SetImage(pod.name, container),
            _ => Step::Crash(pod.name, container, i32::from(!rng.one_in(4))),
        };
        schedule.steps.push(Timed { at: BEGIN + rng.below(15_000), what });
    }
}

/// In some schedules: unwanted writes of other clients, and rare faults.
fn others(rng: &mut Rng, schedule: &mut Schedule) {
    let first = schedule.steps.first().map_or(BEGIN, |s| s.at);
    let pod = schedule.pods[usize::from(rng.one_in(4))].name.clone();
    let node = schedule.pods[0].node;
    let soon = first + near(rng);
    match rng.below(24) {
        0 | 1 => {
            let forgery = rng.pick(&[Forgery::Pod, Forgery::Namespace, Forgery::Prefix]).unwrap();
            schedule.steps.push(Timed { at: soon + 300, what: Step::Forge(pod, forgery) });
        }
        2 => schedule.steps.push(Timed { at: soon.saturating_sub(2000), what: Step::Occupy(pod) }),
        3 => {
            let at = first + rng.below(1200);
            schedule.steps.push(Timed { at, what: Step::Open(pod) });
        }
        4 | 5 => {
            let Some(Timed { at, what: Step::Create(plan) }) = schedule.steps.first_mut() else { return };
            plan.kept = true;
            let (at, name) = (*at, plan.name.clone());
            let deleted = at + near(rng);
            schedule.steps.push(Timed { at: deleted, what: Step::Delete(name.clone()) });
            schedule.steps.push(Timed { at: deleted + 40_000, what: Step::Free(name) });
        }
        // A runtime whose stops do nothing, and a daemon that is away for longer than the controller waits.
        6 => schedule.faults.push(Timed { at: first, what: Fault::RuntimeLies(node, 60) }),
        7 => {
            // Or until just when the kubelet takes over.
            let away = if rng.one_in(2) { 110_000 } else { 10_500 + rng.below(60) };
            schedule.faults.push(Timed { at: first - 500, what: Fault::PauseDaemon(node, away) });
        }
        // A daemon that stops answering between two containers; the first must run for long (`minStartedSeconds`).
        8 => {
            if let Some(Timed { what: Step::Create(plan), .. }) = schedule.steps.first_mut() {
                plan.min_started = 15;
                let pods = schedule.pods.iter_mut().filter(|p| p.name == plan.pod);
                pods.flat_map(|p| &mut p.containers).for_each(|c| c.hook = None);
            }
            let at = first + 20 + rng.below(200);
            schedule.faults.push(Timed { at, what: Fault::PauseDaemon(node, 70_000) });
        }
        // A leader that dies soon after it accepted a request that the next leader's watch does not show yet.
        9 => {
            schedule.faults.push(Timed { at: first - 1000, what: Fault::HoldWatch(1, 1, 60_000) });
            let at = first + 20 + rng.below(2000);
            schedule.faults.push(Timed { at, what: Fault::KillController(0, 60_000) });
        }
        10 => {
            let kind = usize::try_from(rng.below(3)).unwrap();
            schedule.faults.push(Timed { at: first - 500, what: Fault::RepeatEvents(0, kind, 20) });
        }
        11 | 12 => {
            let kind = usize::try_from(rng.below(3)).unwrap();
            let what = Fault::LoseEvents(0, kind, 200 + rng.below(9000));
            schedule.faults.push(Timed { at: soon.saturating_sub(300), what });
        }
        _ => {}
    }
}

/// A delay after an event, in milliseconds; short delays are frequent.
fn near(rng: &mut Rng) -> u64 {
    match rng.below(4) {
        0 => rng.below(60),
        1 => rng.below(600),
        2 => rng.below(4000),
        _ => rng.below(30_000),
    }
}

fn request(rng: &mut Rng, pod: &PodPlan, n: u64) -> RequestPlan {
    let mut containers: Vec<Word> = pod.containers.iter().map(|c| c.name.clone()).collect();
    if containers.len() > 1 {
        match rng.below(3) {
            0 => containers.truncate(1),
            1 => containers.reverse(),
            _ => {}
        }
    }
    if rng.one_in(40) {
        containers = vec!["nope".into()];
    }
    RequestPlan {
        name: format!("crr-{n}"),
        pod: pod.name.clone(),
        containers,
        deadline: rng.one_in(3).then(|| 1 + i64::try_from(rng.below(40)).unwrap()),
        ttl: rng.one_in(4).then(|| i32::try_from(rng.below(20)).unwrap()),
        mechanism: rng
            .pick(&[None, None, None, Some("Runtime"), Some("Kubelet"), Some("Auto")])
            .unwrap()
            .map(Word::from),
        failure_policy: rng.pick(&[None, Some("Fail"), Some("Ignore")]).unwrap().map(Word::from),
        ordered: rng.one_in(3),
        force: rng.one_in(3),
        grace: rng.pick(&[None, None, Some(0), Some(3), Some(8)]).unwrap(),
        unready_grace: rng.pick(&[None, None, Some(0), Some(1), Some(4)]).unwrap(),
        min_started: rng.pick(&[0, 0, 0, 2, 6]).unwrap(),
        unasked: rng.one_in(8),
        kept: false,
    }
}

fn faults(rng: &mut Rng, schedule: &mut Schedule) {
    let many = 1 + rng.below(3) + if rng.one_in(5) { 4 } else { 0 };
    for _ in 0..many {
        let after = rng.pick(&schedule.steps).map_or(BEGIN, |s| s.at);
        let at = (after + near(rng)).saturating_sub(300);
        let what = fault(rng, schedule);
        schedule.faults.push(Timed { at, what });
    }
}

fn fault(rng: &mut Rng, schedule: &Schedule) -> Fault {
    let node = schedule.pods[usize::from(rng.one_in(4))].node;
    let controller = usize::from(rng.one_in(2));
    let short = 100 + rng.below(3000);
    let long = rng.pick(&[2000, 8000, 25_000, 70_000]).unwrap() + rng.below(3000);
    let any = if rng.one_in(2) { short } else { long };
    match rng.below(34) {
        0 | 1 => Fault::KillController(controller, any),
        2 | 3 => Fault::PauseController(controller, long),
        4..=6 => Fault::KillDaemon(node, any),
        7 => Fault::PauseDaemon(node, long),
        8 => Fault::TwoDaemons(node, long),
        9 => Fault::Reboot(node, any + 1000, rng.one_in(3)),
        10 if rng.one_in(3) => Fault::RemoveNode(node),
        10 | 11 => Fault::KubeletDown(node, any),
        12 => Fault::RuntimeDown(node, any),
        13 => Fault::RuntimeHangs(node, any),
        14 | 15 => Fault::RuntimeFails(node, rng.one_in(2), rng.one_in(2)),
        16 => Fault::RuntimeLies(node, 1 + u32::try_from(rng.below(5)).unwrap()),
        17 => Fault::BreakSandbox(schedule.pods[0].name.clone()),
        18 | 19 => Fault::ApiDown(any),
        20 => Fault::ApiSlow(long),
        21 | 22 => Fault::LoseAnswers(20 + rng.below(60), long),
        23 => Fault::Refuse(rng.pick(&[403, 409, 429, 500, 503]).unwrap(), any),
        24 => Fault::BreakWatches(controller),
        25 | 26 => Fault::HoldWatch(controller, usize::try_from(rng.below(3)).unwrap(), long),
        27 => Fault::HoldBook(node, long),
        28 => Fault::StaleLists(controller, 1 + rng.below(40)),
        29 => Fault::Compact,
        30 if rng.one_in(2) => Fault::Restore(10_000 + rng.below(20_000)),
        30 => Fault::DeleteBook(node),
        31 => Fault::Storm(1 + u32::try_from(rng.below(20)).unwrap()),
        _ => {
            let machine = rng.pick(&[-1, 0, 1, 100, 101]).unwrap();
            Fault::JumpClock(machine, if rng.one_in(2) { HOUR } else { -HOUR })
        }
    }
}
