//! New images: the request for a Pod, and the change of a workload's template.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kube::ResourceExt as _;
use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::image::Reference;
use pitstop_api::image_update::{self, ContainerImage, PodImageUpdate, PodImageUpdateSpec};
use pitstop_api::resize::PodRef;
use pitstop_api::rollout::{InPlaceRollout, conditions};
use pitstop_api::text::quoted;
use serde_json::{Value, json};

use crate::change::Change;
use crate::containers::{Choice, choose};
use crate::restart::metadata_for;
use crate::workload::Workload;

/// The options of a Pod's image update.
#[derive(Clone, Debug, Default)]
pub struct ImageUpdateOptions {
    /// Seconds out of service before the change.
    pub drain: Option<i64>,
    /// Seconds after which the request ends.
    pub deadline: Option<i64>,
    /// Seconds after its end at which the request is deleted.
    pub ttl: Option<i32>,
    /// A dry run: nothing is changed or pulled.
    pub check: bool,
}

/// Reads `app=registry.example.com/shop/web:v2`.
pub fn images(words: &[String]) -> Result<Vec<ContainerImage>, String> {
    words
        .iter()
        .map(|word| {
            let parts = word.split_once('=').filter(|(name, image)| !(name.is_empty() || image.is_empty()));
            let (name, image) = parts.ok_or_else(|| {
                format!(
                    "{} is not CONTAINER=IMAGE: write a container and its image, such as app=nginx:1.29",
                    quoted(word)
                )
            })?;
            Ok(ContainerImage { name: name.to_owned(), image: image.to_owned() })
        })
        .collect()
}

/// The request that changes images of a Pod. Errors name the object, the field, and what would be right.
pub fn request(
    pod: &Pod,
    images: &[ContainerImage],
    options: &ImageUpdateOptions,
) -> Result<PodImageUpdate, String> {
    let target = format!("pod/{}", pod.name_any());
    let pod_spec = pod.spec.as_ref().ok_or_else(|| format!("{target} has no spec"))?;
    let spec = PodImageUpdateSpec {
        pod_ref: PodRef { name: pod.name_any(), uid: pod.uid() },
        containers: images.to_vec(),
        unready_grace_period_seconds: options.drain,
        active_deadline_seconds: options.deadline,
        ttl_seconds_after_finished: options.ttl,
        dry_run: options.check,
        ..PodImageUpdateSpec::default()
    };
    image_update::validate(&spec).map_err(|invalid| format!("the image update of {target}: {invalid}"))?;
    check_images(&target, pod_spec, images)?;
    let mut request = PodImageUpdate::new("", spec);
    request.metadata = metadata_for(pod);
    Ok(request)
}

/// Fails unless each container exists and keeps its repository.
fn check_images(target: &str, pods: &PodSpec, images: &[ContainerImage]) -> Result<(), String> {
    let names = images.iter().map(|image| image.name.clone()).collect();
    choose(target, pods, None, &Choice::Named(names))?;
    for ContainerImage { name, image } in images {
        let new = Reference::parse(image).map_err(|why| format!("{target}: container {name}: {why}"))?;
        let old = container(pods, name).and_then(|it| it.image.as_deref()).unwrap_or_default();
        if Reference::parse(old).is_ok_and(|old| !old.same_repository(&new)) {
            return Err(format!(
                "{target}: container {name} has {}; in place, only its tag or digest can change, not its repository {}",
                quoted(old),
                repository(old)
            ));
        }
    }
    Ok(())
}

fn repository(image: &str) -> String {
    Reference::parse(image).map_or_else(
        |_| quoted(image),
        |reference| {
            let (registry, path) = reference.repository();
            format!("{registry}/{path}")
        },
    )
}

fn container<'a>(pods: &'a PodSpec, name: &str) -> Option<&'a Container> {
    pods.containers.iter().chain(pods.init_containers.iter().flatten()).find(|it| it.name == name)
}

/// Fails unless the workload's rollout makes template changes in place. The error says what to do first.
pub fn check_rollout(target: &str, acting: Option<&InPlaceRollout>) -> Result<(), String> {
    let native = "`kubectl set image` would make new Pods instead";
    let Some(rollout) = acting.filter(|rollout| rollout.spec.changes_in_place()) else {
        return Err(format!(
            "{target} has no InPlaceRollout with templateChanges: InPlace: run `kubectl pitstop enable {target}` first; {native}"
        ));
    };
    let armed =
        rollout.status.as_ref().and_then(|status| condition::find(&status.conditions, conditions::ARMED));
    match armed {
        Some(armed) if armed.status == ConditionStatus::True => Ok(()),
        unarmed => {
            let why = unarmed.map_or_else(
                || "the controller has not set this condition yet".to_owned(),
                |armed| format!("{}: {}", armed.reason, armed.message),
            );
            Err(format!(
                "inplacerollout/{} is not armed ({why}): {target} could not be released after the update; {native}",
                rollout.name_any()
            ))
        }
    }
}

