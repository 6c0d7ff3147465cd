//! `deploy/components/monitoring`: promtool tests the alerts, and pitstop serves each metric in a query.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pitstop_manifests_test::monitoring::{
    Query, alerts, dashboard, grouped, objects, queries_of_alerts, queries_of_panels, rules, selectors,
};
use pitstop_manifests_test::object::{list, text};
use pitstop_manifests_test::{Object, find, root, skipped};
use serde_json::{Value, json};

use super::docs::leads_somewhere;
use super::folders::{MONITORING, default, with};

/// Folder of promtool's test cases. They expect the rules beside them in `alerts.yaml`.
const CASES: &str = "tests/manifests/alerts";
/// Labels that the `PodMonitor` adds to every sample, with the values that queries may select.
const TARGET: [(&str, &[&str]); 4] =
    [("container", &["controller", "daemon"]), ("job", &["pitstop"]), ("node", &[]), ("pod", &[])];

/// Path of promtool: from `cargo xtask test`, or from `PATH`. `None`, with a message, without promtool; in continuous
/// integration a failure.
fn promtool() -> Option<PathBuf> {
    let ours = root().join("target/tools/bin/promtool");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = [ours].into_iter().chain(std::env::split_paths(&path).map(|folder| folder.join("promtool")));
    let found = all.into_iter().find(|program| program.is_file());
    if found.is_none() {
        skipped("promtool, of Debian's package prometheus, is not there; `cargo xtask test` fetches it")
            .unwrap();
    }
    found
}

/// Runs promtool in the folder, and asserts that it succeeds.
fn judge(promtool: &Path, folder: &Path, args: &[&str]) {
    let promtool = fs::canonicalize(promtool).unwrap();
    let output = Command::new(promtool).args(args).current_dir(folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
}

/// Creates an empty folder of that name.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The texts of the case files, by name.
fn cases() -> BTreeMap<String, String> {
    let files = fs::read_dir(root().join(CASES)).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap())
    };
    files.map(named).collect()
}

#[test]
fn alerts_fire_when_they_must_and_only_then() {
    let Some(promtool) = promtool() else { return };
    let folder = folder("alerts");
    // JSON is valid YAML.
    fs::write(folder.join("alerts.yaml"), rules().unwrap().to_string()).unwrap();
    judge(&promtool, &folder, &["check", "rules", "alerts.yaml"]);
    for (name, text) in cases() {
        fs::write(folder.join(&name), text).unwrap();
        judge(&promtool, &folder, &["test", "rules", &name]);
    }
}

#[test]
fn the_dashboards_queries_are_understood() {
    let Some(promtool) = promtool() else { return };
    let folder = folder("dashboard");
    let queries = queries_of_panels().unwrap().into_iter().map(|query| query.expr);
    let rules: Vec<Value> = (1..)
        .zip(queries.collect::<BTreeSet<String>>())
        .map(|(at, expr)| json!({"record": format!("q{at}"), "expr": expr.replace("$__rate_interval", "5m")}))
        .collect();
    assert!(rules.len() > 30, "{}", rules.len());
    let file = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    fs::write(folder.join("queries.yaml"), file.to_string()).unwrap();
    judge(&promtool, &folder, &["check", "rules", "queries.yaml"]);
}

/// promtool ignores an alert without a case.
#[test]
fn each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let mut seen = BTreeSet::new();
    for (name, text) in cases() {
        let file: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(file["rule_files"], json!(["alerts.yaml"]), "{name}");
        let checks = list(&file, "/tests").iter().flat_map(|case| list(case, "/promql_expr_test"));
        for check in checks {
            let alert = text_between(check["expr"].as_str().unwrap(), "alertname=\"", "\"");
            seen.insert((alert.to_owned(), list(check, "/exp_samples").is_empty()));
        }
    }
    // Cases in which no alert may fire.
    assert!(seen.remove(&(String::new(), true)));
    let wanted = queries_of_alerts().unwrap().into_iter();
    let wanted: BTreeSet<_> =
        wanted.flat_map(|query| [true, false].map(|calm| (query.title.clone(), calm))).collect();
    assert_eq!(seen, wanted);
}

