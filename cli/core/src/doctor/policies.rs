//! Admission policies, which make the rights of the two programs harmless.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::ResourceExt as _;

use super::{Facts, Finding, Probe, name_list};
use crate::known::Known;
use crate::{opt_in, plain};

const CHECK: &str = "policies";
const DENIAL: &str = "denial";
const MUTATING: &str = "mutating";
/// Policies of the component `in-place`: without them, its role lets the controller change workloads at will.
const IN_PLACE: [&str; 2] = ["pitstop-controller-rollouts", "pitstop-controller-workloads"];
/// Policies of every installation.
pub(super) const REQUIRED: [&str; 8] = [
    "pitstop-bounds",
    "pitstop-controller-pods",
    "pitstop-controller-pods-resize",
    "pitstop-controller-pods-status",
    "pitstop-daemon",
    "pitstop-users",
    "pitstop-users-images",
    "pitstop-users-rollouts",
];
/// Policies of the component `park`.
const PARK: [&str; 4] = ["pitstop-armed", "pitstop-park", "pitstop-strip", "pitstop-unpark"];
/// The policy that gives Pods their readiness gate, from Kubernetes 1.36 on.
const GATE: &str = "pitstop-readiness-gate";
/// The webhook that does so before 1.36, from the overlay `gate-webhook`.
const GATE_WEBHOOK: &str = "readiness-gate-of-pods.pitstop.dev";

const APPLY: &str = "Apply the installation again: docs/install.md.";

/// The policy of that name, if it exists.
pub(super) fn policy<'a>(facts: &'a Facts, name: &str) -> Option<&'a ValidatingAdmissionPolicy> {
    facts.policies.all().iter().find(|it| it.name_any() == name)
}

pub(super) fn validating(facts: &Facts) -> Vec<Finding> {
    if let Known::Unread(why) = &facts.policies {
        return vec![Finding::unknown(CHECK, "admission policies", why)];
    }
    if let Known::Unread(why) = &facts.bindings {
        return vec![Finding::unknown(CHECK, "bindings of admission policies", why)];
    }
    let in_place: &[&str] = if facts.opt_in_role.get().is_some() { &IN_PLACE } else { &[] };
    let required = REQUIRED.iter().chain(in_place).copied();
    let missing: Vec<&str> = required.filter(|name| policy(facts, name).is_none()).collect();
    let mut findings = Vec::new();
    if !missing.is_empty() {
        let text =
            format!("missing: {}; rights of pitstop or its users are not restricted", name_list(&missing));
        findings.push(Finding::error(CHECK, text, APPLY));
    }
    let mut deny = 0;
    for policy in facts.policies.all() {
        match judge(policy, facts) {
            Some(finding) => findings.push(finding),
            None => deny += 1,
        }
    }
    if deny > 0 {
        let text = if deny == 1 { "1 policy denies".to_owned() } else { format!("{deny} policies deny") };
        findings.insert(0, Finding::ok(CHECK, text));
    }
    findings
}

/// The finding about a policy; `None` if it denies.
fn judge(policy: &ValidatingAdmissionPolicy, facts: &Facts) -> Option<Finding> {
    let name = policy.name_any();
    let bound = facts.bindings.all().iter().filter_map(|it| it.spec.as_ref()).any(|spec| {
        let actions = spec.validation_actions.iter().flatten();
        spec.policy_name.as_deref() == Some(&name) && actions.clone().any(|action| action == "Deny")
    });
    if !bound {
        let text = format!("{name} has no binding with the action Deny");
        return Some(Finding::error(CHECK, text, APPLY));
    }
    let warnings =
        policy.status.as_ref().and_then(|it| it.type_checking.as_ref()?.expression_warnings.as_deref());
    if let Some(warning) = warnings.and_then(<[_]>::first) {
        let text = format!("{name}: {}: {}", warning.field_ref, plain::line(&warning.warning, 200));
        let to_do = "The API server may not evaluate the policy as intended: is this version of Kubernetes supported? See docs/install.md.";
        return Some(Finding::warning(CHECK, text, to_do));
    }
    let fails =
        policy.spec.as_ref().and_then(|it| it.failure_policy.as_deref()).is_none_or(|it| it == "Fail");
    (!fails).then(|| {
        let text = format!("{name} has failurePolicy Ignore: if it fails, requests are admitted");
        Finding::warning(CHECK, text, APPLY)
    })
}

