//! Requests and rollouts: those at work, and those that are only deleted with the definitions.

use super::super::{Finding, count, name_list};
use super::Remains;
use crate::known::Known;
use crate::target::RequestKind;

const CHECK: &str = "requests";

/// The requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Names of those [at work](crate::summary::is_at_work).
    pub at_work: Vec<String>,
    /// Number of all others.
    pub ended: usize,
}

pub(super) fn check(remains: &Remains) -> Vec<Finding> {
    remains.requests.iter().flat_map(|(kind, found)| of_kind(*kind, found)).collect()
}

fn of_kind(kind: RequestKind, found: &Known<Requests>) -> Vec<Finding> {
    let name = kind.kind();
    let Requests { at_work, ended } = match found {
        Known::Unread(why) => return vec![Finding::unknown(CHECK, &format!("{name}s"), why)],
        Known::Missing => &Requests::default(),
        Known::Is(requests) => requests,
    };
    let mut findings = Vec::new();
    if !at_work.is_empty() {
        let text = format!("{} at work: {}", count(at_work.len(), name), name_list(at_work));
        findings.push(Finding::error(CHECK, text, to_do(kind)));
    }
    if *ended > 0 {
        let text = format!("{} not at work: deleted with the definition", count(*ended, name));
        findings.push(if kind == RequestKind::Rollout {
            Finding::warning(CHECK, text, "To restore them later, keep a copy: kubectl get ipr -A -o yaml")
        } else {
            Finding::ok(CHECK, text)
        });
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("there is no {name}")));
    }
    findings
}

fn to_do(kind: RequestKind) -> String {
    let short = kind.short();
    let wait = format!("Wait for each with kubectl pitstop wait {short}/NAME -n NAMESPACE.");
    let end = if kind == RequestKind::Rollout {
        "Or end a restart with kubectl pitstop cancel ipr/NAME, and an update with kubectl pitstop undo TYPE/WORKLOAD.".to_owned()
    } else {
        format!(
            "Or end it with kubectl pitstop cancel {short}/NAME -n NAMESPACE; those of a rollout end with the rollout."
        )
    };
    format!("{wait} {end}")
}

#[cfg(test)]
mod tests {
    use super::super::super::Level;
    use super::*;

    fn of(kind: RequestKind, at_work: &[&str], ended: usize) -> Vec<Finding> {
        let at_work = at_work.iter().map(|it| (*it).to_owned()).collect();
        of_kind(kind, &Known::Is(Requests { at_work, ended }))
    }

    #[test]
    fn what_is_at_work_is_named_with_what_ends_it() {
        let names = ["shop/a", "shop/b", "shop/c", "shop/d", "shop/e", "shop/f", "shop/g"];
        let found = of(RequestKind::Resize, &names, 1);
        assert_eq!(found[0].verdict, Level::Error);
        assert_eq!(found[0].text, "7 PodResizes at work: shop/a, shop/b, shop/c, shop/d, shop/e and 2 more");
        assert!(found[0].to_do.contains("kubectl pitstop wait prz/NAME -n NAMESPACE"), "{found:?}");
        assert!(found[0].to_do.contains("kubectl pitstop cancel prz/NAME -n NAMESPACE"), "{found:?}");
        assert_eq!(found[1], Finding::ok(CHECK, "1 PodResize not at work: deleted with the definition"));
        let rollout = &of(RequestKind::Rollout, &["shop/web"], 0)[0];
        assert_eq!(rollout.text, "1 InPlaceRollout at work: shop/web");
        assert!(rollout.to_do.contains("kubectl pitstop undo"), "{rollout:?}");
    }

    #[test]
    fn what_has_ended_goes_with_the_definition() {
        let restarts = of(RequestKind::Restart, &[], 12);
        let text = "12 ContainerRecreateRequests not at work: deleted with the definition";
        assert_eq!(restarts, [Finding::ok(CHECK, text)]);
        // A rollout is a user's setting.
        let rollouts = of(RequestKind::Rollout, &[], 2);
        assert_eq!((rollouts.len(), rollouts[0].verdict), (1, Level::Warning));
        assert_eq!(of(RequestKind::Restart, &[], 0).len(), 1);
        assert_eq!(of_kind(RequestKind::Restart, &Known::Missing), of(RequestKind::Restart, &[], 0));
    }
}
