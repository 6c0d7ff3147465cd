//! The object of ours that owns another object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pitstop_api::GROUP;
use serde::{Deserialize, Serialize};

/// The controlling owner of an object (`metadata.ownerReferences`), of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its `kind`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// The controlling owner, of any kind; an object has at most one.
pub fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The owner that made and manages the object, if it is one of ours.
pub fn owner(metadata: &ObjectMeta) -> Option<Owner> {
    let ours =
        |owner: &&OwnerReference| owner.api_version.split_once('/').is_some_and(|(group, _)| group == GROUP);
    let owner = controller(metadata).filter(ours)?;
    Some(Owner { kind: owner.kind.clone(), name: owner.name.clone(), uid: owner.uid.clone() })
}
