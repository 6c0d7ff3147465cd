//! Resizes: the request for a Pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use pitstop_api::resize::{
    self, Amount, ContainerResize, NewResources, PodRef, PodResize, PodResizeSpec, RollbackOnFailure,
};
use pitstop_api::rollout::InPlaceRollout;
use pitstop_api::text::quoted;

use crate::containers::{Choice, DEFAULT_CONTAINER, choose};
use crate::restart::metadata_for;

/// The options of a resize.
#[derive(Clone, Debug, Default)]
pub struct ResizeOptions {
    /// Requests and limits.
    pub resources: NewResources,
    /// Seconds after which the request ends.
    pub deadline: Option<i64>,
    /// Seconds for which the Pod is watched, and restored if it becomes unhealthy.
    pub observe: Option<i64>,
    /// Seconds after its end at which the request is deleted.
    pub ttl: Option<i32>,
    /// A dry run: nothing is changed.
    pub check: bool,
}

/// Reads `cpu=+20%`, `memory=x1.5`, as a `PodResize` has amounts.
pub fn amounts(words: &[String]) -> Result<BTreeMap<String, Amount>, String> {
    let mut amounts = BTreeMap::new();
    for word in words {
        let parts =
            word.split_once('=').filter(|(resource, amount)| !(resource.is_empty() || amount.is_empty()));
        let (resource, amount) = parts.ok_or_else(|| {
            format!(
                "{} is not an amount of a resource: write cpu=500m, cpu=+20%, memory=1Gi or memory=x1.5",
                quoted(word)
            )
        })?;
        if amounts.insert(resource.to_owned(), Amount::from(amount)).is_some() {
            return Err(format!("{} is named twice", quoted(resource)));
        }
    }
    Ok(amounts)
}

/// The request that resizes containers of a Pod. Errors name the object, the field, and what would be right.
pub fn request(pod: &Pod, choice: &Choice, options: &ResizeOptions) -> Result<PodResize, String> {
    let target = format!("pod/{}", pod.name_any());
    let spec = pod.spec.as_ref().ok_or_else(|| format!("{target} has no spec"))?;
    if options.resources.requests.is_empty() && options.resources.limits.is_empty() {
        return Err(format!(
            "name new resources of {target}: cpu=+20% or memory=1Gi, or --limits memory=1Gi"
        ));
    }
    let default = pod.annotations().get(DEFAULT_CONTAINER).map(String::as_str);
    let names = choose(&target, spec, default, choice)?;
    let containers =
        names.into_iter().map(|name| ContainerResize { name, resources: options.resources.clone() });
    let spec = PodResizeSpec {
        pod_ref: PodRef { name: pod.name_any(), uid: pod.uid() },
        containers: containers.collect(),
        active_deadline_seconds: options.deadline,
        rollback_on_failure: options
            .observe
            .map(|observe_seconds| RollbackOnFailure { observe_seconds, ..RollbackOnFailure::default() }),
        ttl_seconds_after_finished: options.ttl,
        dry_run: options.check,
        ..PodResizeSpec::default()
    };
    resize::validate(&spec).map_err(|invalid| format!("the resize of {target}: {invalid}"))?;
    let mut request = PodResize::new("", spec);
    request.metadata = metadata_for(pod);
    Ok(request)
}

/// The error that this command resizes no workload, with the right command; `acting` is the workload's rollout.
pub fn workload_error(target: &str, acting: Option<&InPlaceRollout>) -> String {
    let native = format!("`kubectl set resources {target} --containers=NAME --requests=cpu=500m`");
    if acting.is_some_and(|rollout| rollout.spec.changes_in_place()) {
        return format!(
            "the resources of {target} are in its template: change them there, with {native}. Its InPlaceRollout applies them to \
             the running Pods if the workload is parked: by the component park on Kubernetes 1.36 and later, otherwise see \
             docs/tasks/update-a-workload.md"
        );
    }
    format!(
        "the resources of {target} are in its template: run `kubectl pitstop enable {target}` first to make template changes \
         in the running Pods, and then {native}. To resize a single Pod, run `kubectl pitstop resize pod/NAME`"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rollouts::tests::{for_deployment, rollout};

    fn pod() -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "web-0", "namespace": "shop", "uid": "u"},
            "spec": {"containers": [{"name": "app"}, {"name": "log"}]}}))
        .unwrap()
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    fn options(requests: &[&str], limits: &[&str]) -> ResizeOptions {
        let read = |list: &[&str]| amounts(&words(list)).unwrap();
        let resources = NewResources { requests: read(requests), limits: read(limits) };
        ResizeOptions { resources, ..ResizeOptions::default() }
    }

    fn app() -> Choice {
        Choice::Named(vec!["app".into()])
    }

    #[test]
    fn amounts_go_to_the_api_as_they_are_written() {
        let options = ResizeOptions {
            observe: Some(60),
            deadline: Some(120),
            check: true,
            ..options(&["cpu=+20%", "memory=x1.5"], &["memory=1Gi"])
        };
        let request = request(&pod(), &app(), &options).unwrap();
        assert_eq!(
            serde_json::to_value(&request).unwrap(),
            json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodResize",
                "metadata": {"generateName": "web-0-", "namespace": "shop"},
                "spec": {"podRef": {"name": "web-0", "uid": "u"}, "dryRun": true, "activeDeadlineSeconds": 120,
                    "rollbackOnFailure": {"observeSeconds": 60},
                    "containers": [{"name": "app", "resources":
                        {"requests": {"cpu": "+20%", "memory": "x1.5"}, "limits": {"memory": "1Gi"}}}]}})
        );
    }

    #[test]
    fn what_is_no_amount_is_refused_before_anything_is_sent() {
        for (request, expected) in [
            (
                request(&pod(), &app(), &options(&["cpu=lots"], &[])),
                "the resize of pod/web-0: spec.containers[0].resources.requests.cpu: \"lots\" is no amount of cpu: write a quantity such as 500m",
            ),
            (
                request(&pod(), &app(), &options(&["gpu=1"], &[])),
                "requests.gpu: only cpu and memory can be resized in place",
            ),
            (request(&pod(), &app(), &options(&[], &[])), "name new resources of pod/web-0"),
            (
                request(&pod(), &Choice::Named(vec![]), &options(&["cpu=1"], &[])),
                "name a container of pod/web-0 with -c: app, log",
            ),
        ] {
            let error = request.unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        for (list, expected) in [
            (&["cpu"][..], "\"cpu\" is not an amount"),
            (&["=1"], "is not an amount"),
            (&["cpu=1", "cpu=2"], "\"cpu\" is named twice"),
        ] {
            assert!(amounts(&words(list)).unwrap_err().contains(expected), "{list:?}");
        }
    }

    #[test]
    fn a_workload_is_sent_to_its_template() {
        let mut in_place = for_deployment("web");
        in_place["templateChanges"] = json!("InPlace");
        let text = workload_error("deployment/web", Some(&rollout("web", "00", &in_place)));
        assert!(text.contains("`kubectl set resources deployment/web") && !text.contains("enable"), "{text}");
        for acting in [None, Some(&rollout("web", "00", &for_deployment("web")))] {
            assert!(
                workload_error("deployment/web", acting)
                    .contains("run `kubectl pitstop enable deployment/web` first")
            );
        }
    }
}
