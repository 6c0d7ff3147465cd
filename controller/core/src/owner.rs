//! To which object of ours another one belongs.

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

/// The owner that made the object, and looks after it, if it is one of ours.
pub fn owner(metadata: &ObjectMeta) -> Option<Owner> {
    let ours = |owner: &&OwnerReference| {
        let group = owner.api_version.split_once('/').map(|(group, _)| group);
        owner.controller == Some(true) && group == Some(GROUP)
    };
    let owner = metadata.owner_references.iter().flatten().find(ours)?;
    Some(Owner { kind: owner.kind.clone(), name: owner.name.clone(), uid: owner.uid.clone() })
}
