//! Reads policies and webhooks.

use chrono::{DateTime, Utc};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use pitstop_cli_core::doctor::{Expiry, Facts, KRUISE_WEBHOOK, Mutating, WEBHOOK};
use pitstop_cli_core::known::Known;
use x509_parser::pem::Pem;

use super::gather::{PITSTOP, labelled};
use crate::session::{Session, known};

/// Only the facts about admission.
pub(super) async fn facts(session: &Session, system: &str) -> Facts {
    let webhooks = session.cluster::<MutatingWebhookConfiguration>();
    let slices = labelled("kubernetes.io/service-name=pitstop-webhook");
    let (policies, bindings, mutating, webhook, kruise, endpoints) = futures::join!(
        session.known_list(session.cluster::<ValidatingAdmissionPolicy>(), labelled(PITSTOP)),
        session.known_list(session.cluster::<ValidatingAdmissionPolicyBinding>(), labelled(PITSTOP)),
        mutating(session),
        webhooks.get_opt(WEBHOOK),
        webhooks.get_opt(KRUISE_WEBHOOK),
        session.known_list(Api::<EndpointSlice>::namespaced(session.client.clone(), system), slices),
    );
    let webhook = known(webhook, |it| it);
    let authorities =
        webhook.get().into_iter().flat_map(|it| it.webhooks.iter().flatten()).map(expiry).collect();
    let kruise = known(kruise, |it| it);
    Facts { policies, bindings, mutating, authorities, webhook, kruise, endpoints, ..Facts::default() }
}

/// Mutating policies: a kind that the API server serves from Kubernetes 1.36 on.
async fn mutating(session: &Session) -> Known<Mutating> {
    let of = |kind: &str| {
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        Api::<DynamicObject>::all_with(session.client.clone(), &ApiResource::from_gvk(&kind))
    };
    // `from_gvk` makes the plural by English grammar: mutatingadmissionpolicies.
    let (policies, bindings) = futures::join!(
        session.known_list(of("MutatingAdmissionPolicy"), labelled(PITSTOP)),
        session.known_list(of("MutatingAdmissionPolicyBinding"), labelled(PITSTOP)),
    );
    let bound = match bindings {
        Known::Is(bindings) => bindings,
        Known::Missing => return Known::Missing,
        Known::Unread(why) => return Known::Unread(why),
    };
    let policy = |it: &DynamicObject| Some(it.data.pointer("/spec/policyName")?.as_str()?.to_owned());
    let bound = bound.iter().filter_map(policy).collect();
    match policies {
        Known::Is(policies) => Known::Is(Mutating {
            policies: policies.iter().map(kube::ResourceExt::name_any).collect(),
            bound,
        }),
        Known::Missing => Known::Missing,
        Known::Unread(why) => Known::Unread(why),
    }
}

/// The API server accepts any authority of a bundle, so the last to expire counts.
fn expiry(webhook: &MutatingWebhook) -> Expiry {
    let bundle = webhook.client_config.ca_bundle.as_ref().map(|it| it.0.as_slice()).unwrap_or_default();
    Expiry { webhook: webhook.name.clone(), ends: ends(bundle) }
}

fn ends(bundle: &[u8]) -> Option<DateTime<Utc>> {
    let certificates = Pem::iter_from_buffer(bundle).flatten();
    let ends = certificates.filter_map(|pem| Some(pem.parse_x509().ok()?.validity().not_after.timestamp()));
    DateTime::from_timestamp(ends.max()?, 0)
}
