//! The `caBundle` in the webhook's configuration.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::FIELD_MANAGER;

/// The configuration as it was last seen.
#[derive(Clone, Debug)]
pub struct WebhookView {
    /// Its version, the precondition of the next write.
    pub resource_version: String,
    /// The `caBundle` of each of its webhooks.
    bundles: Vec<Vec<u8>>,
}

impl WebhookView {
    /// From the object; its own copy is not kept.
    pub fn new(configuration: MutatingWebhookConfiguration) -> Self {
        let webhooks = configuration.webhooks.unwrap_or_default();
        Self {
            resource_version: configuration.metadata.resource_version.unwrap_or_default(),
            bundles: webhooks
                .into_iter()
                .map(|webhook| webhook.client_config.ca_bundle.map(|bytes| bytes.0).unwrap_or_default())
                .collect(),
        }
    }

    /// Whether there is no webhook in it.
    pub fn is_empty(&self) -> bool {
        self.bundles.is_empty()
    }

    /// Whether all its webhooks trust exactly this bundle.
    pub fn publishes(&self, bundle: &str) -> bool {
        self.bundles.iter().all(|published| published == bundle.as_bytes())
    }

    /// The JSON patch that makes all its webhooks trust this bundle. The server refuses it when the configuration
    /// has changed since it was seen.
    fn patch(&self, bundle: &str) -> serde_json::Value {
        let encoded = STANDARD.encode(bundle);
        let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": self.resource_version});
        let adds = (0..self.bundles.len()).map(|index| {
            json!({"op": "add", "path": format!("/webhooks/{index}/clientConfig/caBundle"), "value": encoded})
        });
        std::iter::once(test).chain(adds).collect()
    }
}

/// Writes the bundle into every webhook of the configuration, provided that it is still as `seen`.
pub async fn publish(
    client: &Client,
    name: &str,
    seen: &WebhookView,
    bundle: &str,
) -> kube::Result<WebhookView> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let patch = serde_json::from_value(seen.patch(bundle)).map_err(kube::Error::SerdeError)?;
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let written = api.patch(name, &params, &Patch::Json::<()>(patch)).await?;
    Ok(WebhookView::new(written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patch_names_the_version_and_every_webhook() {
        let configuration = serde_json::from_value(json!({
            "metadata": {"name": "pitstop", "resourceVersion": "7"},
            "webhooks": [
                {"name": "a", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {"caBundle": "Ym90aA=="}},
                {"name": "b", "admissionReviewVersions": ["v1"], "sideEffects": "None", "clientConfig": {}},
            ],
        }))
        .unwrap();
        let view = WebhookView::new(configuration);
        assert!(!view.publishes("both") && !view.is_empty());
        let patch = view.patch("both");
        assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/resourceVersion", "value": "7"}));
        assert_eq!(patch[2]["path"], "/webhooks/1/clientConfig/caBundle");
        assert_eq!(patch[2]["value"], "Ym90aA==");
        assert_eq!(patch.as_array().unwrap().len(), 3);
    }
}
