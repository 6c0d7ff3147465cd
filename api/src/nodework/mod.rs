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
pub use observed::{Cgroup, Observed};
pub use order_id::{OrderId, order_attempt, request_uid};
pub use resize::{Bounds, Held, HeldContainer, MAX_HELD, Resize};

/// Plural name, as in URLs and RBAC.
pub const PLURAL: &str = "nodeworks";

/// Longest answer message, in characters.
pub const MAX_MESSAGE: usize = 512;

/// Members that this version does not know, since a newer one wrote them. They are kept: an order never changes, so a
/// book that were written back without them would be refused.
pub type Unknown = BTreeMap<String, Value>;

/// What the controller asks of one node's daemon.
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
    doc = "The order book of one node: what the controller asks of that node's daemon, and its answers. Internal.",
    printcolumn = r#"{"name":"Runtime","type":"string","jsonPath":".status.runtime.name"}"#,
    printcolumn = r#"{"name":"Version","type":"string","jsonPath":".status.runtime.version"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct NodeWorkSpec {
    /// Open orders. Orders of one Pod are carried out one after another, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"]))]
    #[x_kube(validation = Rule::new("self.all(o, !oldSelf.exists(p, p.id == o.id) || oldSelf.exists(p, p == o))").message("an order never changes: withdraw it and place another"))]
    pub orders: Vec<Order>,
    /// IDs of those orders whose request has ended or is about to. The daemon finishes what it has begun of them, and begins nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)), extend("x-kubernetes-list-type" = "set"))]
    pub closed: Vec<String>,
}

/// One thing to do to one container instance. Never changes; withdrawn by removing it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// `<request UID>/<container>/<attempt>`.
    #[schemars(length(min = 1, max = 256))]
    pub id: String,
    /// The Pod that the container must belong to.
    pub pod: OrderPod,
    /// The container instance.
    pub container: OrderContainer,
    /// What to do to it.
    pub action: OrderAction,
    /// What a newer version adds; no daemon has to heed it.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// A Pod as the runtime's labels name it.
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
    /// The runtime's full ID: 64 hex digits, no prefix. Runtimes resolve ID prefixes, so a shorter one is refused.
    #[schemars(regex(pattern = id::PATTERN))]
    pub id: String,
}

/// What to do; exactly one member is set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.recreate), has(self.verify), has(self.resize), has(self.pull)].filter(set, set).size() == 1").message("exactly one action must be set: recreate, verify, resize or pull"))]
pub struct OrderAction {
    /// Stop the container, so that the kubelet starts it anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recreate: Option<Recreate>,
    /// Tell what the cgroups of the container and of its Pod hold. Changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<Verify>,
    /// Give the container and its Pod other resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<Resize>,
    /// Have the node have an image, and tell what runs of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull: Option<Pull>,
    /// An action of a newer version. A daemon that knows none of the members refuses the order.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

/// Stop a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recreate {
    /// Seconds between the stop signal and the kill. Absent: the Pod's own, from the runtime's annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = crate::MAX_SECONDS))]
    pub grace_period_seconds: Option<i64>,
    /// What a newer version adds; no daemon has to heed it.
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

/// Tell what the cgroups hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verify {
    /// What a newer version adds; no daemon has to heed it.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: Unknown,
}

impl From<Verify> for OrderAction {
    fn from(verify: Verify) -> Self {
        Self { verify: Some(verify), ..Self::default() }
    }
}

/// What the node's daemon answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeWorkStatus {
    /// `metadata.generation` of the orders that the answers speak of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// The boot of the node that `acknowledgedUptimeSeconds` counts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    /// The container runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeInfo>,
    /// One answer per order that the daemon has seen; forgotten once the order is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["orderID"]))]
    pub answers: Vec<Answer>,
    /// The Pods that are held at other resources than those of their spec.
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

/// A container runtime, as its `Version` call names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeInfo {
    /// For example `containerd`.
    #[schemars(length(max = 64))]
    pub name: String,
    /// For example `1.6.20`.
    #[schemars(length(max = 128))]
    pub version: String,
}

/// How far an order is. No version adds a state: a reason says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AnswerState {
    /// Checked against the runtime; the daemon may act from now on.
    Acknowledged,
    /// Carried out: the named container is gone, or has what it was to be given, or what was asked about it is in `observed`.
    Done,
    /// Not carried out, and never will be; the reason says why.
    Refused,
    /// Tried in vain, and the container still runs.
    Failed,
}

