//! Cancels open requests, each kind in its own way.

use kube::ResourceExt as _;
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_api::resize::PodResize;
use pitstop_api::rollout::{self, InPlaceRollout};
use serde_json::json;

use crate::change::{Action, Change};
use crate::summary::{Progress, Request, summary};

/// The action that cancels a request and its effect, or why that is not possible.
pub type CancelPlan = Result<(Action, &'static str), String>;

/// Cancels a restart by deletion: it has no cancel field.
pub fn restart(request: &ContainerRecreateRequest) -> CancelPlan {
    check_cancellable(request)?;
    Ok((
        Action::Delete,
        "no further container is stopped; a stop that the node's daemon has acknowledged completes",
    ))
}

/// Cancels a resize.
pub fn resize(request: &PodResize) -> CancelPlan {
    check_cancellable(request)?;
    if request.spec.cancel {
        return Err(already_cancelled(request));
    }
    Ok((by_field(), "the Pod gets its original resources back"))
}

/// Cancels an image update.
pub fn image_update(request: &PodImageUpdate) -> CancelPlan {
    check_cancellable(request)?;
    if request.spec.cancel {
        return Err(already_cancelled(request));
    }
    let effect = if request.spec.rolls_back() {
        "images that have changed are rolled back"
    } else {
        "images that have changed stay (spec.rollbackOnFailure is false)"
    };
    Ok((by_field(), effect))
}

/// Cancels a rollout's restart. To undo an update, the user changes the template back.
pub fn rollout(request: &InPlaceRollout) -> CancelPlan {
    let status = request.status.clone().unwrap_or_default();
    if request.spec.restarted_at.is_some() && request.spec.restarted_at != status.restarted_at {
        // If the restart has finished meanwhile, the old value asks for another one: the version makes that a conflict.
        let version = &request.metadata.resource_version;
        let change =
            json!({"metadata": {"resourceVersion": version}, "spec": {"restartedAt": status.restarted_at}});
        let change = Change::merge(change);
        return Ok((
            Action::Change(change),
            "restarts that have begun complete; other Pods are not restarted",
        ));
    }
    let name = request.name_any();
    if status.update.is_some_and(|update| update.ended.is_none()) {
        let target = request.spec.target_ref.as_ref().map_or_else(String::new, |target| {
            format!(
                ": run `kubectl pitstop undo {}/{}`",
                target.kind.name().to_ascii_lowercase(),
                target.name
            )
        });
        return Err(format!(
            "inplacerollout/{name} is updating Pods: undo the change{target}; `kubectl pitstop pause` only pauses the update"
        ));
    }
    let phase = status.phase.map_or("new", rollout::Phase::name);
    Err(format!(
        "inplacerollout/{name} restarts and updates no Pod (it is {phase}): there is nothing to cancel"
    ))
}

fn by_field() -> Action {
    Action::Change(Change::merge(json!({"spec": {"cancel": true}})))
}

fn already_cancelled<R: Request>(request: &R) -> String {
    format!("{}/{} is already being cancelled", R::KIND.singular(), request.name_any())
}

/// Fails if the request has ended, or if its owner would make it again.
fn check_cancellable<R: Request>(request: &R) -> Result<(), String> {
    let name = format!("{}/{}", R::KIND.singular(), request.name_any());
    let now = summary(request);
    if now.progress != Progress::Open {
        return Err(format!("{name} has ended ({}): there is nothing to cancel", now.reason));
    }
    let groups = ["apps.kruise.io/", "pitstop.dev/"];
    let owners = request.owner_references().iter();
    let owner = owners
        .filter(|owner| owner.controller == Some(true))
        .find(|owner| groups.iter().any(|group| owner.api_version.starts_with(group)));
    owner.map_or(Ok(()), |owner| {
        let owner = format!("{}/{}", owner.kind.to_ascii_lowercase(), owner.name);
        Err(format!("{name} belongs to {owner}, which would make another: cancel or pause {owner} instead"))
    })
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::Value;

    use super::*;
    use crate::rollouts::tests::{for_deployment, rollout as made};

    fn read<R: DeserializeOwned>(
        kind: &str,
        group: &str,
        spec: &Value,
        meta: &Value,
        complete: Option<&str>,
    ) -> R {
        let mut metadata = json!({"name": "r"});
        Change::merge(meta.clone()).apply(&mut metadata);
        let conditions = complete.map(|status| {
            json!([{"type": "Complete", "status": status, "reason": "Because", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        });
        serde_json::from_value(
            json!({"apiVersion": format!("{group}/v1alpha1"), "kind": kind, "metadata": metadata,
            "spec": spec, "status": {"conditions": conditions.unwrap_or_else(|| json!([]))}}),
        )
        .unwrap()
    }

    fn crr(meta: &Value, complete: Option<&str>) -> ContainerRecreateRequest {
        let spec = json!({"podName": "web", "containers": [{"name": "app"}]});
        read("ContainerRecreateRequest", "apps.kruise.io", &spec, meta, complete)
    }

    #[test]
    fn each_kind_has_its_own_way() {
        let spec = json!({"podRef": {"name": "web"}, "containers": []});
        let piu = |spec: &Value| {
            read::<PodImageUpdate>("PodImageUpdate", "pitstop.dev", spec, &json!({}), Some("False"))
        };
        assert_eq!(restart(&crr(&json!({}), None)).unwrap().0, Action::Delete);
        let prz: PodResize = read("PodResize", "pitstop.dev", &spec, &json!({}), Some("False"));
        assert_eq!(resize(&prz).unwrap().0, by_field());
        assert!(image_update(&piu(&spec)).unwrap().1.contains("are rolled back"));
        let mut keeps = spec.clone();
        keeps["rollbackOnFailure"] = json!(false);
        assert!(image_update(&piu(&keeps)).unwrap().1.contains("stay"));
        keeps["cancel"] = json!(true);
        assert_eq!(image_update(&piu(&keeps)).unwrap_err(), "podimageupdate/r is already being cancelled");
    }

    #[test]
    fn what_has_ended_or_would_be_made_again_is_not_cancelled() {
        assert_eq!(
            restart(&crr(&json!({}), Some("True"))).unwrap_err(),
            "containerrecreaterequest/r has ended (Because): there is nothing to cancel"
        );
        let owned = |group: &str| {
            json!({"ownerReferences": [{"apiVersion": format!("{group}/v1"), "kind": "InPlaceRollout", "name": "web",
                "uid": "u", "controller": true}]})
        };
        let error = restart(&crr(&owned("pitstop.dev"), None)).unwrap_err();
        assert!(error.contains("belongs to inplacerollout/web, which would make another"), "{error}");
        assert!(restart(&crr(&owned("example.com"), None)).is_ok());
    }

    #[test]
    fn the_restart_of_a_rollout_is_given_up_and_its_update_undone() {
        let of = |asked: Option<&str>, finished: Option<&str>, update: &Value| {
            let mut spec = for_deployment("web");
            spec["restartedAt"] = json!(asked);
            let mut existing = serde_json::to_value(made("web", "00", &spec)).unwrap();
            existing["metadata"]["resourceVersion"] = json!("7");
            existing["status"] = json!({"phase": "Idle", "restartedAt": finished, "update": update});
            rollout(&serde_json::from_value(existing).unwrap())
        };
        let back = |at: &Value| {
            let change = json!({"metadata": {"resourceVersion": "7"}, "spec": {"restartedAt": at}});
            Action::Change(Change::merge(change))
        };
        assert_eq!(of(Some("b"), Some("a"), &json!(null)).unwrap().0, back(&json!("a")));
        assert_eq!(of(Some("b"), None, &json!(null)).unwrap().0, back(&json!(null)));
        let updates = of(Some("b"), Some("b"), &json!({"revision": "2"})).unwrap_err();
        assert!(updates.contains("run `kubectl pitstop undo deployment/web`"), "{updates}");
        let idle = of(None, None, &json!({"revision": "2", "ended": "Updated"})).unwrap_err();
        assert_eq!(
            idle,
            "inplacerollout/web restarts and updates no Pod (it is Idle): there is nothing to cancel"
        );
    }
}