/// Whether the API server denies a dry run; the controller checks the same (docs/adr/0006-see-the-policy-deny.md).
pub(super) fn denial(facts: &Facts) -> Vec<Finding> {
    let by_policy = "ValidatingAdmissionPolicy 'pitstop-daemon'";
    let finding = match &facts.denial {
        Probe::Allowed => Finding::error(
            DENIAL,
            "the policy pitstop-daemon does not deny: daemons are not restricted to their own node, and the controller places no orders",
            "Apply deploy/base/daemon/policy.yaml, policy and binding.",
        ),
        Probe::Refused { message, .. } if message.contains(by_policy) => {
            Finding::ok(DENIAL, "the API server enforces the policy pitstop-daemon")
        }
        Probe::Refused { code: 404, .. } => Finding::error(
            DENIAL,
            "NodeWorks are not served",
            "Apply the definitions of deploy/crds; see docs/install.md.",
        ),
        Probe::Refused { message, .. } | Probe::Unanswered(message) => {
            Finding::unknown(DENIAL, "whether the policy pitstop-daemon denies", message)
        }
    };
    vec![finding]
}

pub(super) fn mutating(facts: &Facts) -> Vec<Finding> {
    let webhooks = facts.webhook.get().and_then(|it| it.webhooks.as_deref()).unwrap_or_default();
    let by_webhook = webhooks.iter().any(|it| it.name == GATE_WEBHOOK);
    let served = match &facts.mutating {
        Known::Unread(why) => return vec![Finding::unknown(MUTATING, "mutating admission policies", why)],
        Known::Missing if facts.webhook == Known::Missing => return Vec::new(),
        Known::Missing => None,
        Known::Is(mutating) => Some(mutating),
    };
    let is_bound = |name: &str| served.is_some_and(|it| it.bound.iter().any(|bound| bound == name));
    let has = |name: &str| served.is_some_and(|it| it.policies.iter().any(|policy| policy == name));
    let gate = if has(GATE) && is_bound(GATE) {
        Finding::ok(MUTATING, format!("{GATE} adds the readiness gate to Pods that opt in"))
    } else if by_webhook {
        Finding::ok(MUTATING, "pitstop's webhook adds the readiness gate to Pods that opt in")
    } else {
        let folder = if served.is_some() { "target/deploy/default" } else { "target/deploy/gate-webhook" };
        let text = "Pods that opt in get no readiness gate: a drain does not take them out of service";
        Finding::warning(MUTATING, text, format!("Apply {folder}: docs/install.md."))
    };
    let present: Vec<&str> = PARK.into_iter().filter(|name| has(name)).collect();
    let lacks: Vec<&str> = PARK.into_iter().filter(|name| !(has(name) && is_bound(name))).collect();
    let park = match (present.as_slice(), lacks.as_slice()) {
        (_, []) => {
            Some(Finding::ok(MUTATING, "workloads that opt in are parked when their template changes"))
        }
        ([], _) => None,
        (_, lacks) => Some(Finding::error(
            MUTATING,
            format!("the component park lacks these policies or their bindings: {}", name_list(lacks)),
            "Apply the component park again: docs/install.md.",
        )),
    };
    std::iter::once(gate).chain(park).collect()
}

