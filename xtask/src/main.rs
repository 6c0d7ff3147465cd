//! pitstop's developer commands: `cargo xtask <command>`.
//!
//! Each command is one module. They share `sh` (runs other programs), `lab` (a cluster for one command), `progress`
//! (progress messages), `priority` (of threads), `debian` (packages of the machine), `options` (options of commands
//! that pass on the rest), `tools` (external programs) and `workspace` (paths).

mod arm64;
mod attacks;
mod bench;
mod cgroup2;
mod chaos;
mod check;
mod cluster;
mod containerd;
mod crds;
mod debian;
mod demo;
mod fuzz;
mod helm;
mod image;
mod kubernetes;
mod lab;
mod machine;
mod mutants;
mod older;
mod options;
mod platforms;
mod plugin;
mod priority;
mod progress;
mod promtool;
mod protos;
mod recording;
mod reference;
mod release;
mod sh;
mod sim;
mod site;
mod support;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer commands of pitstop.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write deploy/crds and docs/reference from the Rust types.
    Crds {
        /// Only say whether the files are current.
        #[arg(long)]
        check: bool,
    },
    /// Write the CRI bindings from the .proto files.
    Protos {
        /// Only say whether the files are current.
        #[arg(long)]
        check: bool,
    },
    /// Build both programs as static binaries into OCI image archives under target/images, named by their content, and
    /// write what to apply under target/deploy. For amd64, arm64 or both: --platform linux/amd64,linux/arm64.
    Image(image::Args),
    /// Build kubectl-pitstop as static programs for amd64 and arm64 into archives under target/plugin, and with --url
    /// krew's manifest of them.
    Plugin(plugin::Args),
    /// Run a real Kubernetes on this machine: up, down, status, push, exec, kill, stop, start, halt, boot, reboot.
    ///
    /// `up [--kubernetes RELEASE] [--runtime containerd-1|containerd-2] [--nodes N]` builds and starts it, and prints
    /// the path of its KUBECONFIG as the last line. The default release is 1.36; others are 1.37 and 1.35. The
    /// releases 1.34 and 1.36-as-1.34, which is 1.36 that acts as 1.34, run without the resize API. Their nodes run
    /// Debian's containerd-1 and those of the others containerd-2, unless a runtime is named. `push ARCHIVE NAME`
    /// puts an image into its registry. All other commands are passed on unchanged; tests/cluster/README.md describes
    /// them.
    Cluster {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        args: Vec<String>,
    },
    /// Draw the frames of `kubectl pitstop status --watch --frames FILE` as an animated SVG.
    Recording(recording::Args),
    /// Build the website of docs/ into target/docs, and check its links; the last line is the page to open.
    Docs,
    /// Build Helm into target/helm, for the tests of deploy/chart.
    Helm,
    /// Format, lints, licences, generated files, dependency law: all that needs no cluster.
    Check,
    /// Run every test, those on a real cluster included; the last line counts them.
    Test,
    /// Start a cluster with pitstop, and restart a container of a web app in its Pod.
    Demo,
    /// Take the demo's cluster down.
    DemoDown,
    /// Simulate the world in one thread: schedules by seeds, crashes at every effect, and planted bugs.
    Sim(sim::Args),
    /// Probe a cluster of its own with the tokens of real daemons; the last line counts unexpected results.
    Attacks(attacks::Args),
    /// Kill at random during a stream of requests, on a cluster of its own; the last line is the verdict.
    Chaos(chaos::Args),
    /// Run the fuzz targets; the last line counts targets and crashes.
    Fuzz(fuzz::Args),
    /// Run mutation tests of the crates that decide; the last line counts mutants.
    Mutants(mutants::Args),
    /// The daemon's reads and writes in a virtual machine with cgroup v2; the last line counts the checks.
    Cgroup2(cgroup2::Args),
    /// All files of a release under target/dist: images, plugin, chart, manifests, schemas, bills of materials, sums.
    Release(release::Args),
    /// Run the tests on every platform available here, for a release, and record the results for docs/support.md.
    Platforms(platforms::Args),
    /// Run the three programs for arm64 on this machine; the last line counts the checks.
    ///
    /// Builds them, and runs each under Debian's qemu-user-static, which the command installs. Checks what they
    /// print, then runs the tests of the programs as processes with them. The daemon finds a real containerd of this
    /// machine. By order of the test's own API server, it runs a container's preStop hook, stops the container and
    /// writes its answer. Controller and daemon also live without an API server. An order shows more than a look at
    /// the runtime's version: it takes TLS, JSON, calls of several kinds and the timers. Needs root, for the
    /// containers.
    Arm64,
    /// Measure on the running cluster: burst, idle, latency, resize. On clusters of its own:
    /// scale [cluster|queue|spread|hostile|roll|unrolled].
    Bench {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "NAME")]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let root = workspace::root()?;
    match command {
        Command::Crds { check } => crds::generate(&root, check)?,
        Command::Protos { check } => protos::generate(&root, check)?,
        Command::Image(args) => image::run(&root, &args)?,
        Command::Plugin(args) => plugin::run(&root, &args)?,
        Command::Cluster { args } => return cluster::run(&root, &args),
        Command::Recording(args) => recording::run(&args)?,
        Command::Docs => site::build(&root)?,
        Command::Helm => helm::build(&root)?,
        Command::Check => return Ok(check::run(&root)),
        Command::Test => return Ok(test::run(&root)),
        Command::Demo => demo::run(&root)?,
        Command::DemoDown => demo::down(&root)?,
        Command::Sim(args) => return sim::run(&root, &args),
        Command::Attacks(args) => return attacks::run(&root, &args),
        Command::Chaos(args) => return chaos::run(&root, &args),
        Command::Fuzz(args) => return fuzz::run(&root, &args),
        Command::Mutants(args) => return mutants::run(&root, &args),
        Command::Cgroup2(args) => return cgroup2::run(&root, &args),
        Command::Release(args) => release::run(&root, &args)?,
        Command::Platforms(args) => return platforms::run(&root, &args),
        Command::Arm64 => return arm64::run(&root),
        Command::Bench { args } => return bench::run(&root, &args),
    }
    Ok(ExitCode::SUCCESS)
}
