//! Which requests `explain` explains.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use pitstop_api::rollout::{InPlaceRollout, PodOfInterest};

use crate::explain::RequestFacts;
use crate::summary::{Progress, Request, summary};
use crate::target::Target;
use crate::tree::Objects;

/// The named request. For a Pod or a workload: its rollouts, then its open requests, the oldest first. For a Pod
/// without open requests: the request that ended last, if it failed.
pub fn requests_to_explain(target: &Target, objects: &Objects) -> Vec<RequestFacts> {
    let kept;
    let objects = match target {
        Target::Workload(kind, name) => {
            kept = objects.of_workload(*kind, name);
            &kept
        }
        Target::Pod(_) | Target::Request(..) => objects,
    };
    let rollouts = objects.rollouts.iter().map(rollout);
    let all = of_pods(objects);
    let mut requests: Vec<&Aged> = match target {
        Target::Request(..) => all.iter().collect(),
        Target::Pod(_) | Target::Workload(..) => all.iter().filter(|it| it.is(Progress::Open)).collect(),
    };
    requests.sort_by_key(|it| it.made);
    if let (Target::Pod(_), true) = (target, requests.is_empty()) {
        let last = all.iter().max_by_key(|it| it.facts.summary.since);
        requests.extend(last.filter(|it| it.is(Progress::Failed)));
    }
    rollouts.chain(requests.into_iter().map(|it| it.facts.clone())).collect()
}

/// What to say if there is nothing to explain. An error: the target does not exist, or it is not known whether it does.
pub fn nothing_to_explain(target: &Target, objects: &Objects, namespace: &str) -> Result<String, String> {
    let missing = match (target, objects.unread.is_empty()) {
        (Target::Request(..), false) => return Err(format!("{target} cannot be read")),
        (Target::Request(..), true) => true,
        (Target::Pod(_), all_read) => all_read && objects.pods.is_empty(),
        (Target::Workload(..), _) => false,
    };
    if missing {
        return Err(format!("there is no {target} in namespace {namespace}"));
    }
    let among = if objects.unread.is_empty() { "" } else { " among the objects that can be read" };
    Ok(format!("There is no open request for {target}{among}."))
}

/// A request and its creation time, in seconds on the API server's clock.
struct Aged {
    made: Option<i64>,
    facts: RequestFacts,
}

impl Aged {
    fn is(&self, progress: Progress) -> bool {
        self.facts.summary.progress == progress
    }
}

/// All requests for single Pods.
fn of_pods(objects: &Objects) -> Vec<Aged> {
    let nodes: BTreeMap<String, &str> = objects
        .pods
        .iter()
        .filter_map(|pod: &Pod| Some((pod.name_any(), pod.spec.as_ref()?.node_name.as_deref()?)))
        .collect();
    let mut all = Vec::new();
    for it in &objects.restarts {
        let node =
            it.status.as_ref().and_then(|status| status.target.as_ref()).map(|it| it.node_name.as_str());
        all.push(aged(it, &it.spec.pod_name, node, &nodes));
    }
    for it in &objects.resizes {
        let node =
            it.status.as_ref().and_then(|status| status.target.as_ref()).map(|it| it.node_name.as_str());
        all.push(aged(it, &it.spec.pod_ref.name, node, &nodes));
    }
    for it in &objects.updates {
        let node =
            it.status.as_ref().and_then(|status| status.target.as_ref()).map(|it| it.node_name.as_str());
        all.push(aged(it, &it.spec.pod_ref.name, node, &nodes));
    }
    all
}

/// A request for a Pod, with the node of its target, or the Pod's present node.
fn aged<R: Request>(request: &R, pod: &str, node: Option<&str>, nodes: &BTreeMap<String, &str>) -> Aged {
    let node = node.or_else(|| nodes.get(pod).copied()).map(str::to_owned);
    let made = request.meta().creation_timestamp.as_ref().map(|at| at.0.as_second());
    Aged { made, facts: RequestFacts { node, pod: Some(pod.to_owned()), ..facts(request) } }
}

fn rollout(rollout: &InPlaceRollout) -> RequestFacts {
    let target = rollout.spec.target_ref.as_ref();
    let workload = target.map(|target| Target::Workload(target.kind, target.name.clone()).to_string());
    let pods: Vec<PodOfInterest> =
        rollout.status.as_ref().map(|status| status.pods_of_interest.clone()).unwrap_or_default();
    RequestFacts { workload, pods, ..facts(rollout) }
}

