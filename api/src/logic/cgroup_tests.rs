//! What cgroups should hold.

use proptest::prelude::*;

use super::*;

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

fn part(kind: Kind, cpu: (i64, i64), memory: (i64, i64)) -> Part {
    Part { kind, resources: resources(cpu, memory) }
}

/// What runtime and kernel make of `wanted` on cgroup v1, with pages of 4 KiB.
fn v1(wanted: &Resources) -> Cgroup {
    Cgroup {
        cpu_quota: wanted.cpu_limit.and_then(|limit| quota(limit, PERIOD)),
        cpu_period: Some(PERIOD),
        cpu_shares: Some(shares(cpu_request(wanted).unwrap_or_default())),
        memory_limit: wanted.memory_limit.map(|limit| limit - limit % 4096),
        ..Cgroup::default()
    }
}

/// The same on cgroup v2.
fn v2(wanted: &Resources, weight: fn(i64) -> i64) -> Cgroup {
    let v1 = v1(wanted);
    Cgroup { cpu_shares: None, cpu_weight: v1.cpu_shares.map(weight), ..v1 }
}

/// The numbers of Kubernetes' own unit tests and documentation.
#[test]
fn requests_become_shares_and_limits_quotas() {
    for (millicores, wanted) in
        [(0, 2), (1, 2), (2, 2), (3, 3), (10, 10), (100, 102), (1000, 1024), (256_000, 262_144)]
    {
        assert_eq!(shares(millicores), wanted, "{millicores}m");
    }
    assert_eq!((shares(i64::MAX), shares(-1)), (MAX_SHARES, MIN_SHARES));
    for (millicores, wanted) in [(1, 1000), (9, 1000), (10, 1000), (11, 1100), (200, 20_000), (1500, 150_000)]
    {
        assert_eq!(quota(millicores, PERIOD), Some(wanted), "{millicores}m");
    }
    assert_eq!((quota(0, PERIOD), quota(-1, PERIOD)), (None, None));
    assert_eq!(quota(500, 5000), Some(2500));
}

/// From opencontainers/runc#4896: both ends, both defaults, and the former weight of one CPU.
#[test]
fn shares_become_weights_in_two_ways() {
    assert_eq!([2, 1024, 262_144].map(linear_weight), [1, 39, 10_000]);
    assert_eq!([2, 1024, 262_144].map(curved_weight), [1, 100, 10_000]);
    assert_eq!([i64::MIN, i64::MAX].map(linear_weight), [1, 10_000]);
    assert_eq!([i64::MIN, i64::MAX].map(curved_weight), [1, 10_000]);
}

#[test]
fn a_pod_needs_what_runs_side_by_side_or_what_an_init_container_needs_at_its_turn() {
    let one = |cpu| (cpu, cpu);
    let memory = (MI, MI);
    let parts = [
        part(Kind::Sidecar, one(100), memory),
        part(Kind::Init, one(300), memory),
        part(Kind::Sidecar, one(50), memory),
        part(Kind::Main, one(150), memory),
    ];
    let pod = of_pod(&parts, Overhead::default());
    assert_eq!(
        (pod.cpu_request, pod.cpu_limit),
        (Some(400), Some(400)),
        "the init container and the sidecar before it"
    );
    assert_eq!(pod.memory_limit, Some(3 * MI), "both sidecars and the main container");
    let pod = of_pod(&parts[2..], Overhead { cpu: 25, memory: MI });
    assert_eq!((pod.cpu_request, pod.cpu_limit, pod.memory_limit), (Some(225), Some(225), Some(3 * MI)));
}

#[test]
fn one_container_without_a_limit_leaves_its_pod_without() {
    for kind in [Kind::Main, Kind::Sidecar, Kind::Init] {
        let limited = part(Kind::Main, (100, 200), (MI, 2 * MI));
        let pod = of_pod(&[part(kind, (100, 0), (MI, 2 * MI)), limited], Overhead { cpu: 10, memory: 0 });
        assert_eq!((pod.cpu_limit, pod.memory_limit.is_some()), (None, true), "{kind:?}");
        let pod = of_pod(&[part(kind, (100, 200), (MI, 0)), limited], Overhead { cpu: 10, memory: 0 });
        assert_eq!((pod.cpu_limit.is_some(), pod.memory_limit), (true, None), "{kind:?}");
    }
}

