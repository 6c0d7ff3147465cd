//! A Pod by which the kubelet pulls images with the credentials of another Pod, as requests to the API server.
//!
//! On a node that can mount images, the Pod's containers have the images that the other Pod's containers run, and mount
//! the new ones. A container's own image becomes its root file system, which an image that is only pulled does not
//! need.
//!
//! The policy [`POLICY`] lets the controller make only this form. It is made only after that policy was seen to deny a
//! similar form: only the policy makes the right to make Pods harmless.

use kube::Resource as _;
use kube::core::params::{DeleteParams, GetParams, PostParams, Preconditions};
use kube::core::{Request as Builder, request};
use pitstop_api::logic::answer::Failure;
use pitstop_api::nodework::PullPolicy;
use serde::Deserialize;
use serde_json::{Value, json};

use super::deeds::owned_by;
use super::denial::Policy;
use super::exchange::parse;
use super::observe::{self, SlimPod};
use super::requests::HttpRequest;
use crate::action::Object;
use crate::deed::{ImageToPull, Puller};
use crate::key::ObjectKey;
use crate::pod::{ContainerState, Pod};

/// The policy for puller Pods.
pub(super) const POLICY: Policy = Policy {
    name: "pitstop-controller-pullers",
    component: "image-puller",
    refusal: "cannot create resource \"pods\"",
    right: "pitstop has no right to create Pods, which the component image-puller gives",
    without: "pitstop makes no Pods",
};
/// The label by which the policy recognizes puller Pods.
const LABEL: &str = "pitstop.dev/puller";
/// No image has this program, so nothing starts.
const COMMAND: &str = "/.pitstop-pull-only";
/// Where a container mounts the image.
const MOUNT: &str = "/.pitstop-pull";

/// What the kubelet pulls with for the Pod whose containers get the images. Names only, no Secret is read.
#[derive(Deserialize)]
struct Lender {
    spec: LenderSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LenderSpec {
    image_pull_secrets: Vec<SecretName>,
    service_account_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SecretName {
    name: String,
}

/// A Pod to make, and the same in a form that the policy denies.
pub(super) struct Forms {
    pub(super) denied: HttpRequest,
    pub(super) good: HttpRequest,
}

fn pods(namespace: &str) -> Builder {
    Builder::new(SlimPod::url_path(&(), Some(namespace)))
}

/// Reads the Pod whose containers get the images.
pub(super) fn lender(puller: &Puller) -> Result<HttpRequest, request::Error> {
    pods(&puller.lender.namespace).get(&puller.lender.name, &GetParams::default())
}

/// From that Pod as it was read, the requests that make the puller Pod for `owner`. `mounts`: its node can mount
/// images.
pub(super) fn forms(owner: &Object, puller: &Puller, mounts: bool, text: &str) -> Result<Forms, Failure> {
    let pod = observe::pod(parse(text)?);
    if pod.uid != puller.lender_uid {
        return Err(Failure::of_code(404, format!("Pod {} is another one now", puller.lender)));
    }
    let Lender { spec } = parse(text)?;
    let good = object(owner, puller, spec, Some(&pod).filter(|_| mounts));
    // A dry run of the same Pod without label and owner, which stores nothing whatever the answer.
    let mut denied = good.clone();
    if let Some(metadata) = denied.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| field == "name" || field == "namespace");
    }
    let create = |object: &Value, dry_run| {
        let body = serde_json::to_vec(object).map_err(request::Error::SerializeBody)?;
        pods(&puller.key.namespace).create(&PostParams { dry_run, ..PostParams::default() }, body)
    };
    let invalid = |error: request::Error| Failure::of_code(422, error.to_string());
    Ok(Forms {
        denied: create(&denied, true).map_err(invalid)?,
        good: create(&good, false).map_err(invalid)?,
    })
}

/// `runs`: the Pod whose containers get the images, if their node can mount images.
fn object(owner: &Object, puller: &Puller, lender: LenderSpec, runs: Option<&Pod>) -> Value {
    let images: Vec<(&ImageToPull, Option<&str>)> = puller
        .images
        .iter()
        .map(|image| (image, runs.and_then(|pod| running(pod, &image.container))))
        .collect();
    let mounted = images.iter().filter(|(_, own)| own.is_some());
    let secrets: Vec<Value> =
        lender.image_pull_secrets.into_iter().map(|secret| json!({"name": secret.name})).collect();
    let mut spec = json!({
        "nodeName": puller.node,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "activeDeadlineSeconds": puller.limit,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "tolerations": [{"operator": "Exists"}],
        "imagePullSecrets": secrets,
        "volumes": mounted.map(|(image, _)| volume(image)).collect::<Vec<_>>(),
        "containers": images.iter().map(|(image, own)| container(image, *own)).collect::<Vec<_>>(),
    });
    if let Some(spec) = spec.as_object_mut().filter(|_| !lender.service_account_name.is_empty()) {
        spec.insert("serviceAccountName".into(), lender.service_account_name.into());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": puller.key.name,
            "namespace": puller.key.namespace,
            "labels": {LABEL: "true"},
            "ownerReferences": [owned_by(owner)],
        },
        "spec": spec,
    })
}

/// The image that a container runs, which the node has. `None` if it does not run: the node may lack the image.
fn running<'a>(pod: &'a Pod, container: &str) -> Option<&'a str> {
    let container = pod.container(container)?;
    let runs = container.status.as_ref().is_some_and(|now| now.state == ContainerState::Running);
    runs.then_some(&container.image)
}

fn volume(image: &ImageToPull) -> Value {
    let ImageToPull { container, image: reference, .. } = image;
    json!({"name": container, "image": {"reference": reference, "pullPolicy": policy(image)}})
}

fn policy(image: &ImageToPull) -> &'static str {
    match image.policy {
        PullPolicy::Always => "Always",
        PullPolicy::IfNotPresent | PullPolicy::Never => "IfNotPresent",
    }
}

/// `own`: its own image, if it mounts the one to pull.
fn container(to_pull: &ImageToPull, own: Option<&str>) -> Value {
    let name = &to_pull.container;
    let (image, policy, mounts) = match own {
        Some(own) => (own, "IfNotPresent", json!([{"name": name, "mountPath": MOUNT, "readOnly": true}])),
        None => (to_pull.image.as_str(), policy(to_pull), json!([])),
    };
    // No CPU limit: with a small one, the runtime would take seconds to fail.
    json!({
        "name": name,
        "image": image,
        "imagePullPolicy": policy,
        "command": [COMMAND],
        "volumeMounts": mounts,
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": true,
            "runAsUser": 65534,
            "readOnlyRootFilesystem": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    })
}

/// Deletes a Pod, if it still has this UID. It runs nothing that would need time to end.
pub(super) fn delete(key: &ObjectKey, uid: &str) -> Result<HttpRequest, request::Error> {
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    pods(&key.namespace).delete(&key.name, &params)
}

#[cfg(test)]
#[path = "puller_tests.rs"]
mod tests;
