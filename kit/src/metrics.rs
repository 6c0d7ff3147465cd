//! The process's metrics in `OpenMetrics` text.
//!
//! Labels name kinds, never objects: a label per object would grow without bound.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::clock;

/// Content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of the process. Register everything at the start, then share it in an `Arc` with the health server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    prefix: &'static str,
}

impl Metrics {
    /// Metrics of a program whose own names begin with `prefix`, for example `pitstop_controller`.
    ///
    /// Holds `<prefix>_build_info{version}` and the usual `process_*` metrics from the beginning.
    pub fn new(prefix: &'static str, version: &'static str) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process { started: clock::wall().timestamp() }));
        registry.sub_registry_with_prefix(prefix).register(
            "build",
            "The version of the program",
            Info::new([("version", version)]),
        );
        Self { registry, prefix }
    }

    /// The registry of the program's own metrics; it puts the prefix before their names.
    pub fn registry(&mut self) -> &mut Registry {
        self.registry.sub_registry_with_prefix(self.prefix)
    }

    /// Name and type of every metric that has a value: what a reference page lists.
    pub fn families(&self) -> Result<BTreeMap<String, String>, fmt::Error> {
        let text = self.encode()?;
        let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let pairs = lines.filter_map(|line| line.split_once(' '));
        // Samples of these two types have a longer name than their metric.
        let families = pairs.map(|(name, type_)| {
            let suffix = match type_ {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            (format!("{name}{suffix}"), type_.to_owned())
        });
        Ok(families.collect())
    }

    /// All metrics as text.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// Name and type of every metric that a reference page lists for a program: the first two cells of the rows of its
/// tables whose name begins with `prefix` or `process_`.
pub fn documented(page: &str, prefix: &str) -> BTreeMap<String, String> {
    page.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
            let ours = name.starts_with(prefix) || name.starts_with("process_");
            ours.then(|| Some((name.to_owned(), cells.next()?.to_owned())))?
        })
        .collect()
}

/// The kernel's numbers about this process, read at each request.
#[derive(Debug)]
struct Process {
    /// Start of the process, in seconds since 1970.
    started: i64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let started = ConstGauge::new(self.started);
        started.encode(encoder.encode_descriptor(
            "process_start_time",
            "When the process started, since 1970",
            Some(&Unit::Seconds),
            started.metric_type(),
        )?)?;
        let cpu = ConstCounter::new(clock::process_cpu_seconds());
        cpu.encode(encoder.encode_descriptor(
            "process_cpu",
            "Processor time used",
            Some(&Unit::Seconds),
            cpu.metric_type(),
        )?)?;
        if let Some(bytes) = resident_bytes() {
            let resident = ConstGauge::new(bytes);
            resident.encode(encoder.encode_descriptor(
                "process_resident_memory",
                "Memory that the process occupies",
                Some(&Unit::Bytes),
                resident.metric_type(),
            )?)?;
        }
        Ok(())
    }
}

/// Resident memory of this process in bytes.
///
/// From `/proc/self/status`, because `statm` counts pages and their size differs between architectures.
pub fn resident_bytes() -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    parse_resident(&status)
}

/// `VmRSS` of a `/proc/<pid>/status` text, in bytes.
fn parse_resident(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;

    #[test]
    fn the_text_holds_process_and_own_metrics() {
        let mut metrics = Metrics::new("pitstop_test", "0.0.1");
        let counter: Counter = Counter::default();
        metrics.registry().register("things", "Things done", counter.clone());
        counter.inc();
        let text = metrics.encode().unwrap();
        for part in [
            "pitstop_test_things_total 1\n",
            "pitstop_test_build_info{version=\"0.0.1\"} 1\n",
            "process_start_time_seconds 1",
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
        ] {
            assert!(text.contains(part), "{part} not in {text}");
        }
    }

    #[test]
    fn a_page_is_compared_by_names_and_types() {
        let mut metrics = Metrics::new("pitstop_test", "0.0.1");
        metrics.registry().register("things", "Things done", Counter::<u64>::default());
        let page = "| metric | type |\n|---|---|\n| `pitstop_test_things_total` | counter | x |\n\
                    | `pitstop_test_build_info` | info | |\n| `process_start_time_seconds` | gauge | |\n\
                    | `process_cpu_seconds_total` | counter | |\n| `process_resident_memory_bytes` | gauge | |\n\
                    | `pitstop_other_things_total` | counter | |\n";
        assert_eq!(documented(page, "pitstop_test_"), metrics.families().unwrap());
        assert_eq!(documented("| `pitstop_test_x` | gauge |", "pitstop_test_").len(), 1);
    }

    #[test]
    fn resident_memory_is_read_in_bytes() {
        assert_eq!(parse_resident("VmHWM:\t 9 kB\nVmRSS:\t    4096 kB\n"), Some(4096 * 1024));
        assert_eq!(parse_resident("VmRSS:\t x kB\n"), None);
        assert!(resident_bytes().unwrap() > 100_000);
    }
}
