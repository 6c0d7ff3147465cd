//! Parked workloads: their own controllers make no new Pods until somebody releases them.

use super::super::{Finding, count, named};
use super::Remains;
use crate::known::Known;

const CHECK: &str = "parked";

pub(super) fn check(remains: &Remains) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut parked = Vec::new();
    for (kind, found) in &remains.parked {
        if let Known::Unread(why) = found {
            findings.push(Finding::unknown(CHECK, &format!("{}s", kind.name()), why));
        }
        parked.extend(found.all().iter().map(|name| format!("{} {name}", kind.name())));
    }
    if !parked.is_empty() {
        let text = format!("{}: {}", count(parked.len(), "parked workload"), named(&parked));
        let to_do = "Release each with kubectl pitstop disable KIND/NAME -n NAMESPACE: without that, it stays parked.";
        findings.push(Finding::error(CHECK, text, to_do));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "no workload is parked"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use pitstop_api::rollout::TargetKind;

    use super::super::super::Verdict;
    use super::*;

    #[test]
    fn parked_workloads_of_every_kind_are_named() {
        let sets = Known::Is(vec!["shop/db".to_owned()]);
        let of = |sets: &Known<Vec<String>>| {
            let deployments = Known::Is(vec!["shop/web".to_owned()]);
            let daemons = Known::Unread("forbidden".to_owned());
            let parked = [TargetKind::Deployment, TargetKind::StatefulSet, TargetKind::DaemonSet];
            let parked = parked.into_iter().zip([deployments, sets.clone(), daemons]).collect();
            check(&Remains { parked, ..Remains::default() })
        };
        let found = of(&sets);
        assert_eq!(found[0].text, "cannot check DaemonSets: forbidden");
        assert_eq!(found[1].verdict, Verdict::Error);
        assert_eq!(found[1].text, "2 parked workloads: Deployment shop/web, StatefulSet shop/db");
        let none =
            Remains { parked: vec![(TargetKind::Deployment, Known::Is(Vec::new()))], ..Remains::default() };
        assert_eq!(check(&none), [Finding::ok(CHECK, "no workload is parked")]);
    }
}
