//! The caller's rights in a namespace.

use pitstop_api::{image_update, recreate, resize, rollout};

use super::{Facts, Finding, Right, RightReview, name_list};
use crate::known::Known;

const CHECK: &str = "rights";

const KRUISE: &str = "apps.kruise.io";
const PITSTOP: &str = "pitstop.dev";

/// Rights that this program's commands need in their target's namespace.
pub fn needed_rights() -> Vec<Right> {
    let kinds = [
        (KRUISE, recreate::PLURAL),
        (PITSTOP, resize::PLURAL),
        (PITSTOP, image_update::PLURAL),
        (PITSTOP, rollout::PLURAL),
    ];
    let verbs = ["list", "watch", "create", "patch", "delete"];
    let of = |verb, group, resource, subresource| Right { verb, group, resource, subresource };
    let all = kinds.into_iter().flat_map(|(group, kind)| verbs.map(|verb| of(verb, group, kind, "")));
    // The policies pitstop-users demand these of a request's creator (deploy/base/users-policy.yaml).
    let by_hand = [
        of("get", "", "pods", ""),
        of("patch", "", "pods", ""),
        of("patch", "", "pods", "resize"),
        of("patch", "apps", "deployments", ""),
        of("patch", "apps", "statefulsets", ""),
        of("patch", "apps", "daemonsets", ""),
    ];
    all.chain(by_hand).collect()
}

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let unread = facts.rights.iter().find_map(|it| match &it.allowed {
        Known::Unread(why) => Some(why),
        Known::Is(_) | Known::Missing => None,
    });
    if let Some(why) = unread {
        return vec![Finding::unknown(CHECK, "your rights", why)];
    }
    let lacks: Vec<&RightReview> = facts.rights.iter().filter(|it| it.allowed != Known::Is(true)).collect();
    if lacks.is_empty() {
        return vec![Finding::ok(
            CHECK,
            format!("you may use every command in namespace {}", facts.namespace),
        )];
    }
    let mut by_resource: Vec<(String, Vec<&str>)> = Vec::new();
    for RightReview { right, .. } in lacks {
        let resource = match right.subresource {
            "" => right.resource.to_owned(),
            sub => format!("{}/{sub}", right.resource),
        };
        match by_resource.iter_mut().find(|(it, _)| *it == resource) {
            Some((_, verbs)) => verbs.push(right.verb),
            None => by_resource.push((resource, vec![right.verb])),
        }
    }
    let missing: Vec<String> =
        by_resource.iter().map(|(resource, verbs)| format!("{} {resource}", verbs.join("/"))).collect();
    let text = format!("in namespace {} you may not {}", facts.namespace, name_list(&missing));
    let to_do = "Bind the ClusterRole edit, and for the right to resize pitstop-resizer.";
    vec![Finding::warning(CHECK, text, to_do)]
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::fixtures::healthy;
    use super::*;

    #[test]
    fn missing_rights_are_told_by_resource() {
        let may = |allowed: fn(&Right) -> bool| {
            let rights = needed_rights().into_iter();
            let rights = rights.map(|right| RightReview { allowed: Known::Is(allowed(&right)), right });
            check(&Facts { rights: rights.collect(), namespace: "shop".into(), ..healthy() }).remove(0)
        };
        assert_eq!(may(|_| true), Finding::ok(CHECK, "you may use every command in namespace shop"));
        let some = may(|it| it.subresource.is_empty() && (it.resource != "podresizes" || it.verb == "list"));
        assert_eq!(some.verdict, Level::Warning);
        assert_eq!(
            some.text,
            "in namespace shop you may not watch/create/patch/delete podresizes, patch pods/resize"
        );
    }

    #[test]
    fn the_role_edit_has_what_the_text_says() {
        let roles = include_str!("../../../../deploy/base/users.yaml");
        for kind in [recreate::PLURAL, resize::PLURAL, image_update::PLURAL, rollout::PLURAL] {
            assert!(
                roles.contains(&format!("resources: [{kind}]\n    verbs: [create, update, patch, delete")),
                "{kind}"
            );
        }
        assert!(roles.contains("name: pitstop-resizer"));
    }
}