/// Whether the component `image-update` lets the controller change images in namespaces that opt in; `None`: unknown.
pub(super) fn updates_images(facts: &Facts) -> Option<bool> {
    let spec = policy(facts, "pitstop-controller-pods")?.spec.as_ref()?;
    let variable = spec.variables.iter().flatten().find(|it| it.name == "inPlace")?;
    Some(variable.expression.contains(opt_in::LABEL))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::ClusterRole;

    use super::super::fixtures::{binding, healthy, policy as made};
    use super::super::{Level, Mutating};
    use super::*;

    /// Names of a kind's objects in a file.
    fn names(file: &str, kind: &str) -> Vec<String> {
        let objects = file.split("\n---\n").filter(|it| {
            it.contains(&format!("\nkind: {kind}\n")) || it.starts_with(&format!("kind: {kind}\n"))
        });
        objects
            .filter_map(|it| Some(it.split("\nmetadata:\n  name: ").nth(1)?.lines().next()?.to_owned()))
            .collect()
    }

    #[test]
    fn the_names_are_those_of_the_files() {
        const KIND: &str = "ValidatingAdmissionPolicy";
        let base = [
            include_str!("../../../../deploy/base/bounds-policy.yaml"),
            include_str!("../../../../deploy/base/users-policy.yaml"),
            include_str!("../../../../deploy/base/controller/policy-pods.yaml"),
            include_str!("../../../../deploy/base/controller/policy-pods-resize.yaml"),
            include_str!("../../../../deploy/base/controller/policy-pods-status.yaml"),
            include_str!("../../../../deploy/base/daemon/policy.yaml"),
        ];
        let sorted = |files: &[&str], kind: &str| {
            let mut all: Vec<String> = files.iter().flat_map(|it| names(it, kind)).collect();
            all.sort();
            all
        };
        assert_eq!(sorted(&base, KIND), REQUIRED);
        assert_eq!(
            sorted(&[include_str!("../../../../deploy/components/in-place/policy.yaml")], KIND),
            IN_PLACE
        );
        let park = [
            include_str!("../../../../deploy/components/park/park.yaml"),
            include_str!("../../../../deploy/components/park/strip.yaml"),
            include_str!("../../../../deploy/components/park/unpark.yaml"),
        ];
        assert_eq!(sorted(&park, "MutatingAdmissionPolicy"), PARK);
        let gate = include_str!("../../../../deploy/gate-policy/policy.yaml");
        assert_eq!(names(gate, "MutatingAdmissionPolicy"), [GATE]);
        let image = include_str!("../../../../deploy/components/image-update/kustomization.yaml");
        assert!(
            image.contains("name: pitstop-controller-pods\n")
                && image.contains("value: inPlace\n")
                && image.contains(opt_in::LABEL)
        );
        let webhook = include_str!("../../../../deploy/overlays/gate-webhook/kustomization.yaml");
        assert!(webhook.contains(GATE_WEBHOOK));
    }

    fn with(change: impl FnOnce(&mut Facts)) -> Vec<Finding> {
        let mut facts = healthy();
        change(&mut facts);
        validating(&facts).into_iter().filter(|it| it.verdict != Level::Ok).collect()
    }

    #[test]
    fn a_policy_without_effect_is_an_error() {
        let bindings = || REQUIRED.iter().filter(|it| **it != "pitstop-users").map(|it| binding(it, "Deny"));
        let unbound = with(|it| it.bindings = Known::Is(bindings().collect()));
        assert_eq!((unbound.len(), unbound[0].verdict), (1, Level::Error));
        assert_eq!(unbound[0].text, "pitstop-users has no binding with the action Deny");
        let audits = bindings().chain([binding("pitstop-users", "Audit")]).collect();
        let audited = with(|it| it.bindings = Known::Is(audits));
        assert_eq!(audited, unbound);
    }

    #[test]
    fn missing_policies_are_named_and_a_role_needs_its_own() {
        let some: Vec<_> = REQUIRED[1..].iter().map(|it| made(it)).collect();
        let found = with(|it| it.policies = Known::Is(some));
        assert!(found[0].text.starts_with("missing: pitstop-bounds; rights"), "{found:?}");
        let role = with(|it| {
            it.opt_in_role = Known::Is(ClusterRole::default());
            it.policies = Known::Is(REQUIRED.iter().map(|it| made(it)).collect());
        });
        assert!(
            role[0].text.contains("pitstop-controller-rollouts, pitstop-controller-workloads"),
            "{role:?}"
        );
    }

    #[test]
    fn only_the_policys_own_denial_counts() {
        let result = |probe: Probe| denial(&Facts { denial: probe, ..healthy() })[0].verdict;
        let refused = |code: u16, message: &str| Probe::Refused { code, message: message.to_owned() };
        let denied = "nodeworks.pitstop.dev \"self-check.pitstop.dev\" is forbidden: ValidatingAdmissionPolicy \
                      'pitstop-daemon' with binding 'pitstop-daemon' denied request: no";
        assert_eq!(result(refused(403, denied)), Level::Ok);
        assert_eq!(result(refused(403, "User \"u\" cannot create resource \"nodeworks\"")), Level::Unknown);
        assert_eq!(result(refused(404, "404 page not found")), Level::Error);
        assert_eq!(result(Probe::Allowed), Level::Error);
    }

    #[test]
    fn the_gate_comes_from_a_policy_or_from_the_webhook() {
        let found = |mutating: Known<Mutating>| super::mutating(&Facts { mutating, ..healthy() });
        let none = found(Known::Missing);
        assert!(none[0].verdict == Level::Warning && none[0].to_do.contains("gate-webhook"), "{none:?}");
        let half = |bound: &[&str]| {
            let all = PARK.iter().chain([&GATE]).map(|it| (*it).to_owned()).collect();
            found(Known::Is(Mutating {
                policies: all,
                bound: bound.iter().map(|it| (*it).to_owned()).collect(),
            }))
        };
        let found = half(&[GATE, "pitstop-park", "pitstop-armed", "pitstop-unpark"]);
        assert_eq!((found[0].verdict, found[1].verdict), (Level::Ok, Level::Error));
        assert!(found[1].text.ends_with("pitstop-strip"), "{found:?}");
        assert!(half(&[&PARK[..], &[GATE]].concat()).iter().all(|it| it.verdict == Level::Ok));
    }
}
