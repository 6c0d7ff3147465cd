//! Named schedules without faults, or with the one fault that they test. The enumeration of crash points runs them all.

mod parks;
mod resizes;
mod rollouts;
mod selected;
mod updates;

use crate::world::clock::Clock;
use crate::world::plan::{
    Clocks, ContainerPlan, HookPlan, PodPlan, RequestPlan, Restarts, Schedule, Skew, Step, Timed,
};
use crate::world::sizing::{Room, Size};

fn container(name: &'static str) -> ContainerPlan {
    let behaviour = r#"{"start":20,"term":[100,143],"ready":500,"hook":[400,0]}"#.to_owned();
    ContainerPlan {
        name: name.into(),
        sidecar: false,
        hook: None,
        behaviour,
        size: Size::default(),
        restarts: None,
        pulls: None,
    }
}

fn pod() -> PodPlan {
    PodPlan {
        name: "web".to_owned(),
        node: 0,
        containers: vec![container("app"), container("sidecar")],
        restart_policy: "Always".into(),
        grace: 10,
        gates: vec!["KruisePodReady".into()],
        controlled: true,
    }
}

fn request(name: &str) -> RequestPlan {
    RequestPlan {
        name: name.to_owned(),
        pod: "web".to_owned(),
        containers: vec!["app".into()],
        ..RequestPlan::default()
    }
}

fn scenario(name: &str, pods: Vec<PodPlan>, steps: Vec<(u64, Step)>) -> Schedule {
    Schedule {
        seed: 1,
        name: name.to_owned(),
        nodes: 1,
        replicas: 1,
        default_deadline: 120,
        clocks: Clocks { nodes: vec![Clock { boot: 500_000, ..Clock::default() }], ..Clocks::default() },
        pods,
        skew: Skew::default(),
        room: Room::default(),
        images: updates::images(&steps),
        workload: None,
        most_open: None,
        steps: steps.into_iter().map(|(at, what)| Timed { at: 20_000 + at, what }).collect(),
        faults: Vec::new(),
        crash: None,
    }
}

fn create(change: impl FnOnce(&mut RequestPlan)) -> Step {
    let mut plan = request("crr");
    change(&mut plan);
    Step::Create(Box::new(plan))
}

