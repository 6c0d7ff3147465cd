//! Readiness gates: Pods that pitstop keeps not ready, and Pods with the gate (docs/tasks/drain-before-restart.md).

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use pitstop_api::readiness::{Hold, PITSTOP_READY, SERVED, holds};

use super::super::{Finding, count, name_list};
use super::{Remains, name};
use crate::known::Known;

const CHECK: &str = "readiness";
const SEE: &str = "docs/tasks/drain-before-restart.md#what-takes-a-hold-off";

/// A Pod that runs, with a gate that pitstop keeps False, or with pitstop's own gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gated {
    name: String,
    gate: Gate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// A pitstop request holds it False.
    Held,
    /// The condition does not exist yet.
    Unwritten,
    /// No pitstop request keeps the Pod not ready.
    Free,
}

impl Gated {
    /// The Pod; `None` if its gates do not matter.
    pub fn of(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref().filter(|_| pod.metadata.deletion_timestamp.is_none())?;
        let status = pod.status.clone().unwrap_or_default();
        if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            return None;
        }
        let conditions = status.conditions.unwrap_or_default();
        let condition = |gate: &str| conditions.iter().find(|it| it.type_ == gate);
        let has = |gate: &str| spec.readiness_gates.iter().flatten().any(|it| it.condition_type == gate);
        let gate = if SERVED.into_iter().filter(|gate| has(gate)).filter_map(condition).any(is_held) {
            Gate::Held
        } else if !has(PITSTOP_READY) {
            return None;
        } else if condition(PITSTOP_READY).is_none() {
            Gate::Unwritten
        } else {
            Gate::Free
        };
        Some(Self { name: name(pod), gate })
    }
}

fn is_held(condition: &PodCondition) -> bool {
    let message = condition.message.as_deref().unwrap_or_default();
    condition.status != "True" && holds(message).is_some_and(|holds| holds.iter().any(Hold::is_ours))
}

pub(super) fn check(remains: &Remains) -> Vec<Finding> {
    let pods = match &remains.pods {
        Known::Unread(why) => return vec![Finding::unknown(CHECK, "Pods", why)],
        pods => pods.all(),
    };
    let text = |gate: Gate, what: &str| {
        let names: Vec<&str> = pods.iter().filter(|it| it.gate == gate).map(|it| it.name.as_str()).collect();
        (!names.is_empty()).then(|| format!("{} {what}: {}", count(names.len(), "Pod"), name_list(&names)))
    };
    let mut findings = Vec::new();
    if let Some(text) = text(Gate::Held, "held not ready by requests") {
        let to_do = format!("They are ready when these end: check again. Without a controller, see {SEE}.");
        findings.push(Finding::error(CHECK, text, to_do));
    }
    if let Some(text) = text(Gate::Unwritten, "whose readiness gate the controller has not opened yet") {
        let to_do = format!("They are not ready before that: check again, or see {SEE}.");
        findings.push(Finding::error(CHECK, text, to_do));
    }
    if let Some(text) = text(Gate::Free, &format!("with the readiness gate {PITSTOP_READY}")) {
        let to_do = format!("They keep it, and stay ready ({SEE}).");
        findings.push(Finding::warning(CHECK, text, to_do));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "no Pod has a readiness gate that only pitstop opens"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::Level;
    use super::super::super::fixtures::read;
    use super::*;

    const OURS: &str = r#"[{"userAgent":"PodImageUpdate","key":"shop/a"},{"userAgent":"other","key":"x"}]"#;

    /// A Pod with that gate, and with that status and message of its condition.
    fn pod(gate: &str, condition: Option<(&str, &str)>, more: &Value) -> Pod {
        let condition = condition
            .map(|(status, message)| json!({"type": gate, "status": status, "message": message}))
            .map_or_else(Vec::new, |it| vec![it]);
        let mut pod = json!({"metadata": {"namespace": "shop", "name": "web"},
            "spec": {"containers": [], "readinessGates": [{"conditionType": gate}]},
            "status": {"conditions": condition}});
        crate::change::Change::merge(more.clone()).apply(&mut pod);
        read(pod)
    }

    fn gate(gate: &str, condition: Option<(&str, &str)>) -> Option<Gate> {
        Gated::of(&pod(gate, condition, &json!({}))).map(|it| it.gate)
    }

    #[test]
    fn a_hold_is_one_of_ours_in_a_condition_that_is_not_true() {
        for served in SERVED {
            assert_eq!(gate(served, Some(("False", OURS))), Some(Gate::Held));
        }
        let other = r#"[{"userAgent":"other","key":"x"}]"#;
        for (status, message) in [("True", OURS), ("True", "[]"), ("False", other), ("False", "maintenance")]
        {
            assert_eq!(gate(PITSTOP_READY, Some((status, message))), Some(Gate::Free), "{status} {message}");
            assert_eq!(gate("KruisePodReady", Some((status, message))), None, "others serve it too");
        }
        assert_eq!(gate(PITSTOP_READY, None), Some(Gate::Unwritten));
        assert_eq!(gate("KruisePodReady", None), None);
        assert_eq!(gate("example.com/other", Some(("False", OURS))), None);
    }

    #[test]
    fn pods_that_go_or_have_ended_do_not_count() {
        for more in [
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            json!({"status": {"phase": "Succeeded"}}),
            json!({"status": {"phase": "Failed"}}),
        ] {
            assert_eq!(Gated::of(&pod(PITSTOP_READY, Some(("False", OURS)), &more)), None, "{more}");
        }
    }

    #[test]
    fn held_pods_are_errors_and_gates_are_warnings() {
        let of = |gates: &[Gate]| {
            let pods = gates.iter().map(|gate| Gated { name: "shop/web".to_owned(), gate: *gate });
            check(&Remains { pods: Known::Is(pods.collect()), ..Remains::default() })
        };
        let found = of(&[Gate::Free, Gate::Held, Gate::Unwritten, Gate::Free]);
        let verdicts = found.iter().map(|it| it.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts, [Level::Error, Level::Error, Level::Warning]);
        assert_eq!(found[0].text, "1 Pod held not ready by requests: shop/web");
        assert_eq!(found[2].text, "2 Pods with the readiness gate pitstop.dev/ready: shop/web, shop/web");
        assert_eq!(of(&[])[0].verdict, Level::Ok);
    }
}
