//! The folders that users apply.

use pitstop_manifests_test::{Object, kustomize, root};

pub(crate) const NAMESPACE: &str = "pitstop-system";

/// All of `deploy/default`.
pub(crate) fn default() -> Vec<Object> {
    kustomize::load(&root().join("deploy/default")).unwrap()
}

/// All of `deploy/overlays/crio`.
pub(crate) fn crio() -> Vec<Object> {
    kustomize::load(&root().join("deploy/overlays/crio")).unwrap()
}

/// All of `deploy/overlays/gate-webhook`.
pub(crate) fn gate_webhook() -> Vec<Object> {
    kustomize::load(&root().join("deploy/overlays/gate-webhook")).unwrap()
}
