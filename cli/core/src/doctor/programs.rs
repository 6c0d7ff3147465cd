//! The two programs: the Deployment of the controller, and the `DaemonSet`s of the daemon.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::{Facts, Finding, Level};
use crate::known::Known;
use crate::plain;
use crate::ready::is_ready;

/// The label that names a Pod's program.
pub(super) const COMPONENT: &str = "app.kubernetes.io/component";
const CONTROLLER: &str = "controller";
const DAEMONS: &str = "daemons";

pub(super) fn controller(facts: &Facts) -> Vec<Finding> {
    let deployments = match &facts.deployments {
        Known::Unread(why) => return vec![Finding::unknown(CONTROLLER, "its Deployment", why)],
        found => found.all(),
    };
    if deployments.is_empty() {
        return vec![absent(CONTROLLER, "Deployment", &facts.system)];
    }
    let findings = deployments.iter().map(|it| {
        let wanted = it.spec.as_ref().and_then(|it| it.replicas).unwrap_or(1);
        let status = it.status.as_ref();
        let ready = status.and_then(|it| it.ready_replicas).unwrap_or_default();
        let updated = status.and_then(|it| it.updated_replicas).unwrap_or_default();
        let what = format!("deployment/{}", it.name_any());
        judge(CONTROLLER, &what, Counts { wanted, ready, updated }, facts)
    });
    findings.collect()
}

pub(super) fn daemons(facts: &Facts) -> Vec<Finding> {
    let sets = match &facts.daemon_sets {
        Known::Unread(why) => return vec![Finding::unknown(DAEMONS, "their DaemonSet", why)],
        found => found.all(),
    };
    if sets.is_empty() {
        return vec![absent(DAEMONS, "DaemonSet", &facts.system)];
    }
    let findings = sets.iter().map(|it| {
        let status = it.status.as_ref();
        let wanted = status.map_or(0, |it| it.desired_number_scheduled);
        let ready = status.map_or(0, |it| it.number_ready);
        let updated = status.and_then(|it| it.updated_number_scheduled).unwrap_or_default();
        judge(DAEMONS, &format!("daemonset/{}", it.name_any()), Counts { wanted, ready, updated }, facts)
    });
    findings.collect()
}

fn absent(check: &'static str, kind: &str, system: &str) -> Finding {
    Finding::error(
        check,
        format!("there is no {kind} of pitstop in namespace {system}"),
        "Install pitstop (docs/install.md), or name its namespace with --controller-namespace.",
    )
}

/// Numbers of Pods.
#[derive(Clone, Copy)]
struct Counts {
    wanted: i32,
    ready: i32,
    updated: i32,
}

fn judge(check: &'static str, what: &str, counts: Counts, facts: &Facts) -> Finding {
    let Counts { wanted, ready, updated } = counts;
    if wanted == 0 {
        let to_do = if check == CONTROLLER {
            "Scale it up: kubectl scale."
        } else {
            "Compare its nodeSelector with the labels of the nodes."
        };
        return Finding::error(check, format!("{what} has no desired Pods"), to_do);
    }
    let ready_of = format!("{what}: {ready} of {wanted} Pods ready");
    if ready >= wanted && updated >= wanted {
        return Finding::ok(check, ready_of);
    }
    if ready >= wanted {
        let text = format!("{ready_of}, {updated} of {wanted} with the current template");
        return Finding::warning(
            check,
            text,
            format!("Wait for its rollout: kubectl -n {} rollout status {what}", facts.system),
        );
    }
    let component = if check == CONTROLLER { "controller" } else { "daemon" };
    let (why, to_do) = first_not_ready(component, facts).unwrap_or_else(|| {
        (String::new(), format!("See its events: kubectl -n {} describe {what}", facts.system))
    });
    let finding = Finding::error(check, format!("{ready_of}{why}"), to_do);
    // One controller replica can do the work. Each daemon has its own node.
    let verdict = if ready > 0 && check == CONTROLLER { Level::Warning } else { Level::Error };
    Finding { verdict, ..finding }
}

