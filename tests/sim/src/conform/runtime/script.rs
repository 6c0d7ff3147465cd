//! Parts of a script.

use crate::node::runtime::{Process, State};

/// A script. Its Pod's sandbox `pod` exists at the start.
#[derive(Clone, Debug)]
pub struct Script {
    /// Name, unique among the scripts.
    pub name: String,
    /// The steps.
    pub ops: Vec<Op>,
    /// Whether it needs the runtime for itself.
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
    /// The process for the model.
    pub fn process(self) -> Process {
        match self {
            Self::Polite => Process::polite(),
            Self::Stubborn => Process::stubborn(),
            Self::Second => Process { term: Some((50, 9)), needs: 2, ..Process::default() },
            Self::Job(code) => Process::job(300, code),
            Self::Missing => Process { start_fails: true, ..Process::default() },
        }
    }

    /// The program for a shell. It runs a child as soon as its traps are set.
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

    /// Whether it runs until it is stopped.
    pub fn lasts(self) -> bool {
        matches!(self, Self::Polite | Self::Stubborn | Self::Second)
    }
}

/// An ID in a script.
#[derive(Clone, Debug)]
pub enum Id {
    /// The container or sandbox with this name.
    Of(String),
    /// The first digits of its ID.
    Prefix(String, usize),
    /// Its ID with a digit added.
    Longer(String),
    /// Its ID in capitals.
    Capitals(String),
    /// This text.
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
    /// Creates a container: name, shape, attempt.
    Create(String, Shape, u32),
    /// Creates a container in this sandbox.
    CreateIn(Id, String, Shape),
    /// Creates a container of this image.
    CreateOf(String, String),
    /// Creates containers until the IDs of two begin with the same digit; that digit becomes the name's ID.
    Ambiguous(String),
    /// Starts a container.
    Start(Id),
    /// Waits until a container has ended.
    Ended(Id),
    /// Stops a container, with this grace in seconds.
    Stop(Id, i64),
    /// Begins a stop; `End` with this name waits for it.
    BeginStop(String, Id, i64),
    /// Runs a command, with this timeout in seconds.
    Exec(Id, Vec<String>, i64),
    /// Begins a command.
    BeginExec(String, Id, Vec<String>, i64),
    /// Waits for a begun call.
    End(String),
    /// Cancels a begun call.
    Leave(String),
    /// Lets milliseconds pass.
    Pause(u64),
    /// Reads a container's status.
    Status(Id),
    /// Lists the containers of the script's Pod.
    List,
    /// Lists containers with this ID.
    ListId(Id),
    /// Lists containers of the Pod in this state.
    ListState(State),
    /// Lists containers of the Pod with this name in their label.
    ListName(String),
    /// Lists containers in this sandbox.
    ListSandbox(Id),
    /// Removes a container.
    Remove(Id),
    /// Creates another sandbox for the Pod.
    Sandbox(String, u32),
    /// Reads a sandbox's status.
    SandboxStatus(Id),
    /// Stops a sandbox.
    StopSandbox(Id),
    /// Removes a sandbox.
    RemoveSandbox(Id),
    /// Asks for the version.
    Version,
    /// Asks whether the runtime is ready.
    Ready,
    /// Kills the runtime and starts it again; waits until it answers.
    Restart,
    /// Kills the runtime, sends it a call, and starts it again.
    Down,
}