#[test]
fn the_sum_of_containers_takes_what_is_said() {
    let limited = part(Kind::Main, (0, 200), (MI, 0));
    let all = sum(&[part(Kind::Sidecar, (100, 0), (0, 0)), part(Kind::Init, (150, 0), (0, 0)), limited]);
    let wanted = resources((300, 200), (MI, 0));
    assert_eq!(all, wanted, "a limit is a request too; the init container needs less at its turn");
    assert_eq!(sum(&[part(Kind::Main, (0, 0), (0, 0))]), Resources::default());
}

#[test]
fn a_pod_that_asks_for_nothing_gets_the_least_whatever_its_overhead() {
    let pod = of_pod(&[part(Kind::Main, (0, 0), (0, 0))], Overhead { cpu: 500, memory: MI });
    assert_eq!(pod, Resources::default());
    assert_eq!(pod_differs(&pod, &v1(&pod)), None);
    assert_eq!(of_pod(&[], Overhead::default()), Resources::default());
}

#[test]
fn differences_name_file_value_and_reason() {
    let wanted = resources((500, 1000), (64 * MI, 128 * MI));
    let difference = |observed: Cgroup| container_differs(&wanted, &observed).unwrap();
    let right = v1(&wanted);
    assert_eq!(
        difference(Cgroup { cpu_quota: Some(50_000), ..right }),
        "cpu.cfs_quota_us holds 50000 µs in each 100000 µs, and should hold 100000 µs in each 100000 µs, \
         for a CPU limit of 1"
    );
    assert_eq!(
        difference(Cgroup { cpu_quota: None, cpu_shares: None, cpu_weight: Some(20), ..right }),
        "cpu.max holds no limit, and should hold 100000 µs in each 100000 µs, for a CPU limit of 1"
    );
    assert_eq!(
        difference(Cgroup { cpu_shares: Some(2), ..right }),
        "cpu.shares holds 2, and should hold 512, for a CPU request of 500m"
    );
    assert_eq!(
        difference(Cgroup { cpu_weight: Some(100), ..right }),
        "cpu.weight holds 100, and should hold 20 or 59, for a CPU request of 500m"
    );
    assert_eq!(
        difference(Cgroup { memory_limit: None, ..right }),
        "memory.limit_in_bytes holds no limit, and should hold 134217728 bytes (128Mi)"
    );
    let free = resources((500, 0), (0, 0));
    assert_eq!(
        container_differs(&free, &Cgroup { memory_limit: Some(4096), ..v1(&free) }).unwrap(),
        "memory.limit_in_bytes holds 4096 bytes (4Ki), and should hold no limit, as there is no memory limit"
    );
    assert_eq!(
        container_differs(&free, &Cgroup { cpu_quota: Some(1000), ..v1(&free) }).unwrap(),
        "cpu.cfs_quota_us holds 1000 µs in each 100000 µs, and should hold no limit, as there is no CPU limit"
    );
}

/// Pods keep the straight line, so a Pod on the curve would weigh more than its neighbours.
#[test]
fn a_quota_that_is_not_set_is_told_apart_from_one_that_is_wrong() {
    let wanted = resources((100, 300), (MI, 2 * MI));
    let none = Cgroup { cpu_quota: None, ..v1(&wanted) };
    assert!(container_differs(&wanted, &none).is_some());
    assert_eq!(container_differs(&without_quota(&wanted), &none), None);
    let old = Cgroup { cpu_quota: Some(20_000), ..v1(&wanted) };
    assert!(container_differs(&without_quota(&wanted), &old).is_some());
    let limit_alone = Resources { cpu_request: None, ..wanted };
    let none = Cgroup { cpu_quota: None, ..v1(&Resources { cpu_request: Some(300), ..wanted }) };
    assert_eq!(
        container_differs(&without_quota(&limit_alone), &none),
        None,
        "a limit alone is a request too"
    );
}

