//! Each rule by itself, and properties of all rules.

use proptest::prelude::*;

use super::*;
use crate::key::ObjectKey;
use crate::pod::ContainerKind;

const MI: i64 = 1 << 20;

fn resources(cpu: (i64, i64), memory: (i64, i64)) -> Resources {
    let given = |amount: i64| (amount > 0).then_some(amount);
    Resources {
        cpu_request: given(cpu.0),
        cpu_limit: given(cpu.1),
        memory_request: given(memory.0),
        memory_limit: given(memory.1),
    }
}

/// 100m to 200m of CPU, 64Mi to 128Mi of memory.
fn usual() -> Resources {
    resources((100, 200), (64 * MI, 128 * MI))
}

fn container(name: &str, resources: Resources) -> Container {
    Container { name: name.into(), resources, ..Container::default() }
}

fn pod(containers: Vec<Container>) -> Pod {
    Pod { key: ObjectKey::new("shop", "web"), containers, ..Pod::default() }
}

fn web() -> Pod {
    pod(vec![container("app", usual()), container("proxy", usual())])
}

/// Four CPUs and 1Gi.
fn survey() -> Survey {
    Survey { allocatable: Amounts { cpu: Some(4000), memory: Some(1024 * MI) }, ..Survey::default() }
}

/// Asks for `wanted` for `app`. Only the spec is in force.
fn ask(pod: &Pod, wanted: Resources, survey: &Survey, usage: &Usage<'_>) -> Decision {
    admit(&Question { pod, in_force: &|c| c.resources, wanted: &[("app", wanted)], survey, usage })
}

