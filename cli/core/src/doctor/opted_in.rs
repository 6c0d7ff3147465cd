//! Namespaces that let pitstop change images and release workloads: a label and a `RoleBinding`
//! (docs/tasks/update-a-workload.md).

use std::collections::BTreeSet;

use kube::ResourceExt as _;

use super::policies::updates_images;
use super::{Facts, Finding, count, name_list};
use crate::known::Known;
use crate::opt_in;

const CHECK: &str = "opt-in";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let labelled: BTreeSet<String> = match &facts.opted_in {
        Known::Unread(why) => return vec![Finding::unknown(CHECK, "namespaces", why)],
        found => found.all().iter().map(kube::ResourceExt::name_any).collect(),
    };
    let bindings = match &facts.opt_in_bindings {
        Known::Unread(why) => return vec![Finding::unknown(CHECK, "RoleBindings", why)],
        found => found.all(),
    };
    let bound: BTreeSet<String> = bindings
        .iter()
        .filter_map(|it| {
            let namespace = it.namespace()?;
            opt_in::check_binding(it, &opt_in::binding(&namespace, &facts.system)).ok().map(|()| namespace)
        })
        .collect();
    let mut findings = Vec::new();
    let mut differ = |of: &BTreeSet<String>, other: &BTreeSet<String>, what: &str| {
        let lack: Vec<&String> = of.difference(other).collect();
        if !lack.is_empty() {
            let text = format!("{} {what}: {}", count(lack.len(), "namespace"), name_list(&lack));
            findings.push(Finding::warning(
                CHECK,
                text,
                "Complete the opt-in with kubectl pitstop enable namespace/NAME, or end it with disable.",
            ));
        }
    };
    differ(&labelled, &bound, "with the label, but without the right to release workloads");
    differ(&bound, &labelled, "with the right to release workloads, but without the label");
    if !labelled.is_empty() && updates_images(facts) == Some(false) {
        findings.push(Finding::warning(
            CHECK,
            format!("the label {} gives no right to change images", opt_in::LABEL),
            "Install the component image-update: docs/install.md#combine-components.",
        ));
    }
    let complete = labelled.intersection(&bound).cloned().collect::<Vec<_>>();
    if findings.is_empty() {
        let text = if complete.is_empty() {
            "no namespace lets pitstop change images".to_owned()
        } else {
            format!("{}: {}", count(complete.len(), "namespace"), name_list(&complete))
        };
        findings.push(Finding::ok(CHECK, text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Level;
    use super::super::fixtures::{healthy, policy, read};
    use super::*;

    fn with(labelled: &[&str], bound: &[&str], expression: &str) -> Vec<Finding> {
        let namespaces = labelled.iter().map(|it| read(json!({"metadata": {"name": it}}))).collect();
        let bindings = bound.iter().map(|it| opt_in::binding(it, "pitstop-system")).collect();
        let mut pods = policy("pitstop-controller-pods");
        let variable = read(json!({"name": "inPlace", "expression": expression}));
        pods.spec.get_or_insert_default().variables = Some(vec![variable]);
        check(&Facts {
            opted_in: Known::Is(namespaces),
            opt_in_bindings: Known::Is(bindings),
            policies: Known::Is(vec![pods]),
            ..healthy()
        })
    }

    const GIVEN: &str = "namespaceObject.metadata.?labels[?'pitstop.dev/in-place'].orValue('') == 'enabled'";

    #[test]
    fn an_opt_in_is_a_label_and_a_binding() {
        assert_eq!(with(&["shop"], &["shop"], GIVEN), [Finding::ok(CHECK, "1 namespace: shop")]);
        assert_eq!(with(&[], &[], "false")[0].verdict, Level::Ok);
        let half = with(&["shop", "bank"], &["shop", "news"], GIVEN);
        assert_eq!(
            half[0].text,
            "1 namespace with the label, but without the right to release workloads: bank"
        );
        assert_eq!(
            half[1].text,
            "1 namespace with the right to release workloads, but without the label: news"
        );
        let without = with(&["shop"], &["shop"], "false");
        assert!(
            without[0].verdict == Level::Warning && without[0].to_do.contains("image-update"),
            "{without:?}"
        );
    }
}
