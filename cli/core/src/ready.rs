//! Whether a Pod is in service.

use k8s_openapi::api::core::v1::Pod;

/// Its condition `Ready` is True, and it is not being deleted.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
}
