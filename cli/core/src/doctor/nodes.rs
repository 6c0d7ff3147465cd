//! Nodes: whether each has a daemon, their runtimes, and full order books.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use pitstop_api::nodework::NodeWork;

use super::programs::of_component;
use super::{Facts, Finding, count, name_list};
use crate::known::Known;
use crate::plain;
use crate::ready::is_ready;

const DAEMONS: &str = "nodes";
const RUNTIMES: &str = "runtimes";
const BOOKS: &str = "order books";
/// Most orders in a book: its schema's bound.
pub(crate) const MOST_ORDERS: usize = 64;
/// Most runtimes in a finding.
const MOST_RUNTIMES: usize = 8;

pub(super) fn daemons(facts: &Facts) -> Vec<Finding> {
    let nodes = match (&facts.nodes, &facts.pods) {
        (Known::Unread(why), _) => return vec![Finding::unknown(DAEMONS, "nodes", why)],
        (_, Known::Unread(why)) => return vec![Finding::unknown(DAEMONS, "the Pods of the daemons", why)],
        (nodes, _) => nodes.all(),
    };
    let Known::Is(sets) = &facts.daemon_sets else {
        // Another check reports missing or unreadable DaemonSets.
        return Vec::new();
    };
    if sets.is_empty() {
        return Vec::new();
    }
    let with_daemon: BTreeSet<&str> = of_component(facts, "daemon")
        .filter(|pod| is_ready(pod))
        .filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref())
        .collect();
    let without = nodes.iter().filter(|node| !with_daemon.contains(node.name_any().as_str()));
    let selected = |node: &Node| {
        let selectors = sets.iter().filter_map(|it| it.spec.as_ref()?.template.spec.as_ref());
        selectors
            .map(|it| it.node_selector.clone().unwrap_or_default())
            .any(|selector| selector.iter().all(|(label, value)| node.labels().get(label) == Some(value)))
    };
    let (lacking, unselected): (Vec<&Node>, Vec<&Node>) = without.partition(|node| selected(node));
    let names = |nodes: &[&Node]| name_list(&nodes.iter().map(|it| it.name_any()).collect::<Vec<_>>());
    let mut findings = Vec::new();
    if !lacking.is_empty() {
        let text = format!("{} without a ready daemon: {}", count(lacking.len(), "node"), names(&lacking));
        let to_do = format!(
            "See kubectl pitstop node NODE, and kubectl -n {} get pods -o wide. Requests for their Pods wait, and end with DaemonNotResponding.",
            facts.system
        );
        findings.push(Finding::error(DAEMONS, text, to_do));
    }
    if !unselected.is_empty() {
        let text = format!(
            "{} that no DaemonSet of pitstop selects: {}",
            count(unselected.len(), "node"),
            names(&unselected)
        );
        let to_do = "Requests for Pods there end with DaemonNotResponding. For another runtime, see docs/install.md#the-runtimes-socket.";
        findings.push(Finding::warning(DAEMONS, text, to_do));
    }
    if findings.is_empty() && !nodes.is_empty() {
        findings
            .push(Finding::ok(DAEMONS, format!("each of {} has a ready daemon", count(nodes.len(), "node"))));
    }
    findings
}

pub(super) fn runtimes(facts: &Facts) -> Vec<Finding> {
    let nodes = match (&facts.nodes, &facts.books) {
        (Known::Unread(why), Known::Unread(_)) => return vec![Finding::unknown(RUNTIMES, "nodes", why)],
        (nodes, _) => nodes.all(),
    };
    let mut runtime_of: BTreeMap<String, String> = BTreeMap::new();
    for node in nodes {
        let info = node.status.as_ref().and_then(|it| it.node_info.as_ref());
        let version = info.map(|it| it.container_runtime_version.replace("://", " ")).unwrap_or_default();
        runtime_of.insert(node.name_any(), version);
    }
    // The daemon's report counts: it comes from the runtime itself.
    for book in facts.books.all() {
        if let Some(runtime) = book.status.as_ref().and_then(|it| it.runtime.as_ref()) {
            runtime_of.insert(book.name_any(), format!("{} {}", runtime.name, runtime.version));
        }
    }
    let mut nodes_of: BTreeMap<String, usize> = BTreeMap::new();
    for version in runtime_of.into_values().filter(|it| !it.is_empty()) {
        *nodes_of.entry(plain::line(&version, 80)).or_default() += 1;
    }
    if nodes_of.is_empty() {
        return Vec::new();
    }
    let more = nodes_of.len().saturating_sub(MOST_RUNTIMES);
    let mut text: Vec<String> = nodes_of
        .iter()
        .take(MOST_RUNTIMES)
        .map(|(version, nodes)| format!("{version} on {}", count(*nodes, "node")))
        .collect();
    if more > 0 {
        text.push(format!("and {more} more"));
    }
    vec![Finding::ok(RUNTIMES, text.join(", "))]
}

