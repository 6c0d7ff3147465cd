//! Explains why a request waits or how it ended: its reason, the meaning, who must act, and what helps.

use chrono::{DateTime, Utc};
use pitstop_api::nodework::{AnswerState, NodeWork, request_uid};
use pitstop_api::rollout::{PodOfInterest, PodState};

use crate::blockers::{Blocker, blocker};
use crate::duration::age;
use crate::known::Known;
use crate::page::wrapped;
use crate::plain;
use crate::reasons::meaning;
use crate::summary::{Progress, Summary};
use crate::target::RequestKind;

/// Most orders of one request that are shown.
const MOST_ORDERS: usize = 8;
/// Columns before a text.
const INDENT: usize = 11;
/// Least columns of a text: fewer are unreadable.
const LEAST: usize = 20;
/// Most Pods of one rollout that are shown.
const MOST_PODS: usize = 5;

/// Facts about a request.
#[derive(Clone, Debug)]
pub struct RequestFacts {
    /// Its kind.
    pub kind: RequestKind,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// How far it is.
    pub summary: Summary,
    /// The node of its Pod; `None`: no node, or not known yet.
    pub node: Option<String>,
    /// Its Pod; absent for a rollout.
    pub pod: Option<String>,
    /// The workload of a rollout, such as `deployment/web`; absent for one that selects Pods, and for other requests.
    pub workload: Option<String>,
    /// The Pods that a rollout is at work with, or that have failed.
    pub pods: Vec<PodOfInterest>,
}

/// The default namespace of pitstop's own programs.
const SYSTEM: &str = "pitstop-system";

/// The namespaces in the commands that help.
#[derive(Clone, Copy, Debug)]
pub struct Namespaces<'a> {
    /// The namespace of the request.
    pub request: &'a str,
    /// The namespace of pitstop's own programs.
    pub system: &'a str,
}

/// Facts about a node.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Whether the node is ready.
    pub ready: Known<bool>,
    /// Its order book.
    pub work: Known<Box<NodeWork>>,
    /// The Pod of its daemon, and whether that is ready.
    pub daemon: Known<(String, bool)>,
}

/// The lines about one request, in `width` columns; `None`: each text in one line. Commands are never folded, so that
/// the user can copy them.
pub fn explain(
    request: &RequestFacts,
    facts: Option<&NodeFacts>,
    namespaces: Namespaces<'_>,
    now: DateTime<Utc>,
    width: Option<usize>,
) -> Vec<String> {
    let RequestFacts { kind, name, summary, .. } = request;
    let mut lines = vec![headline(request, now)];
    let mut add = |label: &str, text: &str| {
        if !text.is_empty() {
            lines.extend(paragraph(label, text, width));
        }
    };
    let open = summary.progress == Progress::Open;
    let blocker = blocker(*kind, &summary.reason).filter(|_| summary.progress != Progress::Succeeded);
    // A failed rollout continues when a user has acted. No other request that is over needs action.
    let waits = blocker.filter(|_| open || *kind == RequestKind::Rollout);
    add("reason", &summary.reason);
    add("message", &summary.message);
    add("waits on", waits.map(|it| it.actor).unwrap_or_default());
    if let Some(meaning) = meaning(*kind, &summary.reason) {
        add("means", &meaning.means);
        add("to do", &meaning.to_do);
    }
    if let (Some(node), Some(facts)) = (&request.node, facts) {
        add("node", &node_text(node, facts));
        add("daemon", &daemon_text(facts));
        add("orders", &orders_text(&request.uid, facts));
        let answered = facts.work.get().and_then(|work| last_answer(work));
        let ago = answered.map(|at| format!("the daemon last wrote {} ago", age((now - at).num_seconds())));
        add("answers", &ago.unwrap_or_default());
    }
    for pod in request.pods.iter().take(MOST_PODS) {
        add("Pod", &pod_text(pod));
    }
    if let Some(more) = request.pods.len().checked_sub(MOST_PODS).filter(|more| *more > 0) {
        add("Pod", &format!("... and {more} more"));
    }
    let help = blocker.and_then(|blocker| command(blocker, request, facts, namespaces));
    let wait =
        open.then(|| format!("kubectl pitstop wait {}/{name} -n {}", kind.singular(), namespaces.request));
    for (label, command) in [("next", help), ("wait", wait)] {
        lines.extend(command.into_iter().flat_map(|command| paragraph(label, &command, None)));
    }
    lines
}

/// A text beside its label, folded below its own beginning.
fn paragraph(label: &str, text: &str, width: Option<usize>) -> Vec<String> {
    let width = width.map(|width| width.saturating_sub(INDENT).max(LEAST));
    let lines = wrapped(&plain::line(text, plain::MOST), width);
    let lead = |number: usize| if number == 0 { label } else { "" };
    lines.iter().enumerate().map(|(number, line)| format!("  {:<9}{line}", lead(number))).collect()
}

