//! What the controller counts.

use pitstop_kit::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

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

/// The controller's metrics.
#[derive(Clone, Debug, Default)]
pub struct ControllerMetrics {
    writes: Family<WriteLabels, Counter>,
    admissions: Family<AdmissionLabels, Counter>,
    lost_events: Counter,
    leading: Gauge,
    refusing: Gauge,
    open_requests: Gauge,
    open_orders: Gauge,
}

impl ControllerMetrics {
    /// Registers them all.
    pub fn register(metrics: &mut Metrics) -> Self {
        let own = Self::default();
        let registry = metrics.registry();
        registry.register("writes", "Writes to the API server by action and result", own.writes.clone());
        registry.register("admissions", "Admission reviews by operation and code", own.admissions.clone());
        registry.register(
            "events_lost",
            "Events not recorded because too many waited",
            own.lost_events.clone(),
        );
        registry.register("leading", "1 while this replica leads", own.leading.clone());
        registry.register(
            "refuses_beside_kruise",
            "1 while no request is carried out because of OpenKruise",
            own.refusing.clone(),
        );
        registry.register("requests_open", "Requests that have not ended", own.open_requests.clone());
        registry.register("orders_open", "Orders in all books", own.open_orders.clone());
        own
    }

    /// One write came back.
    pub fn count(&self, action: &'static str, result: &'static str) {
        self.writes.get_or_create(&WriteLabels { action, result }).inc();
    }

    /// One admission review was answered.
    pub fn admission(&self, operation: &'static str, code: u16) {
        self.admissions.get_or_create(&AdmissionLabels { operation, code }).inc();
    }

    /// One event was not recorded.
    pub fn lost_event(&self) {
        self.lost_events.inc();
    }

    /// This replica began or ceased to lead.
    pub fn lead(&self, leading: bool) {
        self.leading.set(i64::from(leading));
    }

    /// 1 while no request is carried out because of `OpenKruise`.
    pub fn refusing(&self) -> Gauge {
        self.refusing.clone()
    }

    /// What is open now.
    pub fn open(&self, requests: usize, orders: usize) {
        self.open_requests.set(i64::try_from(requests).unwrap_or(i64::MAX));
        self.open_orders.set(i64::try_from(orders).unwrap_or(i64::MAX));
    }
}
