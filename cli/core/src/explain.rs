//! Why a request waits, or how it ended, in words: what it says, what that means, who is to act, and what helps.

use chrono::{DateTime, Utc};
use pitstop_api::nodework::{AnswerState, NodeWork, request_uid};

use crate::duration::age;
use crate::known::Known;
use crate::plain;
use crate::reasons::meaning;
use crate::standing::{Progress, Standing};
use crate::target::RequestKind;

/// Most orders of one request that are told of.
const MOST_ORDERS: usize = 8;

/// A request to be explained.
#[derive(Clone, Debug)]
pub struct Explained {
    /// Its kind.
    pub kind: RequestKind,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// How far it is.
    pub standing: Standing,
    /// The node of its Pod; absent where it has none, or where that is not known yet.
    pub node: Option<String>,
}

/// What is known of a node.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Whether the node is ready.
    pub ready: Known<bool>,
    /// Its order book.
    pub work: Known<Box<NodeWork>>,
    /// The Pod of its daemon, and whether that is ready.
    pub daemon: Known<(String, bool)>,
}

/// The lines about one request.
pub fn explain(request: &Explained, facts: Option<&NodeFacts>, now: DateTime<Utc>) -> Vec<String> {
    let Explained { kind, name, standing, .. } = request;
    let name = plain::line(name, 253);
    let since = standing.since.map(|since| age((now - since).num_seconds()));
    let how = match (standing.progress, since) {
        (Progress::Open, Some(since)) => format!("is open, for {since}"),
        (Progress::Open, None) => "is open".to_owned(),
        (Progress::Succeeded, Some(since)) => format!("is done, since {since}"),
        (Progress::Succeeded, None) => "is done".to_owned(),
        (Progress::Failed, Some(since)) => format!("has failed, {since} ago"),
        (Progress::Failed, None) => "has failed".to_owned(),
    };
    let mut lines = vec![format!("{}/{name} {how}", kind.singular())];
    let mut tell = |what: &str, text: &str| {
        if !text.is_empty() {
            lines.push(format!("  {what:<9}{}", plain::line(text, plain::MOST)));
        }
    };
    tell("reason", &standing.reason);
    tell("message", &standing.message);
    if let Some(meaning) = meaning(*kind, &standing.reason) {
        tell("means", &meaning.means);
        tell("to do", &meaning.cure);
    }
    if let (Some(node), Some(facts)) = (&request.node, facts) {
        tell("node", &of_node(node, facts));
        tell("daemon", &of_daemon(facts));
        tell("orders", &of_orders(&request.uid, facts));
    }
    if standing.progress == Progress::Open {
        tell("next", &format!("kubectl pitstop wait {}/{name}", kind.singular()));
    }
    lines
}

fn of_node(node: &str, facts: &NodeFacts) -> String {
    match &facts.ready {
        Known::Is(true) => format!("{node} is Ready"),
        Known::Is(false) => format!("{node} is not Ready: its kubelet does nothing now"),
        Known::Missing => format!("there is no node {node} any more"),
        Known::Unread(why) => format!("{node}; whether it is Ready cannot be read: {why}"),
    }
}

pub(crate) fn of_daemon(facts: &NodeFacts) -> String {
    let runtime = match &facts.work {
        Known::Is(work) => work.status.as_ref().and_then(|status| status.runtime.as_ref()),
        Known::Missing | Known::Unread(_) => None,
    };
    let runtime = runtime.map(|it| format!(", with {} {}", it.name, it.version)).unwrap_or_default();
    match &facts.daemon {
        Known::Is((pod, true)) => format!("{pod} is ready{runtime}"),
        Known::Is((pod, false)) => format!("{pod} is not ready: see its log"),
        Known::Missing => "there is none on this node: no container is stopped by it".to_owned(),
        Known::Unread(why) => format!("its Pod cannot be read: {why}"),
    }
}

