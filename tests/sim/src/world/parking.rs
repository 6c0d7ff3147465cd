//! Users' writes to a workload that may be parked, and the policy that limits pitstop's writes to it.

use http::Request;
use pitstop_api::rollout::{PARKED, RELEASE, TargetKind};
use serde_json::{Value, json};

use super::World;
use super::objects::NAMESPACE;
use super::plan::Word;
use super::webhook::FROM;
use crate::server::Server;
use crate::server::admission::{Admission, Operation, Refusal, Review};

/// A partition that no ordinal reaches.
const NOBODY: i64 = 2_147_483_647;

/// The kind of that name.
pub(super) fn kind(name: &str) -> TargetKind {
    match name {
        "Deployment" => TargetKind::Deployment,
        "StatefulSet" => TargetKind::StatefulSet,
        _ => TargetKind::DaemonSet,
    }
}

/// Path of workloads of a kind, in all namespaces.
pub(super) fn path(kind: TargetKind) -> &'static str {
    match kind {
        TargetKind::Deployment => "/apis/apps/v1/deployments",
        TargetKind::StatefulSet => "/apis/apps/v1/statefulsets",
        TargetKind::DaemonSet => "/apis/apps/v1/daemonsets",
    }
}

impl World {
    /// Parks the workload and gives its template other images, as `docs/tasks/update-a-workload.md` does.
    pub(super) fn change_template(&mut self, tags: &[(Word, Word)]) {
        let Some(workload) = self.schedule.workload.clone() else { return };
        let Some(object) = self.server.object(&workload.kind, NAMESPACE, &workload.name) else { return };
        let mut template = object["spec"]["template"]["spec"].clone();
        for list in ["containers", "initContainers"] {
            for container in template[list].as_array_mut().into_iter().flatten() {
                if let Some((name, tag)) = tags.iter().find(|(name, _)| container["name"] == **name) {
                    container["image"] = format!("registry.example/{name}:{tag}").into();
                }
            }
        }
        let (to, mut spec) = match kind(&workload.kind) {
            TargetKind::Deployment => ("Unpaused".to_owned(), json!({"paused": true})),
            TargetKind::StatefulSet => (
                workload.partition.to_string(),
                json!({"updateStrategy": {"rollingUpdate": {"partition": NOBODY}}}),
            ),
            TargetKind::DaemonSet => {
                ("RollingUpdate".to_owned(), json!({"updateStrategy": {"type": "OnDelete"}}))
            }
        };
        spec["template"] = json!({"spec": template});
        self.patch_workload(&json!({"metadata": {"labels": {PARKED: to}}, "spec": spec}));
    }

    /// Releases the workload.
    pub(super) fn release(&mut self) {
        let Some(workload) = &self.schedule.workload else { return };
        let spec = match kind(&workload.kind) {
            TargetKind::Deployment => json!({"paused": null}),
            TargetKind::StatefulSet => {
                json!({"updateStrategy": {"rollingUpdate": {"partition": workload.partition}}})
            }
            TargetKind::DaemonSet => json!({"updateStrategy": {"type": "RollingUpdate"}}),
        };
        self.patch_workload(&json!({"metadata": {"labels": {PARKED: null}}, "spec": spec}));
    }

    /// Changes the number of Pods, to that of the plan at most.
    pub(super) fn scale(&mut self, replicas: usize) {
        let replicas = replicas.min(self.schedule.members());
        self.patch_workload(&json!({"spec": {"replicas": replicas}}));
    }

    fn patch_workload(&mut self, patch: &Value) {
        let Some(workload) = &self.schedule.workload else { return };
        let plural = path(kind(&workload.kind)).rsplit('/').next().unwrap_or_default();
        let name = &workload.name;
        let request = Request::patch(format!("/apis/apps/v1/namespaces/{NAMESPACE}/{plural}/{name}"))
            .header(http::header::CONTENT_TYPE, "application/merge-patch+json");
        let request = request.body(serde_json::to_vec(patch).unwrap()).unwrap();
        self.ask_as_user(&request);
    }
}

/// Admission policies: the controller may only release a workload. With `releases`, admission carries out the release.
#[derive(Debug)]
pub struct Policy {
    pub(super) releases: bool,
}

impl Policy {
    /// The old workload, if the controller changes it.
    fn before<'a>(review: &Review<'a>) -> Option<&'a Value> {
        let ours = review.headers.get(FROM).is_some_and(|from| from == "controller");
        let workload = ["Deployment", "StatefulSet", "DaemonSet"].contains(&review.kind);
        review.old.filter(|_| ours && workload && review.operation == Operation::Update)
    }
}

impl Admission for Policy {
    fn mutate(&self, _: &Server, review: &Review<'_>, object: &mut Value) -> Result<(), Refusal> {
        let mark = |object: &Value| object["metadata"]["labels"][PARKED].as_str().map(str::to_owned);
        let Some(was) = Self::before(review).filter(|_| self.releases).and_then(mark) else { return Ok(()) };
        if mark(object).is_none_or(|mark| mark != format!("{RELEASE}{was}")) {
            return Ok(());
        }
        object["metadata"]["labels"].as_object_mut().map(|labels| labels.remove(PARKED));
        match kind(review.kind) {
            TargetKind::Deployment => drop(object["spec"].as_object_mut().map(|spec| spec.remove("paused"))),
            TargetKind::StatefulSet => {
                let partition = was.parse::<i64>().unwrap_or_default();
                object["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = partition.into();
            }
            TargetKind::DaemonSet => object["spec"]["updateStrategy"]["type"] = "RollingUpdate".into(),
        }
        Ok(())
    }

    fn validate(&self, _: &Server, review: &Review<'_>, object: &Value) -> Result<(), Refusal> {
        let Some(old) = Self::before(review) else { return Ok(()) };
        let rest = |object: &Value| {
            let mut rest = object.clone();
            for (parent, field) in
                [("/metadata/labels", PARKED), ("/spec", "paused"), ("/spec", "updateStrategy")]
            {
                rest.pointer_mut(parent).and_then(Value::as_object_mut).map(|fields| fields.remove(field));
            }
            if rest["metadata"]["labels"].as_object().is_none_or(serde_json::Map::is_empty) {
                rest["metadata"].as_object_mut().map(|fields| fields.remove("labels"));
            }
            for field in ["generation", "resourceVersion"] {
                rest["metadata"].as_object_mut().map(|fields| fields.remove(field));
            }
            rest
        };
        let parked = |object: &Value| object["metadata"]["labels"].get(PARKED).is_some();
        if parked(old) && !parked(object) && rest(old) == rest(object) {
            return Ok(());
        }
        let message = "ValidatingAdmissionPolicy 'pitstop-controller-workloads' denied request: no release";
        Err(Refusal { code: 422, reason: "Invalid", message: message.to_owned() })
    }
}
