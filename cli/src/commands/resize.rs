//! `resize`: CPU and memory of containers of a running Pod.

use std::process::ExitCode;

use k8s_openapi::api::core::v1::Pod;
use pitstop_api::resize::NewResources;
use pitstop_cli_core::containers::Choice;
use pitstop_cli_core::resize::{self, ResizeOptions};
use pitstop_cli_core::target::{RequestKind, Target};

use crate::args::seconds;
use crate::failure::Failure;
use crate::session::Session;
use crate::store::{Store, Storing};
use crate::waiting::{self, Waiting};

/// The Pod, and its new resources.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The Pod, such as pod/web-0.
    target: String,
    /// New requests, such as cpu=500m, cpu=+20%, memory=1Gi or memory=x1.5. Other resources do not change.
    #[arg(value_name = "RESOURCE=AMOUNT")]
    requests: Vec<String>,
    /// New limits, such as cpu=2,memory=x1.5.
    #[arg(long, value_name = "RESOURCE=AMOUNT", value_delimiter = ',')]
    limits: Vec<String>,
    /// The containers; each gets the same. Default: the Pod's only main container, or the one in its annotation
    /// kubectl.kubernetes.io/default-container.
    #[arg(short, long, value_name = "NAMES", value_delimiter = ',')]
    container: Vec<String>,
    /// End the request after this time; the Pod then has its original resources. Default: that of the controller, one hour.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    deadline: Option<i64>,
    /// Watch the Pod for this time with its new resources, and restore the original ones if it becomes unhealthy.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    observe: Option<i64>,
    /// Change nothing: make a dry-run request, which reports whether the Pod can be resized, and wait for its end.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    storing: Storing,
    #[command(flatten)]
    waiting: Waiting,
}

/// Seconds for which a dry-run request is kept.
pub const CHECK_KEPT_SECONDS: i32 = 600;

/// Makes the request.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let target = Target::parse(&args.target).map_err(Failure::invalid)?;
    let name = match &target {
        Target::Pod(name) => name,
        Target::Workload(kind, name) => {
            let acting = session.rollout_of(*kind, name).await?;
            return Err(Failure::invalid(resize::workload_error(&target.to_string(), acting.as_ref())));
        }
        Target::Request(..) => {
            return Err(Failure::invalid(format!("{target} is a request: name a Pod, such as pod/web-0")));
        }
    };
    let options = ResizeOptions {
        resources: NewResources {
            requests: resize::amounts(&args.requests).map_err(Failure::invalid)?,
            limits: resize::amounts(&args.limits)
                .map_err(|why| Failure::invalid(format!("--limits: {why}")))?,
        },
        deadline: args.deadline,
        observe: args.observe,
        // No TTL otherwise: with the mechanism CRI, a Pod has its resources only while the request exists.
        ttl: args.check.then_some(CHECK_KEPT_SECONDS),
        check: args.check,
    };
    let pod: Pod = session.api().get(name).await?;
    let choice = Choice::Named(args.container.clone());
    let request = resize::request(&pod, &choice, &options).map_err(Failure::invalid)?;
    let made = Store::new(session, &args.storing).create(&request).await?;
    let waiting = args.waiting.clone().or(args.check);
    waiting::if_asked(session, &waiting, &args.storing, vec![waiting::of(RequestKind::Resize, &made)]).await
}
