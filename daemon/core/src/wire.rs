//! Between the stored [`NodeWork`] and decisions; pure, so that the simulator sends and reads what the program does.

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
        status: status.unwrap_or_default(),
    }
}

/// The request that replaces the status of a node's book, if it is still that version.
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
