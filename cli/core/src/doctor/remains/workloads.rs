//! Workloads that need pitstop. The own controller of a parked one makes no new Pods until its release. A template with
//! pitstop's readiness gate needs pitstop, which alone opens it.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use pitstop_api::readiness::PITSTOP_READY;
use pitstop_api::rollout::{PARKED, TargetKind};

use super::super::{Finding, count, name_list};
use super::{Remains, name};
use crate::known::Known;

const CHECK: &str = "workloads";

/// A workload that needs pitstop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    name: String,
    parked: bool,
    gated: bool,
}

impl Workload {
    /// The Deployment, `StatefulSet` or `DaemonSet`; `None` if it does not need pitstop.
    pub fn of(object: &DynamicObject) -> Option<Self> {
        let parked = object.labels().contains_key(PARKED);
        let conditions =
            object.data.pointer("/spec/template/spec/readinessGates").and_then(|it| it.as_array());
        let gated = conditions.into_iter().flatten().any(|it| it["conditionType"] == PITSTOP_READY);
        (parked || gated).then(|| Self { name: name(object), parked, gated })
    }
}

pub(super) fn check(remains: &Remains) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (kind, found) in &remains.workloads {
        if let Known::Unread(why) = found {
            findings.push(Finding::unknown(CHECK, &format!("{}s", kind.name()), why));
        }
    }
    let all = |is: fn(&Workload) -> bool, what: &str, more: &str| {
        let of = |(kind, found): &(TargetKind, Known<Vec<Workload>>)| {
            let some = found.all().iter().filter(|it| is(it));
            some.map(|it| format!("{} {}", kind.name(), it.name)).collect::<Vec<_>>()
        };
        let names: Vec<String> = remains.workloads.iter().flat_map(of).collect();
        (!names.is_empty()).then(|| format!("{}{more}: {}", count(names.len(), what), name_list(&names)))
    };
    if let Some(text) = all(|it| it.parked, "parked workload", "") {
        let to_do = "Release each with kubectl pitstop disable KIND/NAME -n NAMESPACE: without that, it stays parked.";
        findings.push(Finding::error(CHECK, text, to_do));
    }
    let gated = format!(" whose template has the readiness gate {PITSTOP_READY}");
    if let Some(text) = all(|it| it.gated, "workload", &gated) {
        let to_do =
            "Remove the gate from each template first: without pitstop, its new Pods never become ready.";
        findings.push(Finding::warning(CHECK, text, to_do));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, "no workload is parked, or has the readiness gate in its template"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::Level;
    use super::super::super::fixtures::read;
    use super::*;

    fn of(labels: &Value, gate: &str) -> Option<Workload> {
        Workload::of(&read(json!({"metadata": {"namespace": "shop", "name": "web", "labels": labels},
            "spec": {"template": {"spec": {"readinessGates": [{"conditionType": gate}]}}}})))
    }

    #[test]
    fn only_workloads_that_need_pitstop_are_kept() {
        let workload = |parked, gated| Some(Workload { name: "shop/web".into(), parked, gated });
        assert_eq!(of(&json!({}), "example.com/other"), None);
        assert_eq!(of(&json!({PARKED: "Unpaused"}), "example.com/other"), workload(true, false));
        assert_eq!(of(&json!({}), PITSTOP_READY), workload(false, true));
        assert_eq!(Workload::of(&read(json!({"metadata": {"name": "web"}}))), None);
    }

    #[test]
    fn workloads_of_every_kind_are_named() {
        let workload = |name: &str, gated| Workload { name: name.to_owned(), parked: true, gated };
        let found = [
            Known::Is(vec![workload("shop/web", true)]),
            Known::Is(vec![workload("shop/db", false)]),
            Known::Unread("forbidden".to_owned()),
        ];
        let kinds = [TargetKind::Deployment, TargetKind::StatefulSet, TargetKind::DaemonSet];
        let workloads = kinds.into_iter().zip(found).collect();
        let found = check(&Remains { workloads, ..Remains::default() });
        assert_eq!(found[0].text, "cannot check DaemonSets: forbidden");
        assert_eq!(found[1].verdict, Level::Error);
        assert_eq!(found[1].text, "2 parked workloads: Deployment shop/web, StatefulSet shop/db");
        assert_eq!(found[2].verdict, Level::Warning);
        let gated = "1 workload whose template has the readiness gate pitstop.dev/ready: Deployment shop/web";
        assert_eq!(found[2].text, gated);
        let none = Remains {
            workloads: vec![(TargetKind::Deployment, Known::Is(Vec::new()))],
            ..Remains::default()
        };
        assert_eq!(check(&none)[0].verdict, Level::Ok);
    }
}