/// Why an answer is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AnswerReason {
    /// `Refused`: the runtime has no such container, or it had ended before the daemon looked.
    NotRunning,
    /// `Refused`: the runtime's labels name another Pod or container.
    WrongContainer,
    /// `Refused`: the order itself makes no sense to this daemon.
    InvalidOrder,
    /// `Acknowledged`, `Done`: the container's preStop hook failed, or did not end in time; the stop went ahead.
    PreStopHookFailed,
    /// `Acknowledged`: several stops had no effect; the daemon goes on, ever more rarely, until the order is withdrawn.
    StopRetried,
    /// `Done`: the container ended by itself before the stop was sent.
    EndedByItself,
    /// `Failed`: the runtime would not stop it.
    StopFailed,
    /// `Failed`: the daemon cannot read the cgroups; the message says which file and why.
    CgroupUnreadable,
    /// `Refused`: this daemon was not given the right to change resources.
    NotEnabled,
    /// `Refused`: the container may use swap, which would change with its memory.
    Swap,
    /// `Refused`: the kubelet's static managers have given the container CPUs or memory nodes of its own.
    Pinned,
    /// `Refused`: the request of the order has ended, and no stop of this daemon is under way.
    RequestOver,
    /// `Refused`: so many Pods are held on this node that no other can be ([`MAX_HELD`]).
    TooManyHeld,
    /// `Acknowledged`: more memory is in use than the new limit would leave room for; the daemon looks again.
    MemoryInUse,
    /// `Acknowledged`: the runtime or the kernel did not take the new resources; the daemon tries again.
    ResizeRetried,
    /// `Failed`: the runtime or the kernel will not take the new resources; the message says which and why.
    ResizeFailed,
    /// `Acknowledged`: the image is being pulled.
    Pulling,
    /// `Acknowledged`: other pulls of the node go first.
    PullQueued,
    /// `Acknowledged`: the pull failed, and is tried again; the message says why.
    PullRetried,
    /// `Acknowledged`: the node has had the image, and has it no more; it is pulled again.
    ImageGone,
    /// `Failed`: the registry does not have the image, or did not give it in time; the message has its words.
    PullFailed,
    /// `Failed`: the registry wants credentials, or other ones than the node has.
    PullUnauthorized,
    /// `Failed`: the node has not got the image in time.
    PullTimedOut,
    /// `Failed`: the node does not have the image, and is not to pull it.
    ImageNeverPull,
    /// `Failed`: the node has no room for images.
    NoDiskRoom,
    /// `Refused`: the image is of another repository than that of the named container.
    WrongRepository,
    /// A reason of a newer version; never written.
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
    /// How far it is.
    pub state: AnswerState,
    /// Why, where there is something to say.
    #[serde(default, skip_serializing_if = "is_unsaid")]
    pub reason: Option<AnswerReason>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub message: String,
    /// Seconds from the node's boot to the acknowledgement, so that a daemon that starts anew knows the grace left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub acknowledged_uptime_seconds: Option<i64>,
    /// The daemon process that acknowledged: one that starts anew acknowledges again before it acts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub acknowledged_by: String,
    /// `Done` of a `verify` or a `resize`: what the cgroups held then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<Box<Observed>>,
    /// Of a `pull`: what the node has, and what runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Box<ImageAnswer>>,
}

/// There is no reason that this version could write.
#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde passes the field")]
fn is_unsaid(reason: &Option<AnswerReason>) -> bool {
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
        let told = json!({
            "orderID": "5f0c/app/1", "state": "Done",
            "observed": {"container": {"cpuQuota": 50_000, "cpuPeriod": 100_000}, "pod": {}},
        });
        let answer: Answer = serde_json::from_value(told.clone()).unwrap();
        let container = Cgroup { cpu_quota: Some(50_000), cpu_period: Some(100_000), ..Cgroup::default() };
        let observed = Observed { container, pod: Cgroup::default() };
        assert_eq!(answer.observed.as_deref(), Some(&observed));
        assert_eq!(serde_json::to_value(&answer).unwrap(), told);
    }

    #[test]
    fn a_reason_of_a_newer_version_is_read_and_not_written() {
        let told = json!({"orderID": "5f0c/app/1", "state": "Done", "reason": "Later", "later": 1});
        let answer: Answer = serde_json::from_value(told).unwrap();
        assert_eq!((answer.state, answer.reason), (AnswerState::Done, Some(AnswerReason::Unknown)));
        assert_eq!(serde_json::to_value(&answer).unwrap(), json!({"orderID": "5f0c/app/1", "state": "Done"}));
    }
}
