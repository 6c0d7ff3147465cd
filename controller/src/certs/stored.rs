//! Reads and writes the Secret that all replicas share, and the `caBundle` of the webhook's configuration.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::material::Material;

/// Field manager of the writes.
const FIELD_MANAGER: &str = "pitstop-controller";

/// Where another version of pitstop kept a CA's key. The next write removes it.
const CA_KEY: &str = "ca.key";

/// The Secret as it was last seen.
pub struct SecretView {
    /// Its version, the precondition of the next write.
    version: Option<String>,
    /// What it holds.
    pub material: Material,
}

impl SecretView {
    /// Reads the object, and does not keep it.
    pub fn new(secret: Secret) -> Self {
        let mut data = secret.data.unwrap_or_default();
        let mut take = |key| data.remove(key).map(|bytes| bytes.0).unwrap_or_default();
        let material =
            Material { ca_crt: take("ca.crt"), tls_crt: take("tls.crt"), tls_key: take("tls.key") };
        Self { version: secret.metadata.resource_version, material }
    }
}

/// Writes the Secret if it is still as `seen`, or still absent.
pub async fn write(
    client: &Client,
    namespace: &str,
    name: &str,
    seen: Option<&SecretView>,
    new: Material,
) -> kube::Result<SecretView> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let data = [("ca.crt", new.ca_crt), ("tls.crt", new.tls_crt), ("tls.key", new.tls_key)];
    let data = data.map(|(key, bytes)| (key.to_owned(), ByteString(bytes)));
    let written = if let Some(seen) = seen {
        // A merge patch keeps the labels of the Secret's creator. The API server refuses it if its version is stale.
        let metadata = json!({"resourceVersion": seen.version});
        let mut data: BTreeMap<_, _> = data.map(|(key, bytes)| (key, Some(bytes))).into();
        data.insert(CA_KEY.to_owned(), None);
        let patch = json!({"metadata": metadata, "data": data});
        api.patch(name, &params(), &Patch::Merge(patch)).await?
    } else {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let secret = Secret { metadata, data: Some(data.into()), ..Secret::default() };
        let params = PostParams { field_manager: params().field_manager, ..PostParams::default() };
        api.create(&params, &secret).await?
    };
    Ok(SecretView::new(written))
}

/// The webhook's configuration as it was last seen; empty if it is absent.
#[derive(Default)]
pub struct WebhookView {
    /// Its version, the precondition of the next write.
    version: Option<String>,
    /// Name and `caBundle` of each webhook.
    webhooks: Vec<(String, Vec<u8>)>,
}

impl WebhookView {
    /// Reads the object, and does not keep it.
    pub fn new(configuration: MutatingWebhookConfiguration) -> Self {
        let webhooks = configuration.webhooks.unwrap_or_default().into_iter();
        let bundle = |bundle: Option<ByteString>| bundle.map(|bytes| bytes.0).unwrap_or_default();
        Self {
            version: configuration.metadata.resource_version,
            webhooks: webhooks
                .map(|webhook| (webhook.name, bundle(webhook.client_config.ca_bundle)))
                .collect(),
        }
    }

    /// Whether it has no webhook.
    pub fn is_empty(&self) -> bool {
        self.webhooks.is_empty()
    }

    /// Whether all its webhooks trust exactly this bundle.
    pub fn publishes(&self, bundle: &str) -> bool {
        self.webhooks.iter().all(|(_, published)| published == bundle.as_bytes())
    }
}

/// Writes the bundle into every webhook of the configuration, if that is still as `seen`.
pub async fn publish(
    client: &Client,
    name: &str,
    seen: &WebhookView,
    bundle: &str,
) -> kube::Result<WebhookView> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let bundle = ByteString(bundle.into());
    let webhook = |name| json!({"name": name, "clientConfig": {"caBundle": bundle}});
    let webhooks: Vec<_> = seen.webhooks.iter().map(|(name, _)| webhook(name)).collect();
    // Webhooks are merged by name, so their other fields stay.
    let patch = json!({"metadata": {"resourceVersion": seen.version}, "webhooks": webhooks});
    Ok(WebhookView::new(api.patch(name, &params(), &Patch::Strategic(patch)).await?))
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}
