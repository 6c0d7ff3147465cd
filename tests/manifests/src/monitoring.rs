//! The `PromQL` expressions in the alerts and the dashboard of `deploy/components/monitoring`.

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::object::{Object, list, text};
use crate::{find, kustomize, root};

/// Prefixes of the metrics of pitstop's programs.
const PREFIXES: [&str; 2] = ["pitstop_", "process_"];

/// An expression in `PromQL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The alert's name, or the panel's title.
    pub title: String,
    /// The expression.
    pub expr: String,
}

/// A metric in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Its name, with the suffix of a sample.
    pub metric: String,
    /// Labels that select it, with their values.
    pub labels: Vec<(String, Vec<String>)>,
}

/// All objects of the component.
pub fn objects() -> Result<Vec<Object>> {
    kustomize::load(&root().join("deploy/components/monitoring"))
}

/// The rules in Prometheus' format: `spec` of the `PrometheusRule`.
pub fn rules() -> Result<Value> {
    let objects = objects()?;
    let rule = find(&objects, "PrometheusRule", "pitstop").context("no PrometheusRule")?;
    rule.0.get("spec").cloned().context("no spec")
}

/// Every alert.
pub fn alerts() -> Result<Vec<Value>> {
    let rules = rules()?;
    Ok(list(&rules, "/groups").iter().flat_map(|group| list(group, "/rules")).cloned().collect())
}

/// The dashboard in Grafana's format.
pub fn dashboard() -> Result<Value> {
    let objects = objects()?;
    let map = find(&objects, "ConfigMap", "pitstop-dashboard").context("no ConfigMap")?;
    serde_json::from_str(text(&map.0, "/data/pitstop.json")).context("the dashboard is no JSON")
}

/// The expressions of all alerts.
pub fn queries_of_alerts() -> Result<Vec<Query>> {
    let query = |a: &Value| Query { title: text(a, "/alert").to_owned(), expr: text(a, "/expr").to_owned() };
    Ok(alerts()?.iter().map(query).collect())
}

/// The expressions of all panels.
pub fn queries_of_panels() -> Result<Vec<Query>> {
    let dashboard = dashboard()?;
    let of = |panel: &Value| {
        let targets = list(panel, "/targets").iter();
        let exprs = targets.map(|target| text(target, "/expr").to_owned());
        exprs.map(|expr| Query { title: text(panel, "/title").to_owned(), expr }).collect::<Vec<_>>()
    };
    Ok(list(&dashboard, "/panels").iter().flat_map(of).collect())
}

/// The metrics of pitstop's programs that an expression names.
pub fn selectors(expr: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let mut rest = expr;
    while let Some(begin) = rest.find(is_word) {
        let (_, from) = rest.split_at(begin);
        let (word, after) = from.split_at(from.find(|c| !is_word(c)).unwrap_or(from.len()));
        rest = after;
        if PREFIXES.iter().any(|prefix| word.starts_with(prefix)) {
            let chosen =
                after.strip_prefix('{').and_then(|inner| inner.split('}').next()).unwrap_or_default();
            found.push(Selector { metric: word.to_owned(), labels: matchers(chosen) });
        }
    }
    found
}

/// The labels that an expression groups by.
pub fn grouped(expr: &str) -> Vec<String> {
    let lists = expr.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(',')).map(|label| label.trim().to_owned()).collect()
}

/// Label and values of each matcher. No value here contains a comma.
fn matchers(text: &str) -> Vec<(String, Vec<String>)> {
    let of = |matcher: &str| {
        let (label, rest) = matcher.split_at(matcher.find(|c| !is_word(c))?);
        let values = rest.split('"').nth(1)?.split('|').map(str::to_owned);
        Some((label.to_owned(), values.collect()))
    };
    text.split(',').filter_map(|matcher| of(matcher.trim())).collect()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_and_labels_are_found_in_an_expression() {
        let expr = "sum by (pod, le) (rate(pitstop_a_bucket{x=\"y\",reason!~\"B|C\"}[5m])) / process_d > \
                    count by (node) (up{job=\"pitstop\"})";
        let labels = |pairs: &[(&str, &[&str])]| -> Vec<(String, Vec<String>)> {
            let owned = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
            pairs.iter().map(|(label, values)| ((*label).to_owned(), owned(values))).collect()
        };
        let selector = |metric: &str, pairs| Selector { metric: metric.to_owned(), labels: labels(pairs) };
        assert_eq!(
            selectors(expr),
            [
                selector("pitstop_a_bucket", &[("x", &["y"]), ("reason", &["B", "C"])]),
                selector("process_d", &[])
            ]
        );
        assert_eq!(grouped(expr), ["pod", "le", "node"]);
    }
}
