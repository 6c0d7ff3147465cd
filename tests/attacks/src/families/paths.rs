//! Paths of the API server that are no resources.

use anyhow::Result;
use http::Method;

use crate::ask;
use crate::probe::{granted, rights};
use crate::report::Report;
use crate::stage::Stage;

/// What every ServiceAccount may read; nothing of it is of one node or one tenant.
const OPEN: [&str; 12] = [
    "/api",
    "/api/v1",
    "/apis",
    "/apis/pitstop.dev/v1alpha1",
    "/healthz",
    "/livez",
    "/readyz",
    "/version",
    "/openapi/v2",
    "/openapi/v3",
    "/.well-known/openid-configuration",
    "/openid/v1/jwks",
];

const CLOSED: [&str; 18] = [
    "/",
    "/metrics",
    "/metrics/slis",
    "/metrics/cadvisor",
    "/logs",
    "/logs/",
    "/debug/pprof/",
    "/debug/pprof/heap",
    "/debug/pprof/cmdline",
    "/debug/flags/v",
    "/debug/api_priority_and_fairness/dump_requests",
    "/configz",
    "/statusz",
    "/flagz",
    "/healthz/etcd",
    "/livez/ping",
    "/readyz/informer-sync",
    "/static/x",
];

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let who = &stage.a().daemon.who;
    for path in OPEN {
        report.ask(who, &format!("get {path}"), ask::get(path), granted(200)).await;
    }
    for path in CLOSED {
        report.ask(who, &format!("get {path}"), ask::get(path), rights()).await;
    }
    for path in ["/healthz", "/version", "/openapi/v2"] {
        report.ask(who, &format!("post {path}"), ask::plain(&Method::POST, path), rights()).await;
    }
    Ok(())
}
