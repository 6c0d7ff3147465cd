//! `restart`: containers of Pods, or the Pods of a workload, in place.

use std::process::ExitCode;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use pitstop_api::recreate::Mechanism;
use pitstop_api::rollout::{InPlaceRollout, Share, TargetKind};
use pitstop_cli_core::containers::{Choice, DEFAULT_CONTAINER, choose};
use pitstop_cli_core::restart::{self, Manner, Roll};
use pitstop_cli_core::strategy::Steps;
use pitstop_cli_core::target::{RequestKind, Target};
use pitstop_cli_core::{rollouts, selected, share};
use pitstop_kit::clock;

use crate::args::seconds;
use crate::failure::Failure;
use crate::session::Session;
use crate::store::{Place, Store, Storing};
use crate::waiting::{self, Awaited, Waiting};

/// What to restart, and how.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to restart, such as pod/web-0, deploy/web, sts/db or ds/agent.
    #[arg(required_unless_present = "selector", value_name = "TARGET")]
    targets: Vec<String>,
    /// Restart the Pods with these labels, such as app=web: by one `InPlaceRollout`, in order and within its budget.
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "targets")]
    selector: Option<String>,
    #[command(flatten)]
    containers: Containers,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    storing: Storing,
    #[command(flatten)]
    waiting: Waiting,
}

/// Which containers.
#[derive(clap::Args, Debug)]
struct Containers {
    /// The containers. Otherwise a Pod's only main container, or the one of its annotation
    /// kubectl.kubernetes.io/default-container; of a workload, all main containers.
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    container: Vec<String>,
    /// All main containers and sidecars.
    #[arg(long, conflicts_with = "container")]
    all_containers: bool,
}

/// In which manner. A field of a rollout stays as it is written.
#[derive(clap::Args, Debug)]
struct How {
    /// Keep the Pod not ready for so long before its first container stops.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    drain: Option<i64>,
    /// Of a workload: how many Pods may be unavailable at a time, such as 2 or 25%.
    #[arg(long, value_name = "N", value_parser = share::read)]
    max_unavailable: Option<Share>,
    /// Of a Pod: by which means, Auto, Runtime or Kubelet.
    #[arg(long, value_name = "HOW", value_parser = mechanism)]
    mechanism: Option<Mechanism>,
    /// Of a Pod: time from the stop signal to the kill. Otherwise the Pod's own.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    grace: Option<i64>,
    /// Of a Pod: stop a container only when the one before is up again.
    #[arg(long)]
    ordered: bool,
    /// Of a Pod: end the request after so long. Otherwise the controller's default, one hour.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    deadline: Option<i64>,
    /// Of a Pod: delete the request so long after its end. Otherwise one hour.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    ttl: Option<i64>,
}

/// Seconds for which a command's request is kept: long enough for a look at it.
pub const KEPT_SECONDS: i32 = 3_600;

fn mechanism(text: &str) -> Result<Mechanism, String> {
    [("auto", Mechanism::Auto), ("runtime", Mechanism::Runtime), ("kubelet", Mechanism::Kubelet)]
        .into_iter()
        .find_map(|(name, mechanism)| text.eq_ignore_ascii_case(name).then_some(mechanism))
        .ok_or_else(|| "write Auto, Runtime or Kubelet".to_owned())
}

/// Makes the requests.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let store = Store::new(session, &args.storing);
    let mut awaited = Vec::new();
    if let Some(selector) = &args.selector {
        awaited.push(by_labels(session, &store, args, selector).await?);
    }
    for target in Target::parse_all(&args.targets).map_err(Failure::invalid)? {
        awaited.push(match target {
            Target::Pod(name) => pod(session, &store, args, &name).await?,
            Target::Workload(kind, name) => workload(session, &store, args, kind, &name).await?,
            Target::Request(..) => {
                return Err(Failure::invalid(format!(
                    "{target} is a request: restart a Pod or a workload, such as pod/web-0 or deploy/web"
                )));
            }
        });
    }
    waiting::if_asked(session, &args.waiting, &args.storing, awaited).await
}

