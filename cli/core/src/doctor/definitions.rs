//! Checks the `CustomResourceDefinition`s.

use std::collections::BTreeSet;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use pitstop_api::crds::crds;

use super::{Facts, Finding, count, name_list};
use crate::known::Known;

const CHECK: &str = "definitions";
const APPLY: &str = "Apply the definitions of deploy/crds; see docs/install.md.";

/// Names of the definitions that an installation has.
pub fn definition_names() -> Vec<String> {
    crds().into_iter().filter_map(|definition| definition.metadata.name).collect()
}

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut same, mut missing, mut unread) = (0, Vec::new(), Vec::new());
    for expected in crds() {
        let name = expected.metadata.name.clone().unwrap_or_default();
        match facts.definitions.get(&name) {
            Some(Known::Is(installed)) => match judge(&name, &expected, installed) {
                Some(finding) => findings.push(finding),
                None => same += 1,
            },
            Some(Known::Unread(why)) => unread.push((name, why)),
            Some(Known::Missing) | None => missing.push(name),
        }
    }
    if let Some((_, why)) = unread.first() {
        let names: Vec<&String> = unread.iter().map(|(name, _)| name).collect();
        findings.push(Finding::unknown(CHECK, &name_list(&names), why));
    }
    if !missing.is_empty() {
        findings.push(Finding::error(CHECK, format!("not installed: {}", name_list(&missing)), APPLY));
    }
    if same > 0 {
        findings.insert(0, Finding::ok(CHECK, format!("{} as in this program", count(same, "definition"))));
    }
    findings
}

/// The finding about a definition; `None` if it matches this program's.
fn judge(
    name: &str,
    expected: &CustomResourceDefinition,
    installed: &CustomResourceDefinition,
) -> Option<Finding> {
    let conditions = installed.status.as_ref().and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    if let Some(not) = conditions.iter().find(|it| it.type_ == "Established" && it.status != "True") {
        let why = not.message.as_deref().unwrap_or_default();
        return Some(Finding::error(CHECK, format!("{name} is not served: {why}"), APPLY));
    }
    let served = |of: &CustomResourceDefinition| -> BTreeSet<String> {
        of.spec.versions.iter().filter(|it| it.served).map(|it| it.name.clone()).collect()
    };
    let lacks: Vec<String> = served(expected).difference(&served(installed)).cloned().collect();
    if !lacks.is_empty() {
        return Some(Finding::error(CHECK, format!("{name} does not serve {}", name_list(&lacks)), APPLY));
    }
    let (expected, installed) = (fields(expected), fields(installed));
    let missing: Vec<&String> = expected.difference(&installed).collect();
    let unknown: Vec<&String> = installed.difference(&expected).collect();
    let differs = |how: &str, fields: &[&String], to_do: &str| {
        let text = format!("{name} is {how} {}", name_list(fields));
        Some(Finding::warning(CHECK, text, to_do))
    };
    match (missing.as_slice(), unknown.as_slice()) {
        ([], []) => None,
        ([], unknown) => differs(
            "newer than this program: it adds",
            unknown,
            "Use kubectl-pitstop of the installed version.",
        ),
        (missing, _) => differs(
            "older than this program: it lacks",
            missing,
            "The API server drops these fields. Upgrade the installation (docs/upgrade.md), or use kubectl-pitstop of its version.",
        ),
    }
}

/// The paths of all fields in the stored version.
fn fields(definition: &CustomResourceDefinition) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let stored = definition.spec.versions.iter().find(|it| it.storage);
    if let Some(schema) = stored.and_then(|it| it.schema.as_ref()?.open_api_v3_schema.as_ref()) {
        collect("", schema, &mut all);
    }
    all
}

fn collect(path: &str, schema: &JSONSchemaProps, all: &mut BTreeSet<String>) {
    for (name, property) in schema.properties.iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(&path, property, all);
        all.insert(path);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        collect(path, items, all);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        collect(path, values, all);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinitionCondition, CustomResourceDefinitionStatus,
    };

    use super::super::{Level, fixtures::healthy};
    use super::*;

    const RESIZES: &str = "podresizes.pitstop.dev";

    fn with(change: impl FnOnce(&mut CustomResourceDefinition)) -> Vec<Finding> {
        let mut facts = healthy();
        let Some(Known::Is(definition)) = facts.definitions.get_mut(RESIZES) else { panic!("no {RESIZES}") };
        change(definition);
        check(&facts).into_iter().filter(|it| it.verdict != Level::Ok).collect()
    }

    fn spec(definition: &mut CustomResourceDefinition) -> &mut JSONSchemaProps {
        let schema =
            definition.spec.versions[0].schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        schema.properties.as_mut().unwrap().get_mut("spec").unwrap()
    }

    #[test]
    fn an_older_definition_lacks_fields_that_are_named() {
        let found = with(|it| drop(spec(it).properties.as_mut().unwrap().remove("cancel")));
        assert_eq!((found.len(), found[0].verdict), (1, Level::Warning));
        assert_eq!(found[0].text, "podresizes.pitstop.dev is older than this program: it lacks spec.cancel");
    }

    #[test]
    fn a_newer_definition_has_fields_that_this_program_does_not_know() {
        let found = with(|it| {
            spec(it).properties.as_mut().unwrap().insert("later".into(), JSONSchemaProps::default());
        });
        assert_eq!(found[0].text, "podresizes.pitstop.dev is newer than this program: it adds spec.later");
    }

    #[test]
    fn what_is_not_served_is_an_error() {
        let found = with(|it| it.spec.versions[0].served = false);
        assert_eq!(
            (found[0].verdict, &*found[0].text),
            (Level::Error, "podresizes.pitstop.dev does not serve v1alpha1")
        );
        let not = CustomResourceDefinitionCondition {
            type_: "Established".into(),
            status: "False".into(),
            message: Some("names conflict".into()),
            ..CustomResourceDefinitionCondition::default()
        };
        let status = CustomResourceDefinitionStatus { conditions: Some(vec![not]), ..Default::default() };
        let found = with(|it| it.status = Some(status));
        assert_eq!(found[0].text, "podresizes.pitstop.dev is not served: names conflict");
    }
}
