//! What a run does, drawn from its seed: the Pods, the streams of requests and of image updates, what is killed when, and when
//! nodes lose images.
//!
//! Each of them has a sequence of its own, so that a longer run of a seed begins as a shorter one.

mod updates;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use pitstop_api::recreate::{
    ContainerRecreateRequestSpec, FailurePolicy, Mechanism, RecreateContainer, RecreateStrategy,
};
use pitstop_sim::rng::Rng;

pub(crate) use updates::{CRASHING, Images, UpdatePlan, version};

/// The nodes of the cluster.
pub(crate) const NODES: [&str; 2] = ["node1", "node2"];
/// Grace period of every Pod, in seconds: longer than its hooks and containers take.
pub(crate) const GRACE: i64 = 10;
/// The deadlines that are drawn. A controller that takes over counts them anew.
const DEADLINES: [i64; 3] = [60, 90, 120];
/// The longest of them.
pub(crate) const LONGEST_DEADLINE: Duration = Duration::from_mins(2);
/// The gates that are drawn; none leaves the Pod without one.
const GATES: [Option<&str>; 4] = [None, None, Some("pitstop.dev/ready"), Some("KruisePodReady")];
const CONTAINERS: [&str; 3] = ["app", "sidecar", "proxy"];

/// A run.
#[derive(Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) pods: Vec<PodPlan>,
    /// By time.
    pub(crate) requests: Vec<RequestPlan>,
    /// By time.
    pub(crate) updates: Vec<UpdatePlan>,
    /// By time.
    pub(crate) kills: Vec<Kill>,
    /// By time.
    pub(crate) losses: Vec<Loss>,
}

/// A Pod that requests are about.
#[derive(Debug, PartialEq)]
pub(crate) struct PodPlan {
    pub(crate) name: String,
    pub(crate) node: &'static str,
    /// Type of its readiness gate.
    pub(crate) gate: Option<&'static str>,
    pub(crate) containers: Vec<ContainerPlan>,
}

/// A container.
#[derive(Debug, PartialEq)]
pub(crate) struct ContainerPlan {
    pub(crate) name: &'static str,
    /// Seconds that its preStop hook takes, where it has one.
    pub(crate) hook: Option<u64>,
    /// Seconds from its stop signal to its end.
    pub(crate) ends: u64,
}

/// A request.
#[derive(Debug, PartialEq)]
pub(crate) struct RequestPlan {
    /// Since the beginning; it is made later where its Pod has two open ones already.
    pub(crate) offset: Duration,
    pub(crate) name: String,
    pub(crate) spec: ContainerRecreateRequestSpec,
}

/// A `kill -9`.
#[derive(Debug, PartialEq)]
pub(crate) struct Kill {
    /// Since the beginning.
    pub(crate) offset: Duration,
    pub(crate) victim: Victim,
}

/// A node loses the images that none of its containers has, as by the kubelet's garbage collection.
#[derive(Debug, PartialEq)]
pub(crate) struct Loss {
    /// Since the beginning.
    pub(crate) offset: Duration,
    pub(crate) node: &'static str,
}

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Etcd,
    ApiServer,
    /// The kubelet of that node.
    Kubelet(&'static str),
    /// The container runtime of that node.
    Containerd(&'static str),
    /// pitstop's daemon on that node.
    Daemon(&'static str),
    /// One of the controller's replicas: that one of those that run.
    Controller(usize),
    /// All of the controller's replicas.
    Controllers,
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd => write!(f, "etcd"),
            Self::ApiServer => write!(f, "apiserver"),
            Self::Kubelet(node) => write!(f, "kubelet@{node}"),
            Self::Containerd(node) => write!(f, "containerd@{node}"),
            Self::Daemon(node) => write!(f, "daemon@{node}"),
            Self::Controller(_) => write!(f, "controller"),
            Self::Controllers => write!(f, "controllers"),
        }
    }
}

impl Plan {
    /// The plan of a seed for a stream of that length.
    pub(crate) fn draw(seed: u64, length: Duration) -> Self {
        let sequence = |salt: u64| Rng::new(seed ^ salt);
        let pods = pods(&mut sequence(0x706f_6473));
        let requests = requests(&mut sequence(0x7265_7173), &pods, length);
        let updates = updates::updates(&mut sequence(0x7570_6474), &pods, length);
        let kills = kills(&mut sequence(0x6b69_6c6c), length);
        let losses = losses(&mut sequence(0x6c6f_7373), length);
        Self { pods, requests, updates, kills, losses }
    }
}

