//! The labels and annotations that the kubelet leaves in the runtime, as `pitstop-cri` names them.

/// Label: the Pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Label: the Pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// Label: the Pod's UID; of a static Pod the hash of its file.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Label on containers: name in the Pod.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Annotation on containers: restart count.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Annotation on containers: the kubelet replaces the container if its hash changes.
pub const HASH: &str = "io.kubernetes.container.hash";
/// Annotation on containers: the preStop handler as JSON.
pub const PRE_STOP_HANDLER: &str = "io.kubernetes.container.preStopHandler";
/// Annotation on containers: the ports as JSON.
pub const PORTS: &str = "io.kubernetes.container.ports";
/// Annotation on containers: the Pod's grace in seconds.
pub const TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
/// Annotation on containers of the model: the size that they were made with.
pub const SIZE: &str = "sim.pitstop.dev/size";
/// Annotation on containers of the model: they never get ready, because of their image.
pub const UNREADY: &str = "sim.pitstop.dev/unready";
/// Annotation on mirror Pods: the UID of the static Pod.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// Annotation on static Pods: the same UID.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
