//! Harmless objects that stay in namespaces: labels, and the `RoleBinding`s of the opt-in.

use std::collections::BTreeSet;

use pitstop_api::readiness;

use super::super::{Finding, count, name_list};
use super::Remains;
use crate::known::Known;
use crate::opt_in;

const CHECK: &str = "leftovers";

pub(super) fn check(remains: &Remains) -> Vec<Finding> {
    let mut findings = Vec::new();
    for found in [&remains.opted_in, &remains.gates] {
        if let Known::Unread(why) = found {
            findings.push(Finding::unknown(CHECK, "namespaces", why));
            // The reason is the same for both labels.
            break;
        }
    }
    if let Known::Unread(why) = &remains.bindings {
        findings.push(Finding::unknown(CHECK, "RoleBindings", why));
    }
    let bound = remains.bindings.all().iter().filter(|it| it.role_ref.name == opt_in::ROLE);
    let labelled = remains.opted_in.all().iter().map(kube::ResourceExt::name_any);
    let opted_in: BTreeSet<String> = labelled.chain(bound.filter_map(kube::ResourceExt::namespace)).collect();
    let gates: BTreeSet<String> = remains.gates.all().iter().map(kube::ResourceExt::name_any).collect();
    let mut report = |namespaces: BTreeSet<String>, what: String, to_do: String| {
        if !namespaces.is_empty() {
            let names: Vec<String> = namespaces.into_iter().collect();
            let text = format!("{what} in {}: {}", count(names.len(), "namespace"), name_list(&names));
            findings.push(Finding::warning(CHECK, text, to_do));
        }
    };
    report(
        opted_in,
        format!("label {} or RoleBinding {}", opt_in::LABEL, opt_in::ROLE),
        "They are harmless. Remove both with kubectl pitstop disable namespace/NAME.".to_owned(),
    );
    report(
        gates,
        format!("label {}", readiness::OPT_IN),
        format!("It is harmless. Remove it with kubectl label namespace NAME {}-", readiness::OPT_IN),
    );
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "no namespace has opted in"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::Level;
    use super::super::super::fixtures::read;
    use super::*;

    #[test]
    fn namespaces_are_named_with_what_removes_their_opt_in() {
        let namespace = |name: &str| read(json!({"metadata": {"name": name}}));
        let mut other = opt_in::binding("news", "pitstop-system");
        other.role_ref.name = "view".to_owned();
        let found = check(&Remains {
            opted_in: Known::Is(vec![namespace("shop")]),
            bindings: Known::Is(vec![
                opt_in::binding("shop", "pitstop-system"),
                opt_in::binding("bank", "elsewhere"),
                other,
            ]),
            gates: Known::Is(vec![namespace("shop")]),
            ..Remains::default()
        });
        assert!(found.iter().all(|it| it.verdict == Level::Warning), "{found:?}");
        let text = "label pitstop.dev/in-place or RoleBinding pitstop-in-place in 2 namespaces: bank, shop";
        assert_eq!(found[0].text, text);
        assert!(found[0].to_do.contains("kubectl pitstop disable namespace/NAME"), "{found:?}");
        assert_eq!(found[1].text, "label pitstop.dev/readiness-gate in 1 namespace: shop");
        assert_eq!(check(&Remains::default()), [Finding::ok(CHECK, "no namespace has opted in")]);
    }
}
