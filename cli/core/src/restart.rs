//! Restarts: the request for a Pod, and the change of a rollout for a workload.

use chrono::{DateTime, SecondsFormat, Utc};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::core::ObjectMeta;
use pitstop_api::recreate::{
    self, ContainerRecreateRequest, ContainerRecreateRequestSpec, Mechanism, RecreateContainer,
    RecreateStrategy,
};
use pitstop_api::rollout::InPlaceRollout;
use serde_json::{Map, Value, json};

use crate::change::Change;
use crate::containers::{Choice, DEFAULT_CONTAINER, choose};
use crate::rollouts::changed;
use crate::strategy::StrategyOptions;

/// The options of a Pod's restart.
#[derive(Clone, Debug, Default)]
pub struct RestartOptions {
    /// The mechanism; `None`: not set.
    pub mechanism: Option<Mechanism>,
    /// A container stops only after the one before it is up again.
    pub ordered: bool,
    /// Seconds out of service before the first stop.
    pub drain: Option<i64>,
    /// Seconds between the stop signal and the kill.
    pub grace: Option<i64>,
    /// Seconds after which the request ends.
    pub deadline: Option<i64>,
    /// Seconds after its end at which the request is deleted.
    pub ttl: Option<i32>,
}

/// The request that restarts containers of a Pod. Errors name the object, the field, and what would be right.
pub fn request(
    pod: &Pod,
    choice: &Choice,
    options: &RestartOptions,
) -> Result<ContainerRecreateRequest, String> {
    let name = pod.name_any();
    let target = format!("pod/{name}");
    let spec = pod.spec.as_ref().ok_or_else(|| format!("{target} has no spec"))?;
    let default = pod.annotations().get(DEFAULT_CONTAINER).map(String::as_str);
    let containers = choose(&target, spec, default, choice)?;
    let strategy = RecreateStrategy {
        mechanism: options.mechanism,
        ordered_recreate: options.ordered,
        unready_grace_period_seconds: options.drain,
        termination_grace_period_seconds: options.grace,
        ..RecreateStrategy::default()
    };
    let spec = ContainerRecreateRequestSpec {
        pod_name: name.clone(),
        containers: containers
            .into_iter()
            .map(|name| RecreateContainer { name, ..RecreateContainer::default() })
            .collect(),
        strategy: (strategy != RecreateStrategy::default()).then_some(strategy),
        active_deadline_seconds: options.deadline,
        ttl_seconds_after_finished: options.ttl,
    };
    recreate::validate(&spec).map_err(|invalid| format!("the restart of {target}: {invalid}"))?;
    let mut request = ContainerRecreateRequest::new("", spec);
    request.metadata = metadata_for(pod);
    Ok(request)
}

/// Most characters of a name from which the API server generates another: it adds 5, and all must fit a label.
/// <https://github.com/kubernetes/apiserver/blob/master/pkg/storage/names/generate.go>
const MOST_OF_PREFIX: usize = 57;

/// The metadata of a request for a Pod: the API server generates a name from the Pod's.
pub fn metadata_for(pod: &Pod) -> ObjectMeta {
    let name: String = pod.name_any().chars().take(MOST_OF_PREFIX).collect();
    ObjectMeta {
        generate_name: Some(format!("{}-", name.trim_end_matches(['-', '.']))),
        namespace: pod.namespace(),
        ..ObjectMeta::default()
    }
}

/// The options of a rollout's restart.
#[derive(Clone, Debug, Default)]
pub struct RolloutRestart {
    /// The named containers; empty: none were named.
    pub containers: Vec<String>,
    /// The strategy.
    pub strategy: StrategyOptions,
}

