//! The Secret that all replicas share.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};

use super::FIELD_MANAGER;

/// Key of the CA bundle, as in the Secrets of cert-manager.
const CA_CRT: &str = "ca.crt";
/// Key of the newest CA's private key.
const CA_KEY: &str = "ca.key";
/// Key of the leaf.
const TLS_CRT: &str = "tls.crt";
/// Key of the leaf's private key.
const TLS_KEY: &str = "tls.key";

/// What the Secret holds, all as PEM; empty where there is nothing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Material {
    /// The CA bundle.
    pub ca_crt: Vec<u8>,
    /// The private key of the bundle's newest CA.
    pub ca_key: Vec<u8>,
    /// The leaf.
    pub tls_crt: Vec<u8>,
    /// The leaf's private key.
    pub tls_key: Vec<u8>,
}

/// The Secret as it was last seen.
#[derive(Clone)]
pub struct SecretView {
    /// Its version, the precondition of the next write.
    pub resource_version: String,
    /// What it holds.
    pub material: Material,
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").finish_non_exhaustive()
    }
}

impl SecretView {
    /// From the object; its own copy is not kept.
    pub fn new(secret: Secret) -> Self {
        let mut data = secret.data.unwrap_or_default();
        let mut take = |key| data.remove(key).map(|bytes| bytes.0).unwrap_or_default();
        let material = Material {
            ca_crt: take(CA_CRT),
            ca_key: take(CA_KEY),
            tls_crt: take(TLS_CRT),
            tls_key: take(TLS_KEY),
        };
        Self { resource_version: secret.metadata.resource_version.unwrap_or_default(), material }
    }
}

/// Writes the Secret, provided that it is still as `seen` (or still absent).
pub async fn write(
    client: &Client,
    namespace: &str,
    name: &str,
    seen: Option<&SecretView>,
    material: &Material,
) -> kube::Result<SecretView> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            resource_version: seen.map(|seen| seen.resource_version.clone()),
            ..ObjectMeta::default()
        },
        data: Some(data(material)),
        ..Secret::default()
    };
    let written = if seen.is_some() {
        // A merge keeps the labels of whoever made it; the version in it makes the server refuse a stale one.
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        api.patch(name, &params, &Patch::Merge(&secret)).await?
    } else {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        api.create(&params, &secret).await?
    };
    Ok(SecretView::new(written))
}

fn data(material: &Material) -> BTreeMap<String, ByteString> {
    let Material { ca_crt, ca_key, tls_crt, tls_key } = material;
    [(CA_CRT, ca_crt), (CA_KEY, ca_key), (TLS_CRT, tls_crt), (TLS_KEY, tls_key)]
        .into_iter()
        .filter(|(_, bytes)| !bytes.is_empty())
        .map(|(key, bytes)| (key.to_owned(), ByteString(bytes.clone())))
        .collect()
}
