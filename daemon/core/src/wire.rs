//! Conversion between the stored [`NodeWork`] and the core. Pure, so that the simulator sends and reads what the
//! program does.

use kube::Resource as _;
use kube::core::params::PostParams;
use kube::core::{Request as Builder, request};
use pitstop_api::logic::answer::{Answer, Class};
use pitstop_api::nodework::{NodeWork, NodeWorkSpec, NodeWorkStatus};

use crate::action::{Book, Outcome};

/// The `NodeWork` as the core sees it.
pub fn book(object: NodeWork) -> Book {
    let NodeWork { metadata, spec, status } = object;
    Book {
        uid: metadata.uid.unwrap_or_default(),
        resource_version: metadata.resource_version.unwrap_or_default(),
        generation: metadata.generation,
        orders: spec.orders,
        closed: spec.closed,
        status: status.unwrap_or_default(),
    }
}

/// The request that replaces the status of a node's book, if its version is unchanged.
pub fn write_status(
    node: &str,
    resource_version: String,
    status: NodeWorkStatus,
) -> Result<http::Request<Vec<u8>>, request::Error> {
    // The API server takes the spec of a status write from the stored object.
    let mut object = NodeWork::new(node, NodeWorkSpec::default());
    object.metadata.resource_version = Some(resource_version);
    object.status = Some(status);
    let body = serde_json::to_vec(&object).map_err(request::Error::SerializeBody)?;
    Builder::new(NodeWork::url_path(&(), None)).replace_subresource(
        "status",
        node,
        &PostParams::default(),
        body,
    )
}

/// What the answer to that request means.
pub fn written(answer: &Answer) -> Outcome {
    match answer {
        Answer::Body(text) => {
            serde_json::from_str(text).map_or(Outcome::Retry, |object| Outcome::Written(book(object)))
        }
        Answer::Failed(failure) if failure.gone || failure.class == Class::Conflict => Outcome::Conflict,
        Answer::Failed(_) => Outcome::Retry,
    }
}

#[cfg(test)]
mod tests {
    use pitstop_api::logic::answer::Failure;
    use pitstop_api::nodework::Boot;
    use serde_json::{Value, json};

    use super::*;

    fn stored() -> Value {
        json!({
            "apiVersion": "pitstop.dev/v1alpha1",
            "kind": "NodeWork",
            "metadata": {"name": "node1", "uid": "u-1", "resourceVersion": "7", "generation": 3},
            "spec": {"orders": [{
                "id": "req/app/1",
                "pod": {"namespace": "ns", "name": "web", "uid": "p-1"},
                "container": {"name": "app", "id": "ab"},
                "action": {"recreate": {}},
            }]},
            "status": {"boot": {"id": "boot"}},
        })
    }

    #[test]
    fn a_book_keeps_all_that_decisions_rest_on() {
        let book = book(serde_json::from_value(stored()).unwrap());
        assert_eq!(
            (book.uid.as_str(), book.resource_version.as_str(), book.generation),
            ("u-1", "7", Some(3))
        );
        assert_eq!(book.orders.iter().map(|o| o.id.as_str()).collect::<Vec<_>>(), ["req/app/1"]);
        assert_eq!(book.status.boot, Some(Boot { id: "boot".into() }));
    }

    /// Without the version, a stale daemon's acknowledgement would be accepted.
    #[test]
    fn a_write_names_the_version_that_it_rests_on_and_asks_for_no_orders() {
        let status = NodeWorkStatus { boot: Some(Boot { id: "boot".into() }), ..NodeWorkStatus::default() };
        let request = write_status("node1", "7".into(), status).unwrap();
        assert_eq!(request.method(), "PUT");
        assert_eq!(request.uri().path(), "/apis/pitstop.dev/v1alpha1/nodeworks/node1/status");
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        assert_eq!(body["metadata"], json!({"name": "node1", "resourceVersion": "7"}));
        assert_eq!((&body["spec"], &body["status"]), (&json!({}), &json!({"boot": {"id": "boot"}})));
    }

    #[test]
    fn a_write_that_took_effect_shows_the_book_as_stored() {
        let outcome = written(&Answer::Body(stored().to_string()));
        assert!(matches!(outcome, Outcome::Written(book) if book.resource_version == "7"));
    }

    #[test]
    fn a_book_that_moved_on_or_is_gone_is_looked_at_again_and_any_other_failure_is_tried_again() {
        for code in [404, 409] {
            let outcome = written(&Answer::Failed(Failure::of_code(code, "")));
            assert!(matches!(outcome, Outcome::Conflict), "{code}");
        }
        // An API server that has just started refuses everything until it has read the roles.
        for code in [401, 403, 422, 429, 500, 503] {
            let outcome = written(&Answer::Failed(Failure::of_code(code, "")));
            assert!(matches!(outcome, Outcome::Retry), "{code}");
        }
        let cut = written(&Answer::Body("{".into()));
        assert!(matches!(cut, Outcome::Retry), "whether it took effect is not known");
    }
}
