//! The commands; a file each.

mod cancel;
mod completion;
mod disable;
mod doctor;
mod enable;
mod explain;
mod manual;
mod node;
mod pause;
mod resize;
mod restart;
mod set_image;
mod status;
mod undo;
mod wait;

use std::process::ExitCode;

use clap::Subcommand;

use crate::args::Cli;
use crate::failure::Failure;
use crate::session::Session;

/// The command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print a completion script for a shell.
    ///
    /// The script completes `kubectl-pitstop`. To complete `kubectl pitstop`, and names of objects, put a symbolic link to the
    /// program on the PATH as `kubectl_complete-pitstop`.
    Completion(completion::Args),
    /// Cancel open requests.
    Cancel(cancel::Args),
    /// Disable in-place template changes of a workload or a namespace, and release a parked workload.
    Disable(disable::Args),
    /// Check the installation: exit code 0 without errors, 1 for an error, 2 if something could not be checked.
    Doctor(doctor::Args),
    /// Enable in-place template changes of a workload, or opt a namespace in.
    Enable(enable::Args),
    /// Explain why a request waits or how it ended, and what to do.
    Explain(explain::Args),
    /// Write a page about each command into a directory.
    #[command(hide = true)]
    Manual(manual::Args),
    /// Show the order book of a node, its daemon's answers, and the Pods held at other resources.
    Node(node::Args),
    /// Pause the rollout of a workload: no further Pod is changed.
    Pause(pause::Args),
    /// Change CPU and memory of a running Pod.
    Resize(resize::Args),
    /// Restart containers in place.
    Restart(restart::Args),
    /// Resume the rollout of a workload.
    Resume(pause::Args),
    /// Change images of a running Pod, or of the running Pods of a workload.
    SetImage(set_image::Args),
    /// Show requests and rollouts, their progress, and what they wait for.
    Status(status::Args),
    /// Roll a workload back to an earlier template.
    Undo(undo::Args),
    /// Wait until requests have ended: exit code 0 for success, 1 for failure, 2 for a timeout.
    Wait(wait::Args),
}

/// Runs the command. The exit code is that of a command without error; errors have their own.
pub async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let Cli { globals, command } = cli;
    let session = || Session::open(&globals);
    match command {
        Command::Completion(args) => Ok(completion::run(&args)),
        Command::Cancel(args) => cancel::run(&session().await?, &args).await,
        Command::Disable(args) => disable::run(&session().await?, &args).await,
        Command::Doctor(args) => doctor::run(&session().await?, &args).await,
        Command::Enable(args) => enable::run(&session().await?, &args).await,
        Command::Explain(args) => explain::run(&session().await?, &args).await,
        Command::Manual(args) => manual::run(&args),
        Command::Node(args) => node::run(&session().await?, &args).await,
        Command::Pause(args) => pause::run(&session().await?, &args, true).await,
        Command::Resize(args) => resize::run(&session().await?, &args).await,
        Command::Resume(args) => pause::run(&session().await?, &args, false).await,
        Command::SetImage(args) => set_image::run(&session().await?, &args).await,
        Command::Status(args) => status::run(&session().await?, &args).await,
        Command::Undo(args) => undo::run(&session().await?, &args).await,
        Command::Restart(args) => restart::run(&session().await?, &args).await,
        Command::Wait(args) => wait::run(&session().await?, &args).await,
    }
}
