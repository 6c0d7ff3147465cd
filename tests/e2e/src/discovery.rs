//! Resources that the API server serves.

use anyhow::Result;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;
pub use pitstop_manifests_test::rbac::VERBS;

/// A resource or subresource in one version.
#[derive(Clone, Debug)]
pub struct Found {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// The server's description; the name is `resource` or `resource/subresource`.
    pub resource: APIResource,
}

/// Every resource of every group in every version, in the server's order.
pub async fn resources(client: &Client) -> Result<Vec<Found>> {
    let found = |group: &str, version: &str, resource: APIResource| Found {
        group: group.to_owned(),
        version: version.to_owned(),
        resource,
    };
    let core = client.list_core_api_resources("v1").await?;
    let mut all: Vec<Found> = core.resources.into_iter().map(|resource| found("", "v1", resource)).collect();
    for group in client.list_api_groups().await?.groups {
        for version in &group.versions {
            let list = client.list_api_group_resources(&version.group_version).await?;
            all.extend(list.resources.into_iter().map(|r| found(&group.name, &version.version, r)));
        }
    }
    Ok(all)
}
