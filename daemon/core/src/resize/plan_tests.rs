//! Laws of the sequence of writes.

use pitstop_api::logic::cgroup::{container_differs, pod_differs};
use pitstop_api::quantity::Resources;
use proptest::prelude::*;

use super::*;

/// A v1 or v2 cgroup with these resources and that period.
fn made(bounds: &Bounds, v2: bool, period: i64) -> Cgroup {
    let shares = shares(bounds.cpu_request);
    Cgroup {
        cpu_quota: bounds.cpu_limit.and_then(|limit| quota(limit, period)),
        cpu_period: Some(period),
        cpu_shares: (!v2).then_some(shares),
        cpu_weight: v2.then(|| linear_weight(shares)),
        memory_limit: bounds.memory_limit,
        ..Cgroup::default()
    }
}

/// Applies one setting, as the kernel does.
fn take(cgroup: &mut Cgroup, setting: Setting) {
    match setting {
        Setting::Shares(shares) if cgroup.cpu_weight.is_some() => {
            cgroup.cpu_weight = Some(linear_weight(shares));
        }
        Setting::Shares(shares) => cgroup.cpu_shares = Some(shares),
        Setting::Weight(weight) => cgroup.cpu_weight = Some(weight),
        Setting::Quota { quota, period } => (cgroup.cpu_quota, cgroup.cpu_period) = (quota, Some(period)),
        Setting::Memory(limit) => cgroup.memory_limit = limit,
    }
}

/// `None` means no limit.
fn within(inner: Option<i64>, outer: Option<i64>) -> bool {
    outer.is_none_or(|outer| inner.is_none_or(|inner| inner <= outer))
}

/// As [`within`], but an unlimited container is as large as its Pod: the kernel allows that.
fn capped(inner: Option<i64>, outer: Option<i64>) -> bool {
    inner.is_none() || within(inner, outer)
}

const PAGE: i64 = 65_536;

fn bounds() -> impl Strategy<Value = Bounds> {
    let cpu = proptest::option::of(10_i64..64_000);
    let memory = proptest::option::of((1_i64..64).prop_map(|pages| pages * PAGE));
    (0_i64..64_000, cpu, memory).prop_map(|(cpu_request, cpu_limit, memory_limit)| Bounds {
        cpu_request,
        cpu_limit,
        memory_limit,
    })
}

/// A Pod at least as large as its container; without a limit if the container has none.
fn around(container: &Bounds, more: &Bounds) -> Bounds {
    let add = |a: Option<i64>, b: Option<i64>| Some(a?.saturating_add(b?));
    Bounds {
        cpu_request: container.cpu_request + more.cpu_request,
        cpu_limit: add(container.cpu_limit, more.cpu_limit),
        memory_limit: add(container.memory_limit, more.memory_limit),
    }
}

fn id(digit: char) -> ContainerId {
    ContainerId::parse(&String::from(digit).repeat(64)).unwrap()
}

#[derive(Debug)]
struct Case {
    v2: bool,
    period: i64,
    before: (Bounds, Bounds),
    after: (Bounds, Bounds),
}

fn case() -> impl Strategy<Value = Case> {
    let four = (bounds(), bounds(), bounds(), bounds());
    let period = prop_oneof![Just(100_000_i64), Just(10_000), Just(50_000)];
    (any::<bool>(), period, four).prop_map(|(v2, period, (a, b, c, d))| Case {
        v2,
        period,
        before: (a, around(&a, &b)),
        after: (c, around(&c, &d)),
    })
}

fn plan(case: &Case, container: &Cgroup, pod: &Cgroup, written: bool) -> Vec<Write> {
    let change = |present, bounds| Change { present, goal: Goal::of(bounds, present), written };
    let of_container = change(container, &case.after.0);
    writes(Driver::Cgroupfs, Some(change(pod, &case.after.1)), &[(&id('a'), of_container)])
}

fn settings(write: &Write) -> Vec<(bool, Setting)> {
    match write {
        Write::Pod(setting) => vec![(true, *setting)],
        Write::Container { settings, .. } => settings.iter().map(|setting| (false, *setting)).collect(),
        Write::Reclaim { .. } => Vec::new(),
    }
}