/// Any of them; the first of none that is drawn never is, since no list here is empty.
fn any<T: Copy>(rng: &mut Rng, all: &[T], first: T) -> T {
    rng.pick(all).unwrap_or(first)
}

/// Per node three Pods, of one, two and three containers.
fn pods(rng: &mut Rng) -> Vec<PodPlan> {
    let mut pods = Vec::new();
    for node in NODES {
        for count in 1..=CONTAINERS.len() {
            let containers = CONTAINERS.iter().take(count).map(|name| ContainerPlan {
                name,
                hook: (!rng.one_in(3)).then(|| rng.below(3)),
                ends: rng.below(3),
            });
            let containers = containers.collect();
            let gate = any(rng, &GATES, None);
            pods.push(PodPlan { name: format!("{node}-of-{count}"), node, gate, containers });
        }
    }
    pods
}

/// One every one to three seconds for some Pod, and now and then a second one for the same Pod soon after.
fn requests(rng: &mut Rng, pods: &[PodPlan], length: Duration) -> Vec<RequestPlan> {
    let mut requests: Vec<RequestPlan> = Vec::new();
    let mut offset = 0;
    let mut last = 0;
    loop {
        let again = rng.one_in(6);
        offset += if again { rng.below(500) } else { 1000 + rng.below(2000) };
        if Duration::from_millis(offset) >= length {
            return requests;
        }
        if !again {
            last = rng.below(pods.len() as u64);
        }
        let Some(pod) = usize::try_from(last).ok().and_then(|i| pods.get(i)) else { return requests };
        let name = format!("r{:04}", requests.len() + 1);
        requests.push(RequestPlan { offset: Duration::from_millis(offset), name, spec: spec(rng, pod) });
    }
}

fn spec(rng: &mut Rng, pod: &PodPlan) -> ContainerRecreateRequestSpec {
    let mut names: Vec<_> = pod.containers.iter().map(|container| container.name).collect();
    let count = 1 + rng.below(names.len() as u64);
    let container = |name: &str| RecreateContainer { name: name.to_owned(), ..RecreateContainer::default() };
    let containers = (0..count).map(|_| container(rng.take(&mut names))).collect();
    let mechanism = any(
        rng,
        &[None, None, Some(Mechanism::Runtime), Some(Mechanism::Runtime), Some(Mechanism::Kubelet)],
        None,
    );
    // The kubelet stops with the Pod's own grace only.
    let own_grace = mechanism == Some(Mechanism::Kubelet) || rng.one_in(2);
    let grace = any(rng, &[0, 2, 4, 6, 8], 2);
    let strategy = RecreateStrategy {
        failure_policy: rng.one_in(4).then_some(FailurePolicy::Ignore),
        ordered_recreate: rng.one_in(3),
        force_recreate: rng.one_in(4),
        termination_grace_period_seconds: (!own_grace).then_some(grace),
        unready_grace_period_seconds: any(rng, &[None, None, None, Some(0), Some(1), Some(3)], None),
        min_started_seconds: any(rng, &[0, 0, 0, 1, 2, 4], 0),
        mechanism,
    };
    ContainerRecreateRequestSpec {
        pod_name: pod.name.clone(),
        containers,
        strategy: Some(strategy),
        active_deadline_seconds: Some(any(rng, &DEADLINES, 60)),
        ttl_seconds_after_finished: any(rng, &[None, None, Some(20), Some(40)], None),
    }
}

/// One every two to eight seconds.
fn kills(rng: &mut Rng, length: Duration) -> Vec<Kill> {
    let mut kills = Vec::new();
    let mut offset = 0;
    loop {
        offset += 2000 + rng.below(6000);
        if Duration::from_millis(offset) >= length {
            return kills;
        }
        kills.push(Kill { offset: Duration::from_millis(offset), victim: victim(rng) });
    }
}

/// One every five to fifteen seconds.
fn losses(rng: &mut Rng, length: Duration) -> Vec<Loss> {
    let mut losses = Vec::new();
    let mut offset = 0;
    loop {
        offset += 5000 + rng.below(10_000);
        if Duration::from_millis(offset) >= length {
            return losses;
        }
        losses.push(Loss { offset: Duration::from_millis(offset), node: any(rng, &NODES, "node1") });
    }
}

