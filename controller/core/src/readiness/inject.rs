//! The gate for new Pods that opted in, if the API server serves no `MutatingAdmissionPolicy`.
//!
//! The webhook's configuration selects by the labels of namespace and Pod, so Pods that come here have opted in.

use serde_json::{Value, json};

use super::{OPT_IN, PITSTOP_READY};

/// Annotation of a Pod that mirrors a static one.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The JSON Patch (RFC 6902) that gives a new Pod the gate; empty if it has it, or must not have it.
///
/// `pod` is the Pod as the API server sent it. Anything that is not as in a Pod gets no patch.
pub fn inject(pod: &Value) -> Vec<Value> {
    let of = |map: &str, key: &str| pod.get("metadata")?.get(map)?.get(key)?.as_str();
    if of("labels", OPT_IN) == Some("disabled") || of("annotations", MIRROR).is_some() {
        return Vec::new();
    }
    let Some(spec) = pod.get("spec").filter(|spec| spec.is_object()) else { return Vec::new() };
    let gate = json!({"conditionType": PITSTOP_READY});
    match spec.get("readinessGates") {
        None | Some(Value::Null) => {
            vec![json!({"op": "add", "path": "/spec/readinessGates", "value": [gate]})]
        }
        Some(Value::Array(gates))
            if gates.iter().any(|g| g.get("conditionType") == gate.get("conditionType")) =>
        {
            Vec::new()
        }
        Some(Value::Array(_)) => vec![json!({"op": "add", "path": "/spec/readinessGates/-", "value": gate})],
        Some(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(gates: &Value) -> Value {
        json!({"metadata": {"name": "web"}, "spec": {"readinessGates": gates, "containers": []}})
    }

    #[test]
    fn a_pod_gets_the_gate_beside_those_that_it_has() {
        let gate = json!({"conditionType": "pitstop.dev/ready"});
        let first = json!([{"op": "add", "path": "/spec/readinessGates", "value": [gate]}]);
        assert_eq!(json!(inject(&json!({"spec": {}}))), first);
        assert_eq!(json!(inject(&pod(&Value::Null))), first);
        let other = json!([{"conditionType": "KruisePodReady"}]);
        let further = json!([{"op": "add", "path": "/spec/readinessGates/-", "value": gate}]);
        assert_eq!(json!(inject(&pod(&other))), further);
    }

    #[test]
    fn a_pod_with_the_gate_stays_as_it_is() {
        let both = json!([{"conditionType": "KruisePodReady"}, {"conditionType": "pitstop.dev/ready"}]);
        assert!(inject(&pod(&both)).is_empty());
    }

    #[test]
    fn pods_that_opted_out_and_static_pods_get_none() {
        for metadata in [json!({"labels": {OPT_IN: "disabled"}}), json!({"annotations": {MIRROR: "hash"}})] {
            assert!(inject(&json!({"metadata": metadata, "spec": {}})).is_empty());
        }
        assert_eq!(inject(&json!({"metadata": {"labels": {OPT_IN: "enabled"}}, "spec": {}})).len(), 1);
    }

    #[test]
    fn what_is_no_pod_is_left_alone() {
        for odd in [json!(null), json!({}), json!({"spec": 7}), json!({"spec": {"readinessGates": {}}})] {
            assert!(inject(&odd).is_empty(), "{odd}");
        }
    }
}
