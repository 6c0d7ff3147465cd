//! Work that an uninstallation would cut off, and objects that it would leave behind (docs/install.md#uninstall).
//!
//! An error means that something is still at work. Each check is a file; none depends on another.

mod books;
mod gates;
mod leftovers;
mod requests;
mod workloads;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::ResourceExt;
use pitstop_api::nodework::NodeWork;
use pitstop_api::rollout::TargetKind;

pub use gates::Gated;
pub use requests::Requests;
pub use workloads::Workload;

use super::Finding;
use crate::known::Known;
use crate::target::RequestKind;

/// Facts from all namespaces. The caller bounds the lists; of long ones, it keeps only names.
#[derive(Clone, Debug, Default)]
pub struct Remains {
    /// Requests and rollouts of each kind.
    pub requests: Vec<(RequestKind, Known<Requests>)>,
    /// All order books.
    pub books: Known<Vec<NodeWork>>,
    /// Pods with a readiness gate that matters.
    pub pods: Known<Vec<Gated>>,
    /// The workloads of each kind that need pitstop.
    pub workloads: Vec<(TargetKind, Known<Vec<Workload>>)>,
    /// Namespaces whose label lets pitstop change images.
    pub opted_in: Known<Vec<Namespace>>,
    /// `RoleBinding`s that complete that opt-in.
    pub bindings: Known<Vec<RoleBinding>>,
    /// Namespaces whose label gives new Pods the readiness gate.
    pub gates: Known<Vec<Namespace>>,
}

/// Runs all checks.
pub fn examine(remains: &Remains) -> Vec<Finding> {
    let checks = [requests::check, books::check, gates::check, workloads::check, leftovers::check];
    checks.iter().flat_map(|check| check(remains)).collect()
}

/// `NAMESPACE/NAME`.
pub fn name(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Level, exit_code};
    use super::*;

    fn each(requests: &Known<Requests>, workloads: &Known<Vec<Workload>>) -> Remains {
        Remains {
            requests: RequestKind::ALL.map(|kind| (kind, requests.clone())).into(),
            workloads: vec![(TargetKind::Deployment, workloads.clone())],
            ..Remains::default()
        }
    }

    #[test]
    fn the_exit_code_tells_whether_something_is_at_work() {
        let idle = each(&Known::Is(Requests::default()), &Known::Is(Vec::new()));
        let findings = examine(&idle);
        assert!(findings.iter().all(|it| it.verdict == Level::Ok), "{findings:?}");
        assert_eq!(exit_code(&findings), 0);
        let kept = each(&Known::Is(Requests { ended: 3, ..Requests::default() }), &Known::Is(Vec::new()));
        assert_eq!(exit_code(&examine(&kept)), 0, "what has ended does not count");
        let object = json!({"metadata": {"name": "web", "labels": {"pitstop.dev/parked": "0"}}});
        let parked = Workload::of(&super::super::fixtures::read(object)).unwrap();
        let parked = each(&Known::Is(Requests::default()), &Known::Is(vec![parked]));
        assert_eq!(exit_code(&examine(&parked)), 1);
    }

    /// A caller who may read nothing gets neither errors nor good news.
    #[test]
    fn nothing_is_judged_that_cannot_be_read() {
        fn no<T>() -> Known<T> {
            Known::Unread("is forbidden: User \"ann\" cannot".to_owned())
        }
        let findings = examine(&Remains {
            books: no(),
            pods: no(),
            opted_in: no(),
            bindings: no(),
            gates: no(),
            ..each(&no(), &no())
        });
        let judged: Vec<_> = findings.iter().filter(|it| it.verdict != Level::Unknown).collect();
        assert!(judged.is_empty(), "{judged:#?}");
        assert_eq!(exit_code(&findings), 2);
    }
}
