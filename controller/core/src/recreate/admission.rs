//! The webhook's answers, by the same rules as the planner's.
//!
//! Admission is for convenience and compatibility: early clear errors, `OpenKruise`'s defaults and labels. It
//! is not a security boundary; the controller resolves everything again.

use kube::core::DynamicObject;
use pitstop_api::Invalid;
use pitstop_api::recreate::{MAX_PORTS, apply_defaults, validate};
use pitstop_api::{annotations, labels};
use serde_json::{Value, json};

use super::object;
use super::observe::Request;
use super::resolve::{Moment, resolve};
use super::restore::{changed, keep};
use crate::pod::Pod;
use crate::review::{BAD_REQUEST, FORBIDDEN, Hooks, INTERNAL, Live, Response, ReviewRequest, Step};

/// Begins the review of a request.
pub(super) fn review(asked: &ReviewRequest) -> Step {
    let step = if asked.update { updated(asked).map(Step::Over) } else { created(asked) };
    step.unwrap_or_else(|message| Step::Over(Response::Deny { code: BAD_REQUEST, message }))
}

fn created(asked: &ReviewRequest) -> Result<Step, String> {
    let request = object::admitted(asked.read(asked.new.as_ref())?);
    if let Some(refused) = precheck(&request) {
        return Ok(Step::Over(refused));
    }
    let pod = request.pod_key();
    let judge = move |found| match found {
        Ok(None) => Step::Over(create(&request, None, &Hooks::new(), false)),
        Ok(Some(Live { pod, hooks })) => match pod.node.clone() {
            None => Step::Over(create(&request, Some(&pod), &hooks, false)),
            Some(node) => {
                let judge = move |is_virtual| Step::Over(create(&request, Some(&pod), &hooks, is_virtual));
                Step::Node(node, Box::new(judge))
            }
        },
        Err(why) => {
            let pod = &request.spec.pod_name;
            let message = format!("ContainerRecreateRequest {}: cannot read Pod {pod}: {why}", request.key);
            Step::Over(Response::Deny { code: INTERNAL, message })
        }
    };
    Ok(Step::Pod(pod, Box::new(judge)))
}

fn updated(asked: &ReviewRequest) -> Result<Response, String> {
    let old = object::admitted(asked.read(asked.old.as_ref())?);
    let new = object::admitted(asked.read(asked.new.as_ref())?);
    let spec = |object: &Option<DynamicObject>| object.as_ref()?.data.get("spec").cloned();
    Ok(match update(&old, &new, asked.by_controller) {
        Response::Allow(mut patch) => {
            patch.extend(keep(spec(&asked.old).as_ref(), spec(&asked.new).as_ref()));
            Response::Allow(patch)
        }
        refused @ Response::Deny { .. } => refused,
    })
}

fn deny(request: &Request, code: u16, why: &Invalid) -> Response {
    Response::Deny { code, message: format!("ContainerRecreateRequest {}: {why}", request.key) }
}

/// Refuses a new request for errors that are visible without its Pod.
pub(super) fn precheck(request: &Request) -> Option<Response> {
    validate(&request.spec).err().map(|invalid| deny(request, BAD_REQUEST, &invalid))
}

