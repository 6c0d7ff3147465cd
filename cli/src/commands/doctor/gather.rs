//! Reads the facts about an installation, all in parallel.

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::ListParams;
use pitstop_api::nodework::NodeWork;
use pitstop_cli_core::doctor::{Facts, definition_names};
use pitstop_cli_core::known::Known;
use pitstop_cli_core::opt_in;

use super::{admission, probes};
use crate::failure::Failure;
use crate::session::{Session, known};

/// The label of all of pitstop's own objects.
pub(super) const PITSTOP: &str = "app.kubernetes.io/name=pitstop";
const CONTROLLER: &str = "app.kubernetes.io/name=pitstop,app.kubernetes.io/component=controller";
const DAEMON: &str = "app.kubernetes.io/name=pitstop,app.kubernetes.io/component=daemon";

/// All readable facts. Fails only if the API server does not answer at all.
pub(super) async fn facts(session: &Session, system: &str) -> Result<Facts, Failure> {
    let (leader, programs, admission, cluster, opt_in, probes) = futures::join!(
        probes::lease(session, system),
        programs(session, system),
        admission::facts(session, system),
        cluster(session),
        opt_in(session),
        probes::run(session),
    );
    let (lease, now) = leader?;
    let (deployments, daemon_sets, pods) = programs;
    let (definitions, nodes, books) = cluster;
    let (opted_in, opt_in_bindings, opt_in_role) = opt_in;
    let (denial, request, rights) = probes;
    Ok(Facts {
        system: system.to_owned(),
        namespace: session.namespace.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        lease,
        now,
        deployments,
        daemon_sets,
        pods,
        definitions,
        nodes,
        books,
        opted_in,
        opt_in_bindings,
        opt_in_role,
        denial,
        request,
        rights,
        ..admission
    })
}

async fn programs(
    session: &Session,
    system: &str,
) -> (
    Known<Vec<k8s_openapi::api::apps::v1::Deployment>>,
    Known<Vec<k8s_openapi::api::apps::v1::DaemonSet>>,
    Known<Vec<k8s_openapi::api::core::v1::Pod>>,
) {
    futures::join!(
        session.known_list(Api::namespaced(session.client.clone(), system), labelled(CONTROLLER)),
        session.known_list(Api::namespaced(session.client.clone(), system), labelled(DAEMON)),
        session.known_list(Api::namespaced(session.client.clone(), system), labelled(PITSTOP)),
    )
}

type Definitions = std::collections::BTreeMap<String, Known<CustomResourceDefinition>>;

async fn cluster(session: &Session) -> (Definitions, Known<Vec<Node>>, Known<Vec<NodeWork>>) {
    let api = session.cluster::<CustomResourceDefinition>();
    let definitions = join_all(definition_names().into_iter().map(|name| {
        let api = &api;
        async move {
            let found = known(api.get_opt(&name).await, |it| it);
            (name, found)
        }
    }));
    let (definitions, nodes, books) = futures::join!(
        definitions,
        session.known_list(session.cluster::<Node>(), ListParams::default()),
        session.known_list(session.cluster::<NodeWork>(), ListParams::default()),
    );
    (definitions.into_iter().collect(), nodes, books)
}

/// The opt-in to image changes: namespaces, `RoleBinding`s, and the role.
pub(super) async fn opt_in(
    session: &Session,
) -> (Known<Vec<Namespace>>, Known<Vec<RoleBinding>>, Known<ClusterRole>) {
    let label = format!("{}={}", opt_in::LABEL, opt_in::ENABLED);
    let bindings = ListParams::default().fields(&format!("metadata.name={}", opt_in::ROLE));
    let roles = session.cluster::<ClusterRole>();
    let (namespaces, bindings, role) = futures::join!(
        session.known_list(session.cluster::<Namespace>(), labelled(&label)),
        session.known_list(Api::all(session.client.clone()), bindings),
        roles.get_opt(opt_in::ROLE),
    );
    (namespaces, bindings, known(role, |it| it))
}

/// Objects with these labels.
pub(super) fn labelled(labels: &str) -> ListParams {
    ListParams::default().labels(labels)
}