/// Every combination of a Pod and a request that takes its own path through the protocol.
pub fn all() -> Vec<Schedule> {
    let mut all = Vec::new();
    let mut add =
        |name: String, pod: PodPlan, steps: Vec<(u64, Step)>| all.push(scenario(&name, vec![pod], steps));
    for mechanism in ["Runtime", "Kubelet", "Auto"] {
        for (what, containers) in
            [("one", vec!["app"]), ("both", vec!["app", "sidecar"]), ("turned", vec!["sidecar", "app"])]
        {
            for ordered in [false, true] {
                let steps = vec![(
                    0,
                    create(|r| {
                        r.mechanism = Some(mechanism.into());
                        r.containers = containers.iter().map(|c| (*c).into()).collect();
                        r.ordered = ordered;
                    }),
                )];
                add(format!("{mechanism} {what} ordered={ordered}"), pod(), steps);
            }
        }
        for grace in [0, 3] {
            let drain = || {
                vec![(
                    0,
                    create(|r| {
                        r.mechanism = Some(mechanism.into());
                        r.unready_grace = Some(grace);
                    }),
                )]
            };
            add(format!("{mechanism} drain of {grace} s"), pod(), drain());
            let both = PodPlan { gates: vec!["KruisePodReady".into(), "pitstop.dev/ready".into()], ..pod() };
            add(format!("{mechanism} drain of {grace} s by two gates"), both, drain());
            let bare = PodPlan { gates: Vec::new(), ..pod() };
            add(format!("{mechanism} drain of {grace} s without a gate"), bare, drain());
        }
        for (what, policy) in [("never", "Never"), ("on failure", "OnFailure")] {
            let pod = PodPlan { restart_policy: policy.into(), ..pod() };
            add(
                format!("{mechanism} restarts {what}"),
                pod,
                vec![(0, create(|r| r.mechanism = Some(mechanism.into())))],
            );
        }
        // The stop ends the process with exit code 143.
        for (what, policy, own, codes) in [
            ("never of its own", "Always", "Never", vec![]),
            ("always of its own", "Never", "Always", vec![]),
            ("on failure of its own", "Always", "OnFailure", vec![]),
            ("never but by rule", "Never", "Never", vec![143]),
            ("never, and a rule for others", "Always", "Never", vec![7]),
        ] {
            let restarts = Some(Restarts { policy: own.into(), codes });
            let containers = vec![ContainerPlan { restarts, ..container("app") }, container("sidecar")];
            let pod = PodPlan { restart_policy: policy.into(), containers, ..pod() };
            let made = create(|r| r.mechanism = Some(mechanism.into()));
            add(format!("{mechanism} restarts {what}"), pod, vec![(0, made)]);
        }
        let sidecar = ContainerPlan { sidecar: true, ..container("proxy") };
        let native = PodPlan { containers: vec![sidecar, container("app")], ..pod() };
        let steps = vec![(
            0,
            create(|r| {
                r.mechanism = Some(mechanism.into());
                r.containers = vec!["proxy".into(), "app".into()];
            }),
        )];
        add(format!("{mechanism} native sidecar"), native, steps);
        let crashing = ContainerPlan {
            behaviour: r#"{"term":[100,143],"runs":[[6000,1]],"repeat":true}"#.to_owned(),
            ..container("app")
        };
        let looping = PodPlan { containers: vec![crashing], ..pod() };
        let steps = vec![(
            0,
            create(|r| {
                r.mechanism = Some(mechanism.into());
                r.deadline = Some(40);
            }),
        )];
        add(format!("{mechanism} crash loop"), looping, steps);
        // The container ends by itself during the drain, before its stop begins.
        let forced = create(|r| {
            r.mechanism = Some(mechanism.into());
            r.force = true;
            r.unready_grace = Some(4);
        });
        let crash = Step::Crash("web".to_owned(), "app".into(), 1);
        add(format!("{mechanism} forced, crashes in the drain"), pod(), vec![(0, forced), (1500, crash)]);
        let mut steps = vec![(0, create(|r| r.mechanism = Some(mechanism.into())))];
        steps.push((
            10,
            create(|r| {
                "second".clone_into(&mut r.name);
                r.mechanism = Some(mechanism.into());
            }),
        ));
        add(format!("{mechanism} two requests"), pod(), steps);
    }
    for (what, hook) in [("exec", HookPlan::Exec), ("sleep", HookPlan::Sleep(1))] {
        let hooked = ContainerPlan { hook: Some(hook), ..container("app") };
        let pod = PodPlan { containers: vec![hooked], ..pod() };
        add(format!("hook {what}"), pod, vec![(0, create(|_| ()))]);
    }
    let failing = ContainerPlan {
        hook: Some(HookPlan::Exec),
        behaviour: r#"{"term":[100,143],"hook":[300,1]}"#.to_owned(),
        ..container("app")
    };
    add("hook fails".to_owned(), PodPlan { containers: vec![failing], ..pod() }, vec![(0, create(|_| ()))]);
    let stubborn = ContainerPlan { behaviour: r#"{"term":null}"#.to_owned(), ..container("app") };
    let stubborn = PodPlan { containers: vec![stubborn], ..pod() };
    add("stubborn".to_owned(), stubborn.clone(), vec![(0, create(|r| r.grace = Some(3)))]);
    add("stubborn, no grace".to_owned(), stubborn, vec![(0, create(|r| r.grace = Some(0)))]);
    for (what, change) in [
        ("deadline", (|r: &mut RequestPlan| r.deadline = Some(1)) as fn(&mut RequestPlan)),
        ("time to live", |r| r.ttl = Some(2)),
        ("min started", |r| r.min_started = 3),
        ("force", |r| r.force = true),
        ("ignore", |r| r.failure_policy = Some("Ignore".into())),
        ("without the webhook", |r| r.unasked = true),
        ("without the webhook, drain", |r| {
            r.unasked = true;
            r.unready_grace = Some(1);
        }),
        ("wrong container without the webhook", |r| {
            r.unasked = true;
            r.containers = vec!["nope".into()];
        }),
    ] {
        add(what.to_owned(), pod(), vec![(0, create(change))]);
    }
    for (what, at) in [("at once", 3), ("soon", 60), ("late", 700)] {
        for mechanism in ["Runtime", "Kubelet"] {
            let made = || {
                create(|r| {
                    r.mechanism = Some(mechanism.into());
                    r.unready_grace = Some(0);
                })
            };
            let deleted = vec![(0, made()), (at, Step::Delete("crr".to_owned()))];
            add(format!("{mechanism} request deleted {what}"), pod(), deleted);
            let replaced = vec![(0, made()), (at, Step::DeletePod("web".to_owned()))];
            add(format!("{mechanism} Pod deleted {what}"), pod(), replaced);
            let crashed = vec![(0, made()), (at, Step::Crash("web".to_owned(), "app".into(), 1))];
            add(format!("{mechanism} container crashes {what}"), pod(), crashed);
            let meddled = vec![
                (0, made()),
                (at, Step::Meddle("web".to_owned())),
                (9000, Step::Meddle("web".to_owned())),
            ];
            add(format!("{mechanism} another writer {what}"), pod(), meddled);
        }
    }
    resizes::add(&mut add);
    updates::add(&mut add);
    all.extend(updates::lost());
    all.extend(rollouts::all());
    all.extend(parks::all());
    all.extend(selected::all());
    all
}
