//! `status`: the requests, how far they are, and what they wait for; once, or as they change.

pub(super) mod gather;
pub(super) mod screen;
mod watch;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueEnum;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use pitstop_api::rollout::TargetKind;
use pitstop_cli_core::draw::{Look, draw};
use pitstop_cli_core::scope::Scope;
use pitstop_cli_core::target::Target;
use pitstop_cli_core::tree::{About, tree};
use pitstop_kit::clock::wall;

use crate::failure::Failure;
use crate::output::{self, Format};
use crate::session::Session;

/// The target, and the output format.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A Pod, a workload or a request, such as pod/web-0, deploy/web or crr/web-x7k2p. Default: all rollouts and open requests
    /// of the namespace.
    #[arg(value_name = "TYPE/NAME")]
    target: Option<String>,
    /// Show the rollouts and open requests of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "target")]
    all_namespaces: bool,
    /// Show changes until Ctrl-C, or until a request ends: then the exit code is 0 for success and 1 for failure.
    #[arg(short, long)]
    watch: bool,
    /// `json` or `yaml`: the tree as data. `wide`: one line for each Pod.
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Output>,
    /// For tests: with --watch in a terminal, write each picture as a line of JSON: its time, the versions of its objects, and its
    /// lines.
    #[arg(long, hide = true, value_name = "FILE", requires = "watch")]
    frames: Option<PathBuf>,
}

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    Json,
    Yaml,
    Wide,
}

/// The target, and its objects.
struct Subject {
    target: Option<Target>,
    scope: Scope,
}

impl Subject {
    async fn of(session: &Session, args: &Args) -> Result<Self, Failure> {
        let target = args.target.as_deref().map(Target::parse).transpose().map_err(Failure::invalid)?;
        let Some(target) = target else {
            let scope = if args.all_namespaces { Scope::everywhere() } else { Scope::namespace() };
            return Ok(Self { target: None, scope });
        };
        let pods = pods_of(session, &target).await?;
        let scope = Scope::of(&target, pods).map_err(Failure::invalid)?;
        Ok(Self { target: Some(target), scope })
    }

    fn about(&self) -> About<'_> {
        match &self.target {
            None if self.scope.everywhere => About::Everywhere,
            None => About::Namespace,
            Some(Target::Workload(kind, name)) => About::Workload(*kind, name),
            Some(Target::Pod(pod)) => About::Pod(pod),
            Some(Target::Request(..)) => About::Requests,
        }
    }
}

/// The Pod selector of a workload; `None` for other targets.
pub(super) async fn pods_of(session: &Session, target: &Target) -> Result<Option<LabelSelector>, Failure> {
    use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
    let Target::Workload(kind, name) = target else { return Ok(None) };
    let selector = match kind {
        TargetKind::Deployment => session.api::<Deployment>().get(name).await?.spec.map(|it| it.selector),
        TargetKind::StatefulSet => session.api::<StatefulSet>().get(name).await?.spec.map(|it| it.selector),
        TargetKind::DaemonSet => session.api::<DaemonSet>().get(name).await?.spec.map(|it| it.selector),
    };
    Ok(selector)
}

/// The error for a target that does not exist, or not any more.
fn missing(session: &Session, target: &Target) -> Failure {
    Failure::invalid(format!("there is no {target} in namespace {}", session.namespace))
}

/// Shows the target.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let subject = Subject::of(session, args).await?;
    if args.watch {
        return match args.output {
            Some(Output::Json | Output::Yaml) => {
                Err(Failure::invalid("--watch supports -o wide, but not json or yaml"))
            }
            wide => watch::run(session, &subject, wide.is_some(), args.frames.as_deref()).await,
        };
    }
    let objects = gather::all(session, &subject.scope).await?;
    let tree = tree(subject.about(), &objects);
    if let (Some(target @ (Target::Pod(_) | Target::Request(..))), true) =
        (&subject.target, tree.items.is_empty() && tree.unread.is_empty())
    {
        return Err(missing(session, target));
    }
    let format = match args.output {
        Some(Output::Json) => Some(Format::Json),
        Some(Output::Yaml) => Some(Format::Yaml),
        Some(Output::Wide) | None => None,
    };
    if let Some(format) = format {
        let data = serde_json::to_value(&tree)
            .map_err(|error| Failure::local("cannot write the tree as data", &error))?;
        output::print(&output::rendered(data, format)?);
        return Ok(ExitCode::SUCCESS);
    }
    let terminal = std::io::stdout().is_terminal();
    let width = terminal.then(screen::size).map(|(width, _)| (width, usize::MAX));
    let wide = args.output.is_some();
    let look = Look { size: width, wide, ..screen::look(terminal) };
    let lines = draw(&tree, wall(), look);
    if lines.is_empty() {
        let namespace =
            if args.all_namespaces { "any namespace" } else { &format!("namespace {}", session.namespace) };
        eprintln!("There is no rollout and no open request in {namespace}.");
    }
    for line in &lines {
        output::print(line);
    }
    Ok(ExitCode::SUCCESS)
}
