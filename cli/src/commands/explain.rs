//! `explain`: why a request waits or how it ended, and what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::process::ExitCode;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use pitstop_api::nodework::NodeWork;
use pitstop_cli_core::chosen::{nothing_to_explain, requests_to_explain};
use pitstop_cli_core::explain::{Namespaces, NodeFacts, explain};
use pitstop_cli_core::ready::is_ready;
use pitstop_cli_core::scope::Scope;
use pitstop_cli_core::target::Target;
use pitstop_kit::clock::wall;

use super::status::{gather, screen};
use crate::failure::Failure;
use crate::output;
use crate::session::{Session, known};

/// Most requests that are explained at a time.
const MOST: usize = 20;

/// The target.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A request, or a Pod or workload whose open requests are explained.
    #[arg(value_name = "TYPE/NAME")]
    target: String,
    /// The namespace of the daemons.
    #[arg(long, value_name = "NAMESPACE", default_value = "pitstop-system")]
    controller_namespace: String,
}

/// Explains the target.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let target = Target::parse(&args.target).map_err(Failure::invalid)?;
    let pods = super::status::pods_of(session, &target).await?;
    let scope = Scope::of(&target, pods).map_err(Failure::invalid)?;
    let objects = gather::all(session, &scope).await?;
    let all = requests_to_explain(&target, &objects);
    for why in &objects.unread {
        eprintln!("{}", pitstop_cli_core::plain::line(why, 400));
    }
    if all.is_empty() {
        let text = nothing_to_explain(&target, &objects, &session.namespace).map_err(Failure::invalid)?;
        output::print(&text);
        return Ok(ExitCode::SUCCESS);
    }
    let shown = all.get(..MOST).unwrap_or(&all);
    let names: BTreeSet<&String> = shown.iter().filter_map(|request| request.node.as_ref()).collect();
    let asked =
        names.into_iter().map(async |node| (node, facts(session, node, &args.controller_namespace).await));
    let nodes: BTreeMap<&String, NodeFacts> = join_all(asked).await.into_iter().collect();
    let width = std::io::stdout().is_terminal().then(|| screen::size().0);
    let namespaces = Namespaces { request: &session.namespace, system: &args.controller_namespace };
    for request in shown {
        let facts = request.node.as_ref().and_then(|node| nodes.get(node));
        for line in explain(request, facts, namespaces, wall(), width) {
            output::print(&line);
        }
    }
    if let Some(more) = all.len().checked_sub(MOST).filter(|more| *more > 0) {
        output::print(&format!("... and {more} more"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Facts about a node, read in parallel. Unreadable facts have the reason.
pub(super) async fn facts(session: &Session, node: &str, system: &str) -> NodeFacts {
    let (nodes, works) = (session.cluster::<Node>(), session.cluster::<NodeWork>());
    let daemons: Api<Pod> = Api::namespaced(session.client.clone(), system);
    let of_node = ListParams::default()
        .labels("app.kubernetes.io/name=pitstop,app.kubernetes.io/component=daemon")
        .fields(&format!("spec.nodeName={node}"));
    let (found, work, daemon) =
        futures::join!(nodes.get_opt(node), works.get_opt(node), daemons.list(&of_node));
    let ready = known(found, |node| {
        let conditions = node.status.and_then(|it| it.conditions).unwrap_or_default();
        conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
    });
    let first = daemon.map(|pods| pods.items.into_iter().next());
    let daemon = known(first, |pod| {
        let ready = is_ready(&pod);
        (pod.name_any(), ready)
    });
    NodeFacts { ready, work: known(work, Box::new), daemon }
}
