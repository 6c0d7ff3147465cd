//! Whether a Pod is in service.

use k8s_openapi::api::core::v1::Pod;

/// Its condition `Ready` is True, and it is not being deleted.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none()
        && conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_that_is_being_deleted_is_not_ready() {
        let ready = |metadata, status: &str| {
            let status = json!({"conditions": [{"type": "Ready", "status": status}]});
            is_ready(&serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap())
        };
        let deleted = json!({"deletionTimestamp": "2026-12-01T12:00:00Z"});
        assert_eq!(
            [ready(json!({}), "True"), ready(json!({}), "False"), ready(deleted, "True")],
            [true, false, false]
        );
        assert!(!is_ready(&Pod::default()));
    }
}
