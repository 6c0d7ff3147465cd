//! A simulated Pod, and its status as a kubelet writes it.

use chrono::{DateTime, SecondsFormat, Utc};
use pitstop_api::labels::hash;
use serde_json::{Value, json};

/// The original image of every container.
pub(crate) const IMAGE: &str = "registry.example/team/app:1.4.2";

/// A Pod on a simulated node.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) node: String,
    /// Name of its `ReplicaSet`.
    pub(crate) set: String,
    /// Its `terminationGracePeriodSeconds`.
    pub(crate) grace_seconds: i64,
    pub(crate) containers: Vec<Container>,
}

/// A container: the current instance and the previous one.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) name: String,
    /// Runtime's ID: 64 hex digits.
    pub(crate) id: String,
    /// ID of the previous instance; empty without one.
    pub(crate) before: String,
    pub(crate) restarts: u32,
    /// Images of the instance, and of the Pod's spec.
    pub(crate) image: String,
    pub(crate) wanted: String,
    pub(crate) since: DateTime<Utc>,
    /// End of the instance; `None` while it runs.
    pub(crate) ended: Option<DateTime<Utc>>,
    /// Whether it ends only after its grace period.
    pub(crate) ignores_term: bool,
}

impl Container {
    /// A running first instance.
    pub(crate) fn new(pod_uid: &str, name: &str, ignores_term: bool, now: DateTime<Utc>) -> Self {
        Self {
            name: name.to_owned(),
            id: container_id(pod_uid, name, 0),
            before: String::new(),
            restarts: 0,
            image: IMAGE.to_owned(),
            wanted: IMAGE.to_owned(),
            since: now,
            ended: None,
            ignores_term,
        }
    }

    /// Replaces the ended instance by the next one.
    pub(super) fn restart(&mut self, pod_uid: &str, now: DateTime<Utc>) {
        self.restarts = self.restarts.saturating_add(1);
        let next = container_id(pod_uid, &self.name, self.restarts);
        self.before = std::mem::replace(&mut self.id, next);
        self.image.clone_from(&self.wanted);
        (self.since, self.ended) = (now, None);
    }

    fn status(&self) -> Value {
        let time = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
        let ended = |id: &str, at| {
            json!({"terminated": {
                "exitCode": if self.ignores_term { 137 } else { 143 }, "reason": "Error",
                "startedAt": time(self.since), "finishedAt": time(at), "containerID": format!("containerd://{id}"),
            }})
        };
        let state = self
            .ended
            .map_or_else(|| json!({"running": {"startedAt": time(self.since)}}), |at| ended(&self.id, at));
        let last = if self.before.is_empty() { json!({}) } else { ended(&self.before, self.since) };
        json!({
            "name": self.name, "containerID": format!("containerd://{}", self.id), "image": self.image,
            "imageID": reference(&self.image), "ready": self.ended.is_none(),
            "started": self.ended.is_none(), "restartCount": self.restarts, "state": state, "lastState": last,
        })
    }
}

impl Pod {
    /// The body of a patch of the Pod's status. `note` is in a condition, so that two patches differ.
    pub(crate) fn status(&self, now: DateTime<Utc>, note: &str) -> Value {
        let time = now.to_rfc3339_opts(SecondsFormat::Secs, true);
        let ready = self.containers.iter().all(|container| container.ended.is_none());
        let status = |holds: bool| if holds { "True" } else { "False" };
        let condition = |type_: &str, holds: bool, message: &str| json!({"type": type_, "status": status(holds), "lastTransitionTime": time, "message": message});
        json!({"status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "qosClass": "Burstable", "startTime": time,
            "conditions": [
                condition("PodReadyToStartContainers", true, ""), condition("Initialized", true, ""),
                condition("ContainersReady", ready, ""), condition("Ready", ready, note),
                condition("PodScheduled", true, ""),
            ],
            "containerStatuses": self.containers.iter().map(Container::status).collect::<Vec<_>>(),
        }})
    }
}

/// The image by digest: the digest in its name, or its tag's.
pub(super) fn reference(image: &str) -> String {
    let (tagged, named) =
        image.split_once('@').map_or((image, None), |(tagged, digest)| (tagged, Some(digest.to_owned())));
    let repository = tagged.rsplit_once(':').map_or(tagged, |(repository, _)| repository);
    let of_tag = || format!("sha256:{}", digits(tagged));
    format!("{repository}@{}", named.unwrap_or_else(of_tag))
}

/// 64 hex digits, different for each text.
fn digits(of: &str) -> String {
    (0..4).fold(String::new(), |digits, part| format!("{digits}{:016x}", hash(&format!("{of}/{part}"))))
}

/// The ID of a container's instance, different for each.
fn container_id(pod_uid: &str, name: &str, restarts: u32) -> String {
    digits(&format!("{pod_uid}/{name}/{restarts}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instance_has_an_id_of_its_own() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let mut container = Container::new("uid", "app", false, now);
        let first = container.id.clone();
        assert_eq!(first.len(), 64);
        container.ended = Some(now);
        container.restart("uid", now);
        assert_eq!(container.before, first);
        assert_ne!(container.id, first);
        assert_ne!(container.id, Container::new("uid", "app2", false, now).id);
    }

    #[test]
    fn a_digest_that_is_named_is_that_of_the_image() {
        let by_tag = reference("registry.example/team/app:1");
        assert!(by_tag.starts_with("registry.example/team/app@sha256:"));
        assert_ne!(reference("registry.example/team/app:2"), by_tag);
        let digest = by_tag.split_once('@').unwrap().1;
        assert_eq!(reference(&format!("registry.example/team/app:1@{digest}")), by_tag);
    }

    #[test]
    fn a_pod_is_ready_while_all_its_containers_run() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let mut pod = Pod {
            namespace: "shop".into(),
            name: "web".into(),
            uid: "uid".into(),
            node: "n".into(),
            set: "web-1".into(),
            grace_seconds: 30,
            containers: vec![Container::new("uid", "app", false, now)],
        };
        let ready = |pod: &Pod| pod.status(now, "")["status"]["conditions"][3]["status"].clone();
        assert_eq!(ready(&pod), "True");
        pod.containers[0].ended = Some(now);
        assert_eq!(ready(&pod), "False");
        let state = pod.status(now, "")["status"]["containerStatuses"][0]["state"].clone();
        assert_eq!(state["terminated"]["exitCode"], 143);
    }
}
