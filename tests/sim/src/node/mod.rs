//! The model of a node: container runtime and kubelet.
