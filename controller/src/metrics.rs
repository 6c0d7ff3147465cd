//! The controller's metrics. `docs/reference/metrics.md` describes each.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use pitstop_controller_core::KindId;
use pitstop_controller_core::kind::About;
use pitstop_controller_core::kinds::all;
use pitstop_controller_core::measure::{Measure, OrderCounts, Stage};
use pitstop_kit::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds of the stages' durations, in seconds: from a quick stop to a long grace period.
const BUCKETS: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabels {
    action: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AdmissionLabels {
    operation: &'static str,
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    outcome: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StageLabels {
    stage: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// Metrics of one kind.
#[derive(Clone, Debug, Default)]
struct KindMetrics {
    ended: Family<EndLabels, Counter>,
    open: Gauge,
    /// `None` for a kind for many Pods: nobody waits for its end.
    oldest: Option<Gauge>,
}

impl KindMetrics {
    fn of(about: &About, oldest: &Family<KindLabels, Gauge>) -> Self {
        let own = || oldest.get_or_create(&KindLabels { kind: about.id.name() }).clone();
        Self { oldest: (!about.many).then(own), ..Self::default() }
    }

    fn register(&self, registry: &mut Registry, about: &About) {
        let About { metric, noun, .. } = about;
        let help = format!("{noun} that ended, by outcome and reason");
        registry.register(format!("{metric}_ended"), help, self.ended.clone());
        registry.register(format!("{metric}_open"), format!("{noun} that have not ended"), self.open.clone());
        for &reason in about.reasons {
            let outcome = outcome(about.successes.contains(&reason));
            drop(self.ended.get_or_create(&EndLabels { outcome, reason }));
        }
    }
}

/// The controller's metrics.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    writes: Family<WriteLabels, Counter>,
    admissions: Family<AdmissionLabels, Counter>,
    lost_events: Counter,
    leading: Gauge,
    refusing: Gauge,
    policy_in_force: Gauge,
    kinds: BTreeMap<KindId, KindMetrics>,
    oldest: Family<KindLabels, Gauge>,
    stages: Family<StageLabels, Histogram, fn() -> Histogram>,
    rollout_gap: Histogram,
    open_orders: Family<StateLabels, Gauge>,
    waiting: Gauge,
    longest_step: Gauge<f64, AtomicU64>,
}

impl ControllerMetrics {
    /// Registers all metrics. Those with few label values exist from the start, with zeros.
    pub fn register(metrics: &mut Metrics) -> Self {
        let own = Self::new();
        own.register_all(metrics.registry());
        for stage in Stage::ALL {
            drop(own.stages.get_or_create(&StageLabels { stage: stage.as_str() }));
        }
        own.open(all().map(|about| (about.id, 0, None)), &OrderCounts::default());
        own
    }

    fn new() -> Self {
        let oldest = Family::default();
        Self {
            writes: Family::default(),
            admissions: Family::default(),
            lost_events: Counter::default(),
            leading: Gauge::default(),
            refusing: Gauge::default(),
            policy_in_force: Gauge::default(),
            kinds: all().map(|about| (about.id, KindMetrics::of(about, &oldest))).collect(),
            oldest,
            stages: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            rollout_gap: Histogram::new(BUCKETS),
            open_orders: Family::default(),
            waiting: Gauge::default(),
            longest_step: Gauge::default(),
        }
    }

    fn register_kinds(&self, registry: &mut Registry) {
        for about in all() {
            self.kinds.get(&about.id).into_iter().for_each(|kind| kind.register(registry, about));
        }
        registry.register_with_unit(
            "oldest_open_request_created",
            "When the oldest request that has not ended was made, since 1970",
            Unit::Seconds,
            self.oldest.clone(),
        );
    }

    /// Registers each metric with its name and help.
    fn register_all(&self, registry: &mut Registry) {
        registry.register("writes", "Writes to the API server by action and result", self.writes.clone());
        registry.register("admissions", "Admission reviews by operation and code", self.admissions.clone());
        registry.register(
            "events_lost",
            "Events not recorded because too many waited",
            self.lost_events.clone(),
        );
        registry.register("leading", "1 while this replica leads", self.leading.clone());
        registry.register(
            "refuses_beside_kruise",
            "1 while no request is carried out because of OpenKruise",
            self.refusing.clone(),
        );
        registry.register(
            "daemon_policy_in_force",
            "1 while the policy that keeps each daemon to its own node is in force",
            self.policy_in_force.clone(),
        );
        self.register_kinds(registry);
        registry.register_with_unit(
            "stage_duration",
            "How long drains, stops and starts took",
            Unit::Seconds,
            self.stages.clone(),
        );
        registry.register_with_unit(
            "rollout_gap",
            "How long Pods that rollouts restarted or updated were not ready",
            Unit::Seconds,
            self.rollout_gap.clone(),
        );
        registry.register(
            "orders_open",
            "Orders in all books, by the daemon's answer",
            self.open_orders.clone(),
        );
        registry.register(
            "writes_waiting",
            "Objects, Pods and order books that wait to be written",
            self.waiting.clone(),
        );
        registry.register_with_unit(
            "longest_step",
            "Longest time that one event took in the core since the start",
            Unit::Seconds,
            self.longest_step.clone(),
        );
    }

    /// Counts a finished write.
    pub fn count(&self, action: &'static str, result: &'static str) {
        self.writes.get_or_create(&WriteLabels { action, result }).inc();
    }

    /// Counts an answered admission review.
    pub fn admission(&self, operation: &'static str, code: u16) {
        self.admissions.get_or_create(&AdmissionLabels { operation, code }).inc();
    }

    /// Counts an event that was not recorded.
    pub fn lost_event(&self) {
        self.lost_events.inc();
    }

    /// Sets whether this replica leads.
    pub fn lead(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }

    /// 1 while no request is carried out because of `OpenKruise`.
    pub fn refusing(&self) -> Gauge {
        self.refusing.clone()
    }

    /// 1 while the API server is seen to keep each daemon to its own node.
    pub fn policy_in_force(&self) -> Gauge {
        self.policy_in_force.clone()
    }

    /// Records a measure of the core.
    pub fn measure(&self, measure: &Measure) {
        match *measure {
            Measure::Ended { kind, complete, reason } => {
                if let Some(kind) = self.kinds.get(&kind) {
                    kind.ended.get_or_create(&EndLabels { outcome: outcome(complete), reason }).inc();
                }
            }
            Measure::Took { stage, duration } => {
                let labels = StageLabels { stage: stage.as_str() };
                self.stages.get_or_create(&labels).observe(duration.as_secs_f64());
            }
            Measure::RolloutGap { duration } => self.rollout_gap.observe(duration.as_secs_f64()),
        }
    }

    /// Records how long one event took in the core.
    pub fn stepped(&self, took: Duration) {
        if took.as_secs_f64() > self.longest_step.get() {
            self.longest_step.set(took.as_secs_f64());
        }
    }

    /// Sets how many writes wait.
    pub fn waiting(&self, count: usize) {
        self.waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the open requests of each kind, with the creation of the oldest in seconds since 1970, and the open orders.
    pub fn open(&self, requests: impl Iterator<Item = (KindId, usize, Option<i64>)>, orders: &OrderCounts) {
        for (id, count, oldest) in requests {
            if let Some(kind) = self.kinds.get(&id) {
                kind.open.set(i64::try_from(count).unwrap_or(i64::MAX));
                if let Some(gauge) = &kind.oldest {
                    gauge.set(oldest.unwrap_or(0));
                }
            }
        }
        for (state, count) in orders.by_state() {
            let gauge = self.open_orders.get_or_create(&StateLabels { state });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

fn outcome(complete: bool) -> &'static str {
    if complete { "complete" } else { "failed" }
}

#[cfg(test)]
mod tests {
    use pitstop_controller_core::{recreate, resize, rollout};
    use pitstop_kit::WatchMetrics;
    use pitstop_kit::metrics::documented;

    use super::*;
    use crate::certs::CertMetrics;

    /// All metrics that the program registers, each with a value.
    fn registered() -> (Metrics, ControllerMetrics) {
        let mut metrics = Metrics::new("pitstop_controller", "0.0.1");
        let own = ControllerMetrics::register(&mut metrics);
        own.count("write_status", "ok");
        own.admission("CREATE", 200);
        CertMetrics::register(metrics.registry());
        WatchMetrics::register(metrics.registry()).announce("pods");
        (metrics, own)
    }

    #[test]
    fn the_reference_names_exactly_these() {
        let page = include_str!("../../docs/reference/metrics.md");
        let (metrics, _) = registered();
        assert_eq!(documented(page, "pitstop_controller_"), metrics.families().unwrap());
    }

    #[test]
    fn ends_and_durations_are_counted() {
        let (metrics, own) = registered();
        own.measure(&Measure::Ended { kind: recreate::ID, complete: false, reason: "PodGone" });
        own.measure(&Measure::Took { stage: Stage::Stop, duration: Duration::from_millis(300) });
        own.measure(&Measure::RolloutGap { duration: Duration::from_millis(1_200) });
        own.measure(&Measure::Ended { kind: resize::ID, complete: false, reason: "Quota" });
        own.open(
            [(recreate::ID, 3, Some(1_700_000_000)), (resize::ID, 2, Some(7)), (rollout::ID, 1, Some(5))]
                .into_iter(),
            &OrderCounts { placed: 2, ..OrderCounts::default() },
        );
        own.open([(resize::ID, 0, None)].into_iter(), &OrderCounts { placed: 2, ..OrderCounts::default() });
        own.stepped(Duration::from_millis(250));
        own.stepped(Duration::from_millis(2));
        let text = metrics.encode().unwrap();
        for line in [
            "pitstop_controller_requests_ended_total{outcome=\"failed\",reason=\"PodGone\"} 1\n",
            "pitstop_controller_requests_ended_total{outcome=\"complete\",reason=\"Complete\"} 0\n",
            "pitstop_controller_stage_duration_seconds_sum{stage=\"stop\"} 0.3\n",
            "pitstop_controller_stage_duration_seconds_bucket{le=\"0.25\",stage=\"stop\"} 0\n",
            "pitstop_controller_stage_duration_seconds_bucket{le=\"0.5\",stage=\"stop\"} 1\n",
            "pitstop_controller_stage_duration_seconds_count{stage=\"drain\"} 0\n",
            "pitstop_controller_rollout_gap_seconds_bucket{le=\"1.0\"} 0\n",
            "pitstop_controller_rollout_gap_seconds_sum 1.2\n",
            "pitstop_controller_orders_open{state=\"placed\"} 2\n",
            "pitstop_controller_orders_open{state=\"failed\"} 0\n",
            "pitstop_controller_longest_step_seconds 0.25\n",
            "pitstop_controller_requests_open 3\n",
            "pitstop_controller_resizes_open 0\n",
            "pitstop_controller_oldest_open_request_created_seconds{kind=\"ContainerRecreateRequest\"} 1700000000\n",
            "pitstop_controller_oldest_open_request_created_seconds{kind=\"PodResize\"} 0\n",
            "pitstop_controller_resizes_ended_total{outcome=\"failed\",reason=\"Quota\"} 1\n",
            "pitstop_controller_resizes_ended_total{outcome=\"complete\",reason=\"Resized\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} not in {text}");
        }
        assert!(!text.contains("kind=\"InPlaceRollout\""), "it stands until it is deleted: {text}");
    }
}
