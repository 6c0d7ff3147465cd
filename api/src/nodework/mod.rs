//! `NodeWork`: the order book of one node, named as the node.
//!
//! The controller writes `spec.orders`, the node's daemon writes `status.answers`. The protocol is in
//! `docs/design/order-protocol.md`.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{MAX_SECONDS, id};

mod image;
mod observed;
mod order_id;
mod resize;

pub use image::{ImageAnswer, MAX_PULL_SECONDS, Pull, PullPolicy, Pulled, Running};
pub use observed::{Cgroup, CgroupReading};
pub use order_id::{OrderId, order_attempt, request_uid};
pub use resize::{Bounds, Held, HeldContainer, MAX_HELD, ResizeOrder};

/// Plural name, as in URLs and RBAC.
pub const PLURAL: &str = "nodeworks";

/// Longest answer message, in characters.
pub const MAX_MESSAGE: usize = 512;

/// Members that a newer version wrote and this one does not know. They are kept: an order never changes, so the API
/// server would refuse a book without them.
pub type Unknown = BTreeMap<String, Value>;

/// The controller's orders.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "pitstop.dev",
    version = "v1alpha1",
    kind = "NodeWork",
    plural = "nodeworks",
    singular = "nodework",
    shortname = "nw",
    category = "pitstop",
    status = "NodeWorkStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "The order book of one node: orders of the controller, answers of the node's daemon. Internal.",
    printcolumn = r#"{"name":"Runtime","type":"string","jsonPath":".status.runtime.name"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.runtime.version"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NodeWorkSpec {
    /// Open orders, each one action on one container instance. Those of one Pod run one after another as listed,
    /// except `pull` and a `resize` that waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    #[x_kube(validation = Rule::new("self.all(o, !oldSelf.exists(p, p.id == o.id) || oldSelf.exists(p, p == o))").message("an order never changes: withdraw it and place another"))]
    pub orders: Vec<Order>,
    /// IDs of orders whose request has ended or is about to. The daemon only completes what it has begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub closed: Vec<String>,
}

/// One action on one container instance. Never changes; the controller withdraws it by removing it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// `<UID of the request or held Pod>/<container>/<attempt>`.
    #[schemars(length(min = 1, max = 256))]
    pub id: String,
    /// The Pod that the container must belong to.
    pub pod: OrderPod,
    /// The container instance.
    pub container: OrderContainer,
    /// The action.
    pub action: OrderAction,
    /// Members of a newer version. Daemons may ignore them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A Pod, as in the runtime's labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrderPod {
    /// Namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// UID.
    #[schemars(length(min = 1, max = 128))]
    pub uid: String,
}

/// One container instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrderContainer {
    /// Name of the container in the Pod.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The runtime's full ID: 64 hex digits. Runtimes resolve prefixes, so a shorter ID is refused.
    #[schemars(regex(pattern = id::PATTERN))]
    pub id: String,
}

/// An action. Exactly one member is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.recreate), has(self.verify), has(self.resize), has(self.pull)].filter(set, set).size() == 1").message("exactly one action must be set: recreate, verify, resize or pull"))]
pub struct OrderAction {
    /// Stop the container, so that the kubelet starts it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recreate: Option<Recreate>,
    /// Report what the cgroups of container and Pod hold. Changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
    /// Give the container and its Pod other resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<ResizeOrder>,
    /// Get the node an image, and report what the container runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// Actions of a newer version. A daemon that knows no member refuses the order.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Stop a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recreate {
    /// Seconds that the preStop hook and the stop share. Default: the Pod's own, from the runtime's annotation; without
    /// one, 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub grace_period_seconds: Option<i64>,
    /// Members of a newer version. Daemons may ignore them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

impl Recreate {
    /// With that grace; absent for the Pod's own.
    /// No longer than [`MAX_SECONDS`]: a Pod's own grace has no bound.
    pub fn with_grace(seconds: Option<i64>) -> Self {
        Self { grace_period_seconds: seconds.map(|s| s.min(MAX_SECONDS)), ..Self::default() }
    }
}

impl From<Recreate> for OrderAction {
    fn from(recreate: Recreate) -> Self {
        Self { recreate: Some(recreate), ..Self::default() }
    }
}

/// Report what the cgroups hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verify {
    /// Members of a newer version. Daemons may ignore them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

impl From<Verify> for OrderAction {
    fn from(verify: Verify) -> Self {
        Self { verify: Some(verify), ..Self::default() }
    }
}

/// The daemon's answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeWorkStatus {
    /// `metadata.generation` of the answered orders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// The boot that `acknowledgedUptimeSeconds` counts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    /// The container runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeInfo>,
    /// One answer for each order that the daemon has seen. Removed once the order is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["orderID"]))]
    pub answers: Vec<Answer>,
    /// Pods held at other resources than their specs say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub held: Vec<Held>,
}

/// One boot of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Boot {
    /// `/proc/sys/kernel/random/boot_id`.
    #[schemars(length(max = 64))]
    pub id: String,
}

/// A container runtime, from its `Version` call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeInfo {
    /// For example `containerd`.
    #[schemars(length(max = 64))]
    pub name: String,
    /// For example `1.6.20`.
    #[schemars(length(max = 128))]
    pub version: String,
}

/// State of an order. No version adds one: reasons say more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AnswerState {
    /// Checked against the runtime; the daemon may act.
    Acknowledged,
    /// Carried out: the container is gone or has its resources, or the report is in `observed` or `image`.
    Done,
    /// Not carried out, now or later; the reason says why.
    Refused,
    /// Tried without success; a container to stop still runs.
    Failed,
}

