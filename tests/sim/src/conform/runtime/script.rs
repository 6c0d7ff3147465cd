//! What a script is made of.

use crate::node::runtime::{Process, State};

/// A script: a Pod's sandbox `pod` is there when it begins.
#[derive(Clone, Debug)]
pub struct Script {
    /// Unique among the scripts.
    pub name: String,
    /// What is done.
    pub ops: Vec<Op>,
    /// It needs the runtime for itself.
    pub alone: bool,
}

/// How the process of a container behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Ends with 7 at the stop signal.
    Polite,
    /// Ends at SIGKILL only.
    Stubborn,
    /// Ends with 9 at the second stop signal.
    Second,
    /// Ends by itself after 300 ms, with that exit code.
    Job(i32),
    /// Its program is missing.
    Missing,
}

impl Shape {
    /// For the model.
    pub fn process(self) -> Process {
        match self {
            Self::Polite => Process::polite(),
            Self::Stubborn => Process::stubborn(),
            Self::Second => Process { term: Some((50, 9)), needs: 2, ..Process::default() },
            Self::Job(code) => Process::job(300, code),
            Self::Missing => Process { start_fails: true, ..Process::default() },
        }
    }

    /// For a shell. It runs a child as soon as its traps are set.
    pub fn shell(self) -> String {
        let loops = "while :; do sleep 0.05; done";
        match self {
            Self::Polite => format!("trap 'exit 7' TERM; {loops}"),
            Self::Stubborn => format!("trap '' TERM; {loops}"),
            Self::Second => format!("n=0; trap 'n=$((n+1)); [ $n = 2 ] && exit 9' TERM; {loops}"),
            Self::Job(code) => format!("sleep 0.3; exit {code}"),
            Self::Missing => String::new(),
        }
    }

    /// It runs until it is stopped.
    pub fn lasts(self) -> bool {
        matches!(self, Self::Polite | Self::Stubborn | Self::Second)
    }
}

/// What a name in a script stands for, where an ID is given.
#[derive(Clone, Debug)]
pub enum Id {
    /// A container or sandbox made under that name.
    Of(String),
    /// The first digits of its ID.
    Prefix(String, usize),
    /// Its ID with something after it.
    Longer(String),
    /// Its ID in capitals.
    Capitals(String),
    /// As it stands.
    Text(String),
}

impl From<&str> for Id {
    fn from(name: &str) -> Self {
        Self::Of(name.to_owned())
    }
}

/// One step.
#[derive(Clone, Debug)]
pub enum Op {
    /// Makes a container of that name, and its attempt.
    Create(String, Shape, u32),
    /// Makes it in that sandbox.
    CreateIn(Id, String, Shape),
    /// Makes it of that image.
    CreateOf(String, String),
    /// Makes containers until the IDs of two begin with the same digit; that prefix is the name's ID.
    Ambiguous(String),
    /// Starts one.
    Start(Id),
    /// Waits until one has ended.
    Ended(Id),
    /// Stops one, with that many seconds of grace.
    Stop(Id, i64),
    /// Begins a stop; `End` of that name waits for it.
    BeginStop(String, Id, i64),
    /// Runs a command, with that many seconds for it.
    Exec(Id, Vec<String>, i64),
    /// Begins one.
    BeginExec(String, Id, Vec<String>, i64),
    /// Waits for a call that was begun.
    End(String),
    /// Leaves a call that was begun.
    Leave(String),
    /// Lets milliseconds pass.
    Pause(u64),
    /// Tells a container's status.
    Status(Id),
    /// Lists the containers of the script's Pod.
    List,
    /// Lists those with that ID.
    ListId(Id),
    /// Lists those of the Pod in that state.
    ListState(State),
    /// Lists those of the Pod with that name in their label.
    ListName(String),
    /// Lists those in that sandbox.
    ListSandbox(Id),
    /// Removes a container.
    Remove(Id),
    /// Makes another sandbox for the Pod.
    Sandbox(String, u32),
    /// Tells a sandbox's status.
    SandboxStatus(Id),
    /// Stops one.
    StopSandbox(Id),
    /// Removes one.
    RemoveSandbox(Id),
    /// Asks for the version.
    Version,
    /// Asks whether the runtime is ready.
    Ready,
    /// The runtime is killed and starts again; waits until it answers.
    Restart,
    /// The runtime is killed; that call fails; it starts again.
    Down,
}
