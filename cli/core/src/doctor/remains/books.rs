//! Order books: open orders and held Pods.

use kube::ResourceExt as _;
use pitstop_api::nodework::NodeWork;

use super::super::{Finding, count, name_list};
use super::Remains;
use crate::known::Known;

const CHECK: &str = "order books";

pub(super) fn check(remains: &Remains) -> Vec<Finding> {
    let books = match &remains.books {
        Known::Unread(why) => return vec![Finding::unknown(CHECK, "NodeWorks", why)],
        books => books.all(),
    };
    let held = |book: &NodeWork| book.status.as_ref().map_or(0, |it| it.held.len());
    let mut findings = Vec::new();
    if let Some((pods, nodes)) = sum(books, held) {
        let text = format!("{} held at other resources on {nodes}", count(pods, "Pod"));
        let to_do = "Run kubectl delete podresizes --all -A, and check again until no Pod is held. A running daemon also restores \
            them when its NodeWork is deleted. On a node that is down, they stay so until their containers restart.";
        findings.push(Finding::error(CHECK, text, to_do));
    }
    if let Some((orders, nodes)) = sum(books, |book| book.spec.orders.len()) {
        let text = format!("{} on {nodes}", count(orders, "order"));
        let to_do = "They end with their requests: check again. See kubectl pitstop node NODE.";
        findings.push(Finding::error(CHECK, text, to_do));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "no order, and no Pod held at other resources"));
    }
    findings
}

/// The sum of `of` over all books, and the nodes that have any; `None` if the sum is 0.
fn sum(books: &[NodeWork], of: impl Fn(&NodeWork) -> usize) -> Option<(usize, String)> {
    let some: Vec<&NodeWork> = books.iter().filter(|book| of(book) > 0).collect();
    let names: Vec<String> = some.iter().map(|it| it.name_any()).collect();
    let nodes = format!("{}: {}", count(names.len(), "node"), name_list(&names));
    (!some.is_empty()).then(|| (some.into_iter().map(of).sum(), nodes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::Level;
    use super::super::super::fixtures::read;
    use super::*;

    fn book(node: &str, orders: usize, held: usize) -> NodeWork {
        let pod = json!({"namespace": "shop", "name": "web", "uid": "u"});
        let order = |number: usize| {
            json!({"id": format!("u/app/{number}"), "pod": pod, "container": {"name": "app", "id": "0"},
                "action": {"verify": {}}})
        };
        let orders: Vec<_> = (0..orders).map(order).collect();
        let held = vec![json!({"pod": pod, "cgroup": "/a", "original": {}}); held];
        read(json!({"metadata": {"name": node}, "spec": {"orders": orders}, "status": {"held": held}}))
    }

    fn of(books: Vec<NodeWork>) -> Vec<Finding> {
        check(&Remains { books: Known::Is(books), ..Remains::default() })
    }

    #[test]
    fn nodes_with_orders_or_held_pods_are_named() {
        let found = of(vec![book("node1", 0, 2), book("node2", 1, 1), book("node3", 0, 0)]);
        assert_eq!(found[0].text, "3 Pods held at other resources on 2 nodes: node1, node2");
        assert!(found[0].to_do.contains("kubectl delete podresizes --all -A"), "{found:?}");
        assert_eq!(found[1].text, "1 order on 1 node: node2");
        assert!(found.iter().all(|it| it.verdict == Level::Error), "{found:?}");
    }

    #[test]
    fn idle_books_hinder_nothing() {
        let found = of(vec![book("node1", 0, 0)]);
        assert_eq!(found, [Finding::ok(CHECK, "no order, and no Pod held at other resources")]);
        assert_eq!(check(&Remains::default()), found, "the kind is not served");
    }
}
