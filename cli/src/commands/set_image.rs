//! `set-image`: new images of a running Pod, or of a workload whose rollout makes changes in place.

use std::process::ExitCode;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt as _;
use pitstop_api::image_update::ContainerImage;
use pitstop_api::rollout::{InPlaceRollout, TargetKind};
use pitstop_cli_core::follow::Goal;
use pitstop_cli_core::set_image::{self, ImageUpdateOptions};
use pitstop_cli_core::summary::Request as _;
use pitstop_cli_core::target::{RequestKind, Target};
use pitstop_cli_core::{opt_in, workload};
use pitstop_kit::Class;

use super::resize::CHECK_KEPT_SECONDS;
use super::restart::KEPT_SECONDS;
use crate::args::seconds;
use crate::failure::Failure;
use crate::session::Session;
use crate::store::{Store, Storing};
use crate::waiting::{self, WaitTarget, Waiting};

/// The target, and its new images.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The Pod or the workload, such as pod/web-0 or deploy/web.
    target: String,
    /// New images, such as app=registry.example.com/shop/web:v2: another tag or digest of the same repository.
    #[arg(required = true, value_name = "CONTAINER=IMAGE")]
    images: Vec<String>,
    /// For a Pod: keep it not ready for this time before the change.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    drain: Option<i64>,
    /// For a Pod: end the request after this time. Default: that of the controller, one hour.
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    deadline: Option<i64>,
    /// For a Pod: change nothing, make a dry-run request, which reports whether the images can change, and wait for its end.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    storing: Storing,
    #[command(flatten)]
    waiting: Waiting,
}

/// The word for a workload that already has these images.
const UNCHANGED: &str = "unchanged";
/// Most tries with a workload that changes meanwhile.
const TRIES: u32 = 5;

/// Makes the request, or changes the workload.
pub async fn run(session: &Session, args: &Args) -> Result<ExitCode, Failure> {
    let images = set_image::images(&args.images).map_err(Failure::invalid)?;
    let awaited = match Target::parse(&args.target).map_err(Failure::invalid)? {
        Target::Pod(name) => pod(session, args, &name, &images).await?,
        Target::Workload(kind, name) => workload(session, args, kind, &name, &images).await?,
        target @ Target::Request(..) => {
            return Err(Failure::invalid(format!(
                "{target} is a request: name a Pod or a workload, such as pod/web-0 or deploy/web"
            )));
        }
    };
    let waiting = args.waiting.clone().or(args.check);
    waiting::if_asked(session, &waiting, &args.storing, awaited.into_iter().collect()).await
}

async fn pod(
    session: &Session,
    args: &Args,
    name: &str,
    images: &[ContainerImage],
) -> Result<Option<WaitTarget>, Failure> {
    let options = ImageUpdateOptions {
        drain: args.drain,
        deadline: args.deadline,
        ttl: Some(if args.check { CHECK_KEPT_SECONDS } else { KEPT_SECONDS }),
        check: args.check,
    };
    let pod: Pod = session.api().get(name).await?;
    let request = set_image::request(&pod, images, &options).map_err(Failure::invalid)?;
    check_opted_in(session).await?;
    let made = Store::new(session, &args.storing).create(&request).await?;
    Ok(Some(waiting::of(RequestKind::ImageUpdate, &made)))
}

/// Fails without the opt-in, as the request would. If the caller may not read the namespace, the request itself
/// reports it.
async fn check_opted_in(session: &Session) -> Result<(), Failure> {
    let name = &session.namespace;
    let Ok(namespace) = session.cluster::<Namespace>().get(name).await else { return Ok(()) };
    if namespace.labels().get(opt_in::LABEL).is_some_and(|value| value == opt_in::ENABLED) {
        return Ok(());
    }
    Err(Failure::invalid(format!(
        "namespace/{name} has not opted in to image changes (label {}={}): run `kubectl pitstop enable namespace/{name}` first",
        opt_in::LABEL,
        opt_in::ENABLED
    )))
}

async fn workload(
    session: &Session,
    args: &Args,
    kind: TargetKind,
    name: &str,
    images: &[ContainerImage],
) -> Result<Option<WaitTarget>, Failure> {
    let given =
        [("--drain", args.drain.is_some()), ("--deadline", args.deadline.is_some()), ("--check", args.check)];
    if let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(Failure::invalid(format!(
            "{flag} is only for single Pods: a workload's InPlaceRollout has its own strategy"
        )));
    }
    let target = Target::Workload(kind, name.to_owned()).to_string();
    let acting = session.rollout_of(kind, name).await?;
    set_image::check_rollout(&target, acting.as_ref()).map_err(Failure::invalid)?;
    let (store, resource) = (Store::new(session, &args.storing), workload::resource(kind));
    let mut tries = 1;
    let (stored, done) = loop {
        let workload = session.workload(kind, name).await?;
        let Some(change) = set_image::image_change(&workload, images).map_err(Failure::invalid)? else {
            break (workload.object, UNCHANGED);
        };
        match store.patch_quietly(&resource, name, &change).await {
            Err(failure) if failure.class() == Class::Conflict && tries < TRIES => tries += 1,
            stored => break (stored?, "image updated"),
        }
    };
    store.report(&resource, &stored, done)?;
    // A release gives the workload a newer generation than the change before it.
    let generation = |rollout: &InPlaceRollout| match done {
        UNCHANGED => rollout.update_generation(),
        _ => stored.metadata.generation,
    };
    Ok(acting.map(|rollout| WaitTarget {
        kind: RequestKind::Rollout,
        name: rollout.name_any(),
        uid: rollout.uid(),
        goal: generation(&rollout).map_or(Goal::End, Goal::Update),
    }))
}
