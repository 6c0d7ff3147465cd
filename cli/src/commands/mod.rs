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

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print a completion script for a shell.
    ///
    /// It is for the program's own name. kubectl completes `kubectl pitstop`, and names of objects too, if the program is also on
    /// the PATH as `kubectl_complete-pitstop`: make a symbolic link of that name.
    Completion(completion::Args),
    /// Cancel open requests.
    Cancel(cancel::Args),
    /// Switch off changes of a workload in its running Pods, or in all of a namespace; release what is parked.
    Disable(disable::Args),
    /// Examine the installation: exit code 0 if all is well, 1 if something is wrong, 2 if something could not be checked.
    Doctor(doctor::Args),
    /// Have template changes of a workload made in its running Pods, or opt a namespace in to that.
    Enable(enable::Args),
    /// Say what a request waits for, or how it ended, and what helps.
    Explain(explain::Args),
    /// Write a page about each command into a directory.
    #[command(hide = true)]
    Manual(manual::Args),
    /// Show the order book of a node, what its daemon says, and what Pods are held to.
    Node(node::Args),
    /// Begin with no further Pod of a workload.
    Pause(pause::Args),
    /// Change CPU and memory of a running Pod.
    Resize(resize::Args),
    /// Restart containers in place.
    Restart(restart::Args),
    /// Go on with the Pods of a paused workload.
    Resume(pause::Args),
    /// Change images of a running Pod, or of the running Pods of a workload.
    SetImage(set_image::Args),
    /// Show what is asked for, how far it is, and what it waits for.
    Status(status::Args),
    /// Give a workload the template that it had before.
    Undo(undo::Args),
    /// Wait until requests have ended: exit code 0 for success, 1 for failure, 2 when the time is over.
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
