//! What the root of a node can mint with its kubelet's certificate: tokens of Pods on that node, and no others.

use anyhow::{Context as _, Result};
use pitstop_e2e::system::{CONTROLLER, DAEMON, NAMESPACE};
use serde_json::{Value, json};

use crate::ask;
use crate::probe::{granted, refused, rights};
use crate::report::Report;
use crate::stage::{BOOKS, Stage, bound_to, token_request};

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let (a, b) = (stage.a(), stage.b());
    let node = stage.stored(&format!("/api/v1/nodes/{}", b.name)).await?;
    let uid = node.pointer("/metadata/uid").and_then(Value::as_str).context("a node without a UID")?;
    let of_pod = |pod: &crate::stage::Holder| bound_to("Pod", pod.name(), pod.uid());
    let with_audience = |mut spec: Value, audience: &str| {
        spec["audiences"] = json!([audience]);
        spec
    };
    // The controller's Pod runs on A or B.
    let of_controller = of_pod(&stage.controller);
    let node_name = stage.controller.pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
    let (home, stranger) = if node_name == Some(a.name.as_str()) { (a, b) } else { (b, a) };

    let mint = |account: &str, spec: &Value| token_request(NAMESPACE, account, spec);
    let cases = [
        (&b.kubelet, "a token of daemon A's Pod", mint(DAEMON, &of_pod(&a.daemon)), rights()),
        (&a.kubelet, "a token of daemon B's Pod", mint(DAEMON, &of_pod(&b.daemon)), rights()),
        (&b.kubelet, "an unbound token of the daemon's account", mint(DAEMON, &json!({})), rights()),
        (&b.kubelet, "a token bound to Node B", mint(DAEMON, &bound_to("Node", &b.name, uid)), rights()),
        (
            &b.kubelet,
            "daemon A's name with the UID of daemon B's Pod",
            mint(DAEMON, &bound_to("Pod", a.daemon.name(), b.daemon.uid())),
            refused(403, "does not match the UID in record"),
        ),
        (
            &home.kubelet,
            "the account of the controller on its node for the daemon's Pod",
            mint(CONTROLLER, &of_pod(&home.daemon)),
            refused(400, "cannot bind token"),
        ),
        (
            &b.kubelet,
            "daemon B's Pod for an audience that it does not use",
            mint(DAEMON, &with_audience(of_pod(&b.daemon), "pitstop")),
            refused(403, "is not authorized to request tokens for this audience"),
        ),
        (
            &stranger.kubelet,
            "a token of a controller's Pod on the other node",
            mint(CONTROLLER, &of_controller),
            rights(),
        ),
        (
            &b.kubelet,
            "a token of daemon B's Pod: the kubelet's task",
            mint(DAEMON, &of_pod(&b.daemon)),
            granted(201),
        ),
    ];
    for (who, what, ask, expected) in cases {
        report.ask(who, &format!("mint {what}"), ask, expected).await;
    }
    // What the node has without pitstop: nothing of pitstop's.
    for (what, path) in
        [("list NodeWorks", BOOKS.to_owned()), ("get its own NodeWork", format!("{BOOKS}/{}", b.name))]
    {
        report.ask(&b.kubelet, what, ask::get(&path), rights()).await;
    }
    Ok(())
}