/// Answers the creation of a request; `pod`, its `hooks` and whether its node is virtual were read from the API server
/// just now.
pub(super) fn create(request: &Request, pod: Option<&Pod>, hooks: &Hooks, virtual_node: bool) -> Response {
    if let Some(refused) = precheck(request) {
        return refused;
    }
    let Some(pod) = pod else {
        let text = format!("no found Pod named {}", request.spec.pod_name);
        return deny(request, BAD_REQUEST, &Invalid::new("spec.podName", text));
    };
    let target = match resolve(&request.spec, pod, Moment::Admission) {
        Ok(target) => target,
        Err(refusal) => return deny(request, BAD_REQUEST, &refusal),
    };
    // If the controller makes the request for another one, the label names the right Pod.
    let label = request.more.labels.get(labels::POD_UID).filter(|_| request.owner.is_some());
    if let Some(uid) = label.filter(|uid| **uid != target.pod_uid) {
        let text = format!("made for the Pod with UID {uid}; the Pod of that name now has another UID");
        return deny(request, BAD_REQUEST, &Invalid::new("spec.podName", text));
    }
    let mut all_labels = request.more.labels.clone();
    all_labels.extend([
        (labels::ACTIVE.to_owned(), labels::ACTIVE_TRUE.to_owned()),
        (labels::POD_UID.to_owned(), target.pod_uid.clone()),
        (labels::NODE_NAME.to_owned(), labels::node_label(&target.node_name)),
    ]);
    if virtual_node {
        all_labels.insert(labels::NODE_TYPE.to_owned(), labels::VIRTUAL_KUBELET.to_owned());
    }
    let mut spec = request.spec.clone();
    apply_defaults(&mut spec, pod.grace_seconds);
    let mut patch = vec![
        json!({"op": "add", "path": "/metadata/labels", "value": all_labels}),
        json!({"op": "add", "path": "/spec/strategy", "value": spec.strategy}),
    ];
    for (i, container) in target.containers.iter().enumerate() {
        let mut add = |field: &str, value: Value| {
            patch.push(json!({"op": "add", "path": format!("/spec/containers/{i}/{field}"), "value": value}));
        };
        add(
            "statusContext",
            json!({"containerID": container.container_id, "restartCount": container.restart_count}),
        );
        let Some(hooked) = hooks.get(&container.name) else { continue };
        add("preStop", json!(hooked.pre_stop));
        if hooked.pre_stop.http_get.is_some() && !hooked.ports.is_empty() {
            add("ports", hooked.ports.iter().take(MAX_PORTS).map(|port| json!(port)).collect());
        }
    }
    // Only the controller writes these annotations, so those of users are removed.
    patch.extend(request.more.annotations.keys().map(|key| {
        let token = key.replace('~', "~0").replace('/', "~1");
        json!({"op": "remove", "path": format!("/metadata/annotations/{token}")})
    }));
    Response::Allow(patch)
}

/// Answers a change of a request. If allowed, the stored spec is to be [kept](keep). `by_controller`: the change comes
/// from pitstop's own controller, which adds what an absent webhook did not and removes outdated metadata.
pub(super) fn update(old: &Request, new: &Request, by_controller: bool) -> Response {
    if let Some(field) = changed(&old.spec, &new.spec) {
        let why = Invalid::new(field, "spec of ContainerRecreateRequest is immutable");
        return deny(new, FORBIDDEN, &why);
    }
    if by_controller {
        return Response::Allow(Vec::new());
    }
    let relabelled = |key: &str| old.more.labels.get(key) != new.more.labels.get(key);
    if let Some(key) = [labels::POD_UID, labels::NODE_NAME].into_iter().find(|key| relabelled(key)) {
        let why = Invalid::new(
            format!("metadata.labels[{key}]"),
            format!("not allowed to update immutable label {key}"),
        );
        return deny(new, FORBIDDEN, &why);
    }
    let drained = old.more.annotations.get(annotations::UNREADY_ACQUIRED).filter(|_| !old.completed());
    if drained.is_some() && new.more.annotations.get(annotations::UNREADY_ACQUIRED) != drained {
        let key = annotations::UNREADY_ACQUIRED;
        let text = format!("not allowed to update immutable annotation {key}");
        return deny(new, FORBIDDEN, &Invalid::new(format!("metadata.annotations[{key}]"), text));
    }
    if relabelled(labels::ACTIVE) && !old.completed() {
        let text = "the label stays until the request is over; delete the request to stop it";
        return deny(new, FORBIDDEN, &Invalid::new(format!("metadata.labels[{}]", labels::ACTIVE), text));
    }
    Response::Allow(Vec::new())
}
