//! `OpenKruise` in the cluster: two controllers would carry out the same requests (docs/adr/0005-beside-openkruise.md).

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use pitstop_api::recreate;

use super::{Facts, Finding, KRUISE_WEBHOOK, name_list};
use crate::known::Known;

const CHECK: &str = "openkruise";
/// Helm's annotation with the release name (its own documentation), and the name in Kruise's installation guide.
const RELEASE: (&str, &str) = ("meta.helm.sh/release-name", "kruise");
/// The controller's flag that says that Kruise's part is off (docs/install.md#options).
const FLAG: &str = "--kruise-crr-off";
const VARIABLE: &str = "PITSTOP_KRUISE_CRR_OFF";
const SEE: &str = "See docs/install.md#beside-openkruise.";

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if let Known::Unread(why) = &facts.kruise {
        return vec![Finding::unknown(CHECK, "whether OpenKruise is installed", why)];
    }
    let signs = signs(facts);
    if signs.is_empty() {
        return vec![Finding::ok(CHECK, "not installed")];
    }
    let found = name_list(&signs.iter().map(|it| it.text.as_str()).collect::<Vec<_>>());
    let deployments = match &facts.deployments {
        Known::Unread(why) => {
            let what = format!("whether the controller has {FLAG} ({found})");
            return vec![Finding::unknown(CHECK, &what, why)];
        }
        deployments => deployments.all(),
    };
    if !deployments.iter().any(kruise_is_off) {
        let text = format!("{found}: the controller carries out no request");
        return vec![Finding::error(CHECK, text, SEE)];
    }
    if signs.iter().any(|it| it.hinders) {
        let text = format!("{found}: OpenKruise may refuse requests");
        return vec![Finding::warning(CHECK, text, SEE)];
    }
    vec![Finding::ok(CHECK, format!("{found}; {FLAG} says that its controller for these requests is off"))]
}

struct Sign {
    text: String,
    /// With its own feature gate off, Kruise refuses requests.
    hinders: bool,
}

/// The signs of Kruise that the controller looks for, too (controller/core/src/coexist.rs).
fn signs(facts: &Facts) -> Vec<Sign> {
    let mut signs = Vec::new();
    if let Known::Is(configuration) = &facts.kruise {
        let rules = configuration.webhooks.iter().flatten().flat_map(|it| it.rules.iter().flatten());
        let asked = rules
            .clone()
            .any(|it| it.resources.iter().flatten().any(|resource| resource == recreate::PLURAL));
        let text = format!("the MutatingWebhookConfiguration {KRUISE_WEBHOOK} exists");
        signs.push(Sign { text, hinders: asked });
    }
    let name = format!("{}.apps.kruise.io", recreate::PLURAL);
    let Some(definition) = facts.definitions.get(&name).and_then(Known::get) else { return signs };
    let webhook = definition.spec.conversion.as_ref().is_some_and(|it| it.strategy == "Webhook");
    if webhook {
        signs.push(Sign { text: format!("a webhook converts {name}"), hinders: true });
    }
    if definition.annotations().get(RELEASE.0).is_some_and(|it| it == RELEASE.1) {
        signs.push(Sign { text: format!("the Helm release kruise owns {name}"), hinders: false });
    }
    signs
}

/// The controller's options say that Kruise's own controller for these requests is off.
fn kruise_is_off(deployment: &Deployment) -> bool {
    let pod = deployment.spec.as_ref().and_then(|it| it.template.spec.as_ref());
    pod.into_iter().flat_map(|it| &it.containers).any(|container| {
        let flags = container.args.iter().chain(&container.command).flatten();
        let by_flag = flags.clone().any(|it| it == FLAG || it.strip_prefix(FLAG) == Some("=true"));
        let value =
            container.env.iter().flatten().find(|it| it.name == VARIABLE).and_then(|it| it.value.as_deref());
        by_flag
            || value.is_some_and(|it| {
                !matches!(it.to_ascii_lowercase().as_str(), "" | "0" | "n" | "no" | "f" | "false" | "off")
            })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Level;
    use super::super::fixtures::{healthy, read};
    use super::*;

    fn beside(rules: &Value, container: &Value) -> Finding {
        let webhook = json!({"name": "x", "clientConfig": {}, "admissionReviewVersions": ["v1"],
            "sideEffects": "None", "rules": rules});
        let kruise = Known::Is(read(json!({"metadata": {"name": KRUISE_WEBHOOK}, "webhooks": [webhook]})));
        let deployment = json!({"metadata": {"name": "pitstop-controller"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [container]}}}});
        check(&Facts { kruise, deployments: Known::Is(vec![read(deployment)]), ..healthy() }).remove(0)
    }

    #[test]
    fn beside_kruise_nothing_is_carried_out_until_the_controller_is_told() {
        let pods = json!([{"resources": ["pods"]}]);
        let requests = json!([{"resources": ["containerrecreaterequests"]}]);
        let found = beside(&pods, &json!({"name": "controller"}));
        assert!(found.verdict == Level::Error && found.text.contains(KRUISE_WEBHOOK), "{found:?}");
        let off = json!({"name": "controller", "env": [{"name": VARIABLE, "value": "true"}]});
        assert_eq!(beside(&pods, &off).verdict, Level::Ok);
        assert_eq!(beside(&requests, &off).verdict, Level::Warning);
        let flag = json!({"name": "controller", "args": [FLAG]});
        assert_eq!(beside(&pods, &flag).verdict, Level::Ok);
        let not = json!({"name": "controller", "env": [{"name": VARIABLE, "value": "false"}]});
        assert_eq!(beside(&pods, &not).verdict, Level::Error);
    }

    #[test]
    fn a_definition_of_kruise_is_a_sign_too() {
        let mut facts = healthy();
        let name = "containerrecreaterequests.apps.kruise.io";
        let Some(Known::Is(definition)) = facts.definitions.get_mut(name) else { panic!("no {name}") };
        definition.metadata.annotations = Some([(RELEASE.0.to_owned(), RELEASE.1.to_owned())].into());
        let found = check(&facts);
        assert!(
            found[0].verdict == Level::Error && found[0].text.contains("Helm release kruise"),
            "{found:?}"
        );
    }
}