/// The name, the progress, and since when.
fn headline(request: &RequestFacts, now: DateTime<Utc>) -> String {
    let RequestFacts { kind, name, summary, .. } = request;
    let since = summary.since.map(|since| age((now - since).num_seconds()));
    let progress = match (summary.progress, since) {
        (Progress::Open, Some(since)) => format!("is open for {since}"),
        (Progress::Open, None) => "is open".to_owned(),
        (Progress::Succeeded, Some(since)) => format!("succeeded {since} ago"),
        (Progress::Succeeded, None) => "succeeded".to_owned(),
        (Progress::Failed, Some(since)) => format!("failed {since} ago"),
        (Progress::Failed, None) => "failed".to_owned(),
    };
    let pod = request.pod.as_ref().map(|pod| format!(" (Pod {pod})")).unwrap_or_default();
    plain::line(&format!("{}/{name}{pod} {progress}", kind.singular()), plain::MOST)
}

fn pod_text(pod: &PodOfInterest) -> String {
    let state = match pod.state {
        PodState::Failed => "failed",
        PodState::Started => "at work",
    };
    let why = if pod.message.is_empty() { String::new() } else { format!(": {}", pod.message) };
    format!("{}: {state}, request {}{why}", pod.name, pod.request)
}

/// The command that helps, with the names that it needs; `None` if a name is not known.
fn command(
    blocker: Blocker,
    request: &RequestFacts,
    facts: Option<&NodeFacts>,
    namespaces: Namespaces<'_>,
) -> Option<String> {
    let daemon = facts.and_then(|facts| facts.daemon.get()).map(|(pod, _)| pod.clone());
    // The default needs no option.
    let option = match namespaces.system {
        SYSTEM => String::new(),
        system => format!(" --controller-namespace {system}"),
    };
    let target =
        request.workload.clone().unwrap_or_else(|| format!("{}/{}", request.kind.singular(), request.name));
    let names = [
        ("{pod}", request.pod.clone()),
        ("{node}", request.node.clone()),
        ("{daemon}", daemon),
        ("{name}", Some(request.name.clone())),
        ("{target}", Some(target)),
        ("{workload}", request.workload.clone()),
        ("{-n}", Some(format!("-n {}", namespaces.request))),
        ("{system}", Some(namespaces.system.to_owned())),
        ("{--in}", Some(option)),
    ];
    let mut command = blocker.command.to_owned();
    for (placeholder, name) in names {
        if command.contains(placeholder) {
            command = command.replace(placeholder, &name?);
        }
    }
    Some(command).filter(|command| !command.is_empty())
}

fn node_text(node: &str, facts: &NodeFacts) -> String {
    match &facts.ready {
        Known::Is(true) => format!("{node} is Ready"),
        Known::Is(false) => format!("{node} is not Ready: its kubelet does nothing now"),
        Known::Missing => format!("there is no node {node}"),
        Known::Unread(why) => format!("{node}; cannot read whether it is Ready: {why}"),
    }
}

pub(crate) fn daemon_text(facts: &NodeFacts) -> String {
    let runtime = facts.work.get().and_then(|work| work.status.as_ref()).and_then(|it| it.runtime.as_ref());
    let runtime = runtime.map(|it| format!(", with {} {}", it.name, it.version)).unwrap_or_default();
    match &facts.daemon {
        Known::Is((pod, true)) => format!("{pod} is ready{runtime}"),
        Known::Is((pod, false)) => format!("{pod} is not ready: see its log"),
        Known::Missing => "there is no daemon on this node, so nothing carries out its orders".to_owned(),
        Known::Unread(why) => format!("cannot read its Pod: {why}"),
    }
}

/// When the node's daemon last wrote the book's status, on the API server's clock; only the daemon may. It writes only
/// news, so a long silence does not mean that it is down.
pub(crate) fn last_answer(work: &NodeWork) -> Option<DateTime<Utc>> {
    let writes = work.metadata.managed_fields.iter().flatten();
    let of_status = writes.filter(|write| write.subresource.as_deref() == Some("status"));
    let last = of_status.filter_map(|write| write.time.as_ref().map(|at| at.0.as_second())).max();
    DateTime::from_timestamp(last?, 0)
}

/// The request's orders and the daemon's answers.
fn orders_text(uid: &str, facts: &NodeFacts) -> String {
    let work = match &facts.work {
        Known::Is(work) => work,
        Known::Missing => return "the node has no order book yet".to_owned(),
        Known::Unread(why) => return format!("cannot read the order book: {why}"),
    };
    let answers = work.status.as_ref().map(|status| status.answers.as_slice()).unwrap_or_default();
    let of_request = work.spec.orders.iter().filter(|order| request_uid(&order.id) == uid);
    let texts = of_request.take(MOST_ORDERS).map(|order| {
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
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() { "none for this request in the order book".to_owned() } else { texts.join(", ") }
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
