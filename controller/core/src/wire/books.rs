//! Writes of order books.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::params::{GetParams, Patch, PatchParams, PostParams};
use kube::core::{PartialObjectMeta, Request as Builder, request};
use pitstop_api::logic::answer::{Answer, Failure};
use pitstop_api::nodework::{NodeWork as NodeWorkObject, NodeWorkSpec, Order};
use serde_json::{Value, json};

use super::exchange::parse;
use super::requests::{HttpRequest, json_patch};
use crate::action::Basis;

/// A book that gets an owner.
#[derive(Clone, Debug)]
pub(super) enum NewBook {
    /// A new one, with these orders.
    Made(Vec<Order>),
    /// An existing one, with this change.
    Adopted(Value),
}

/// The first answer.
pub(super) enum First {
    /// The stored book.
    Stored,
    /// The stored book, if it passes the tests of the patch.
    Tested,
    /// The node's metadata, for the owner of the book.
    Owner(NewBook),
}

/// The first answer that a write of a node's orders awaits, and the request.
pub(super) fn write(
    node: &str,
    basis: Basis,
    orders: Vec<Order>,
    closed: Vec<String>,
    adopt: bool,
) -> (First, Result<HttpRequest, request::Error>) {
    let book = match basis {
        Basis::Orders { uid, generation } => {
            return (First::Tested, add(node, &uid, generation, &orders));
        }
        Basis::Absent => NewBook::Made(orders),
        Basis::Version(version) => {
            // `None` removes the field from the stored book.
            let closed = (!closed.is_empty()).then_some(closed);
            let change = json!({"metadata": {"resourceVersion": version},
                "spec": {"orders": orders, "closed": closed}});
            if !adopt {
                return (First::Stored, patch(node, change));
            }
            NewBook::Adopted(change)
        }
    };
    let request = Builder::new(Node::url_path(&(), None)).get_metadata(node, &GetParams::default());
    (First::Owner(book), request)
}

/// Replaces the orders of a book if no controller has written it since, whatever its daemon has answered: answers do
/// not raise the generation, and the API server repeats a patch without a version when another write comes between.
fn add(node: &str, uid: &str, generation: i64, orders: &[Order]) -> Result<HttpRequest, request::Error> {
    let patch = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": uid}),
        json!({"op": "test", "path": "/metadata/generation", "value": generation}),
        json!({"op": "add", "path": "/spec/orders", "value": orders}),
    ];
    json_patch(&books(), node, patch)
}

/// The owner of a book, so that it is deleted with its node. If the node does not exist, no book is made: nothing would
/// ever delete it.
pub(super) fn owner(node: &str, answer: Answer) -> Result<OwnerReference, Failure> {
    match answer {
        Answer::Body(text) => Ok(OwnerReference {
            api_version: Node::api_version(&()).into_owned(),
            kind: Node::kind(&()).into_owned(),
            name: node.to_owned(),
            uid: parse::<PartialObjectMeta<Node>>(&text)?.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        }),
        Answer::Failed(failure) => Err(failure),
    }
}

pub(super) fn patch(node: &str, change: Value) -> Result<HttpRequest, request::Error> {
    books().patch(node, &PatchParams::default(), &Patch::Merge(change))
}

/// The same change, with the book's owner.
pub(super) fn adopted(mut change: Value, owner: &OwnerReference) -> Value {
    if let Some(metadata) = change.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("ownerReferences".into(), json!([owner]));
    }
    change
}

pub(super) fn create(
    node: &str,
    owner: OwnerReference,
    orders: Vec<Order>,
) -> Result<HttpRequest, request::Error> {
    let mut object = NodeWorkObject::new(node, NodeWorkSpec { orders, ..NodeWorkSpec::default() });
    object.metadata.owner_references = Some(vec![owner]);
    let body = serde_json::to_vec(&object).map_err(request::Error::SerializeBody)?;
    books().create(&PostParams::default(), body)
}

fn books() -> Builder {
    Builder::new(NodeWorkObject::url_path(&(), None))
}
