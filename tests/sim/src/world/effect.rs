//! Effects that a process wants, in order, as data. The world carries them out, or kills the process in between.

use http::Method;
use pitstop_controller_core::wire::HttpRequest;
use pitstop_daemon_core::resize::Write;

use super::plan::Position;
use crate::node::runtime::Call;

/// Result of a step.
#[derive(Debug, Default)]
pub struct Out {
    /// Effects to carry out, in order.
    pub effects: Vec<Effect>,
    /// Decisions as text without times, for the trace.
    pub decisions: Vec<String>,
}

impl Out {
    /// Appends the result of a later step.
    pub fn add(&mut self, more: Self) {
        self.effects.extend(more.effects);
        self.decisions.extend(more.decisions);
    }
}

/// One effect.
#[derive(Debug)]
pub enum Effect {
    /// Send a request to the API server.
    Send(Sent),
    /// Call the runtime.
    Call(Asked),
    /// Write into a control group.
    Write(Writing),
}

/// One write into a control group.
#[derive(Clone, Debug)]
pub struct Writing {
    /// Identifies the outcome for the process.
    pub token: u64,
    /// ID of its order. None: the write restores the Pod's original resources.
    pub order_id: Option<String>,
    /// UID of the Pod.
    pub pod: String,
    /// The write.
    pub write: Write,
}

/// A request to the API server.
#[derive(Debug)]
pub struct Sent {
    /// Identifies the answer for the process.
    pub token: u64,
    /// The request.
    pub request: HttpRequest,
    /// The request is part of the election.
    pub election: bool,
}

/// A call to the runtime for an order.
#[derive(Clone, Debug)]
pub struct Asked {
    /// ID of the order; the image for a pull.
    pub order_id: String,
    /// ID of the container that the order names; empty for a pull.
    pub container_id: String,
    /// Purpose of the call.
    pub purpose: Purpose,
    /// The call.
    pub call: Call,
    /// Milliseconds until the process gives the call up.
    pub limit: u64,
}

impl Purpose {
    /// True if the call changes no container.
    pub fn only_asks(self) -> bool {
        matches!(self, Self::Inspect | Self::Read | Self::Look | Self::Image | Self::Pull)
    }
}

/// Purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reads the container's status.
    Inspect,
    /// Runs its preStop hook.
    Hook,
    /// Stops it.
    Stop,
    /// Reads its cgroups.
    Read,
    /// Reads the resources that an order is to change.
    Look,
    /// Reads its image, and the container that runs in its place.
    Image,
    /// Pulls an image; names no container.
    Pull,
}

/// Resources that coverage distinguishes.
const PLURALS: [&str; 14] = [
    "pods",
    "nodes",
    "nodeworks",
    "containerrecreaterequests",
    "podresizes",
    "podimageupdates",
    "inplacerollouts",
    "deployments",
    "statefulsets",
    "daemonsets",
    "replicasets",
    "controllerrevisions",
    "limitranges",
    "resourcequotas",
];

impl Effect {
    /// Positions at which a process can be killed. An effect that only reads has one: it changes nothing outside of the
    /// process, so all positions are the same.
    pub fn positions(&self) -> &'static [Position] {
        let asks = match self {
            Self::Send(sent) => sent.request.method() == Method::GET,
            Self::Call(asked) => asked.purpose.only_asks() && asked.purpose != Purpose::Pull,
            Self::Write(_) => false,
        };
        if asks { &[Position::Begun] } else { &[Position::Before, Position::Begun, Position::Known] }
    }

    /// Its kind, for coverage: method and resource of a request, or the call.
    pub fn kind(&self) -> String {
        match self {
            Self::Send(sent) if sent.election => "lease".to_owned(),
            Self::Send(sent) => {
                let path = sent.request.uri().path();
                let parts: Vec<&str> = path.split('/').collect();
                let plural = parts.iter().find(|p| PLURALS.contains(*p));
                let status =
                    ["/status", "/resize"].into_iter().find(|s| path.ends_with(s)).unwrap_or_default();
                let dry = if sent.request.uri().query().is_some_and(|q| q.contains("dryRun")) {
                    " dry run"
                } else {
                    ""
                };
                format!("{} {}{status}{dry}", sent.request.method(), plural.unwrap_or(&"?"))
            }
            Self::Call(asked) => format!("{:?}", asked.purpose),
            Self::Write(writing) => {
                let of = if matches!(writing.write, Write::Pod(_)) { "Pod" } else { "container" };
                let back = if writing.order_id.is_none() { " back" } else { "" };
                format!("write{back} {of}")
            }
        }
    }
}
