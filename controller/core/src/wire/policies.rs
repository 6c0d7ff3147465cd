//! Restart policies in a Pod's spec.

use serde::Deserialize;

use crate::pod::{MAX_EXIT_CODES, MAX_RULES, OwnPolicy, RestartPolicy, RestartRule};

/// One of `restartPolicyRules`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SlimRule {
    action: String,
    exit_codes: Option<SlimExitCodes>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimExitCodes {
    operator: String,
    values: Vec<i32>,
}

/// `None` for an unknown word.
pub(super) fn policy(text: &str) -> Option<RestartPolicy> {
    match text {
        "Always" => Some(RestartPolicy::Always),
        "OnFailure" => Some(RestartPolicy::OnFailure),
        "Never" => Some(RestartPolicy::Never),
        _ => None,
    }
}

/// A container's own restart policy. Without a policy its rules do not count, as for the kubelet; nor does an unknown
/// rule.
pub(super) fn own_policy(text: Option<&str>, rules: Vec<SlimRule>) -> Option<Box<OwnPolicy>> {
    let policy = policy(text?)?;
    let rule = |rule: SlimRule| {
        let codes = rule.exit_codes?;
        Some(RestartRule {
            all: match rule.action.as_str() {
                "Restart" => false,
                "RestartAllContainers" => true,
                _ => return None,
            },
            not_in: match codes.operator.as_str() {
                "In" => false,
                "NotIn" => true,
                _ => return None,
            },
            codes: codes.values.into_iter().take(MAX_EXIT_CODES).collect(),
        })
    };
    let rules = rules.into_iter().take(MAX_RULES).filter_map(rule).collect();
    Some(Box::new(OwnPolicy { policy, rules }))
}

#[cfg(test)]
mod tests {
    use super::super::slim::pod;
    use super::*;

    #[test]
    fn a_containers_own_restart_policy_is_understood() {
        let container = |of: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"web"}},"spec":{{"restartPolicy":"Always","containers":[{{"name":"app"{of}}}]}}}}"#
            );
            pod(serde_json::from_str(&text).unwrap()).containers.remove(0).own_policy
        };
        assert_eq!(container(""), None);
        assert_eq!(container(r#","restartPolicy":"Sometimes""#), None);
        let never = container(r#","restartPolicy":"Never""#).unwrap();
        assert_eq!((never.policy, never.rules), (RestartPolicy::Never, Vec::new()));
        let rules = r#""restartPolicyRules":[
            {"action":"Restart","exitCodes":{"operator":"In","values":[42,43]}},
            {"action":"RestartAllContainers","exitCodes":{"operator":"NotIn","values":[0]}},
            {"action":"Explode","exitCodes":{"operator":"In","values":[1]}},
            {"action":"Restart","exitCodes":{"operator":"Near","values":[1]}},
            {"action":"Restart"}]"#;
        let own = container(&format!(r#","restartPolicy":"OnFailure",{rules}"#)).unwrap();
        let rule =
            |all, codes: &[i32]| RestartRule { all, not_in: all, codes: codes.iter().copied().collect() };
        assert_eq!(own.policy, RestartPolicy::OnFailure);
        assert_eq!(own.rules, [rule(false, &[42, 43]), rule(true, &[0])]);
        assert_eq!(container(&format!(",{rules}")), None, "the kubelet looks at them only beside a policy");
    }

    #[test]
    fn no_more_rules_are_kept_than_kubernetes_accepts() {
        let values: Vec<i32> = (0..2000).collect();
        let rule =
            serde_json::json!({"action": "Restart", "exitCodes": {"operator": "In", "values": values}});
        let container = serde_json::json!({"name": "app", "restartPolicy": "Never", "restartPolicyRules": vec![rule; 50]});
        let object = serde_json::json!({"metadata": {"name": "web"}, "spec": {"containers": [container]}});
        let own = pod(serde_json::from_value(object).unwrap()).containers.remove(0).own_policy.unwrap();
        assert_eq!((own.rules.len(), own.rules[0].codes.len()), (MAX_RULES, MAX_EXIT_CODES));
    }
}