#[test]
fn what_of_a_pod_is_off_is_told_by_resource() {
    let wanted = resources((100, 300), (MI, 2 * MI));
    let right = v1(&wanted);
    assert_eq!(pod_mismatch(&wanted, &right), (false, false));
    assert_eq!(pod_mismatch(&wanted, &Cgroup { cpu_quota: Some(1), ..right }), (true, false));
    assert_eq!(pod_mismatch(&wanted, &Cgroup { cpu_shares: Some(2), ..right }), (true, false));
    assert_eq!(pod_mismatch(&wanted, &Cgroup { memory_limit: Some(MI), ..right }), (false, true));
}

#[test]
fn the_weight_of_a_pod_is_on_the_line_and_that_of_a_container_on_either() {
    let wanted = resources((1000, 0), (0, 0));
    let (line, curve) = (v2(&wanted, linear_weight), v2(&wanted, curved_weight));
    assert_eq!((container_differs(&wanted, &line), container_differs(&wanted, &curve)), (None, None));
    assert_eq!(pod_differs(&wanted, &line), None);
    let difference = pod_differs(&wanted, &curve).unwrap();
    assert_eq!(difference, "cpu.weight holds 100, and should hold 39, for a CPU request of 1");
}

/// systemd rounds 15m to 2 % (opencontainers/runc).
#[test]
fn systemd_rounds_a_quota_up_to_whole_percents() {
    let wanted = resources((10, 15), (0, 0));
    let holds = |quota| Cgroup { cpu_quota: Some(quota), ..v2(&wanted, linear_weight) };
    assert_eq!(container_differs(&wanted, &holds(1500)), None);
    assert_eq!(container_differs(&wanted, &holds(2000)), None);
    for wrong in [1000, 1499, 1501, 1999, 2001] {
        assert!(container_differs(&wanted, &holds(wrong)).is_some(), "{wrong}");
    }
}

#[test]
fn limits_are_cut_to_whole_pages() {
    let limit = 100 * MI + 70_000;
    let wanted = resources((0, 0), (limit, limit));
    let holds = |limit| Cgroup { memory_limit: Some(limit), ..v1(&wanted) };
    for page in [1, 4096, 16_384, 65_536] {
        assert_eq!(container_differs(&wanted, &holds(limit - limit % page)), None, "{page}");
    }
    for wrong in [limit + 1, limit - 1, 100 * MI] {
        assert!(container_differs(&wanted, &holds(wrong)).is_some(), "{wrong}");
    }
}

fn any_resources() -> impl Strategy<Value = Resources> {
    let cpu = prop::option::of(0..300_000_i64);
    let memory = prop::option::of(0..(1_i64 << 42));
    (cpu.clone(), cpu, memory.clone(), memory).prop_map(
        |(cpu_request, cpu_limit, memory_request, memory_limit)| Resources {
            cpu_request,
            cpu_limit,
            memory_request,
            memory_limit,
        },
    )
}

fn any_part() -> impl Strategy<Value = Part> {
    let kind = prop::sample::select(vec![Kind::Main, Kind::Sidecar, Kind::Init]);
    (kind, any_resources()).prop_map(|(kind, resources)| Part { kind, resources })
}

fn any_amount() -> impl Strategy<Value = Option<i64>> {
    prop::option::of(prop_oneof![0..200_000_i64, any::<i64>()])
}

