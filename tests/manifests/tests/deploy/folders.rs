//! The folders that users apply.

use pitstop_manifests_test::{Object, kustomize, root};

pub(crate) const NAMESPACE: &str = "pitstop-system";

/// All of `deploy/default`.
pub(crate) fn default() -> Vec<Object> {
    kustomize::load(&root().join("deploy/default")).unwrap()
}

/// All of one of `deploy/overlays`.
pub(crate) fn overlay(name: &str) -> Vec<Object> {
    kustomize::load(&root().join("deploy/overlays").join(name)).unwrap()
}

/// The overlays, and where the runtime that each is for has its socket.
pub(crate) const OVERLAYS: [(&str, &str); 6] = [
    ("crio", "/run/crio/crio.sock"),
    ("k0s", "/run/k0s/containerd.sock"),
    ("k3s", "/run/k3s/containerd/containerd.sock"),
    ("locked-namespace", "/run/containerd/containerd.sock"),
    ("microk8s", "/var/snap/microk8s/common/run/containerd.sock"),
    ("seccomp", "/run/containerd/containerd.sock"),
];

/// All of `deploy/overlays/gate-webhook`.
pub(crate) fn gate_webhook() -> Vec<Object> {
    overlay("gate-webhook")
}

/// All of `deploy/overlays/resize-cri`.
pub(crate) fn resize_cri() -> Vec<Object> {
    overlay("resize-cri")
}

/// Everything that can be installed.
pub(crate) fn every_install() -> impl Iterator<Item = Vec<Object>> {
    usual_installs().chain([resize_cri()])
}

/// Everything that can be installed and gives no more rights than the default.
pub(crate) fn usual_installs() -> impl Iterator<Item = Vec<Object>> {
    let overlays = OVERLAYS.iter().map(|(name, _)| overlay(name));
    [default(), gate_webhook()].into_iter().chain(overlays)
}