fn refusal(decision: Decision) -> (&'static str, String) {
    match decision {
        Decision::Refused { reason, text, phase } => {
            assert_eq!(phase == Phase::Infeasible, reason == "NodeCapacity", "{text}");
            (reason, text)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_fits_is_admitted() {
    let more = resources((300, 600), (128 * MI, 256 * MI));
    assert_eq!(ask(&web(), more, &survey(), &Usage::default()), Decision::Admitted);
    assert_eq!(ask(&web(), usual(), &Survey::default(), &Usage::default()), Decision::Admitted, "no change");
}

#[test]
fn the_class_of_a_pod_is_the_one_of_kubernetes() {
    let all = (100, 100);
    for (containers, class) in [
        (vec![((0, 0), (0, 0))], "BestEffort"),
        (vec![], "BestEffort"),
        (vec![(all, (MI, MI))], "Guaranteed"),
        (vec![((0, 100), (0, MI))], "Guaranteed"),
        (vec![(all, (MI, MI)), (all, (MI, MI))], "Guaranteed"),
        (vec![(all, (MI, MI)), ((0, 0), (0, 0))], "Burstable"),
        (vec![(all, (0, 0))], "Burstable"),
        (vec![((50, 100), (MI, MI))], "Burstable"),
        (vec![((100, 0), (MI, 0))], "Burstable"),
    ] {
        for kind in [ContainerKind::Main, ContainerKind::Init, ContainerKind::Sidecar] {
            let made = containers.iter().map(|(cpu, memory)| {
                let resources = resources(*cpu, *memory).effective();
                Container { kind, ..container("app", resources) }
            });
            let mut pod = pod(made.collect());
            pod.containers.push(Container { kind: ContainerKind::Ephemeral, ..Container::default() });
            assert_eq!(qos::class(&pod, |c| c.resources).to_string(), class, "{containers:?} {kind:?}");
        }
    }
    let mut whole = web();
    whole.pod_level = Some(Box::new(resources((0, 500), (0, 512 * MI))));
    assert_eq!(qos::class(&whole, |c| c.resources).to_string(), "Guaranteed", "its own resources come first");
}

#[test]
fn the_class_of_a_pod_does_not_change() {
    let one = pod(vec![container("app", usual())]);
    let (reason, text) =
        refusal(ask(&one, resources((200, 200), (128 * MI, 128 * MI)), &survey(), &Usage::default()));
    assert_eq!(reason, "QoSChange");
    assert!(text.contains("of the QoS class Burstable and would become Guaranteed"), "{text}");
    let none = pod(vec![container("app", Resources::default())]);
    let (reason, text) = refusal(ask(&none, resources((100, 0), (0, 0)), &survey(), &Usage::default()));
    assert_eq!(reason, "QoSChange");
    assert!(text.contains("BestEffort and would become Burstable"), "{text}");
    let beside = pod(vec![container("app", usual()), container("proxy", usual())]);
    let fixed = resources((200, 200), (128 * MI, 128 * MI));
    assert_eq!(ask(&beside, fixed, &survey(), &Usage::default()), Decision::Admitted);
}

#[test]
fn huge_pages_and_pods_with_resources_of_their_own_are_left_to_the_kubelet() {
    let more = resources((300, 600), (128 * MI, 256 * MI));
    let mut huge = web();
    huge.huge_pages = true;
    assert_eq!(refusal(ask(&huge, more, &survey(), &Usage::default())).0, "Unsupported");
    let mut whole = web();
    whole.pod_level = Some(Box::default());
    assert_eq!(refusal(ask(&whole, more, &survey(), &Usage::default())).0, "UnsupportedContainer");
}

fn limited(limit: Limit) -> Survey {
    Survey { limits: vec![limit], ..survey() }
}

fn limit(type_: LimitType) -> Limit {
    let none = Amounts::default();
    Limit { type_, min: none, max: none, max_ratio: none }
}

fn cpu(amount: i64) -> Amounts {
    Amounts { cpu: Some(amount), memory: None }
}

fn memory(amount: i64) -> Amounts {
    Amounts { cpu: None, memory: Some(amount) }
}

#[test]
fn a_limit_range_bounds_each_container() {
    let limit_range = limit(LimitType::Container);
    for (limit, wanted, words) in [
        (
            Limit { max: cpu(1000), ..limit_range },
            resources((100, 2000), (64 * MI, 128 * MI)),
            "container app: maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            Limit { max: cpu(1000), ..limit_range },
            resources((100, 0), (32 * MI, 128 * MI)),
            "container app: maximum cpu usage per Container is 1.  No limit is specified",
        ),
        (
            Limit { max: memory(256 * MI), ..limit_range },
            resources((100, 200), (64 * MI, 512 * MI)),
            "container app: maximum memory usage per Container is 256Mi, but limit is 512Mi",
        ),
        (
            Limit { min: cpu(80), ..limit_range },
            resources((50, 200), (64 * MI, 128 * MI)),
            "container app: minimum cpu usage per Container is 80m, but request is 50m",
        ),
        (
            Limit { min: memory(32 * MI), ..limit_range },
            resources((100, 200), (16 * MI, 128 * MI)),
            "container app: minimum memory usage per Container is 32Mi, but request is 16Mi",
        ),
        (
            Limit { max_ratio: cpu(2500), ..limit_range },
            resources((100, 300), (64 * MI, 128 * MI)),
            "container app: cpu max limit to request ratio per Container is 2500m, but provided ratio is 3.000",
        ),
        (
            Limit { max_ratio: memory(2000), ..limit_range },
            resources((100, 200), (64 * MI, 0)),
            "container app: memory max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        ),
    ] {
        let found = refusal(ask(&web(), wanted, &limited(limit), &Usage::default()));
        assert_eq!(found, ("LimitRange", words.to_owned()));
    }
    let at_the_edge = Limit { min: cpu(100), max: cpu(300), max_ratio: cpu(3000), ..limit_range };
    let wanted = resources((100, 300), (64 * MI, 128 * MI));
    assert_eq!(ask(&web(), wanted, &limited(at_the_edge), &Usage::default()), Decision::Admitted);
}

#[test]
fn a_limit_range_bounds_a_pod_with_all_its_containers() {
    let survey = limited(Limit { max: cpu(500), ..limit(LimitType::Pod) });
    let wanted = |limit| resources((100, limit), (64 * MI, 128 * MI));
    let found = refusal(ask(&web(), wanted(301), &survey, &Usage::default()));
    assert_eq!(found, ("LimitRange", "maximum cpu usage per Pod is 500m, but limit is 501m".to_owned()));
    assert_eq!(ask(&web(), wanted(300), &survey, &Usage::default()), Decision::Admitted);
}

/// Kubernetes itself judges the whole Pod again (kubernetes/kubernetes#142171).
#[test]
fn a_limit_range_that_came_later_says_nothing_of_what_stays() {
    let survey = limited(Limit { max: cpu(150), min: memory(65 * MI), ..limit(LimitType::Container) });
    let wanted = resources((100, 150), (64 * MI, 128 * MI));
    assert_eq!(ask(&web(), wanted, &survey, &Usage::default()), Decision::Admitted);
}

fn bound(counted: ResourceName, hard: i64, used: i64) -> QuotaBound {
    QuotaBound { counted, hard, used: Some(used) }
}

fn quota(bounds: Vec<QuotaBound>) -> Survey {
    Survey { quotas: vec![Quota { name: "q".into(), scopes: Vec::new(), bounds }], ..survey() }
}

#[test]
fn a_quota_counts_what_grows() {
    let wanted = resources((500, 600), (64 * MI, 128 * MI));
    for (counted, amount, text) in [
        (
            ResourceName::RequestsCpu,
            400,
            "exceeded quota: q, requested: requests.cpu=400m, used: requests.cpu=200m, limited: requests.cpu=599m",
        ),
        (ResourceName::Cpu, 400, "exceeded quota: q, requested: cpu=400m, used: cpu=200m, limited: cpu=599m"),
        (
            ResourceName::LimitsCpu,
            400,
            "exceeded quota: q, requested: limits.cpu=400m, used: limits.cpu=200m, limited: limits.cpu=599m",
        ),
    ] {
        let found =
            refusal(ask(&web(), wanted, &quota(vec![bound(counted, 199 + amount, 200)]), &Usage::default()));
        assert_eq!(found, ("Quota", text.to_owned()));
        let enough = quota(vec![bound(counted, 200 + amount, 200)]);
        assert_eq!(ask(&web(), wanted, &enough, &Usage::default()), Decision::Admitted);
    }
    // What does not grow may exceed its quota.
    let over = quota(vec![
        bound(ResourceName::LimitsMemory, 0, 256 * MI),
        bound(ResourceName::Memory, 0, 128 * MI),
        bound(ResourceName::RequestsMemory, 0, 128 * MI),
    ]);
    assert_eq!(ask(&web(), wanted, &over, &Usage::default()), Decision::Admitted);
    let wanted = resources((100, 200), (96 * MI, 160 * MI));
    let (reason, text) = refusal(ask(&web(), wanted, &over, &Usage::default()));
    assert_eq!(reason, "Quota");
    assert!(text.contains("requested: limits.memory=32Mi,memory=32Mi,requests.memory=32Mi"), "{text}");
    let uncounted = QuotaBound { used: None, ..bound(ResourceName::Memory, 1024 * MI, 0) };
    let (reason, text) = refusal(ask(&web(), wanted, &quota(vec![uncounted]), &Usage::default()));
    assert_eq!((reason, text.as_str()), ("Quota", "status unknown for quota: q, resources: memory"));
}

#[test]
fn a_quota_counts_what_was_granted_beyond_the_specs() {
    let (pod, other) = (web(), web());
    let beyond = Resources { cpu_request: Some(300), ..Resources::default() };
    let usage = Usage { granted: vec![Granted { pod: &other, beyond }], ..Usage::default() };
    let survey = quota(vec![bound(ResourceName::RequestsCpu, 1000, 400)]);
    let granted = |c: &Container| Resources {
        cpu_request: c.resources.cpu_request.map(|cpu| cpu + if c.name == "app" { 200 } else { 0 }),
        cpu_limit: Some(1000),
        ..c.resources
    };
    // Specs have 400m, and grants 300m and 200m beyond: 100m are left.
    let ask = |cpu| {
        let wanted = resources((cpu, 1000), (64 * MI, 128 * MI));
        admit(&Question {
            pod: &pod,
            in_force: &granted,
            wanted: &[("app", wanted)],
            survey: &survey,
            usage: &usage,
        })
    };
    assert_eq!(ask(400), Decision::Admitted);
    let (reason, text) = refusal(ask(401));
    assert_eq!(reason, "Quota");
    assert!(
        text.contains("requested: requests.cpu=101m, used: requests.cpu=900m, limited: requests.cpu=1"),
        "{text}"
    );
    assert!(text.contains("beyond their specs"), "{text}");
    assert_eq!(ask(50), Decision::Admitted, "less than the spec");
}

#[test]
fn a_quota_counts_the_pods_of_its_scopes() {
    let plain = web();
    let mut job = web();
    job.active_deadline = true;
    let mut high = web();
    high.priority_class = Some("high".into());
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (scopes, counted) in [
        (vec![], [true, true, true]),
        (vec![Scope::Terminating(true)], [false, true, false]),
        (vec![Scope::Terminating(false)], [true, false, true]),
        (vec![Scope::BestEffort(true)], [false, false, false]),
        (vec![Scope::BestEffort(false)], [true, true, true]),
        (vec![Scope::Prioritized(true)], [false, false, true]),
        (vec![Scope::Prioritized(false)], [true, true, false]),
        (vec![Scope::PriorityIn(names(&["low", "high"]))], [false, false, true]),
        (vec![Scope::PriorityIn(names(&["low"]))], [false, false, false]),
        (vec![Scope::PriorityNotIn(names(&["high"]))], [true, true, false]),
        (vec![Scope::Terminating(false), Scope::Prioritized(true)], [false, false, true]),
    ] {
        let mut survey = quota(vec![bound(ResourceName::RequestsCpu, 0, 0)]);
        survey.quotas[0].scopes.clone_from(&scopes);
        let wanted = resources((150, 200), (64 * MI, 128 * MI));
        for (pod, counted) in [&plain, &job, &high].into_iter().zip(counted) {
            let refused = ask(pod, wanted, &survey, &Usage::default()) != Decision::Admitted;
            assert_eq!(refused, counted, "{scopes:?} {:?}", pod.priority_class);
        }
    }
    // A quota ignores what is granted to a Pod that it does not count.
    let beyond = Resources { cpu_request: Some(900), ..Resources::default() };
    let usage = |pod| Usage { granted: vec![Granted { pod, beyond }], ..Usage::default() };
    let mut survey = quota(vec![bound(ResourceName::RequestsCpu, 1000, 200)]);
    survey.quotas[0].scopes = vec![Scope::Prioritized(false)];
    let wanted = resources((150, 200), (64 * MI, 128 * MI));
    assert_eq!(ask(&plain, wanted, &survey, &usage(&high)), Decision::Admitted);
    assert_eq!(refusal(ask(&plain, wanted, &survey, &usage(&job))).0, "Quota");
}

#[test]
fn a_node_gives_what_the_others_leave() {
    let usage = |cpu, memory| Usage { asked: resources((cpu, 0), (memory, 0)), ..Usage::default() };
    let wanted = |cpu| resources((cpu, 8000), (64 * MI, 128 * MI));
    assert_eq!(ask(&web(), wanted(900), &survey(), &usage(3000, 0)), Decision::Admitted);
    assert_eq!(
        ask(&web(), wanted(901), &survey(), &usage(3000, 0)),
        Decision::Busy(
            "Node didn't have enough resource: cpu, requested: 1001, used: 3000, capacity: 4000".into()
        )
    );
    assert_eq!(ask(&web(), wanted(3900), &survey(), &Usage::default()), Decision::Admitted);
    assert_eq!(
        refusal(ask(&web(), wanted(3901), &survey(), &usage(3000, 0))),
        ("NodeCapacity", "Node didn't have enough capacity: cpu, requested: 4001, capacity: 4000".to_owned())
    );
    let both = resources((3901, 8000), (960 * MI, 960 * MI));
    assert_eq!(refusal(ask(&web(), both, &survey(), &usage(0, MI))).0, "NodeCapacity", "before what may end");
    // Limits and shrinking need no room, even on a full node.
    assert_eq!(ask(&web(), wanted(50), &survey(), &usage(9000, 9000 * MI)), Decision::Admitted);
    let unknown = Survey::default();
    assert_eq!(
        ask(&web(), wanted(200), &unknown, &Usage::default()),
        Decision::Busy("the node's status has no allocatable cpu".into())
    );
    let mut heavy = web();
    heavy.overhead = resources((100, 0), (0, 0));
    assert!(
        matches!(ask(&heavy, wanted(801), &survey(), &usage(3000, 0)), Decision::Busy(_)),
        "overhead counts"
    );
}

/// The scheduler uses the spec, even if less is in force.
#[test]
fn room_up_to_the_spec_is_there_already() {
    let pod = web();
    let less = |c: &Container| Resources { cpu_request: Some(10), ..c.resources };
    let full = Usage { asked: resources((4000, 0), (0, 0)), ..Usage::default() };
    let ask = |cpu| {
        let wanted = [("app", resources((cpu, 200), (64 * MI, 128 * MI)))];
        admit(&Question { pod: &pod, in_force: &less, wanted: &wanted, survey: &survey(), usage: &full })
    };
    assert_eq!(ask(100), Decision::Admitted);
    assert!(matches!(ask(101), Decision::Busy(_)));
}

#[test]
fn a_pod_asks_for_what_the_scheduler_counts() {
    let sidecar =
        Container { kind: ContainerKind::Sidecar, ..container("proxy", resources((50, 0), (0, 0))) };
    let init = Container { kind: ContainerKind::Init, ..container("init", resources((400, 0), (0, 0))) };
    let mut pod = pod(vec![sidecar, init, container("app", resources((0, 100), (0, MI)))]);
    pod.overhead = resources((10, 0), (MI, 0));
    let asked = |pod: &Pod| totals(pod, |c| c.resources);
    assert_eq!(asked(&pod).cpu_request, Some(460), "the init container, the sidecar before it, the overhead");
    assert_eq!((asked(&pod).memory_request, asked(&pod).memory_limit), (Some(2 * MI), Some(2 * MI)));
    pod.pod_level = Some(Box::new(resources((1000, 0), (0, 0))));
    assert_eq!((asked(&pod).cpu_request, asked(&pod).memory_request), (Some(1010), Some(2 * MI)));
    let none = self::pod(Vec::new());
    assert_eq!(asked(&none).cpu_limit, None);
}

fn amounts() -> impl Strategy<Value = Resources> {
    let one = || proptest::option::of(0..2000_i64);
    (one(), one(), one(), one()).prop_map(|(cpu_request, cpu_limit, memory_request, memory_limit)| {
        Resources { cpu_request, cpu_limit, memory_request, memory_limit }
    })
}

fn both() -> impl Strategy<Value = Amounts> {
    let one = || proptest::option::of(0..4000_i64);
    (one(), one()).prop_map(|(cpu, memory)| Amounts { cpu, memory })
}

fn surveys() -> impl Strategy<Value = Survey> {
    let type_ = prop_oneof![Just(LimitType::Container), Just(LimitType::Pod)];
    let limit = (type_, both(), both(), both());
    let limit = limit.prop_map(|(type_, min, max, max_ratio)| Limit { type_, min, max, max_ratio });
    let counted = proptest::sample::select(ResourceName::ALL.to_vec());
    let bound = (counted, 0..4000_i64, proptest::option::of(0..4000_i64));
    let bound = bound.prop_map(|(counted, hard, used)| QuotaBound { counted, hard, used });
    let quota =
        proptest::collection::vec(bound, 0..3).prop_map(|bounds| Quota { bounds, ..Quota::default() });
    let (limits, quotas) = (proptest::collection::vec(limit, 0..3), proptest::collection::vec(quota, 0..3));
    (limits, quotas, both()).prop_map(|(limits, quotas, allocatable)| Survey { limits, quotas, allocatable })
}

fn pods() -> impl Strategy<Value = Pod> {
    let kind =
        prop_oneof![Just(ContainerKind::Main), Just(ContainerKind::Sidecar), Just(ContainerKind::Init)];
    let others = proptest::collection::vec((kind, amounts()), 0..3);
    (amounts(), others, any::<bool>()).prop_map(|(own, others, huge_pages)| {
        let others = others.into_iter().enumerate();
        let others = others.map(|(i, (kind, r))| Container { kind, ..container(&format!("c{i}"), r) });
        Pod { huge_pages, ..pod(std::iter::once(container("app", own)).chain(others).collect()) }
    })
}

proptest! {
    #[test]
    fn what_is_in_force_is_admitted(pod in pods(), force in amounts(), survey in surveys(), asked in amounts()) {
        let in_force = |c: &Container| if c.name == "app" { force } else { c.resources };
        let usage = Usage { asked, ..Usage::default() };
        let question = Question { pod: &pod, in_force: &in_force, wanted: &[("app", force)], survey: &survey, usage: &usage };
        prop_assert_eq!(admit(&question), Decision::Admitted);
    }

    #[test]
    fn a_shrink_never_waits(pod in pods(), wanted in amounts(), survey in surveys(), asked in amounts()) {
        let from = pod.containers[0].resources.effective();
        let less = |own: Option<i64>, wanted: Option<i64>| own.map(|own| wanted.unwrap_or(0).min(own));
        let wanted = Resources {
            cpu_request: less(from.cpu_request, wanted.cpu_request),
            memory_request: less(from.memory_request, wanted.memory_request),
            ..from
        };
        let usage = Usage { asked, ..Usage::default() };
        let decision = ask(&pod, wanted, &survey, &usage);
        let wait = matches!(decision, Decision::Busy(_) | Decision::Refused { phase: Phase::Infeasible, .. });
        prop_assert!(!wait, "{decision:?}");
    }

    #[test]
    fn what_is_admitted_fits(pod in pods(), wanted in amounts(), survey in surveys(), asked in amounts()) {
        let usage = Usage { asked, ..Usage::default() };
        let decision = ask(&pod, wanted, &survey, &usage);
        let own = |of: Resources| totals(&pod, |c| most(&c.resources, if c.name == "app" { &of } else { &c.resources }));
        let (before, after) = (own(pod.containers[0].resources), own(wanted));
        for resource in Resource::ALL {
            let (before, after) = (pair(&before, resource).0, pair(&after, resource).0);
            if decision == Decision::Admitted && after > before {
                let used = pair(&asked, resource).0.unwrap_or_default();
                prop_assert!(after.unwrap() + used <= survey.allocatable.of(resource).unwrap());
            }
        }
    }
}