fn facts<R: Request>(request: &R) -> RequestFacts {
    RequestFacts {
        kind: R::KIND,
        name: request.name_any(),
        uid: request.meta().uid.clone().unwrap_or_default(),
        summary: summary(request),
        node: None,
        pod: None,
        workload: None,
        pods: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use pitstop_api::recreate::ContainerRecreateRequest;
    use pitstop_api::rollout::TargetKind;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::rollouts::tests::{for_deployment, rollout};

    fn read<K: DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    /// A request; `made`: its creation in seconds; `ended`: when, and whether it succeeded.
    fn restart(name: &str, pod: &str, made: i64, ended: Option<(i64, bool)>) -> ContainerRecreateRequest {
        let at = |seconds: i64| DateTime::from_timestamp(seconds, 0).unwrap();
        let condition = |type_: &str, status: &str| json!({"type": type_, "status": status, "reason": "X", "message": "", "lastTransitionTime": at(made)});
        let conditions = match ended {
            Some((_, true)) => json!([condition("Complete", "True")]),
            Some((_, false)) => json!([condition("Complete", "False"), condition("Failed", "True")]),
            None => json!([condition("Complete", "False")]),
        };
        read(json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": at(made)},
            "spec": {"podName": pod, "containers": [{"name": "app"}]},
            "status": {"conditions": conditions, "completionTime": ended.map(|(when, _)| at(when))},
        }))
    }

    fn objects(restarts: Vec<ContainerRecreateRequest>) -> Objects {
        let pod = |name: &str| {
            read(json!({"metadata": {"name": name}, "spec": {"nodeName": "node7", "containers": []}}))
        };
        let pods = vec![pod("web-a"), pod("web-b")];
        Objects { restarts, pods, ..Objects::default() }
    }

    fn names(target: &str, objects: &Objects) -> Vec<String> {
        let target = Target::parse(target).unwrap();
        requests_to_explain(&target, objects).into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn open_requests_of_a_workload_are_told_the_oldest_first_after_its_own_rollouts() {
        let mut objects = objects(vec![
            restart("young", "web-a", 9, None),
            restart("old", "web-b", 3, None),
            restart("over", "web-b", 1, Some((2, false))),
            restart("stranger", "db-0", 1, None),
        ]);
        let set = json!({"targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}});
        objects.rollouts = vec![rollout("set", "01", &set), rollout("own", "02", &for_deployment("web"))];
        assert_eq!(names("deploy/web", &objects), ["own", "old", "young"]);
        let target = Target::Workload(TargetKind::Deployment, "web".into());
        let all = requests_to_explain(&target, &objects);
        assert_eq!(all[0].workload.as_deref(), Some("deployment/web"));
        assert_eq!((all[1].pod.as_deref(), all[1].node.as_deref()), (Some("web-b"), Some("node7")));
    }

    #[test]
    fn where_nothing_is_open_for_a_pod_what_failed_last_is_told() {
        let failed = || restart("failed", "web-a", 3, Some((5, false)));
        let before = restart("before", "web-a", 1, Some((2, false)));
        assert_eq!(names("pod/web-a", &objects(vec![failed(), before])), ["failed"]);
        let after = restart("after", "web-a", 6, Some((8, true)));
        assert_eq!(names("pod/web-a", &objects(vec![failed(), after])), [""; 0]);
        let open = restart("open", "web-a", 9, None);
        assert_eq!(names("pod/web-a", &objects(vec![failed(), open])), ["open"]);
    }

    #[test]
    fn a_named_request_is_told_however_it_is() {
        let one = objects(vec![restart("one", "web-a", 1, Some((2, true)))]);
        assert_eq!(names("crr/one", &one), ["one"]);
    }

    #[test]
    fn what_cannot_be_read_is_never_said_to_be_absent() {
        let mut objects = objects(Vec::new());
        let say = |target: &str, objects: &Objects| {
            nothing_to_explain(&Target::parse(target).unwrap(), objects, "shop")
        };
        assert_eq!(
            say("crr/one", &objects),
            Err("there is no containerrecreaterequest/one in namespace shop".into())
        );
        assert_eq!(say("pod/web-a", &objects), Ok("There is no open request for pod/web-a.".into()));
        objects.unread = vec!["containerrecreaterequests cannot be read: forbidden".into()];
        assert_eq!(say("crr/one", &objects), Err("containerrecreaterequest/one cannot be read".into()));
        let among = "There is no open request for deployment/web among the objects that can be read.";
        assert_eq!(say("deploy/web", &objects), Ok(among.into()));
        objects.pods.clear();
        assert!(say("pod/web-a", &objects).is_ok(), "its Pod may be there");
        objects.unread.clear();
        assert_eq!(say("pod/web-a", &objects), Err("there is no pod/web-a in namespace shop".into()));
    }
}