proptest! {
    #[test]
    fn more_gives_no_less(a in any::<i64>(), b in any::<i64>(), period in 1000..=1_000_000_i64) {
        let (less, more) = (a.min(b), a.max(b));
        prop_assert!(shares(less) <= shares(more));
        prop_assert!((MIN_SHARES..=MAX_SHARES).contains(&shares(less)));
        if let Some(quota_of_less) = quota(less, period) {
            prop_assert!(quota_of_less >= MIN_QUOTA);
            prop_assert!(quota(more, period) >= Some(quota_of_less));
        }
        for weight in [linear_weight, curved_weight] {
            prop_assert!(weight(less) <= weight(more));
            prop_assert!((1..=MAX_WEIGHT).contains(&weight(less)));
        }
    }

    #[test]
    fn what_runtime_and_kernel_make_of_it_differs_in_nothing(wanted in any_resources()) {
        // The kernel cuts a limit below a page to zero.
        let wanted = Resources { memory_limit: wanted.memory_limit.filter(|limit| *limit > 4096), ..wanted };
        let mut right = vec![v1(&wanted), v2(&wanted, linear_weight)];
        for observed in right.clone() {
            right.push(Cgroup { cpu_quota: observed.cpu_quota.map(|q| in_systemd_steps(q, PERIOD)), ..observed });
        }
        for observed in right {
            prop_assert_eq!(container_differs(&wanted, &observed), None);
            prop_assert_eq!(pod_differs(&wanted, &observed), None);
        }
        prop_assert_eq!(container_differs(&wanted, &v2(&wanted, curved_weight)), None);
    }

    /// A cgroup that differs by more than rounding explains is reported.
    #[test]
    fn what_is_off_is_told(wanted in any_resources(), far in 2_i64..50) {
        let right = v1(&wanted);
        let mut wrong = vec![
            Cgroup { cpu_shares: right.cpu_shares.map(|s| s * far), ..right },
            Cgroup { cpu_quota: Some(right.cpu_quota.unwrap_or_default() + 1000 * far), ..right },
            Cgroup { memory_limit: Some(right.memory_limit.unwrap_or_default() + 65_536 * far), ..right },
        ];
        if right.cpu_quota.is_some() {
            wrong.push(Cgroup { cpu_quota: None, ..right });
        }
        for observed in wrong {
            prop_assert!(container_differs(&wanted, &observed).is_some(), "{:?}", observed);
            prop_assert!(pod_differs(&wanted, &observed).is_some(), "{:?}", observed);
        }
    }

    #[test]
    fn another_container_never_takes_from_the_pod(
        parts in prop::collection::vec(any_part(), 0..6),
        more in any_part(),
    ) {
        let before = of_pod(&parts, Overhead::default());
        let mut grown = parts;
        grown.push(more);
        let after = of_pod(&grown, Overhead::default());
        let request = |r: &Resources| r.cpu_request.unwrap_or_default();
        prop_assert!(request(&after) >= request(&before));
        if let (Some(before), Some(after)) = (before.memory_limit, after.memory_limit) {
            prop_assert!(after >= before);
        }
    }

    /// A Pod caps all its containers: none may have a limit above the Pod's.
    #[test]
    fn no_container_has_more_than_its_pod(parts in prop::collection::vec(any_part(), 1..6)) {
        let pod = of_pod(&parts, Overhead::default());
        for part in &parts {
            if let Some(limit) = pod.cpu_limit {
                prop_assert!(part.resources.cpu_limit.is_some_and(|own| own <= limit));
            }
            if let Some(limit) = pod.memory_limit {
                prop_assert!(part.resources.memory_limit.is_some_and(|own| own <= limit));
            }
        }
    }

    #[test]
    fn no_numbers_break_it(
        amounts in prop::array::uniform4(any_amount()),
        found in prop::array::uniform5(any_amount()),
    ) {
        let wanted = Resources {
            cpu_request: amounts[0],
            cpu_limit: amounts[1],
            memory_request: amounts[2],
            memory_limit: amounts[3],
        };
        let observed = Cgroup {
            cpu_quota: found[0],
            cpu_period: found[1],
            cpu_shares: found[2],
            cpu_weight: found[3],
            memory_limit: found[4],
            ..Cgroup::default()
        };
        container_differs(&wanted, &observed);
        pod_differs(&wanted, &observed);
        let parts = [Part { kind: Kind::Init, resources: wanted }, Part { kind: Kind::Main, resources: wanted }];
        of_pod(&parts, Overhead { cpu: i64::MAX, memory: i64::MAX });
    }
}