/// What the daemon is asked for the request, and what it has said.
fn of_orders(uid: &str, facts: &NodeFacts) -> String {
    let work = match &facts.work {
        Known::Is(work) => work,
        Known::Missing => return "the node has no order book yet".to_owned(),
        Known::Unread(why) => return format!("the order book cannot be read: {why}"),
    };
    let answers = work.status.as_ref().map(|status| status.answers.as_slice()).unwrap_or_default();
    let of_request = work.spec.orders.iter().filter(|order| request_uid(&order.id) == uid);
    let told = of_request.take(MOST_ORDERS).map(|order| {
        let answer = answers.iter().find(|answer| answer.order_id == order.id);
        let state = match answer.map(|answer| answer.state) {
            None => "no answer yet",
            Some(AnswerState::Acknowledged) => "acknowledged",
            Some(AnswerState::Done) => "done",
            Some(AnswerState::Refused) => "refused",
            Some(AnswerState::Failed) => "failed",
        };
        let message = answer.map(|answer| answer.message.as_str()).filter(|it| !it.is_empty());
        let message = message.map(|it| format!(" ({it})")).unwrap_or_default();
        format!("{}: {state}{message}", order.container.name)
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { "none for this request in the order book".to_owned() } else { told.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).unwrap()
    }

    fn waits(reason: &str, progress: Progress) -> Explained {
        let standing = Standing {
            progress,
            phase: "Recreating",
            reason: reason.to_owned(),
            message: "waits for\u{1b}[2J app".to_owned(),
            since: Some(at(0)),
        };
        let node = Some("node1".to_owned());
        Explained { kind: RequestKind::Restart, name: "one".into(), uid: "u-1".into(), standing, node }
    }

    fn work() -> Box<NodeWork> {
        let id = "0".repeat(64);
        let order = |id_: &str| {
            json!({"id": id_, "pod": {"namespace": "shop", "name": "web", "uid": "p"},
                "container": {"name": "app", "id": id}, "action": {"recreate": {}}})
        };
        let work = json!({
            "metadata": {"name": "node1"},
            "spec": {"orders": [order("u-1/app/1"), order("u-2/app/1")]},
            "status": {"runtime": {"name": "containerd", "version": "2.4.2"},
                "answers": [{"orderID": "u-1/app/1", "state": "Acknowledged", "acknowledgedBy": "x"}]},
        });
        Box::new(serde_json::from_value(work).unwrap())
    }

    #[test]
    fn a_wait_is_explained_with_the_page_the_node_the_daemon_and_its_orders() {
        let daemon = Known::Is(("pitstop-daemon-x".to_owned(), true));
        let facts = NodeFacts { ready: Known::Is(true), work: Known::Is(work()), daemon };
        let told = explain(&waits("WaitingForDaemon", Progress::Open), Some(&facts), at(90)).join("\n");
        for line in [
            "containerrecreaterequest/one is open, for 90s",
            "  reason   WaitingForDaemon",
            "  to do    Is a daemon ready on that node?",
            "  node     node1 is Ready",
            "  daemon   pitstop-daemon-x is ready, with containerd 2.4.2",
            "  orders   app: acknowledged",
            "  next     kubectl pitstop wait containerrecreaterequest/one",
        ] {
            assert!(told.lines().any(|it| it == line), "{line:?} is not in\n{told}");
        }
        assert!(told.contains("  means    The order waits for the node's daemon."), "{told}");
        assert!(!told.contains('\u{1b}'), "{told:?}");
    }

    #[test]
    fn what_cannot_be_read_is_told_and_hides_nothing_else() {
        let facts = NodeFacts {
            ready: Known::Unread("nodes is forbidden".to_owned()),
            work: Known::Missing,
            daemon: Known::Missing,
        };
        let told = explain(&waits("Unheard", Progress::Failed), Some(&facts), at(60)).join("\n");
        assert!(told.contains("has failed, 60s ago") && told.contains("nodes is forbidden"), "{told}");
        assert!(told.contains("no order book") && told.contains("there is none on this node"), "{told}");
        assert!(!told.contains("means") && !told.contains("next"), "{told}");
        let done = explain(&waits("Complete", Progress::Succeeded), None, at(1));
        assert!(done[0].ends_with("is done, since 1s") && done.iter().all(|line| !line.contains("node")));
    }
}