proptest! {
    #[test]
    fn after_every_write_the_pod_has_what_its_container_has_and_at_the_end_all_is_there(case in case()) {
        let container = made(&case.before.0, case.v2, case.period);
        let pod = made(&case.before.1, case.v2, case.period);
        let (mut now_container, mut now_pod) = (container, pod);
        let mut kinds = Vec::new();
        let goal = made(&case.after.1, case.v2, case.period);
        for write in plan(&case, &container, &pod, false) {
            for (of_pod, setting) in settings(&write) {
                kinds.push((of_pod, std::mem::discriminant(&setting)));
                take(if of_pod { &mut now_pod } else { &mut now_container }, setting);
            }
            prop_assert!(capped(now_container.cpu_quota, now_pod.cpu_quota), "{now_container:?} in {now_pod:?}");
            prop_assert!(capped(now_container.memory_limit, now_pod.memory_limit));
            // Never below both the old and the new value: other containers of the Pod use it too.
            for (now, before, after) in [
                (now_pod.cpu_quota, pod.cpu_quota, goal.cpu_quota),
                (now_pod.memory_limit, pod.memory_limit, goal.memory_limit),
            ] {
                prop_assert!(within(before, now) || within(after, now));
            }
        }
        let count = kinds.len();
        kinds.sort_by_key(|kind| format!("{kind:?}"));
        kinds.dedup();
        prop_assert_eq!(kinds.len(), count, "nothing is written twice");
        let resources = |bounds: &Bounds| Resources {
            cpu_request: Some(bounds.cpu_request),
            cpu_limit: bounds.cpu_limit,
            memory_request: None,
            memory_limit: bounds.memory_limit,
        };
        prop_assert_eq!(container_differs(&resources(&case.after.0), &now_container), None);
        prop_assert_eq!(pod_differs(&resources(&case.after.1), &now_pod), None);
        prop_assert_eq!(plan(&case, &now_container, &now_pod, true), []);
    }

    #[test]
    fn what_is_there_is_not_written_also_as_kernel_and_systemd_keep_it(case in case(), odd in 0_i64..4096) {
        let (mut container, mut pod) =
            (made(&case.after.0, case.v2, case.period), made(&case.after.1, case.v2, case.period));
        prop_assert_eq!(plan(&case, &container, &pod, true), []);
        let mut case = case;
        for (bounds, cgroup) in [(&mut case.after.0, &mut container), (&mut case.after.1, &mut pod)] {
            bounds.memory_limit = bounds.memory_limit.map(|limit| limit + odd);
            cgroup.cpu_quota = cgroup.cpu_quota.map(|quota| in_systemd_steps(quota, case.period));
        }
        let change = |present, bounds| Change { present, goal: Goal::of(bounds, present), written: true };
        let (of_pod, of_container) = (change(&pod, &case.after.1), change(&container, &case.after.0));
        prop_assert_eq!(writes(Driver::Systemd, Some(of_pod), &[(&id('a'), of_container)]), []);
    }

    #[test]
    fn what_was_there_before_comes_back(case in case()) {
        let (original, now) = (made(&case.before.0, case.v2, case.period), made(&case.after.0, case.v2, case.period));
        let (original_pod, mut now_pod) =
            (made(&case.before.1, case.v2, case.period), made(&case.after.1, case.v2, case.period));
        let mut now = now;
        let back = |container: &Cgroup, pod: &Cgroup| {
            let of = |present, goal| Change { present, goal, written: true };
            let container = of(container, Goal::before(&original));
            let pod = of(pod, Goal::before(&original_pod));
            writes(Driver::Cgroupfs, Some(pod), &[(&id('a'), container)])
        };
        let plan = back(&now, &now_pod);
        for (of_pod, setting) in plan.iter().flat_map(settings) {
            take(if of_pod { &mut now_pod } else { &mut now }, setting);
            prop_assert!(of_pod || capped(now.cpu_quota, now_pod.cpu_quota));
        }
        prop_assert_eq!((now, now_pod), (original, original_pod));
        prop_assert_eq!(back(&now, &now_pod), []);
    }
}

fn small() -> Bounds {
    Bounds { cpu_request: 100, cpu_limit: Some(200), memory_limit: Some(64 << 20) }
}

fn large() -> Bounds {
    Bounds { cpu_request: 1000, cpu_limit: Some(2000), memory_limit: Some(256 << 20) }
}

#[test]
fn what_grows_grows_from_the_pod_down_and_what_shrinks_from_the_container_up() {
    let quota = |quota| Setting::Quota { quota: Some(quota), period: 100_000 };
    let memory = |bytes| Setting::Memory(Some(bytes));
    for (from, to, pod_first, values) in [
        (small(), large(), true, (200_000, 256 << 20, 1024)),
        (large(), small(), false, (20_000, 64 << 20, 102)),
    ] {
        let present = made(&from, false, 100_000);
        let change = Change { present: &present, goal: Goal::of(&to, &present), written: false };
        let mut plan = writes(Driver::Cgroupfs, Some(change), &[(&id('a'), change)]);
        let container = Write::Container {
            id: id('a'),
            settings: vec![quota(values.0), memory(values.1), Setting::Shares(values.2)],
        };
        let limits = [Write::Pod(quota(values.0)), Write::Pod(memory(values.1))];
        let shares = Write::Pod(Setting::Shares(values.2));
        if pod_first {
            assert_eq!(plan.pop(), Some(container));
            assert_eq!(plan, [limits.to_vec(), vec![shares]].concat());
        } else {
            plan.rotate_left(1);
            assert_eq!(plan.pop(), Some(container));
            assert_eq!(plan, [vec![shares], limits.to_vec()].concat());
        }
    }
}

