//! What is asked about an installation.

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

/// The webhook configuration of pitstop, and of nothing else.
pub const WEBHOOK: &str = "pitstop";
/// That of `OpenKruise`, whose manager cannot run without it (its source at 1.9, chart `kruise`).
pub const KRUISE_WEBHOOK: &str = "kruise-mutating-webhook-configuration";
/// Nobody may create a `NodeWork` of that name: the policy `pitstop-daemon` denies it (docs/adr/0006-see-the-policy-deny.md). No Pod
/// has that name either: it is in the project's own domain.
pub const SELF_CHECK: &str = "self-check.pitstop.dev";

/// What is known of an installation. Lists are bounded by who asks.
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
    /// The definitions of [`expected`](super::expected), by name.
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
    /// Mutating policies with pitstop's label. Missing: the API server does not serve `MutatingAdmissionPolicy` v1 (before 1.36).
    pub mutating: Known<Mutating>,
    /// How the API server answers to the creation of the `NodeWork` [`SELF_CHECK`], as a dry run.
    pub denial: Probe,
    /// The webhook configuration [`WEBHOOK`].
    pub webhook: Known<MutatingWebhookConfiguration>,
    /// When the certificate authorities in it end.
    pub authorities: Vec<Expiry>,
    /// Addresses behind the webhook's Service.
    pub endpoints: Known<Vec<EndpointSlice>>,
    /// How the API server answers to the creation of a `ContainerRecreateRequest` for the Pod [`SELF_CHECK`], as a dry run.
    pub request: Probe,
    /// [`KRUISE_WEBHOOK`].
    pub kruise: Known<MutatingWebhookConfiguration>,
    /// Namespaces that have opted in, by their label.
    pub opted_in: Known<Vec<Namespace>>,
    /// `RoleBinding`s that complete the opt-in, of all namespaces.
    pub opt_in_bindings: Known<Vec<RoleBinding>>,
    /// The role that they bind, of the component `in-place`.
    pub opt_in_role: Known<ClusterRole>,
    /// What the caller may do.
    pub rights: Vec<Right>,
}

/// Mutating policies and bindings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mutating {
    /// Names of the policies.
    pub policies: Vec<String>,
    /// The policies that something binds.
    pub bound: Vec<String>,
}

/// What came back for a dry run: nothing is stored, whatever it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It would be done.
    Allowed,
    /// The API server refuses it.
    Refused {
        /// The HTTP status.
        code: u16,
        /// Its words.
        message: String,
    },
    /// No answer, for this reason.
    Unanswered(String),
}

impl Default for Probe {
    fn default() -> Self {
        Self::Unanswered("it was not asked".to_owned())
    }
}

/// The certificate authorities of one webhook of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The webhook's name.
    pub webhook: String,
    /// When the last of them ends; absent: it has none that can be read.
    pub ends: Option<DateTime<Utc>>,
}

/// Something that the caller may want to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The verb.
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The plural of the kind.
    pub resource: &'static str,
    /// The subresource; empty for the object itself.
    pub subresource: &'static str,
}

/// Whether the caller may do it in the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// It.
    pub wanted: Wanted,
    /// Whether the API server's authorizers allow it.
    pub allowed: Known<bool>,
}
