//! Connections that the `NetworkPolicies` of a set of manifests allow, by the rules of `networking.k8s.io/v1`. Without
//! a policy for a Pod and direction, all connections are open. Otherwise, those that any of its policies lists are
//! open.

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::object::{Object, list, text};

/// Direction of a connection, seen from the Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the Pod.
    Ingress,
    /// From the Pod.
    Egress,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A Pod of another namespace.
    Pod,
    /// No Pod, nor the Pod's own node: the API server, another node, another host.
    Outside,
}

/// The properties of a Pod that policies select.
#[derive(Clone, Copy, Debug)]
pub struct Selected<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its labels, a JSON object.
    pub labels: &'a Value,
}

/// Whether the policies allow a connection to that port: the Pod's for [`Direction::Ingress`], otherwise the peer's.
///
/// Fails for unsupported rules: named ports, address blocks, Pod selectors other than labels, peers other than all
/// namespaces.
pub fn allows(
    objects: &[Object],
    pod: Selected<'_>,
    direction: Direction,
    peer: Peer,
    (protocol, port): (&str, u64),
) -> Result<bool> {
    let (rules, peers) = match direction {
        Direction::Ingress => ("ingress", "from"),
        Direction::Egress => ("egress", "to"),
    };
    let mut open = true;
    for policy in objects.iter().filter(|o| o.kind() == "NetworkPolicy" && o.namespace() == pod.namespace) {
        let about = || format!("NetworkPolicy {}", policy.name());
        let spec = policy.0.get("spec").with_context(about)?;
        let types: Vec<&str> = list(spec, "/policyTypes").iter().filter_map(Value::as_str).collect();
        let kind = format!("{direction:?}");
        if !types.contains(&kind.as_str())
            || !selects(spec.get("podSelector"), pod.labels).with_context(about)?
        {
            continue;
        }
        open = false;
        for rule in list(spec, &format!("/{rules}")) {
            let fits = is_peer(rule.get(peers), peer).with_context(about)?
                && is_port(rule.get("ports"), protocol, port).with_context(about)?;
            if fits {
                return Ok(true);
            }
        }
    }
    Ok(open)
}

fn selects(selector: Option<&Value>, labels: &Value) -> Result<bool> {
    let selector = selector.and_then(Value::as_object).context("a policy selects Pods")?;
    if selector.keys().any(|key| key != "matchLabels") {
        bail!("podSelector: only matchLabels is known here");
    }
    let wanted = selector.get("matchLabels").and_then(Value::as_object);
    Ok(wanted.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value)))
}

fn is_peer(allowed: Option<&Value>, peer: Peer) -> Result<bool> {
    let Some(allowed) = allowed else { return Ok(true) };
    let allowed =
        allowed.as_array().filter(|all| !all.is_empty()).context("an empty list means everybody")?;
    for one in allowed {
        if *one != serde_json::json!({"namespaceSelector": {}}) {
            bail!("{one}: only all namespaces are known here");
        }
    }
    Ok(peer == Peer::Pod)
}

fn is_port(allowed: Option<&Value>, protocol: &str, port: u64) -> Result<bool> {
    let Some(allowed) = allowed else { return Ok(true) };
    let allowed =
        allowed.as_array().filter(|all| !all.is_empty()).context("an empty list means every port")?;
    let mut found = false;
    for one in allowed {
        let number = match one.get("port") {
            None => None,
            Some(number) => {
                Some(number.as_u64().with_context(|| format!("{one}: only numbers are known here"))?)
            }
        };
        if one.get("endPort").is_some() {
            bail!("{one}: endPort is not known here");
        }
        found |= text(one, "/protocol") == protocol && number.is_none_or(|number| number == port);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(spec: &Value) -> Object {
        Object(json!({"kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": "n"}, "spec": spec}))
    }

    fn asked(policies: &[Object], labels: &Value, peer: Peer, port: u64) -> Result<bool> {
        let pod = Selected { namespace: "n", labels };
        allows(policies, pod, Direction::Ingress, peer, ("TCP", port))
    }

    #[test]
    fn who_is_not_selected_is_open_and_who_is_has_what_any_policy_lists() {
        let nobody = policy(&json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
        let metrics = policy(&json!({
            "podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 1}]}],
        }));
        let (own, other) = (json!({"a": "b", "c": "d"}), json!({"a": "x"}));
        assert!(asked(&[], &own, Peer::Outside, 7).unwrap());
        let all = [nobody, metrics];
        assert!(asked(&all, &own, Peer::Pod, 1).unwrap());
        assert!(!asked(&all, &own, Peer::Outside, 1).unwrap());
        assert!(!asked(&all, &own, Peer::Pod, 2).unwrap());
        assert!(!asked(&all, &other, Peer::Pod, 1).unwrap());
        let pod = Selected { namespace: "n", labels: &own };
        assert!(!allows(&all, pod, Direction::Ingress, Peer::Pod, ("UDP", 1)).unwrap());
        assert!(
            allows(&all, pod, Direction::Egress, Peer::Outside, ("UDP", 9)).unwrap(),
            "no policy is about it"
        );
        let elsewhere = Selected { namespace: "m", labels: &own };
        assert!(allows(&all, elsewhere, Direction::Ingress, Peer::Pod, ("TCP", 7)).unwrap());
    }

    #[test]
    fn what_cannot_be_judged_is_an_error() {
        for rule in [
            json!({"ports": [{"protocol": "TCP", "port": "web"}]}),
            json!({"ports": [{"protocol": "TCP", "port": 1, "endPort": 3}]}),
            json!({"ports": []}),
            json!({"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}),
            json!({"from": [{"namespaceSelector": {}, "podSelector": {}}]}),
        ] {
            let one = policy(&json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [rule]}));
            assert!(asked(&[one], &json!({}), Peer::Pod, 7).is_err());
        }
        let expressions =
            policy(&json!({"podSelector": {"matchExpressions": []}, "policyTypes": ["Ingress"]}));
        assert!(asked(&[expressions], &json!({}), Peer::Pod, 7).is_err());
    }
}