/// The change by which a rollout restarts its Pods now. Without names, it restarts the containers that the rollout's
/// author chose, or all main containers. `manager` is this program's field manager, whose own earlier choice does not
/// count. Fails if the rollout is paused, or would be refused.
pub fn restart_change(
    existing: &InPlaceRollout,
    restart: &RolloutRestart,
    manager: &str,
    now: DateTime<Utc>,
) -> Result<Change, String> {
    let name = existing.name_any();
    if existing.spec.paused {
        return Err(format!(
            "inplacerollout/{name} is paused (spec.paused), and would restart no Pod: run `kubectl pitstop resume \
             inplacerollout/{name}` first"
        ));
    }
    let mut spec = Map::new();
    let at = restarted_at(now, existing.spec.restarted_at.as_deref());
    spec.insert("restartedAt".to_owned(), at.into());
    if !restart.containers.is_empty() {
        spec.insert("restart".to_owned(), json!({"containers": restart.containers}));
    } else if existing.spec.restart.is_some() && containers_set_by(existing, manager) {
        spec.insert("restart".to_owned(), Value::Null);
    }
    let strategy = restart.strategy.fields();
    if !strategy.is_empty() {
        spec.insert("strategy".to_owned(), strategy.into());
    }
    let change = Change::merge(json!({"spec": spec}));
    changed(existing, &change)?;
    Ok(change)
}

/// The time as RFC 3339, with enough digits to differ from the text before.
fn restarted_at(now: DateTime<Utc>, before: Option<&str>) -> String {
    let forms = [SecondsFormat::Secs, SecondsFormat::Millis, SecondsFormat::Nanos];
    let mut texts = forms.into_iter().map(|form| now.to_rfc3339_opts(form, true));
    texts.find(|text| Some(text.as_str()) != before).unwrap_or_else(|| now.to_rfc3339())
}

