//! Lists the objects of a tree, in parallel.

use std::fmt::Debug;

use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource};
use pitstop_cli_core::scope::{Scope, Select};
use pitstop_cli_core::tree::Objects;
use pitstop_kit::describe;
use serde::de::DeserializeOwned;

use crate::failure::Failure;
use crate::session::Session;

/// Objects in one answer of the API server.
const PAGE: u32 = 500;
/// Most objects of one kind in a tree.
pub(super) const MOST: usize = 20_000;

/// All objects as they are now. The tree shows which kinds the caller may not read, or are not installed. Fails if the
/// API server does not answer.
pub(in crate::commands) async fn all(session: &Session, scope: &Scope) -> Result<Objects, Failure> {
    let (rollouts, restarts, resizes, updates, pods) = futures::try_join!(
        list(session.api_of(scope), scope.rollouts.as_ref()),
        list(session.api_of(scope), scope.restarts.as_ref()),
        list(session.api_of(scope), scope.resizes.as_ref()),
        list(session.api_of(scope), scope.updates.as_ref()),
        list(session.api_of(scope), scope.pods.as_ref()),
    )?;
    let unread = [rollouts.1, restarts.1, resizes.1, updates.1, pods.1].into_iter().flatten().collect();
    let (rollouts, restarts, resizes, updates, pods) = (rollouts.0, restarts.0, resizes.0, updates.0, pods.0);
    Ok(Objects { rollouts, restarts, resizes, updates, pods, unread })
}

type Read<K> = (Vec<K>, Option<String>);

async fn list<K>(api: Api<K>, select: Option<&Select>) -> Result<Read<K>, Failure>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let Some(select) = select else { return Ok((Vec::new(), None)) };
    let mut page = ListParams::default().limit(PAGE).labels(&select.labels).fields(&select.fields);
    let mut all = Vec::new();
    loop {
        let answer = match api.list(&page).await {
            Ok(answer) => answer,
            Err(error) => return unread::<K>(&error).map(|why| (all, Some(why))).ok_or_else(|| error.into()),
        };
        all.extend(answer.items);
        if all.len() >= MOST {
            let why = format!("{}: only the first {} are shown", K::plural(&()), all.len());
            return Ok((all, Some(why)));
        }
        match answer.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => page = page.continue_token(&more),
            None => return Ok((all, None)),
        }
    }
}

/// Why objects of a kind cannot be read; `None` if the command must fail.
pub(super) fn unread<K: Resource<DynamicType = ()>>(error: &kube::Error) -> Option<String> {
    let kube::Error::Api(status) = error else { return None };
    match status.code {
        403 => Some(format!("{} cannot be read: {}", K::plural(&()), describe(error))),
        404 => Some(format!(
            "{} are not served by the API server: pitstop is not installed, or only in part",
            K::plural(&())
        )),
        _ => None,
    }
}