pub(super) fn books(facts: &Facts) -> Vec<Finding> {
    let books = match &facts.books {
        Known::Unread(why) => return vec![Finding::unknown(BOOKS, "NodeWorks", why)],
        // Another check reports the missing definition.
        Known::Missing => return Vec::new(),
        Known::Is(books) => books,
    };
    let open: usize = books.iter().map(|it| it.spec.orders.len()).sum();
    let held: usize = books.iter().filter_map(|it| Some(it.status.as_ref()?.held.len())).sum();
    let full = |book: &&NodeWork| book.spec.orders.len() >= MOST_ORDERS;
    let full: Vec<String> = books.iter().filter(full).map(kube::ResourceExt::name_any).collect();
    if !full.is_empty() {
        let text = format!("full for {}: {}", count(full.len(), "node"), name_list(&full));
        let to_do = "Requests for their Pods wait with WaitingForPlace. See kubectl pitstop node NODE.";
        return vec![Finding::warning(BOOKS, text, to_do)];
    }
    let held =
        if held > 0 { format!(", {} held at other resources", count(held, "Pod")) } else { String::new() };
    vec![Finding::ok(BOOKS, format!("{}, {}{held}", count(books.len(), "book"), count(open, "open order")))]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Level;
    use super::super::fixtures::{healthy, program, read};
    use super::*;

    fn node(name: &str, arch: &str) -> Node {
        read(json!({"metadata": {"name": name, "labels": {"kubernetes.io/arch": arch}},
            "status": {"nodeInfo": {"containerRuntimeVersion": "cri-o://1.34.0", "architecture": arch, "bootID": "",
                "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                "operatingSystem": "", "osImage": "", "systemUUID": ""}}}))
    }

    #[test]
    fn nodes_without_a_daemon_are_named_and_those_that_never_get_one() {
        let nodes = vec![node("node1", "amd64"), node("node2", "amd64"), node("arm", "arm64")];
        let pods = vec![program("daemon", "node1", "pitstop.dev/daemon:0.1.0")];
        let found = daemons(&Facts { nodes: Known::Is(nodes), pods: Known::Is(pods), ..healthy() });
        assert_eq!(
            (found[0].verdict, &*found[0].text),
            (Level::Error, "1 node without a ready daemon: node2")
        );
        assert_eq!(found[1].verdict, Level::Warning);
        assert_eq!(found[1].text, "1 node that no DaemonSet of pitstop selects: arm");
    }

    #[test]
    fn runtimes_are_counted_by_what_daemons_and_kubelets_tell() {
        let nodes = vec![node("node1", "amd64"), node("node2", "amd64"), node("node3", "amd64")];
        let found = runtimes(&Facts { nodes: Known::Is(nodes), ..healthy() });
        assert_eq!(found, [Finding::ok(RUNTIMES, "containerd 2.4.2 on 1 node, cri-o 1.34.0 on 2 nodes")]);
    }

    #[test]
    fn a_full_book_is_a_warning() {
        let order = |number: usize| {
            json!({"id": format!("u/app/{number}"), "pod": {"namespace": "shop", "name": "web", "uid": "u"},
                "container": {"name": "app", "id": "0"}, "action": {"verify": {}}})
        };
        let with = |orders: usize| {
            let orders: Vec<_> = (0..orders).map(order).collect();
            let book = read(json!({"metadata": {"name": "node1"}, "spec": {"orders": orders}}));
            books(&Facts { books: Known::Is(vec![book]), ..healthy() }).remove(0)
        };
        assert_eq!(with(63), Finding::ok(BOOKS, "1 book, 63 open orders"));
        assert_eq!((with(64).verdict, &*with(64).text), (Level::Warning, "full for 1 node: node1"));
    }
}
