//! What the daemon counts. Every metric is described in `docs/reference/metrics.md`.

use std::time::Duration;

use pitstop_kit::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

/// Upper bounds of the durations of stops, in seconds: from a quick one to a long grace period.
const BUCKETS: [f64; 11] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// An action and its result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    /// `inspect`, `stop`, `read_cgroups`, `read_resources`, `resize`, `look_at_image`, `pull`, `write_back` or
    /// `write_status`.
    action: &'static str,
    /// `ok`, `conflict` or `error`.
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabels {
    kind: &'static str,
    result: &'static str,
}

/// The daemon's metrics.
#[derive(Clone, Debug)]
pub(crate) struct DaemonMetrics {
    actions: Family<CallLabels, Counter>,
    hooks: Family<HookLabels, Counter>,
    stops: Histogram,
    pulls: Histogram,
    pulled_bytes: Counter,
    open_orders: Gauge,
    runtime_up: Gauge,
}

impl DaemonMetrics {
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let own = Self {
            actions: Family::default(),
            hooks: Family::default(),
            stops: Histogram::new(BUCKETS),
            pulls: Histogram::new(BUCKETS),
            pulled_bytes: Counter::default(),
            open_orders: Gauge::default(),
            runtime_up: Gauge::default(),
        };
        let registry = metrics.registry();
        registry.register("actions", "Actions carried out", own.actions.clone());
        registry.register("hooks", "preStop hooks run, by kind and result", own.hooks.clone());
        registry.register_with_unit(
            "stop_duration",
            "How long stops of containers took in the runtime",
            Unit::Seconds,
            own.stops.clone(),
        );
        registry.register_with_unit(
            "pull_duration",
            "How long pulls of images took in the runtime",
            Unit::Seconds,
            own.pulls.clone(),
        );
        registry.register_with_unit(
            "pulled",
            "Sizes of the images that were pulled, as the runtime reports them",
            Unit::Bytes,
            own.pulled_bytes.clone(),
        );
        registry.register("orders_open", "Orders in the node's book", own.open_orders.clone());
        registry.register(
            "runtime_up",
            "Whether a container runtime answered when it was last asked",
            own.runtime_up.clone(),
        );
        own
    }

    pub(crate) fn count(&self, action: &'static str, result: &'static str) {
        self.actions.get_or_create(&CallLabels { action, result }).inc();
    }

    /// A hook of that kind ended.
    pub(crate) fn hook(&self, kind: &'static str, ok: bool) {
        let result = if ok { "ok" } else { "error" };
        self.hooks.get_or_create(&HookLabels { kind, result }).inc();
    }

    /// The call to stop a container ended.
    pub(crate) fn stopped(&self, took: Duration) {
        self.stops.observe(took.as_secs_f64());
    }

    /// A pull ended.
    pub(crate) fn pulled(&self, took: Duration) {
        self.pulls.observe(took.as_secs_f64());
    }

    /// An image of that size was pulled.
    pub(crate) fn pulled_bytes(&self, bytes: u64) {
        self.pulled_bytes.inc_by(bytes);
    }

    pub(crate) fn orders(&self, open: usize) {
        self.open_orders.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    pub(crate) fn runtime(&self, up: bool) {
        self.runtime_up.set(i64::from(up));
    }
}

#[cfg(test)]
mod tests {
    use pitstop_kit::WatchMetrics;
    use pitstop_kit::metrics::documented;

    use super::*;

    #[test]
    fn the_reference_names_exactly_these() {
        let mut metrics = Metrics::new("pitstop_daemon", "0.0.1");
        let own = DaemonMetrics::register(&mut metrics);
        WatchMetrics::register(metrics.registry()).announce("nodework");
        own.count("stop", "ok");
        own.hook("exec", false);
        own.stopped(Duration::from_millis(70));
        let page = include_str!("../../docs/reference/metrics.md");
        assert_eq!(documented(page, "pitstop_daemon_"), metrics.families().unwrap());
        let text = metrics.encode().unwrap();
        for line in [
            "pitstop_daemon_hooks_total{kind=\"exec\",result=\"error\"} 1\n",
            "pitstop_daemon_stop_duration_seconds_bucket{le=\"0.05\"} 0\n",
            "pitstop_daemon_stop_duration_seconds_bucket{le=\"0.1\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} not in {text}");
        }
    }
}
