//! Steps of users and other programs of the cluster.

use serde_json::{Value, json};

use super::plan::Step;
use super::{World, imaging, objects, others, rolling, sizing};
use crate::oracle::Writer;

/// User agent of another writer's hold, in the list that all writers of a readiness condition share.
const OTHER: &str = "other";

impl World {
    pub(super) fn step(&mut self, at: usize) {
        let step = self.schedule.steps[at].what.clone();
        self.story.note(self.now, "user", || format!("{step:?}"));
        match step {
            Step::Create(plan) => {
                let request = objects::create(&plan);
                let response = self.handle(Writer::User, &request);
                if !response.status().is_success() {
                    self.story.note(self.now, "user", || format!("refused: {}", response.body()["message"]));
                }
            }
            Step::Delete(name) => {
                let request = objects::delete(&format!("{}/{name}", objects::REQUESTS), None, None);
                self.handle(Writer::User, &request);
            }
            Step::Touch(name) => {
                let stamp = json!(self.now.to_string());
                self.change(Writer::User, "ContainerRecreateRequest", objects::NAMESPACE, &name, |object| {
                    object["metadata"]["labels"]["example.com/touched"] = stamp;
                });
            }
            Step::DeletePod(name) => {
                let request = objects::delete(&objects::pod_path(&name), None, None);
                self.handle(Writer::User, &request);
            }
            Step::ForceDeletePod(name) => {
                let request = objects::delete(&objects::pod_path(&name), Some(0), None);
                self.handle(Writer::User, &request);
                self.remove("Pod", objects::NAMESPACE, &name);
            }
            Step::Meddle(name) => {
                self.change(Writer::Other, "Pod", objects::NAMESPACE, &name, meddle);
            }
            Step::Occupy(name) => {
                self.change(Writer::Other, "Pod", objects::NAMESPACE, &name, |pod| {
                    others::write_gates(pod, "False", Some("maintenance"));
                });
            }
            Step::Open(name) => {
                self.change(Writer::Other, "Pod", objects::NAMESPACE, &name, |pod| {
                    others::write_gates(pod, "True", None);
                });
            }
            Step::Forge(pod, forgery) => self.forge(&pod, forgery),
            Step::Free(name) => {
                self.handle(Writer::User, &objects::free(&name));
            }
            Step::SetImage(pod, container) => {
                let image = json!(format!("registry.example/{container}:{}", self.now));
                self.change(Writer::Other, "Pod", objects::NAMESPACE, &pod, |object| {
                    for field in ["containers", "initContainers"] {
                        let list =
                            object.pointer_mut(&format!("/spec/{field}")).and_then(Value::as_array_mut);
                        for one in list.into_iter().flatten() {
                            if one["name"] == *container {
                                one["image"] = image.clone();
                            }
                        }
                    }
                });
            }
            Step::Crash(pod, container, code) => self.crash_container(&pod, &container, code),
            Step::Resize(plan) => self.create_resize(&plan),
            Step::CancelResize(name) => self.cancel_resize(&name),
            Step::DeleteResize(name) => {
                let request = objects::delete(&format!("{}/{name}", sizing::RESIZES), None, None);
                self.handle(Writer::User, &request);
            }
            Step::FreeResize(name) => self.free_resize(&name),
            Step::SetSize(pod, container, requests, limits) => {
                self.set_size(&pod, &container, &requests, &limits);
            }
            Step::Crowd(at, millicores) => {
                self.nodes[at].kubelet.crowd(self.now, millicores);
                self.plan_node(at);
            }
            Step::Bloat(pod, container, mebibytes) => self.bloat(&pod, &container, mebibytes),
            step => self.update_step(step),
        }
    }

    /// Steps that concern images.
    fn update_step(&mut self, step: Step) {
        match step {
            Step::Update(plan) => self.create_update(&plan),
            Step::ReleaseUpdate(name) => self.patch_update(&name, &json!({"spec": {"suspend": false}})),
            Step::CancelUpdate(name) => self.patch_update(&name, &json!({"spec": {"cancel": true}})),
            Step::FreeUpdate(name) => self.patch_update(&name, &json!({"metadata": {"finalizers": null}})),
            Step::DeleteUpdate(name) => {
                let request = objects::delete(&format!("{}/{name}", imaging::UPDATES), None, None);
                self.handle(Writer::User, &request);
            }
            Step::CollectImages(at) => self.collect_images(at),
            Step::MoveTag(name, content) => self.registries(|r| r.tag(&name, &content)),
            Step::SwitchWebhook(on) => self.rewriter.switch(on),
            step => self.rollout_step(step),
        }
    }

    /// Steps that concern rollouts.
    fn rollout_step(&mut self, step: Step) {
        match step {
            Step::Rollout(plan) => self.create_rollout(&plan),
            Step::RestartAt(name, at) => self.patch_rollout(&name, &json!({"restartedAt": at})),
            Step::Wish(name, tags) => self.patch_rollout(&name, &json!({"images": rolling::wish(&tags)})),
            Step::PauseRollout(name, paused) => self.patch_rollout(&name, &json!({"paused": paused})),
            Step::RetryRollout(name) => self.retry_rollout(&name),
            Step::DeleteRollout(name) => {
                let request = objects::delete(&format!("{}/{name}", rolling::ROLLOUTS), None, None);
                self.handle(Writer::User, &request);
            }
            Step::Template(tags) => self.change_template(&tags),
            Step::Release => self.release(),
            Step::Scale(replicas) => self.scale(replicas),
            other => unreachable!("{other:?} has been done"),
        }
    }

    /// Creates a Pod, bound to its node.
    pub(super) fn make_pod(&mut self, at: usize, name: &str) {
        let mut pod = objects::pod(&self.schedule.pods[at], name);
        self.adopt(&mut pod);
        let request = objects::create_pod(&pod);
        let response = self.handle(Writer::Other, &request);
        assert!(response.status().is_success(), "{}", response.body());
    }

    /// Recreates a controlled Pod.
    pub(super) fn replace(&mut self, at: usize) {
        if self.nodes[self.schedule.pods[at].node].removed {
            return;
        }
        let Some(name) = self.name_anew(at) else { return };
        self.make_pod(at, &name);
        self.story.note(self.now, "user", || format!("Pod {name} is made anew"));
    }
}

/// Adds or removes the other writer's hold on every gate that writers share.
fn meddle(pod: &mut Value) {
    let conditions = pod.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if !["KruisePodReady", "pitstop.dev/ready"].contains(&condition["type"].as_str().unwrap_or_default())
        {
            continue;
        }
        let message = condition["message"].as_str().unwrap_or_default();
        let mut holds: Vec<Value> = serde_json::from_str(message).unwrap_or_default();
        let before = holds.len();
        holds.retain(|h| h["userAgent"] != OTHER);
        if holds.len() == before {
            holds.push(json!({"userAgent": OTHER, "key": "x"}));
        }
        condition["status"] = if holds.is_empty() { "True".into() } else { "False".into() };
        condition["message"] = Value::String(Value::Array(holds).to_string());
    }
}
