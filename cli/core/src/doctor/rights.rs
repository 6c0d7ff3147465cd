//! The caller's rights in a namespace.

use pitstop_api::{image_update, recreate, resize, rollout};

use super::{Facts, Finding, Right, Wanted, named};
use crate::known::Known;

const CHECK: &str = "rights";

const KRUISE: &str = "apps.kruise.io";
const PITSTOP: &str = "pitstop.dev";

/// Rights that this program's commands need in their target's namespace.
pub fn wanted() -> Vec<Wanted> {
    let kinds = [
        (KRUISE, recreate::PLURAL),
        (PITSTOP, resize::PLURAL),
        (PITSTOP, image_update::PLURAL),
        (PITSTOP, rollout::PLURAL),
    ];
    let verbs = ["list", "watch", "create", "patch", "delete"];
    let of = |verb, group, resource, subresource| Wanted { verb, group, resource, subresource };
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
    let lacks: Vec<&Right> = facts.rights.iter().filter(|it| it.allowed != Known::Is(true)).collect();
    if lacks.is_empty() {
        return vec![Finding::ok(
            CHECK,
            format!("you may use every command in namespace {}", facts.namespace),
        )];
    }
    let mut by_resource: Vec<(String, Vec<&str>)> = Vec::new();
    for Right { wanted, .. } in lacks {
        let resource = match wanted.subresource {
            "" => wanted.resource.to_owned(),
            sub => format!("{}/{sub}", wanted.resource),
        };
        match by_resource.iter_mut().find(|(it, _)| *it == resource) {
            Some((_, verbs)) => verbs.push(wanted.verb),
            None => by_resource.push((resource, vec![wanted.verb])),
        }
    }
    let told: Vec<String> =
        by_resource.iter().map(|(resource, verbs)| format!("{} {resource}", verbs.join("/"))).collect();
    let text = format!("in namespace {} you may not {}", facts.namespace, named(&told));
    let to_do =
        "A RoleBinding to the ClusterRole edit has all but the rights to resize, which pitstop-resizer has.";
    vec![Finding::warning(CHECK, text, to_do)]
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::super::fixtures::whole;
    use super::*;

    #[test]
    fn missing_rights_are_told_by_resource() {
        let may = |allowed: fn(&Wanted) -> bool| {
            let rights =
                wanted().into_iter().map(|wanted| Right { allowed: Known::Is(allowed(&wanted)), wanted });
            check(&Facts { rights: rights.collect(), namespace: "shop".into(), ..whole() }).remove(0)
        };
        assert_eq!(may(|_| true), Finding::ok(CHECK, "you may use every command in namespace shop"));
        let some = may(|it| it.subresource.is_empty() && (it.resource != "podresizes" || it.verb == "list"));
        assert_eq!(some.verdict, Verdict::Warning);
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
