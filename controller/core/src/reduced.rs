//! An object of a user, reduced to what decisions need.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::key::ObjectKey;
use crate::kind::{Head, Meta};
use crate::owner::{Owner, owner};
use crate::tracked::Versioned;

/// The object. `More`: metadata that only its kind reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reduced<Spec, Status, More = ()> {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// `metadata.creationTimestamp`, in seconds; only compared with other objects of the same API server.
    pub created: i64,
    /// `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The request that owns it.
    pub owner: Option<Owner>,
    /// `spec`.
    pub spec: Spec,
    /// `status`.
    pub status: Status,
    /// What its kind keeps besides.
    pub more: More,
}

impl<Spec, Status: Default, More> Reduced<Spec, Status, More> {
    /// From the parts of the API object.
    pub fn of(metadata: ObjectMeta, spec: Spec, status: Option<Status>, more: More) -> Self {
        Self {
            key: ObjectKey::of(&metadata),
            owner: owner(&metadata),
            generation: metadata.generation,
            created: metadata.creation_timestamp.map_or(0, |t| t.0.as_second()),
            deleting: metadata.deletion_timestamp.is_some(),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            spec,
            status: status.unwrap_or_default(),
            more,
        }
    }
}

impl<Spec, Status, More> Versioned for Reduced<Spec, Status, More> {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl<Spec, Status, More> Head for Reduced<Spec, Status, More> {
    type Status = Status;

    fn meta(&self) -> Meta<'_> {
        Meta { key: &self.key, created: self.created, deleting: self.deleting, owner: self.owner.as_ref() }
    }
    fn status(&self) -> &Status {
        &self.status
    }
}