/// Why an order is in its state: see `docs/design/order-protocol.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AnswerReason {
    /// `Refused`: the runtime has no such container, or it has ended.
    NotRunning,
    /// `Refused`: the runtime's labels name another Pod or container.
    WrongContainer,
    /// `Refused`: the daemon does not understand it, or it has another order's ID.
    InvalidOrder,
    /// `Acknowledged`, `Done`: the hook failed or did not end in time; the stop goes ahead.
    PreStopHookFailed,
    /// `Acknowledged`: several stops had no effect; the daemon repeats them less and less often.
    StopRetried,
    /// `Done`: the container ended before a stop was sent.
    EndedByItself,
    /// `Failed`: the runtime returned an error that no retry can change.
    StopFailed,
    /// `Failed`: a cgroup cannot be found or read; the message says which file and why.
    CgroupUnreadable,
    /// `Refused`: the daemon runs without `--resize`.
    NotEnabled,
    /// `Refused`: the container may use swap, which would change with its memory.
    Swap,
    /// `Refused`: the container has CPUs or memory nodes of its own.
    Pinned,
    /// `Refused`: the request has ended; the daemon does not stop the container.
    RequestOver,
    /// `Refused`: the record is full (128 Pods, 512 containers, 64 of one Pod).
    TooManyHeld,
    /// `Acknowledged`: memory in use leaves no room for the lower limit; the daemon looks again.
    MemoryInUse,
    /// `Acknowledged`: runtime, systemd or kernel did not take the resources; the daemon tries again.
    ResizeRetried,
    /// `Failed`: runtime or kernel will not take the resources, or the record is missing.
    ResizeFailed,
    /// `Acknowledged`: the image is being pulled.
    Pulling,
    /// `Acknowledged`: other pulls of the node go first.
    PullQueued,
    /// `Acknowledged`: the pull failed; the daemon tries again.
    PullRetried,
    /// `Acknowledged`: the node lost the image; the daemon pulls it again.
    ImageGone,
    /// `Failed`: the registry does not have the image.
    PullFailed,
    /// `Failed`: the registry wants credentials, or others than the node has.
    PullUnauthorized,
    /// `Failed`: the image did not come in time.
    PullTimedOut,
    /// `Failed`: not on the node, and the policy is `Never`.
    ImageNeverPull,
    /// `Failed`: the node has no room for images.
    NoDiskRoom,
    /// `Refused`: another repository than the named container's.
    WrongRepository,
    /// A reason of a newer version. Never written.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// The daemon's answer to one order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The order's ID.
    #[serde(rename = "orderID")]
    #[schemars(length(min = 1, max = 256))]
    pub order_id: String,
    /// `Acknowledged`: checked, the daemon may act. `Done`: carried out. `Refused`: not carried out. `Failed`: tried
    /// without success.
    pub state: AnswerState,
    /// Why, if there is more to say.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub reason: Option<AnswerReason>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub message: String,
    /// Seconds from the node's boot to the acknowledgement: tells a new daemon process the remaining grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub acknowledged_uptime_seconds: Option<i64>,
    /// The daemon process that acknowledged. A new process acknowledges again before it acts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub acknowledged_by: String,
    /// If a `verify` or `resize` is `Done`: what the cgroups held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Box<CgroupReading>>,
    /// For a `pull`: the image on the node, and what the container runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Box<ImageAnswer>>,
}

/// There is no reason that this version could write.
#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde passes the field")]
fn is_unknown(reason: &Option<AnswerReason>) -> bool {
    reason.is_none_or(|reason| reason == AnswerReason::Unknown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_newer_version_wrote_into_an_order_stays_in_it() {
        let book = json!({"orders": [{
            "id": "5f0c/app/1", "pod": {"namespace": "shop", "name": "web", "uid": "1"}, "later": {"a": [1]},
            "container": {"name": "app", "id": "0"}, "action": {"recreate": {"later": 1}, "other": {}},
        }]});
        let spec: NodeWorkSpec = serde_json::from_value(book.clone()).unwrap();
        assert_eq!(serde_json::to_value(&spec).unwrap(), book);
    }

    #[test]
    fn an_order_to_verify_and_its_answer_hold_what_is_said_and_no_more() {
        let action: OrderAction = Verify::default().into();
        assert_eq!(serde_json::to_value(&action).unwrap(), json!({"verify": {}}));
        assert_eq!(serde_json::from_value::<OrderAction>(json!({"verify": {}})).unwrap(), action);
        let written = json!({
            "orderID": "5f0c/app/1", "state": "Done",
            "observed": {"container": {"cpuQuota": 50_000, "cpuPeriod": 100_000}, "pod": {}},
        });
        let answer: Answer = serde_json::from_value(written.clone()).unwrap();
        let container = Cgroup { cpu_quota: Some(50_000), cpu_period: Some(100_000), ..Cgroup::default() };
        let observed = CgroupReading { container, pod: Cgroup::default() };
        assert_eq!(answer.observed.as_deref(), Some(&observed));
        assert_eq!(serde_json::to_value(&answer).unwrap(), written);
    }

    #[test]
    fn a_reason_of_a_newer_version_is_read_and_not_written() {
        let written = json!({"orderID": "5f0c/app/1", "state": "Done", "reason": "Later", "later": 1});
        let answer: Answer = serde_json::from_value(written).unwrap();
        assert_eq!((answer.state, answer.reason), (AnswerState::Done, Some(AnswerReason::Unknown)));
        assert_eq!(serde_json::to_value(&answer).unwrap(), json!({"orderID": "5f0c/app/1", "state": "Done"}));
    }
}