fn text_between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    text.split_once(before).and_then(|(_, rest)| rest.split(after).next()).unwrap_or_default()
}

#[test]
fn each_alert_says_what_is_wrong_and_where_to_read_on() {
    let page = fs::read_to_string(root().join("docs/tasks/watch-pitstop.md")).unwrap();
    let mut names = BTreeSet::new();
    for alert in alerts().unwrap() {
        let (name, severity) = (text(&alert, "/alert"), text(&alert, "/labels/severity"));
        assert!(name.starts_with("Pitstop") && names.insert(name.to_owned()), "{name}");
        assert!(["critical", "warning", "info"].contains(&severity), "{name}: {severity}");
        let annotations = alert["annotations"].as_object().unwrap();
        let keys: Vec<&String> = annotations.keys().collect();
        assert_eq!(keys, ["description", "runbook_url", "summary"], "{name}");
        let url = text(&alert, "/annotations/runbook_url");
        assert!(url.contains('#') && leads_somewhere(&root().join("README.md"), url), "{name}: {url}");
        assert!(page.contains(&format!("| `{name}` | {severity} | ")), "{name} has no row");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `Pitstop")).count();
    assert_eq!(rows, names.len(), "the page has rows for other alerts");
}

/// A row of `docs/reference/metrics.md`.
struct Metric {
    kind: String,
    labels: BTreeSet<String>,
    /// All words in backticks in the row, including label values.
    words: BTreeSet<String>,
}

/// All words in backticks.
fn words(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Each documented metric, by the names of its samples.
fn documented() -> BTreeMap<String, Metric> {
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let mut found = BTreeMap::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else { continue };
        let Some(name) = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')) else { continue };
        // A label precedes a colon and its values.
        let parts = labels.split("; ").map(|part| part.split(':').next().unwrap_or_default());
        let mut own: BTreeSet<String> = parts.flat_map(words).collect();
        let mut names = vec![name.to_owned()];
        if kind == "histogram" {
            own.insert("le".to_owned());
            names = ["bucket", "count", "sum"].map(|suffix| format!("{name}_{suffix}")).to_vec();
        }
        let words: BTreeSet<String> = words(labels).into_iter().chain(words(meaning)).collect();
        for name in names {
            let (kind, labels, words) = (kind.to_owned(), own.clone(), words.clone());
            found.insert(name, Metric { kind, labels, words });
        }
    }
    found
}

/// Faults of an expression, according to the reference of its metrics.
fn faults(query: &Query, metrics: &BTreeMap<String, Metric>, reasons: &BTreeSet<String>) -> Vec<String> {
    let Query { title, expr } = query;
    let mut faults = Vec::new();
    let mut known: BTreeSet<&str> = TARGET.iter().map(|(label, _)| *label).collect();
    for selector in selectors(expr) {
        let Some(metric) = metrics.get(&selector.metric) else {
            faults.push(format!("{title}: there is no {}", selector.metric));
            continue;
        };
        known.extend(metric.labels.iter().map(String::as_str));
        for (label, values) in &selector.labels {
            let target = TARGET.iter().find(|(name, _)| name == label);
            let is_value = |value: &String| match target {
                Some((_, values)) => values.contains(&value.as_str()),
                None => metric.words.contains(value) || label == "reason" && reasons.contains(value),
            };
            if target.is_none() && !metric.labels.contains(label) || !values.iter().all(is_value) {
                faults.push(format!("{title}: {} has no {label} {values:?}", selector.metric));
            }
        }
        // A counter's plain value is meaningless, because it starts at zero in each process.
        if metric.kind == "counter" && !expr.contains(&format!("increase({}", selector.metric)) {
            let rate = expr.contains(&format!("rate({}", selector.metric));
            faults.extend((!rate).then(|| format!("{title}: {} without its increase", selector.metric)));
        }
    }
    let grouped = grouped(expr).into_iter().filter(|label| !known.contains(label.as_str()));
    faults.extend(grouped.map(|label| format!("{title}: grouped by {label}")));
    faults
}

#[test]
fn each_metric_and_each_label_that_is_asked_for_is_documented() {
    let metrics = documented();
    // Only that page explains many reasons, as the reference says.
    let reasons = words(&fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap());
    let mut found = Vec::new();
    for query in queries_of_alerts().unwrap().into_iter().chain(queries_of_panels().unwrap()) {
        assert!(!selectors(&query.expr).is_empty(), "{}: {}", query.title, query.expr);
        found.extend(faults(&query, &metrics, &reasons));
    }
    assert!(found.is_empty(), "{found:#?}");
    let wrong = [
        "pitstop_controller_leader",
        "pitstop_controller_orders_open{state=\"lost\"}",
        "pitstop_controller_leading{state=\"placed\"}",
        "pitstop_controller_stage_duration_seconds",
        "sum(pitstop_controller_writes_total)",
        "sum by (namespace) (pitstop_controller_leading)",
    ];
    for expr in wrong {
        let query = Query { title: String::new(), expr: expr.to_owned() };
        assert_eq!(faults(&query, &metrics, &reasons).len(), 1, "{expr}");
    }
}

#[test]
fn the_dashboard_takes_its_data_from_where_its_reader_says() {
    let dashboard = dashboard().unwrap();
    let variables = list(&dashboard, "/templating/list");
    let variable = json!({"name": "datasource", "type": "datasource", "query": "prometheus"});
    for (key, value) in variable.as_object().unwrap() {
        assert_eq!(variables[0][key], *value);
    }
    let mut ids = BTreeSet::new();
    for panel in list(&dashboard, "/panels") {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"], json!({"type": "prometheus", "uid": "${datasource}"}), "{panel}");
            assert!(!list(panel, "/targets").is_empty(), "{panel}");
        }
    }
    let objects = objects().unwrap();
    let map = find(&objects, "ConfigMap", "pitstop-dashboard").unwrap();
    assert_eq!(map.0["metadata"]["labels"]["grafana_dashboard"], "1");
}

#[test]
fn both_programs_are_scraped_where_they_serve_metrics() {
    let objects = with(MONITORING);
    let spec = &find(&objects, "PodMonitor", "pitstop").unwrap().0["spec"];
    let endpoints = list(spec, "/podMetricsEndpoints");
    assert_eq!(endpoints.len(), 1);
    let selector = &spec["selector"];
    let expressions = list(selector, "/matchExpressions");
    for (kind, name) in [("Deployment", "pitstop-controller"), ("DaemonSet", "pitstop-daemon")] {
        let pod = find(&objects, kind, name).unwrap().pod().unwrap();
        let labels = &pod["metadata"]["labels"];
        for (key, value) in selector["matchLabels"].as_object().unwrap() {
            assert_eq!(labels[key], *value, "{name}");
        }
        for expression in expressions {
            assert_eq!(expression["operator"], "In");
            let key = expression["key"].as_str().unwrap();
            assert!(list(expression, "/values").contains(&labels[key]), "{name}: {key}");
        }
        let (_, jobs) = TARGET[1];
        assert!(jobs.contains(&labels[spec["jobLabel"].as_str().unwrap()].as_str().unwrap()), "{name}");
        let containers = list(pod, "/spec/containers");
        let (_, known) = TARGET[0];
        assert!(known.contains(&containers[0]["name"].as_str().unwrap()), "{name}");
        let ports = list(&containers[0], "/ports");
        let port = ports.iter().find(|port| port["name"] == endpoints[0]["port"]).unwrap();
        assert_eq!(port["containerPort"], 8080, "{name}");
    }
}

#[test]
fn the_component_changes_nothing_of_pitstop() {
    let (before, after) = (default(), with(MONITORING));
    assert_eq!(after[..before.len()], before);
    let kinds: Vec<&str> = after[before.len()..].iter().map(Object::kind).collect();
    assert_eq!(kinds, ["PrometheusRule", "ConfigMap", "PodMonitor"]);
}
