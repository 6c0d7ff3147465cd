//! What the daemon counts.

use pitstop_kit::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// What was done, and how it went.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallLabels {
    /// `inspect`, `hook`, `stop` or `write_status`.
    action: &'static str,
    /// `ok`, `conflict` or `error`.
    result: &'static str,
}

/// The daemon's metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct DaemonMetrics {
    actions: Family<CallLabels, Counter>,
    open_orders: Gauge,
    runtime_up: Gauge,
}

impl DaemonMetrics {
    pub(crate) fn register(metrics: &mut Metrics) -> Self {
        let own = Self::default();
        let registry = metrics.registry();
        registry.register("actions", "Actions carried out", own.actions.clone());
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

    pub(crate) fn orders(&self, open: usize) {
        self.open_orders.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    pub(crate) fn runtime(&self, up: bool) {
        self.runtime_up.set(i64::from(up));
    }
}
