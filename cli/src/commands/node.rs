//! `node`: the order book of one node.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use kube::Api;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::nodework::NodeWork;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_api::resize::PodResize;
use pitstop_cli_core::draw::{Look, draw};
use pitstop_cli_core::known::Known;
use pitstop_cli_core::node::{Owner, namespaces, tree};
use pitstop_cli_core::plain;
use pitstop_cli_core::summary::Request;
use pitstop_cli_core::target::checked_name;
use pitstop_kit::clock::wall;
use serde::de::DeserializeOwned;

use super::explain::facts;
use super::status::screen;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::session::Session;

/// Most namespaces whose requests are listed: a book has 64 orders.
const MOST_NAMESPACES: usize = 64;

/// The node, and the output format.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The name of the node.
    #[arg(value_name = "NODE")]
    node: String,
    /// The namespace of the daemons.
    #[arg(long, value_name = "NAMESPACE", default_value = "pitstop-system")]
    controller_namespace: String,
    /// Print the tree as data.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

/// Shows the order book.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let node = checked_name(&args.node).map_err(Failure::invalid)?;
    let facts = facts(session, &node, &args.controller_namespace).await;
    if facts.ready == Known::Missing && matches!(facts.work, Known::Missing) {
        return Err(Failure::invalid(format!("there is no node {node}, and no NodeWork of that name")));
    }
    if let (Known::Unread(why), Known::Unread(_), Known::Unread(_)) =
        (&facts.ready, &facts.work, &facts.daemon)
    {
        return Err(Failure::invalid(format!(
            "cannot read anything about node {node}: {}",
            plain::line(why, plain::MOST)
        )));
    }
    let owners = match &facts.work {
        Known::Is(work) => owners(session, work).await,
        Known::Missing | Known::Unread(_) => BTreeMap::new(),
    };
    let tree = tree(&node, &facts, &owners);
    if let Some(format) = args.output {
        let data = serde_json::to_value(&tree)
            .map_err(|error| Failure::local("cannot write the tree as data", &error))?;
        output::print(&output::rendered(data, format)?);
        return Ok(ExitCode::SUCCESS);
    }
    let terminal = std::io::stdout().is_terminal();
    let size = terminal.then(screen::size).map(|(width, _)| (width, usize::MAX));
    for line in draw(&tree, wall(), Look { size, wide: true, ..screen::look(terminal) }) {
        output::print(&line);
    }
    Ok(ExitCode::SUCCESS)
}

/// The requests that orders may be for, by UID. If the caller may not read a request, its order shows the UID.
async fn owners(session: &Session, work: &NodeWork) -> BTreeMap<String, Owner> {
    let mut owners = BTreeMap::new();
    for namespace in namespaces(work).iter().take(MOST_NAMESPACES) {
        let (restarts, resizes, updates) = futures::join!(
            of_kind::<ContainerRecreateRequest>(session, namespace),
            of_kind::<PodResize>(session, namespace),
            of_kind::<PodImageUpdate>(session, namespace),
        );
        owners.extend(restarts.into_iter().chain(resizes).chain(updates));
    }
    owners
}

async fn of_kind<K>(session: &Session, namespace: &str) -> Vec<(String, Owner)>
where
    K: Request + kube::Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(session.client.clone(), namespace);
    session.known_list(api, ListParams::default()).await.all().iter().map(Owner::of).collect()
}
