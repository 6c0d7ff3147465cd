//! Reads the facts before an uninstallation, all in parallel, in all namespaces.

use std::fmt::Debug;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::nodework::NodeWork;
use pitstop_api::readiness;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_api::resize::PodResize;
use pitstop_api::rollout::{InPlaceRollout, TargetKind};
use pitstop_cli_core::doctor::remains::{Gated, Remains, Requests, Workload, name};
use pitstop_cli_core::known::Known;
use pitstop_cli_core::opt_in::ENABLED;
use pitstop_cli_core::summary::{Request, is_at_work};
use pitstop_cli_core::target::RequestKind;
use pitstop_cli_core::workload::resource;
use serde::de::DeserializeOwned;

use super::gather::{labelled, opt_in};
use super::probes;
use crate::failure::Failure;
use crate::session::Session;

/// All readable facts. Fails only if the API server does not answer at all.
pub(super) async fn facts(session: &Session, system: &str) -> Result<Remains, Failure> {
    probes::lease(session, system).await?;
    let gates = labelled(&format!("{}={ENABLED}", readiness::OPT_IN));
    let (rollouts, restarts, resizes, updates, books, pods, workloads, opt_in, gates) = futures::join!(
        requests::<InPlaceRollout>(session),
        requests::<ContainerRecreateRequest>(session),
        requests::<PodResize>(session),
        requests::<PodImageUpdate>(session),
        session.known_list(session.cluster::<NodeWork>(), ListParams::default()),
        session
            .known_some(Api::all(session.client.clone()), ListParams::default(), |pod: Pod| Gated::of(&pod)),
        workloads(session),
        opt_in(session),
        session.known_list(session.cluster::<Namespace>(), gates),
    );
    let (opted_in, bindings, _) = opt_in;
    let requests = vec![rollouts, restarts, resizes, updates];
    Ok(Remains { requests, books, pods, workloads, opted_in, bindings, gates })
}

async fn requests<R>(session: &Session) -> (RequestKind, Known<Requests>)
where
    R: Request + Clone + Debug + DeserializeOwned,
{
    let mut ended = 0_usize;
    let of = |request: R| {
        let at_work = is_at_work(&request).then(|| name(&request));
        ended = ended.saturating_add(usize::from(at_work.is_none()));
        at_work
    };
    let at_work = session.known_some(Api::all(session.client.clone()), ListParams::default(), of).await;
    (R::KIND, at_work.map(|at_work| Requests { at_work, ended }))
}

async fn workloads(session: &Session) -> Vec<(TargetKind, Known<Vec<Workload>>)> {
    let kinds = [TargetKind::Deployment, TargetKind::StatefulSet, TargetKind::DaemonSet];
    let of = |kind: TargetKind| async move {
        let api = Api::all_with(session.client.clone(), &resource(kind));
        let some = session.known_some(api, ListParams::default(), |it: DynamicObject| Workload::of(&it));
        (kind, some.await)
    };
    join_all(kinds.map(of)).await
}
