//! Conditions of Pods and of nodes.

use serde::{Deserialize, Deserializer};

use super::amounts::Read;
use crate::pod::Explanation;

/// A condition with the fields that decisions need.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SlimCondition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    /// `None` if unknown.
    #[serde(deserialize_with = "status")]
    pub(super) status: Option<bool>,
    pub(super) reason: String,
    pub(super) message: String,
}

fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    deserializer.deserialize_str(Read::new(|text: &str| match text {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }))
}

/// The condition of that type, if it is true.
pub(super) fn is_true<'a>(conditions: &'a [SlimCondition], type_: &str) -> Option<&'a SlimCondition> {
    of(conditions, type_).filter(|condition| condition.status == Some(true))
}

/// Reason and message of a condition, if it is true.
pub(super) fn explanation(conditions: &[SlimCondition], type_: &str) -> Option<Explanation> {
    let condition = is_true(conditions, type_)?;
    Some(Explanation { reason: condition.reason.clone(), message: condition.message.clone() })
}

/// The Pod is not ready, but not by its kubelet: that last reported all containers ready, and no readiness gate
/// explains it. The node lifecycle controller does this to a Pod whose node is not ready (`MarkPodsNotReady`,
/// Kubernetes 1.36): it changes the status of `Ready` alone, while a kubelet gives a reason with it.
pub(super) fn is_unheard(conditions: &[SlimCondition]) -> bool {
    let ready = of(conditions, "Ready");
    ready.is_some_and(|ready| ready.status == Some(false) && ready.reason.is_empty())
        && is_true(conditions, "ContainersReady").is_some()
}

/// The condition of a node that is not ready; `None` if it is ready, or says nothing.
pub(super) fn node_trouble(conditions: &[SlimCondition]) -> Option<&SlimCondition> {
    of(conditions, "Ready").filter(|ready| ready.status != Some(true))
}

fn of<'a>(conditions: &'a [SlimCondition], type_: &str) -> Option<&'a SlimCondition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn conditions(of: &[(&str, &str, &str)]) -> Vec<SlimCondition> {
        let of = of
            .iter()
            .map(|(type_, status, reason)| json!({"type": type_, "status": status, "reason": reason}));
        serde_json::from_value(of.collect()).unwrap()
    }

    #[test]
    fn a_kubelet_says_why_a_pod_is_not_ready_and_the_node_lifecycle_controller_does_not() {
        for (ready, containers, unheard) in [
            (Some(("False", "")), Some("True"), true),
            (Some(("True", "")), Some("True"), false),
            (Some(("False", "ReadinessGatesNotReady")), Some("True"), false),
            (Some(("False", "ContainersNotReady")), Some("False"), false),
            (Some(("False", "")), Some("False"), false),
            (Some(("False", "")), None, false),
            (None, Some("True"), false),
        ] {
            let mut all = vec![("PodScheduled", "True", "")];
            all.extend(ready.map(|(status, reason)| ("Ready", status, reason)));
            all.extend(containers.map(|status| ("ContainersReady", status, "")));
            assert_eq!(is_unheard(&conditions(&all)), unheard, "{all:?}");
        }
    }

    #[test]
    fn a_node_is_not_ready_by_its_condition_alone() {
        for (status, trouble) in [("True", false), ("False", true), ("Unknown", true)] {
            let all = conditions(&[("MemoryPressure", "False", ""), ("Ready", status, "R")]);
            assert_eq!(node_trouble(&all).is_some(), trouble, "{status}");
        }
        assert!(node_trouble(&conditions(&[("DiskPressure", "False", "")])).is_none());
    }
}