async fn pod(session: &Session, store: &Store<'_>, args: &Args, name: &str) -> Result<Awaited, Failure> {
    if args.how.max_unavailable.is_some() {
        return Err(Failure::invalid(format!(
            "--max-unavailable is for the Pods of a workload, and pod/{name} is one Pod"
        )));
    }
    let ttl = args.how.ttl.map_or(Ok(KEPT_SECONDS), i32::try_from);
    let manner = Manner {
        mechanism: args.how.mechanism,
        ordered: args.how.ordered,
        drain: args.how.drain,
        grace: args.how.grace,
        deadline: args.how.deadline,
        ttl: Some(ttl.map_err(|_| Failure::invalid("--ttl must be at most 365 days"))?),
    };
    let pod: Pod = session.api().get(name).await?;
    let request = restart::request(&pod, &args.containers.choice(), &manner).map_err(Failure::invalid)?;
    let made = store.create(&request).await?;
    Ok(waiting::of(RequestKind::Restart, &made))
}

async fn workload(
    session: &Session,
    store: &Store<'_>,
    args: &Args,
    kind: TargetKind,
    name: &str,
) -> Result<Awaited, Failure> {
    args.how.for_rollouts(&format!("{}/{name}", kind.name().to_ascii_lowercase()))?;
    let workload = session.workload(kind, name).await?;
    let containers = match args.containers.choice() {
        Choice::Named(named) if named.is_empty() => Vec::new(),
        choice => {
            let pods = workload.pods().map_err(Failure::invalid)?;
            let default = workload.pod_annotation(DEFAULT_CONTAINER);
            choose(&workload.target(), &pods, default, &choice).map_err(Failure::invalid)?
        }
    };
    let all = session.rollouts().await?;
    let new = rollouts::new(kind, name, &all);
    let existing = rollouts::of_workload(kind, name, all).into_iter().next();
    roll(store, args, existing, new, containers).await
}

async fn by_labels(
    session: &Session,
    store: &Store<'_>,
    args: &Args,
    selector: &str,
) -> Result<Awaited, Failure> {
    args.how.for_rollouts("-l")?;
    let labels = selected::labels(selector).map_err(Failure::invalid)?;
    if args.containers.all_containers {
        return Err(Failure::invalid(
            "--all-containers needs one target: with -l, name the containers with -c, or leave it out for all main containers",
        ));
    }
    let existing = selected::existing(&labels, session.rollouts().await?);
    roll(store, args, existing, selected::new(labels), args.containers.container.clone()).await
}

/// Changes the existing rollout, or makes one.
async fn roll(
    store: &Store<'_>,
    args: &Args,
    existing: Option<InPlaceRollout>,
    new: InPlaceRollout,
    containers: Vec<String>,
) -> Result<Awaited, Failure> {
    let (max_unavailable, drain) = (args.how.max_unavailable.clone(), args.how.drain);
    let roll = Roll { containers, steps: Steps { max_unavailable, drain, ..Steps::default() } };
    let known = existing.is_some();
    let rollout = existing.unwrap_or(new);
    let change = restart::again(&rollout, &roll, &args.storing.field_manager, clock::wall_micros())
        .map_err(Failure::invalid)?;
    let asked = if known {
        store.patch::<InPlaceRollout>(Place::Namespace, &rollout.name_any(), &change, "restarted").await?
    } else {
        store.create(&rollouts::changed(&rollout, &change).map_err(Failure::invalid)?).await?
    };
    Ok(waiting::of(RequestKind::Rollout, &asked))
}

impl Containers {
    fn choice(&self) -> Choice {
        if self.all_containers { Choice::All } else { Choice::Named(self.container.clone()) }
    }
}

impl How {
    /// Fails if an option is set that a rollout has no field for.
    fn for_rollouts(&self, target: &str) -> Result<(), Failure> {
        let given = [
            ("--mechanism", self.mechanism.is_some()),
            ("--grace", self.grace.is_some()),
            ("--ordered", self.ordered),
            ("--deadline", self.deadline.is_some()),
            ("--ttl", self.ttl.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(Failure::invalid(format!(
                "{flag} is for single Pods, and {target} is restarted by an InPlaceRollout, which restarts each Pod in its own way: \
                 leave {flag} out, or name the Pods"
            ))),
        }
    }
}