/// The first Pod that is not ready, and why.
fn first_not_ready(component: &str, facts: &Facts) -> Option<(String, String)> {
    let pod = of_component(facts, component).find(|pod| !is_ready(pod))?;
    let name = pod.name_any();
    let why = why_not_ready(pod).map(|why| format!(", {}", plain::line(&why, 200))).unwrap_or_default();
    let to_do = format!(
        "See kubectl -n {} describe pod {name}, and \"A Pod of pitstop is not ready\" in docs/troubleshooting.md.",
        facts.system
    );
    Some((format!("; {name} is not ready{why}"), to_do))
}

/// Pods of one program.
pub(super) fn of_component<'a>(facts: &'a Facts, component: &'a str) -> impl Iterator<Item = &'a Pod> {
    facts.pods.all().iter().filter(move |pod| pod.labels().get(COMPONENT).is_some_and(|it| it == component))
}

/// Why a container waits, or the message of the first condition that is not True.
fn why_not_ready(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let waiting = status.container_statuses.iter().flatten().find_map(|it| {
        let waiting = it.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.clone().unwrap_or_default();
        Some(match &waiting.message {
            Some(message) => format!("{reason}: {message}"),
            None => reason,
        })
    });
    let condition = || {
        let mut conditions = status.conditions.iter().flatten().filter(|it| it.status != "True");
        conditions.find_map(|it| it.message.clone().or_else(|| it.reason.clone()))
    };
    waiting.or_else(condition)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{healthy, read};
    use super::*;
    use serde_json::json;

    fn deployed(replicas: i32, ready: i32, updated: i32) -> Facts {
        let deployment = json!({"metadata": {"name": "pitstop-controller"}, "spec": {"replicas": replicas,
            "selector": {}, "template": {}}, "status": {"readyReplicas": ready, "updatedReplicas": updated}});
        Facts { deployments: Known::Is(vec![read(deployment)]), ..healthy() }
    }

    fn first(findings: &[Finding]) -> (Level, &str, &str) {
        (findings[0].verdict, &findings[0].text, &findings[0].to_do)
    }

    #[test]
    fn a_pod_that_is_not_ready_is_named_with_what_it_waits_for() {
        let waiting = json!({"metadata": {"name": "pitstop-controller-x", "labels": {(COMPONENT): "controller"}},
            "status": {"containerStatuses": [{"name": "controller", "ready": false, "restartCount": 0, "image": "",
                "imageID": "", "state": {"waiting": {"reason": "ErrImagePull", "message": "not\u{1b}[2J found"}}}]}});
        let facts = Facts { pods: Known::Is(vec![read(waiting)]), ..deployed(2, 0, 2) };
        let findings = controller(&facts);
        let (verdict, text, to_do) = first(&findings);
        assert_eq!(verdict, Level::Error);
        assert_eq!(
            text,
            "deployment/pitstop-controller: 0 of 2 Pods ready; pitstop-controller-x is not ready, ErrImagePull: not\\u{1b}[2J found"
        );
        assert!(to_do.contains("describe pod pitstop-controller-x"), "{to_do}");
    }

    #[test]
    fn one_replica_does_the_work_and_one_daemon_is_missed() {
        assert_eq!(controller(&deployed(2, 1, 2))[0].verdict, Level::Warning);
        let rolling = controller(&deployed(2, 2, 1));
        assert!(
            first(&rolling).1.ends_with("2 of 2 Pods ready, 1 of 2 with the current template"),
            "{rolling:?}"
        );
        assert_eq!(controller(&deployed(0, 0, 0))[0].verdict, Level::Error);
        let set = json!({"metadata": {"name": "pitstop-daemon"}, "spec": {"selector": {}, "template": {}}, "status":
            {"desiredNumberScheduled": 3, "numberReady": 2, "currentNumberScheduled": 3, "numberMisscheduled": 0,
             "updatedNumberScheduled": 3}});
        let findings = daemons(&Facts { daemon_sets: Known::Is(vec![read(set)]), ..healthy() });
        assert_eq!(first(&findings).0, Level::Error);
    }
}