/// The template change that the rollout makes in the running Pods; `None` if nothing changes. The same write parks the
/// workload, so that its own controller makes no new Pods.
pub fn image_change(workload: &Workload, images: &[ContainerImage]) -> Result<Option<Change>, String> {
    let (target, pods) = (workload.target(), workload.pods()?);
    check_images(&target, &pods, images)?;
    let new = |of: &[Container]| -> Vec<Value> {
        let named = images.iter().filter(|image| of.iter().any(|it| it.name == image.name));
        named.map(|image| json!({"name": image.name, "image": image.image})).collect()
    };
    let same = images.iter().all(|image| {
        container(&pods, &image.name).and_then(|it| it.image.as_deref()) == Some(image.image.as_str())
    });
    if same {
        return Ok(None);
    }
    let lists = [
        ("containers", new(&pods.containers)),
        ("initContainers", new(pods.init_containers.as_deref().unwrap_or_default())),
    ];
    let spec: serde_json::Map<String, Value> = lists
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(field, list)| (field.to_owned(), list.into()))
        .collect();
    let mut patch = json!({"spec": {"template": {"spec": spec}}});
    workload.park_with(&mut patch)?;
    Ok(Some(Change::strategic(patch)))
}

#[cfg(test)]
mod tests {
    use pitstop_api::rollout::TargetKind;

    use super::*;
    use crate::rollouts::tests::{for_deployment, rollout};
    use crate::workload::tests::workload;

    fn read(list: &[&str]) -> Vec<ContainerImage> {
        images(&list.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn pods() -> Value {
        json!({"containers": [{"name": "app", "image": "registry.example.com/web:1"}],
            "initContainers": [{"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}]})
    }

    fn pod() -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": "web-0", "namespace": "shop", "uid": "u"}, "spec": pods()}),
        )
        .unwrap()
    }

    #[test]
    fn a_pod_gets_an_image_update() {
        let options = ImageUpdateOptions { drain: Some(5), ttl: Some(60), ..ImageUpdateOptions::default() };
        let request = request(&pod(), &read(&["app=registry.example.com/web:2"]), &options).unwrap();
        assert_eq!(
            serde_json::to_value(&request).unwrap(),
            json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodImageUpdate",
                "metadata": {"generateName": "web-0-", "namespace": "shop"},
                "spec": {"podRef": {"name": "web-0", "uid": "u"}, "unreadyGracePeriodSeconds": 5,
                    "ttlSecondsAfterFinished": 60,
                    "containers": [{"name": "app", "image": "registry.example.com/web:2"}]}})
        );
    }

    #[test]
    fn what_cannot_be_in_place_says_what_can() {
        for (list, expected) in [
            (
                &["app=web:2"][..],
                "container app has \"registry.example.com/web:1\"; in place, only its tag or digest can change, \
                not its repository registry.example.com/web",
            ),
            (&["db=web:2"], "\"db\" is not a container of it; it has proxy, app"),
            (&["app=Web"], "spec.containers[0].image: \"Web\" is no reference"),
            (&[], "spec.containers: must name 1 to 8 containers, not 0"),
        ] {
            let error = request(&pod(), &read(list), &ImageUpdateOptions::default()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(images(&["app".to_owned()]).unwrap_err().contains("is not CONTAINER=IMAGE"));
    }

    #[test]
    fn a_workload_is_parked_in_the_write_that_changes_its_template() {
        let spec = json!({"template": {"spec": pods()}});
        let list = read(&["app=registry.example.com/web:2", "proxy=proxy:2"]);
        let change =
            image_change(&workload(TargetKind::Deployment, &json!({}), &spec), &list).unwrap().unwrap();
        assert_eq!(
            change,
            Change::strategic(json!({
                "metadata": {"labels": {"pitstop.dev/parked": "Unpaused"}, "resourceVersion": "7"},
                "spec": {"paused": true, "template": {"spec": {
                    "containers": [{"name": "app", "image": "registry.example.com/web:2"}],
                    "initContainers": [{"name": "proxy", "image": "proxy:2"}]}}}}))
        );
        let labels = json!({"pitstop.dev/parked": "Unpaused"});
        let parked =
            workload(TargetKind::Deployment, &labels, &json!({"paused": true, "template": {"spec": pods()}}));
        let change = image_change(&parked, &read(&["proxy=proxy:2"])).unwrap().unwrap();
        assert_eq!(
            change.patch,
            json!({"metadata": {"resourceVersion": "7"},
                "spec": {"template": {"spec": {"initContainers": [{"name": "proxy", "image": "proxy:2"}]}}}}),
            "its label stays, and it is still parked when this is stored"
        );
        assert_eq!(image_change(&parked, &read(&["proxy=proxy:1"])), Ok(None));
        let paused = workload(
            TargetKind::Deployment,
            &json!({}),
            &json!({"paused": true, "template": {"spec": pods()}}),
        );
        assert!(image_change(&paused, &list).unwrap_err().contains("spec.paused is true"));
    }

    #[test]
    fn only_an_armed_rollout_is_given_a_template() {
        let of = |changes: &str, armed: &Value| {
            let mut spec = for_deployment("web");
            spec["templateChanges"] = json!(changes);
            let mut acting = serde_json::to_value(rollout("web", "00", &spec)).unwrap();
            acting["status"] = json!({"conditions": armed});
            let acting: InPlaceRollout = serde_json::from_value(acting).unwrap();
            check_rollout("deployment/web", Some(&acting))
        };
        let armed = |status: &str| {
            json!([{"type": "Armed", "status": status, "reason": "CannotRelease", "message": "no right",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        assert_eq!(of("InPlace", &armed("True")), Ok(()));
        let refused = of("InPlace", &armed("False")).unwrap_err();
        assert!(refused.contains("inplacerollout/web is not armed (CannotRelease: no right)"), "{refused}");
        assert!(of("InPlace", &json!([])).unwrap_err().contains("has not set this condition yet"));
        assert!(
            of("Native", &armed("True"))
                .unwrap_err()
                .contains("run `kubectl pitstop enable deployment/web` first")
        );
        assert!(check_rollout("deployment/web", None).is_err());
    }
}