#[test]
fn a_container_that_gets_less_goes_before_one_that_gets_more() {
    let (little, much) = (made(&small(), true, 100_000), made(&large(), true, 100_000));
    let grow = Change { present: &little, goal: Goal::of(&large(), &little), written: true };
    let shrink = Change { present: &much, goal: Goal::of(&small(), &much), written: true };
    let (more, less) = (id('a'), id('b'));
    let plan = writes(Driver::Cgroupfs, None, &[(&more, grow), (&less, shrink)]);
    let ids: Vec<&str> = plan
        .iter()
        .map(|write| match write {
            Write::Container { id, .. } => id.as_str(),
            Write::Pod(_) => "pod",
            Write::Reclaim { .. } => "memory",
        })
        .collect();
    assert_eq!(ids, [less.as_str(), more.as_str()]);
}

/// A weight of 39 is 1024 shares for one runtime and 264 for another.
#[test]
fn the_weight_of_a_container_is_written_before_it_is_believed() {
    let bounds = Bounds { cpu_request: 1000, ..Bounds::default() };
    let present = made(&bounds, true, 100_000);
    let plan = |written| {
        let change = Change { present: &present, goal: Goal::of(&bounds, &present), written };
        writes(Driver::Cgroupfs, Some(change), &[(&id('a'), change)])
    };
    assert_eq!(plan(false), [Write::Container { id: id('a'), settings: vec![Setting::Shares(1024)] }]);
    assert_eq!(plan(true), []);
    let curved = Cgroup { cpu_weight: Some(100), ..present };
    let change = Change { present: &curved, goal: Goal::of(&bounds, &curved), written: true };
    assert_eq!(writes(Driver::Cgroupfs, None, &[(&id('a'), change)]), []);
    assert_eq!(writes(Driver::Cgroupfs, Some(change), &[]), [Write::Pod(Setting::Shares(1024))]);
}

#[test]
fn a_quota_that_only_systemd_would_have_rounded_is_written_where_there_is_no_systemd() {
    let bounds = Bounds { cpu_request: 15, cpu_limit: Some(15), memory_limit: None };
    let present = Cgroup { cpu_quota: Some(2000), ..made(&bounds, false, 100_000) };
    let change = Change { present: &present, goal: Goal::of(&bounds, &present), written: true };
    assert_eq!(writes(Driver::Systemd, Some(change), &[]), []);
    let written = Write::Pod(Setting::Quota { quota: Some(1500), period: 100_000 });
    assert_eq!(writes(Driver::Cgroupfs, Some(change), &[]), [written]);
}

#[test]
fn who_keeps_the_cgroups_is_seen_by_the_name_of_the_pods() {
    assert_eq!(Driver::of("kubepods/burstable/pod1"), Driver::Cgroupfs);
    assert_eq!(Driver::of("kubepods.slice/kubepods-pod1.slice"), Driver::Systemd);
    assert_eq!(Driver::of("a.slice/pod1"), Driver::Cgroupfs);
    assert_eq!(Driver::of(""), Driver::Cgroupfs);
}

#[test]
fn memory_in_use_keeps_a_limit_from_coming_down_and_page_cache_does_not() {
    let goal = |limit| Goal::of(&Bounds { memory_limit: limit, ..Bounds::default() }, &Cgroup::default());
    let seen = |limit, usage, inactive_file| Seen {
        cgroup: Cgroup { memory_limit: limit, memory_usage: Some(usage), ..Cgroup::default() },
        inactive_file,
    };
    let blocked = |limit, seen: Seen, margin| in_use("container", &seen, &goal(limit), margin).is_some();
    assert!(blocked(Some(100), seen(Some(200), 101, 0), 0));
    assert!(!blocked(Some(100), seen(Some(200), 100, 0), 0));
    assert!(blocked(Some(100), seen(Some(200), 100, 0), 1));
    assert!(!blocked(Some(100), seen(Some(200), 150, 60), 10));
    assert!(blocked(Some(100), seen(None, 101, 0), 0), "a limit where there was none is lower too");
    assert!(!blocked(Some(200), seen(Some(100), 150, 0), 0), "it rises");
    assert!(!blocked(Some(100), seen(Some(100), 150, 0), 0), "it is there");
    assert!(!blocked(None, seen(Some(100), 150, 0), 0));
    assert!(blocked(Some(100), seen(Some(200), 50, 999), i64::MAX), "nothing overflows");
    let reason = in_use("Pod", &seen(Some(200), 160, 10), &goal(Some(100)), 7).unwrap();
    assert!(reason.starts_with("150 bytes of memory are in use by the Pod"), "{reason}");
    assert!(reason.contains("a margin of 7 bytes") && reason.contains("limit of 100 bytes"), "{reason}");
}
