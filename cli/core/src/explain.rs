//! Explains why a request waits or how it ended: its reason, the meaning, who must act, and what helps.

use chrono::{DateTime, Utc};
use pitstop_api::nodework::{AnswerState, NodeWork, request_uid};
use pitstop_api::rollout::{PodOfInterest, PodState};

use crate::duration::age;
use crate::holds::{Hold, hold};
use crate::known::Known;
use crate::page::wrapped;
use crate::plain;
use crate::reasons::meaning;
use crate::standing::{Progress, Standing};
use crate::target::RequestKind;

/// Most orders of one request that are shown.
const MOST_ORDERS: usize = 8;
/// Columns before a text.
const INDENT: usize = 11;
/// Least columns of a text: fewer are unreadable.
const LEAST: usize = 20;
/// Most Pods of one rollout that are shown.
const MOST_PODS: usize = 5;

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
pub struct Place<'a> {
    /// The namespace of the request.
    pub namespace: &'a str,
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
    request: &Explained,
    facts: Option<&NodeFacts>,
    place: Place<'_>,
    now: DateTime<Utc>,
    width: Option<usize>,
) -> Vec<String> {
    let Explained { kind, name, standing, .. } = request;
    let mut lines = vec![headline(request, now)];
    let mut tell = |what: &str, text: &str| {
        if !text.is_empty() {
            lines.extend(paragraph(what, text, width));
        }
    };
    let open = standing.progress == Progress::Open;
    let hold = hold(*kind, &standing.reason).filter(|_| standing.progress != Progress::Succeeded);
    // A failed rollout goes on when a user has acted. No other request that is over needs action.
    let holder = hold.filter(|_| open || *kind == RequestKind::Rollout);
    tell("reason", &standing.reason);
    tell("message", &standing.message);
    tell("held by", holder.map(|hold| hold.by).unwrap_or_default());
    if let Some(meaning) = meaning(*kind, &standing.reason) {
        tell("means", &meaning.means);
        tell("to do", &meaning.cure);
    }
    if let (Some(node), Some(facts)) = (&request.node, facts) {
        tell("node", &of_node(node, facts));
        tell("daemon", &of_daemon(facts));
        tell("orders", &of_orders(&request.uid, facts));
        let answered = facts.work.get().and_then(|work| last_answer(work));
        let ago = answered.map(|at| format!("the daemon wrote last {} ago", age((now - at).num_seconds())));
        tell("answers", &ago.unwrap_or_default());
    }
    for pod in request.pods.iter().take(MOST_PODS) {
        tell("Pod", &of_pod(pod));
    }
    if let Some(more) = request.pods.len().checked_sub(MOST_PODS).filter(|more| *more > 0) {
        tell("Pod", &format!("... and {more} more"));
    }
    let help = hold.and_then(|hold| command(hold, request, facts, place));
    let wait =
        open.then(|| format!("kubectl pitstop wait {}/{name} -n {}", kind.singular(), place.namespace));
    for (what, command) in [("next", help), ("wait", wait)] {
        lines.extend(command.into_iter().flat_map(|command| paragraph(what, &command, None)));
    }
    lines
}

/// A text beside its label, folded below its own beginning.
fn paragraph(what: &str, text: &str, width: Option<usize>) -> Vec<String> {
    let width = width.map(|width| width.saturating_sub(INDENT).max(LEAST));
    let lines = wrapped(&plain::line(text, plain::MOST), width);
    let lead = |number: usize| if number == 0 { what } else { "" };
    lines.iter().enumerate().map(|(number, line)| format!("  {:<9}{line}", lead(number))).collect()
}

/// The name, the progress, and since when.
fn headline(request: &Explained, now: DateTime<Utc>) -> String {
    let Explained { kind, name, standing, .. } = request;
    let since = standing.since.map(|since| age((now - since).num_seconds()));
    let how = match (standing.progress, since) {
        (Progress::Open, Some(since)) => format!("is open, for {since}"),
        (Progress::Open, None) => "is open".to_owned(),
        (Progress::Succeeded, Some(since)) => format!("is done, since {since}"),
        (Progress::Succeeded, None) => "is done".to_owned(),
        (Progress::Failed, Some(since)) => format!("has failed, {since} ago"),
        (Progress::Failed, None) => "has failed".to_owned(),
    };
    let pod = request.pod.as_ref().map(|pod| format!(" (Pod {pod})")).unwrap_or_default();
    plain::line(&format!("{}/{name}{pod} {how}", kind.singular()), plain::MOST)
}

fn of_pod(pod: &PodOfInterest) -> String {
    let state = match pod.state {
        PodState::Failed => "failed",
        PodState::Started => "at work",
    };
    let why = if pod.message.is_empty() { String::new() } else { format!(": {}", pod.message) };
    format!("{}: {state} by {}{why}", pod.name, pod.request)
}

/// The command that helps, with the names that it needs; `None` if a name is not known.
fn command(hold: Hold, of: &Explained, facts: Option<&NodeFacts>, place: Place<'_>) -> Option<String> {
    let daemon = facts.and_then(|facts| facts.daemon.get()).map(|(pod, _)| pod.clone());
    // The default needs no option.
    let elsewhere = match place.system {
        SYSTEM => String::new(),
        system => format!(" --controller-namespace {system}"),
    };
    let target = of.workload.clone().unwrap_or_else(|| format!("{}/{}", of.kind.singular(), of.name));
    let names = [
        ("{pod}", of.pod.clone()),
        ("{node}", of.node.clone()),
        ("{daemon}", daemon),
        ("{name}", Some(of.name.clone())),
        ("{target}", Some(target)),
        ("{workload}", of.workload.clone()),
        ("{-n}", Some(format!("-n {}", place.namespace))),
        ("{system}", Some(place.system.to_owned())),
        ("{--in}", Some(elsewhere)),
    ];
    let mut command = hold.help.to_owned();
    for (hole, name) in names {
        if command.contains(hole) {
            command = command.replace(hole, &name?);
        }
    }
    Some(command).filter(|command| !command.is_empty())
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
    let runtime = facts.work.get().and_then(|work| work.status.as_ref()).and_then(|it| it.runtime.as_ref());
    let runtime = runtime.map(|it| format!(", with {} {}", it.name, it.version)).unwrap_or_default();
    match &facts.daemon {
        Known::Is((pod, true)) => format!("{pod} is ready{runtime}"),
        Known::Is((pod, false)) => format!("{pod} is not ready: see its log"),
        Known::Missing => "there is none on this node: no container is stopped by it".to_owned(),
        Known::Unread(why) => format!("its Pod cannot be read: {why}"),
    }
}

/// When the node's daemon last wrote the book's status, on the API server's clock; only the daemon may. It writes only
/// news, so a long silence does not mean that it is down.
fn last_answer(work: &NodeWork) -> Option<DateTime<Utc>> {
    let writes = work.metadata.managed_fields.iter().flatten();
    let of_status = writes.filter(|write| write.subresource.as_deref() == Some("status"));
    let last = of_status.filter_map(|write| write.time.as_ref().map(|at| at.0.as_second())).max();
    DateTime::from_timestamp(last?, 0)
}

/// The request's orders and the daemon's answers.
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
#[path = "explain_tests.rs"]
mod tests;
