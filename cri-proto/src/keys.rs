//! The labels and annotations that the kubelet leaves on containers and sandboxes in the runtime.
//!
//! They are the daemon's only source about a Pod. Where they come from, in Kubernetes' own code: the four
//! labels are exported in `k8s.io/kubelet/pkg/types/labels.go`; the annotations are private to the kubelet, in
//! `pkg/kubelet/kuberuntime/labels.go` (both read in 1.36).
//!
//! **Trust.** A Pod cannot set the labels: the kubelet writes them over the Pod's own. The annotations can be
//! trusted on *containers* only: there the kubelet (and a device plugin of the node) is the only writer, while
//! a sandbox carries whatever annotations the user gave the Pod, these names included.

/// Label on containers and sandboxes: the Pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label on containers and sandboxes: the Pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Label on containers and sandboxes: the Pod's UID. For a static Pod it is the hash of its file, not the UID
/// that the API server shows.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label on containers: the name of the container in the Pod.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Annotation on containers: how many containers of this name the Pod had before this one, in decimal digits.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Annotation on containers: hash of the fields that decide whether the kubelet replaces a container (such as the
/// image), in hexadecimal digits. Comparable only between containers made by the same version of the kubelet.
pub const HASH: &str = "io.kubernetes.container.hash";
/// Annotation on containers that have one: the preStop handler as JSON, in the form of the API's
/// `LifecycleHandler` (`exec`, `httpGet`, `tcpSocket` or `sleep`).
pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// Annotation on containers that declare ports: JSON list of the API's `ContainerPort`, needed for a handler
/// that names its port.
pub const PORTS: &str = "io.kubernetes.container.ports";
/// Annotation on containers: the Pod's `terminationGracePeriodSeconds` when the container was made, in decimal
/// digits.
pub const TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Annotation on containers that were made while their Pod was being deleted: `deletionGracePeriodSeconds`, in
/// decimal digits.
pub const DELETION_GRACE_PERIOD: &str = "io.kubernetes.pod.deletionGracePeriod";
