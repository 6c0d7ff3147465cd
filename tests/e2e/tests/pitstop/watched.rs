//! The metrics of the alerts and the dashboard in `deploy/components/monitoring` are served.

use std::collections::BTreeSet;

use pitstop_e2e::system::{self, CONTROLLER, DAEMON};
use pitstop_e2e::{Context, Result, ensure, on_shared_cluster, pods, requests};
use pitstop_manifests_test::monitoring::{queries_of_alerts, queries_of_panels, selectors};
use serde_json::json;

/// The names of the samples in a text of metrics.
fn samples(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned)
}

#[test]
fn every_metric_that_an_alert_or_a_panel_names_is_served() -> Result<()> {
    on_shared_cluster(async |ns| {
        // Metrics of admissions, writes, actions and hooks exist only after the first count.
        let mut app = pods::web("app");
        app["lifecycle"] = json!({"preStop": {"exec": {"command": ["true"]}}});
        ns.start_pod(pods::pod("web", &[app])).await?;
        ns.create(requests::recreate("counted", "web", &["app"])).await?;
        let over = ns.over("counted").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);

        let mut served = BTreeSet::new();
        for program in [CONTROLLER, DAEMON] {
            for pod in system::pods_of(&ns.cluster, program).await? {
                let name = pod.metadata.name.context("a Pod without a name")?;
                served.extend(samples(&system::metrics(&ns.cluster, &name).await?));
            }
        }
        let queries = queries_of_alerts()?.into_iter().chain(queries_of_panels()?);
        let named: BTreeSet<String> =
            queries.flat_map(|query| selectors(&query.expr)).map(|selector| selector.metric).collect();
        let missing: Vec<&String> = named.difference(&served).collect();
        ensure!(
            named.len() > 30 && missing.is_empty(),
            "of {} metrics are not served: {missing:?}",
            named.len()
        );
        Ok(())
    })
}
