//! Answers of the API server: the time, dry runs that it must refuse, and the caller's rights.

use chrono::{DateTime, Utc};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource as _;
use kube::api::{GetParams, PostParams};
use kube::client::Body;
use kube::core::{Request, Status};
use pitstop_api::nodework::{NodeWork, NodeWorkSpec};
use pitstop_api::recreate::{ContainerRecreateRequest, ContainerRecreateRequestSpec, RecreateContainer};
use pitstop_cli_core::doctor::{Probe, Right, RightReview, SELF_CHECK, needed_rights};
use pitstop_cli_core::known::Known;
use pitstop_kit::describe;

use crate::failure::Failure;
use crate::session::{Session, known};

/// The Lease that elects the leader (controller/src/election.rs).
const LEASE: &str = "pitstop-controller";
/// Rights that are checked at a time.
const AT_ONCE: usize = 8;

/// The Lease, and the time of the API server's answer. Fails if the API server does not answer.
pub(super) async fn lease(
    session: &Session,
    system: &str,
) -> Result<(Known<Lease>, Known<DateTime<Utc>>), Failure> {
    let request = Request::new(Lease::url_path(&(), Some(system))).get(LEASE, &GetParams::default());
    let request = request.map_err(|error| Failure::local("cannot ask for the Lease", &error))?;
    let response = session.client.send(request.map(Body::from)).await?;
    let date = response.headers().get("date").and_then(|it| it.to_str().ok());
    // HTTP's own form of a date (RFC 9110, 5.6.7) is one of RFC 2822.
    let now = date.and_then(|it| DateTime::parse_from_rfc2822(it).ok()).map(|it| it.to_utc());
    let now = now.map_or(Known::Missing, Known::Is);
    let code = response.status().as_u16();
    let body = response.into_body().collect_bytes().await?;
    let lease = if (200..300).contains(&code) {
        serde_json::from_slice(&body).map_or_else(|error| Known::Unread(describe(&error)), Known::Is)
    } else if code == 404 {
        Known::Missing
    } else {
        let status = serde_json::from_slice::<Status>(&body).unwrap_or_default().with_code(code);
        Known::Unread(describe(&kube::Error::Api(Box::new(status))))
    };
    Ok((lease, now))
}

/// Dry runs, and rights. Nothing is stored.
pub(super) async fn run(session: &Session) -> (Probe, Probe, Vec<RightReview>) {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let book = NodeWork::new(SELF_CHECK, NodeWorkSpec::default());
    let container = RecreateContainer { name: "app".to_owned(), ..RecreateContainer::default() };
    let spec = ContainerRecreateRequestSpec {
        pod_name: SELF_CHECK.to_owned(),
        containers: vec![container],
        ..ContainerRecreateRequestSpec::default()
    };
    let request = ContainerRecreateRequest::new(SELF_CHECK, spec);
    let (books, requests) = (session.cluster::<NodeWork>(), session.api::<ContainerRecreateRequest>());
    let reviews = stream::iter(needed_rights()).map(|it| review(session, it));
    let rights = reviews.buffered(AT_ONCE).collect::<Vec<_>>();
    let (book, request, rights) =
        futures::join!(books.create(&dry, &book), requests.create(&dry, &request), rights);
    (probe(book.err()), probe(request.err()), rights)
}

fn probe(error: Option<kube::Error>) -> Probe {
    match error {
        None => Probe::Allowed,
        Some(error) => match &error {
            kube::Error::Api(status) => Probe::Refused { code: status.code, message: describe(&error) },
            _ => Probe::Unanswered(describe(&error)),
        },
    }
}

async fn review(session: &Session, right: Right) -> RightReview {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let attributes = ResourceAttributes {
        namespace: some(&session.namespace),
        verb: some(right.verb),
        group: some(right.group),
        resource: some(right.resource),
        subresource: some(right.subresource),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = session.cluster().create(&PostParams::default(), &review).await;
    let allowed =
        known(answer.map(Some), |it: SelfSubjectAccessReview| it.status.is_some_and(|it| it.allowed));
    RightReview { right, allowed }
}
