//! What the types of fields say about merging: which lists are maps or sets, what is atomic.

use crate::server::kinds::{Family, Kind};
use crate::server::schema::{List, Schema};

/// The type of one place in an object.
#[derive(Clone, Debug)]
pub(super) enum Type<'a> {
    /// Of a custom resource's root, with its schema.
    Root(&'a Schema),
    /// Of a part of a custom resource.
    Schema(&'a Schema),
    /// Of a built-in kind, or of the metadata of any, by its path.
    Path(Family, String),
    /// Nobody says; nothing below it is told apart.
    Unknown,
}

impl<'a> Type<'a> {
    pub(super) fn of(kind: &'a Kind) -> Self {
        match &kind.schema {
            Some(schema) => Self::Root(schema),
            None => Self::Path(kind.family, String::new()),
        }
    }

    /// The type of a field.
    pub(super) fn field(&self, name: &str) -> Self {
        match self {
            Self::Root(schema) => match (name, schema.properties.get(name)) {
                ("metadata" | "kind" | "apiVersion", _) => Self::Path(Family::Custom, name.to_owned()),
                (_, Some(field)) => Self::Schema(field),
                (_, None) => Self::Unknown,
            },
            Self::Schema(schema) => match schema.properties.get(name).or(schema.additional.as_deref()) {
                Some(field) => Self::Schema(field),
                None => Self::Unknown,
            },
            Self::Path(family, path) if path.is_empty() => Self::Path(*family, name.to_owned()),
            Self::Path(family, path) => Self::Path(*family, format!("{path}.{name}")),
            Self::Unknown => Self::Unknown,
        }
    }

    /// The type of a list's elements.
    pub(super) fn item(&self) -> Self {
        match self {
            Self::Schema(schema) => schema.items.as_deref().map_or(Self::Unknown, Self::Schema),
            Self::Path(family, path) => Self::Path(*family, path.clone()),
            Self::Root(_) | Self::Unknown => Self::Unknown,
        }
    }

    /// Whether a field is one that the type names, and not a key of a map.
    pub(super) fn declares(&self, name: &str) -> bool {
        match self {
            Self::Root(schema) | Self::Schema(schema) => {
                schema.properties.contains_key(name) || matches!((self, name), (Self::Root(_), "metadata"))
            }
            Self::Path(_, path) => !is_map(path),
            Self::Unknown => false,
        }
    }

    /// Whether a field may be there at all. Of built-in kinds only the uppermost fields are known.
    pub(super) fn knows(&self, name: &str) -> bool {
        match self {
            Self::Root(schema) => {
                schema.properties.contains_key(name) || matches!(name, "apiVersion" | "kind" | "metadata")
            }
            Self::Schema(schema) => {
                schema.properties.contains_key(name) || schema.additional.is_some() || schema.preserve
            }
            Self::Path(family, path) if path.is_empty() => {
                let own: &[&str] = match family {
                    Family::ConfigMap => &["data", "binaryData", "immutable"],
                    Family::Pod | Family::Node | Family::Namespace | Family::Bounds => &["spec", "status"],
                    Family::Lease => &["spec"],
                    Family::Event | Family::Custom => return true,
                };
                own.contains(&name) || matches!(name, "apiVersion" | "kind" | "metadata")
            }
            Self::Path(..) | Self::Unknown => true,
        }
    }

    /// Whether an object is merged as one.
    pub(super) fn is_atomic(&self) -> bool {
        match self {
            Self::Path(_, path) => {
                matches!(
                    path.as_str(),
                    "metadata.ownerReferences" | "spec.nodeSelector" | "spec.imagePullSecrets"
                ) || path.ends_with("KeyRef")
                    || path.ends_with("fieldRef")
            }
            Self::Unknown => true,
            Self::Root(_) | Self::Schema(_) => false,
        }
    }

    /// How elements of a list are told apart.
    pub(super) fn list(&self) -> List {
        let (family, path) = match self {
            Self::Schema(schema) => return schema.list.clone(),
            Self::Path(family, path) => (*family, path.as_str()),
            Self::Root(_) | Self::Unknown => return List::Atomic,
        };
        let by = |keys: &[&str]| List::Map(keys.iter().map(|&key| key.to_owned()).collect());
        match (family, path) {
            (_, "metadata.finalizers") | (Family::Node, "spec.podCIDRs") => List::Set,
            (_, "metadata.ownerReferences") => by(&["uid"]),
            (Family::Pod | Family::Node | Family::Namespace, "status.conditions")
            | (Family::Node, "status.addresses") => by(&["type"]),
            (
                Family::Pod,
                "spec.containers"
                | "spec.initContainers"
                | "spec.ephemeralContainers"
                | "spec.volumes"
                | "spec.imagePullSecrets"
                | "spec.schedulingGates"
                | "spec.containers.env"
                | "spec.initContainers.env",
            ) => by(&["name"]),
            (Family::Pod, "spec.containers.ports" | "spec.initContainers.ports") => {
                by(&["containerPort", "protocol"])
            }
            (Family::Pod, "spec.containers.volumeMounts" | "spec.initContainers.volumeMounts") => {
                by(&["mountPath"])
            }
            (Family::Pod, "spec.hostAliases" | "status.podIPs") => by(&["ip"]),
            (Family::Pod, "spec.topologySpreadConstraints") => by(&["topologyKey", "whenUnsatisfiable"]),
            _ => List::Atomic,
        }
    }
}

/// Whether fields of a built-in kind's place are keys of a map.
fn is_map(path: &str) -> bool {
    matches!(path, "metadata.labels" | "metadata.annotations" | "data" | "binaryData")
        || path.ends_with("resources.limits")
        || path.ends_with("resources.requests")
        || matches!(path, "status.capacity" | "status.allocatable")
}