fn victim(rng: &mut Rng) -> Victim {
    let node = any(rng, &NODES, "node1");
    match rng.below(22) {
        0..6 => Victim::Daemon(node),
        6..10 => Victim::Controller(usize::from(rng.one_in(2))),
        10 => Victim::Controllers,
        11..15 => Victim::Kubelet(node),
        15..19 => Victim::Containerd(node),
        19..21 => Victim::ApiServer,
        _ => Victim::Etcd,
    }
}

/// How many there are of each, as `name count`.
pub(crate) fn counts<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for one in all {
        *counts.entry(one.to_string()).or_default() += 1;
    }
    let parts: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn minutes(n: u64) -> Duration {
        Duration::from_mins(n)
    }

    #[test]
    fn a_seed_has_one_plan() {
        assert_eq!(Plan::draw(7, minutes(3)), Plan::draw(7, minutes(3)));
        let (a, b) = (Plan::draw(7, minutes(3)), Plan::draw(8, minutes(3)));
        assert!(a.requests != b.requests && a.kills != b.kills);
        assert!(a.updates != b.updates && a.losses != b.losses);
    }

    #[test]
    fn a_longer_run_begins_as_a_shorter_one() {
        let (short, long) = (Plan::draw(7, minutes(3)), Plan::draw(7, minutes(30)));
        assert_eq!(short.pods, long.pods);
        assert_eq!(short.requests, long.requests[..short.requests.len()]);
        assert_eq!(short.updates, long.updates[..short.updates.len()]);
        assert_eq!(short.kills, long.kills[..short.kills.len()]);
        assert_eq!(short.losses, long.losses[..short.losses.len()]);
        assert!(long.requests.len() > 5 * short.requests.len() && long.kills.len() > 5 * short.kills.len());
    }

    #[test]
    fn everything_within_the_bounds_is_drawn() {
        let plan = Plan::draw(1, minutes(60));
        for node in NODES {
            let sizes: Vec<_> =
                plan.pods.iter().filter(|pod| pod.node == node).map(|pod| pod.containers.len()).collect();
            assert_eq!(sizes, [1, 2, 3]);
        }
        let victims: BTreeSet<_> = plan.kills.iter().map(|kill| kill.victim.to_string()).collect();
        assert_eq!(
            victims.iter().map(String::as_str).collect::<Vec<_>>(),
            [
                "apiserver",
                "containerd@node1",
                "containerd@node2",
                "controller",
                "controllers",
                "daemon@node1",
                "daemon@node2",
                "etcd",
                "kubelet@node1",
                "kubelet@node2"
            ]
        );
        let strategies: Vec<_> = plan.requests.iter().filter_map(|r| r.spec.strategy.as_ref()).collect();
        assert_eq!(strategies.len(), plan.requests.len());
        let some = |holds: &dyn Fn(&RecreateStrategy) -> bool| {
            let count = strategies.iter().filter(|strategy| holds(strategy)).count();
            assert!(count > 0 && count < strategies.len());
        };
        some(&|s| s.mechanism == Some(Mechanism::Kubelet));
        some(&|s| s.mechanism == Some(Mechanism::Runtime));
        some(&|s| s.mechanism.is_none());
        some(&|s| s.ordered_recreate);
        some(&|s| s.force_recreate);
        some(&|s| s.unready_grace_period_seconds.is_some());
        some(&|s| s.min_started_seconds > 0);
        some(&|s| s.termination_grace_period_seconds.is_some());
        let longest = plan.requests.iter().filter_map(|r| r.spec.active_deadline_seconds).max();
        assert_eq!(longest.map(i64::unsigned_abs), Some(LONGEST_DEADLINE.as_secs()));
    }

    #[test]
    fn every_request_makes_sense() {
        for request in Plan::draw(3, minutes(60)).requests {
            assert_eq!(pitstop_api::recreate::validate(&request.spec), Ok(()), "{request:?}");
            let strategy = request.spec.strategy.unwrap_or_default();
            let own_grace = strategy.termination_grace_period_seconds.is_none();
            assert!(own_grace || strategy.mechanism != Some(Mechanism::Kubelet), "{}", request.name);
        }
    }

    #[test]
    fn victims_are_counted_by_name() {
        let all = [Victim::Etcd, Victim::Controller(0), Victim::Controller(1)];
        assert_eq!(counts(all), "controller 2, etcd 1");
        assert_eq!(counts([""; 0]), "none");
    }
}