/// That manager last wrote which containers are restarted.
fn containers_set_by(rollout: &InPlaceRollout, manager: &str) -> bool {
    rollout.managed_fields().iter().filter(|entry| entry.manager.as_deref() == Some(manager)).any(|entry| {
        entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:restart").is_some())
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    use pitstop_api::rollout::{Share, TargetKind};

    use super::*;
    use crate::rollouts;
    use crate::rollouts::tests::{for_deployment, rollout};

    fn pod(name: &str) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop"},
            "spec": {"containers": [{"name": "app"}],
                "initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}}))
        .unwrap()
    }

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 250_000_000).unwrap()
    }

    #[test]
    fn a_pod_gets_a_request_with_what_was_asked_for_and_nothing_more() {
        let plain = request(&pod("web-0"), &Choice::Named(vec![]), &RestartOptions::default()).unwrap();
        assert_eq!(
            serde_json::to_value(&plain).unwrap(),
            json!({"apiVersion": "apps.kruise.io/v1alpha1", "kind": "ContainerRecreateRequest",
                "metadata": {"generateName": "web-0-", "namespace": "shop"},
                "spec": {"podName": "web-0", "containers": [{"name": "app"}]}})
        );
        let options = RestartOptions {
            mechanism: Some(Mechanism::Kubelet),
            ordered: true,
            drain: Some(5),
            grace: Some(0),
            deadline: Some(60),
            ttl: Some(3600),
        };
        let all = request(&pod("web-0"), &Choice::All, &options).unwrap();
        assert_eq!(
            serde_json::to_value(&all.spec).unwrap(),
            json!({"podName": "web-0", "containers": [{"name": "proxy"}, {"name": "app"}],
                "strategy": {"orderedRecreate": true, "terminationGracePeriodSeconds": 0,
                    "unreadyGracePeriodSeconds": 5, "mechanism": "Kubelet"},
                "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 3600})
        );
    }

    #[test]
    fn what_the_api_would_refuse_is_refused_with_its_field() {
        let options = RestartOptions { deadline: Some(2), ..RestartOptions::default() };
        let error = request(&pod("web-0"), &Choice::All, &options).unwrap_err();
        assert_eq!(
            error,
            "the restart of pod/web-0: spec.activeDeadlineSeconds: activeDeadlineSeconds can not be less than 3s"
        );
        let named = Choice::Named(vec!["db".into()]);
        let error = request(&pod("web-0"), &named, &RestartOptions::default()).unwrap_err();
        assert_eq!(error, "pod/web-0: \"db\" is not a container of it; it has proxy, app");
    }

    #[test]
    fn the_name_of_a_request_fits_a_label() {
        let prefix = |name: &str| metadata_for(&pod(name)).generate_name.unwrap();
        assert_eq!(prefix(&"w".repeat(253)).len(), 58);
        assert_eq!(prefix(&format!("{}-.x", "w".repeat(55))), format!("{}-", "w".repeat(55)));
    }

    #[test]
    fn a_rollout_gets_another_time_whenever_it_is_asked() {
        let at = |before: Option<&str>| {
            let mut existing = rollout("web", "00", &for_deployment("web"));
            existing.spec.restarted_at = before.map(str::to_owned);
            let restart = RolloutRestart::default();
            let change = restart_change(&existing, &restart, "kubectl-pitstop", now()).unwrap();
            assert_eq!(change.patch["spec"].as_object().unwrap().len(), 1);
            change.patch["spec"]["restartedAt"].as_str().unwrap().to_owned()
        };
        assert_eq!(at(None), "2027-01-15T08:00:00Z");
        assert_eq!(at(Some("2027-01-15T08:00:00Z")), "2027-01-15T08:00:00.250Z");
        assert_eq!(at(Some("2026-01-01T00:00:00Z")), "2027-01-15T08:00:00Z");
    }

    #[test]
    fn what_was_asked_for_goes_into_the_rollout() {
        let strategy = |share| StrategyOptions {
            max_unavailable: Some(Share(share)),
            drain: Some(5),
            ..StrategyOptions::default()
        };
        let share = IntOrString::String("25%".into());
        let restart = RolloutRestart { containers: vec!["app".into()], strategy: strategy(share) };
        let existing = rollout("web", "00", &for_deployment("web"));
        let expected = json!({"spec": {"restartedAt": "2027-01-15T08:00:00Z", "restart": {"containers": ["app"]},
            "strategy": {"maxUnavailable": "25%", "unreadyGracePeriodSeconds": 5}}});
        assert_eq!(restart_change(&existing, &restart, "m", now()).unwrap().patch, expected);
        let new = rollouts::new(TargetKind::Deployment, "web", &[]);
        let made = changed(&new, &restart_change(&new, &restart, "m", now()).unwrap()).unwrap();
        let spec = serde_json::to_value(&made.spec).unwrap();
        assert_eq!(
            (&spec["restartedAt"], &spec["restart"]),
            (&expected["spec"]["restartedAt"], &expected["spec"]["restart"])
        );
        assert_eq!(
            (&spec["strategy"]["maxUnavailable"], &spec["templateChanges"]),
            (&json!("25%"), &json!("Native"))
        );
        let none = RolloutRestart { strategy: strategy(IntOrString::Int(0)), ..restart };
        let error = restart_change(&existing, &none, "m", now()).unwrap_err();
        assert_eq!(error, "inplacerollout/web: spec.strategy.maxUnavailable: must be at least 1, not 0");
    }

    #[test]
    fn containers_that_the_author_has_chosen_stay_and_ones_of_an_earlier_command_do_not() {
        let restart_of = |manager: &str| {
            let mut spec = for_deployment("web");
            spec["restart"] = json!({"containers": ["app"]});
            let mut existing = serde_json::to_value(rollout("web", "00", &spec)).unwrap();
            existing["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Update",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:restart": {"f:containers": {}}}}}]);
            let existing: InPlaceRollout = serde_json::from_value(existing).unwrap();
            let restart = RolloutRestart::default();
            restart_change(&existing, &restart, "kubectl-pitstop", now()).unwrap().patch["spec"]
                .get("restart")
                .cloned()
        };
        assert_eq!(restart_of("flux"), None);
        assert_eq!(restart_of("kubectl-pitstop"), Some(Value::Null));
    }

    #[test]
    fn a_paused_rollout_is_not_asked_for_what_it_would_not_do() {
        let mut existing = rollout("web", "00", &for_deployment("web"));
        existing.spec.paused = true;
        let error = restart_change(&existing, &RolloutRestart::default(), "m", now()).unwrap_err();
        assert!(error.contains("run `kubectl pitstop resume inplacerollout/web` first"), "{error}");
    }
}
