//! The facts that `doctor` judges.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use pitstop_api::nodework::NodeWork;

use crate::known::Known;

/// Name of pitstop's own webhook configuration.
pub const WEBHOOK: &str = "pitstop";
/// Name of `OpenKruise`'s, without which its manager cannot run (its source at 1.9, chart `kruise`).
pub const KRUISE_WEBHOOK: &str = "kruise-mutating-webhook-configuration";
/// The policy `pitstop-daemon` denies every creation of a `NodeWork` with this name
/// (docs/adr/0006-see-the-policy-deny.md). No Pod has this name either: it is in the project's own domain.
pub const SELF_CHECK: &str = "self-check.pitstop.dev";

/// Facts about an installation. The caller bounds the lists.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The namespace of the two programs.
    pub system: String,
    /// The namespace that the caller works in.
    pub namespace: String,
    /// The version of this program.
    pub version: String,
    /// The API server's time, from the `Date` header of an answer: in whole seconds.
    pub now: Known<DateTime<Utc>>,
    /// The definitions of [`definition_names`](super::definition_names), by name.
    pub definitions: BTreeMap<String, Known<CustomResourceDefinition>>,
    /// Deployments of the controller.
    pub deployments: Known<Vec<Deployment>>,
    /// `DaemonSet`s of the daemon: one for each runtime.
    pub daemon_sets: Known<Vec<DaemonSet>>,
    /// Pods of both programs.
    pub pods: Known<Vec<Pod>>,
    /// The Lease of the leader.
    pub lease: Known<Lease>,
    /// All nodes.
    pub nodes: Known<Vec<Node>>,
    /// All order books.
    pub books: Known<Vec<NodeWork>>,
    /// Admission policies with pitstop's label.
    pub policies: Known<Vec<ValidatingAdmissionPolicy>>,
    /// Their bindings.
    pub bindings: Known<Vec<ValidatingAdmissionPolicyBinding>>,
    /// Mutating policies with pitstop's label. Missing: the API server does not serve `MutatingAdmissionPolicy` v1
    /// (before 1.36).
    pub mutating: Known<Mutating>,
    /// The API server's answer to a dry-run creation of the `NodeWork` [`SELF_CHECK`].
    pub denial: Probe,
    /// The webhook configuration [`WEBHOOK`].
    pub webhook: Known<MutatingWebhookConfiguration>,
    /// Expiry of the certificate authorities in it.
    pub authorities: Vec<Expiry>,
    /// Addresses behind the webhook's Service.
    pub endpoints: Known<Vec<EndpointSlice>>,
    /// The API server's answer to a dry-run creation of a `ContainerRecreateRequest` for the Pod [`SELF_CHECK`].
    pub request: Probe,
    /// The webhook configuration [`KRUISE_WEBHOOK`].
    pub kruise: Known<MutatingWebhookConfiguration>,
    /// Namespaces with the opt-in label.
    pub opted_in: Known<Vec<Namespace>>,
    /// `RoleBinding`s that complete the opt-in, of all namespaces.
    pub opt_in_bindings: Known<Vec<RoleBinding>>,
    /// The role that these bind, from the component `in-place`.
    pub opt_in_role: Known<ClusterRole>,
    /// The caller's rights.
    pub rights: Vec<RightReview>,
}

/// Mutating policies and bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mutating {
    /// Names of the policies.
    pub policies: Vec<String>,
    /// Names of the policies that have a binding.
    pub bound: Vec<String>,
}

/// The answer to a dry run, which stores nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// The API server would do it.
    Allowed,
    /// The API server refuses it.
    Refused {
        /// The HTTP status.
        code: u16,
        /// The API server's message.
        message: String,
    },
    /// No answer, for this reason.
    Unanswered(String),
}

impl Default for Probe {
    fn default() -> Self {
        Self::Unanswered("not asked".to_owned())
    }
}

/// The certificate authorities of one webhook of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The webhook's name.
    pub webhook: String,
    /// When the last of them expires; `None`: none is readable.
    pub ends: Option<DateTime<Utc>>,
}

/// A right that the caller may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// The verb.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural of the kind.
    pub resource: &'static str,
    /// The subresource; empty for the object itself.
    pub subresource: &'static str,
}

/// Whether the caller has a right in the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RightReview {
    /// The right.
    pub right: Right,
    /// Whether the API server's authorizers allow it.
    pub allowed: Known<bool>,
}
