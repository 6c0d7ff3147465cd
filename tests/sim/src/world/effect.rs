//! What a process wants done, in order, as data: the world carries it out, or kills the process in between.

use http::Method;
use pitstop_controller_core::wire::HttpRequest;
use pitstop_daemon_core::resize::Write;

use super::plan::Position;
use crate::node::runtime::Call;

/// What a step brought about.
#[derive(Debug, Default)]
pub struct Out {
    /// What to do.
    pub effects: Vec<Effect>,
    /// Decisions as text without times, for the trace.
    pub told: Vec<String>,
}

impl Out {
    /// What another step brought about comes after it.
    pub fn add(&mut self, more: Self) {
        self.effects.extend(more.effects);
        self.told.extend(more.told);
    }
}

/// One thing to do.
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
    /// By which the process knows what came of it.
    pub token: u64,
    /// The order that it is for. Absent: the Pod gets back what it had.
    pub order_id: Option<String>,
    /// UID of the Pod.
    pub pod: String,
    /// What is written.
    pub write: Write,
}

/// A request to the API server.
#[derive(Debug)]
pub struct Sent {
    /// By which the process knows the answer.
    pub token: u64,
    /// The request.
    pub request: HttpRequest,
    /// It is part of the election.
    pub election: bool,
}

/// A call of the runtime for an order.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The order.
    pub order_id: String,
    /// The container that it names.
    pub container_id: String,
    /// What is done to it.
    pub what: What,
    /// The call.
    pub call: Call,
    /// Milliseconds until the process gives the call up.
    pub limit: u64,
}

impl What {
    /// It changes nothing about a container.
    pub fn only_asks(self) -> bool {
        matches!(self, Self::Inspect | Self::Read | Self::Look | Self::Image | Self::Pull)
    }
}

/// What is done to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is asked about.
    Inspect,
    /// Its hook is run.
    Hook,
    /// It is stopped.
    Stop,
    /// Its cgroups are read.
    Read,
    /// What is to be changed is looked at.
    Look,
    /// Its image is looked at, and what runs in its place.
    Image,
    /// An image is pulled; no container is named.
    Pull,
}

/// What coverage tells apart.
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
    /// Where in it a process can be killed. What only asks changes nothing outside of the process: dying before it, in it or after it
    /// is the same, and the first of these follows what went before.
    pub fn positions(&self) -> &'static [Position] {
        let asks = match self {
            Self::Send(sent) => sent.request.method() == Method::GET,
            Self::Call(asked) => asked.what.only_asks() && asked.what != What::Pull,
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
            Self::Call(asked) => format!("{:?}", asked.what),
            Self::Write(writing) => {
                let of = if matches!(writing.write, Write::Pod(_)) { "Pod" } else { "container" };
                let back = if writing.order_id.is_none() { " back" } else { "" };
                format!("write{back} {of}")
            }
        }
    }
}
