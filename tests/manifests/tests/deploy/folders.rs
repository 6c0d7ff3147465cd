//! The folders that users apply, and their combinations.

use pitstop_manifests_test::{Object, kustomize, root};

pub(crate) const NAMESPACE: &str = "pitstop-system";

/// All objects of `deploy/default`.
pub(crate) fn default() -> Vec<Object> {
    kustomize::load(&root().join("deploy/default")).unwrap()
}

/// All objects of a folder in `deploy/overlays`.
fn overlay(name: &str) -> Vec<Object> {
    kustomize::load(&root().join("deploy/overlays").join(name)).unwrap()
}

/// All objects of a base folder with some of `deploy/components`.
pub(crate) fn combined(base: &str, components: &[&str]) -> Vec<Object> {
    let components: Vec<String> = components.iter().map(|name| format!("components/{name}")).collect();
    let text = format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{base}]\n\
         components: [{}]\n",
        components.join(", ")
    );
    kustomize::load_text(&text, &root().join("deploy")).unwrap()
}

/// All objects of `deploy/default` with a component.
pub(crate) fn with(component: &str) -> Vec<Object> {
    combined("default", &[component])
}

/// Base folders: for Kubernetes 1.36 or later, for any version, and for any version whose kubelets do not resize.
pub(crate) const BASES: [&str; 3] = ["default", "overlays/gate-webhook", "overlays/resize-cri"];

/// Components for other runtimes, with the path of the socket.
pub(crate) const RUNTIMES: [(&str, &str); 4] = [
    ("crio", "/run/crio/crio.sock"),
    ("k0s", "/run/k0s/containerd.sock"),
    ("k3s", "/run/k3s/containerd/containerd.sock"),
    ("microk8s", "/var/snap/microk8s/common/run/containerd.sock"),
];

/// Components that restrict, and grant no rights.
pub(crate) const STRICTER: [&str; 2] = ["locked-namespace", "seccomp"];

/// Components that grant rights.
pub(crate) const RIGHTS: [&str; 5] =
    ["image-puller", "image-update", "in-place", "resize-cri", "resize-evict"];

/// Component for parking by admission. It grants no rights, and needs Kubernetes 1.36 or later.
pub(crate) const PARK: &str = "park";

/// Component that only Prometheus and Grafana read.
pub(crate) const MONITORING: &str = "monitoring";

/// All objects of `deploy/overlays/gate-webhook`.
pub(crate) fn gate_webhook() -> Vec<Object> {
    overlay("gate-webhook")
}

/// All objects of `deploy/overlays/resize-cri`.
pub(crate) fn resize_cri() -> Vec<Object> {
    overlay("resize-cri")
}

/// Every installation, with each component separately.
pub(crate) fn every_install() -> impl Iterator<Item = Vec<Object>> {
    usual_installs().chain([resize_cri(), with(PARK)]).chain(RIGHTS.map(with))
}

/// Every installation that grants no more rights than the default.
pub(crate) fn usual_installs() -> impl Iterator<Item = Vec<Object>> {
    let runtimes = RUNTIMES.iter().map(|(name, _)| with(name));
    [default(), gate_webhook()]
        .into_iter()
        .chain(runtimes)
        .chain(STRICTER.map(with))
        .chain([with(MONITORING)])
}
