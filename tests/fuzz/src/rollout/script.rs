//! Scripts of events around a rollout.

use arbitrary::{Result, Unstructured};
use pitstop_api::rollout::{InPlaceRollout, InPlaceRolloutSpec};
use pitstop_controller_core::Done;
use serde_json::{Value, json};

use super::world::{Texts, World};

const KINDS: [&str; 3] = ["Deployment", "StatefulSet", "DaemonSet"];
const REPOSITORY: &str = "registry.example.com/shop/web";
/// Texts that no normal API server returns.
const ODD: [&str; 8] = [
    "",
    "{}",
    "[]",
    r#"{"items":[{}],"metadata":{}}"#,
    r#"{"items":[],"metadata":{"continue":"more"}}"#,
    r#"{"metadata":{"labels":{"pitstop.dev/parked":"?"}},"spec":{"selector":{},"template":{}}}"#,
    r#"{"metadata":{},"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"X"}]},"template":{"spec":{"containers":[{}]}}}}"#,
    r#"{"items":[{"metadata":{"name":"web","ownerReferences":[{"controller":true,"uid":"web-1"}]},"spec":{"replicas":-1,"template":7},"revision":-1,"data":[]}],"metadata":{}}"#,
];

/// Content of the API server's texts.
#[allow(clippy::struct_excessive_bools, reason = "each is told apart, and all may hold at once")]
struct Story {
    kind: &'static str,
    /// Image tags of the template, and of the previous revision.
    tags: [&'static str; 2],
    parked: bool,
    /// Whether the workload's controllers have observed all changes.
    seen: bool,
    /// Whether they regard the new revision as the current one.
    committed: bool,
    /// Whether more than the image differs.
    other: bool,
    restart: u8,
    pods: Vec<Member>,
    budget: bool,
}

/// A Pod in the texts.
struct Member {
    ready: bool,
    deleting: bool,
    made: u8,
    /// Its revision: 0 none, 1 previous, 2 new, 3 another.
    revision: usize,
}

/// Runs a script, which may end early.
pub(super) fn run(input: &[u8]) {
    let _ = script(&mut Unstructured::new(input));
}

impl Story {
    fn draw(u: &mut Unstructured<'_>) -> Result<Self> {
        let pods = (0..u.int_in_range(0..=4)?).map(|_| Member::draw(u)).collect::<Result<_>>()?;
        Ok(Self {
            kind: u.choose(&KINDS)?,
            tags: [*u.choose(&["v2", "v2", "v1"])?, "v1"],
            parked: u.arbitrary()?,
            seen: u.ratio(3, 4)?,
            committed: u.ratio(1, 4)?,
            other: u.ratio(1, 8)?,
            restart: u.int_in_range(0..=1)?,
            pods,
            budget: u.ratio(1, 4)?,
        })
    }

    fn labels(&self, revision: usize) -> Value {
        let hash = ["", "web-1", "web-2", "web-3"].get(revision).copied().unwrap_or_default();
        let name = if self.kind == "Deployment" { "pod-template-hash" } else { "controller-revision-hash" };
        if hash.is_empty() { json!({"app": "web"}) } else { json!({"app": "web", name: hash}) }
    }

    fn template(&self, tag: &str, newest: bool) -> Value {
        let image = format!("{REPOSITORY}:{tag}");
        let port = if newest && self.other { json!([{"containerPort": 80}]) } else { json!([]) };
        let notes =
            json!({"kubectl.kubernetes.io/restartedAt": if newest { self.restart } else { 0 }.to_string()});
        json!({"metadata": {"labels": {"app": "web"}, "annotations": notes},
            "spec": {"containers": [{"name": "app", "image": image, "ports": port}]}})
    }

    fn texts(&self) -> Texts<String> {
        let list = |items: Vec<Value>| json!({"metadata": {}, "items": items}).to_string();
        let pods = self.pods.iter().enumerate().map(|(i, member)| self.pod(i, member));
        let budget = json!({"metadata": {"name": "web", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"observedGeneration": 1, "desiredHealthy": 2, "currentHealthy": 3, "expectedPods": 3}});
        Texts {
            workload: self.workload().to_string(),
            older: list(vec![self.older(0), self.older(1)]),
            budgets: list(if self.budget { vec![budget] } else { Vec::new() }),
            pods: list(pods.collect()),
        }
    }

    fn workload(&self) -> Value {
        let [tag, _] = self.tags;
        let count = self.pods.len();
        let mark = match self.kind {
            "Deployment" => "Unpaused",
            "StatefulSet" => "0",
            _ => "RollingUpdate",
        };
        let labels = if self.parked { json!({"pitstop.dev/parked": mark}) } else { json!({}) };
        let strategy = match (self.kind, self.parked) {
            ("StatefulSet", true) => json!({"rollingUpdate": {"partition": i32::MAX}}),
            ("DaemonSet", true) => json!({"type": "OnDelete"}),
            _ => json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}),
        };
        json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "web-1", "resourceVersion": "7", "generation": 2,
                "labels": labels},
            "spec": {"replicas": count, "paused": self.parked && self.kind == "Deployment",
                "selector": {"matchLabels": {"app": "web"}}, "updateStrategy": strategy,
                "template": self.template(tag, true)},
            "status": {"observedGeneration": if self.seen { 2 } else { 1 }, "replicas": count,
                "updatedReplicas": if self.seen { count } else { 0 }, "currentRevision": if self.committed { "web-2" } else { "web-1" },
                "updateRevision": "web-2", "desiredNumberScheduled": count, "currentNumberScheduled": count,
                "updatedNumberScheduled": if self.seen { count } else { 0 }},
        })
    }

    /// A `ReplicaSet` or a `ControllerRevision`: the previous or the new one. A new `ReplicaSet` has no Pods.
    fn older(&self, which: usize) -> Value {
        let [new, before] = self.tags;
        let (tag, newest) = if which == 0 { (before, false) } else { (new, true) };
        let (hash, template) = (format!("web-{}", which + 1), self.template(tag, newest));
        let owners = json!([{"apiVersion": "apps/v1", "kind": self.kind, "name": "web", "uid": "web-1", "controller": true}]);
        let metadata = json!({"name": hash, "uid": format!("of-{hash}"), "resourceVersion": "3", "generation": 1,
            "creationTimestamp": format!("2026-11-2{which}T10:00:00Z"), "labels": self.labels(which + 1),
            "ownerReferences": owners});
        if self.kind == "Deployment" {
            let replicas = if which == 0 { self.pods.len() } else { 0 };
            json!({"metadata": metadata, "spec": {"replicas": replicas, "selector": {}, "template": template},
                "status": {"replicas": replicas, "observedGeneration": u8::from(self.seen)}})
        } else {
            json!({"metadata": metadata, "revision": which + 1, "data": {"spec": {"template": template}}})
        }
    }

    fn pod(&self, i: usize, member: &Member) -> Value {
        let owner = if self.kind == "Deployment" { "of-web-1" } else { "web-1" };
        let kind = if self.kind == "Deployment" { "ReplicaSet" } else { self.kind };
        let mut metadata = json!({"name": format!("web{i}"), "namespace": "shop", "uid": format!("pod{i}x{}", member.made),
            "resourceVersion": "5", "creationTimestamp": format!("2026-11-2{}T10:00:00Z", member.made),
            "labels": self.labels(member.revision),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": owner, "controller": true}]});
        if member.deleting {
            metadata["deletionTimestamp"] = json!("2026-11-25T10:00:00Z");
        }
        let (id, ready) = (format!("containerd://{i:064x}"), member.ready);
        let digest = format!("{REPOSITORY}@sha256:{:064x}", 1);
        let image = format!("{REPOSITORY}:v1");
        json!({"metadata": metadata,
            "spec": {"nodeName": "node", "containers": [{"name": "app", "image": image}]},
            "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
                "containerStatuses": [{"name": "app", "containerID": id, "imageID": digest, "image": image,
                    "ready": ready, "restartCount": 0, "state": {"running": {}}}]}})
    }
}

impl Member {
    fn draw(u: &mut Unstructured<'_>) -> Result<Self> {
        Ok(Self {
            ready: u.ratio(3, 4)?,
            deleting: u.ratio(1, 8)?,
            made: u.int_in_range(0..=2)?,
            revision: u.int_in_range(0..=3)?,
        })
    }
}

fn spec(u: &mut Unstructured<'_>, kind: &str) -> Result<InPlaceRolloutSpec> {
    let most = u.choose(&[json!(null), json!(1), json!(2), json!("50%")])?.clone();
    let canary = u.choose(&[json!(null), json!({"pods": 1}), json!({"pods": 9, "soakSeconds": 5})])?.clone();
    let spec = json!({
        "targetRef": {"apiVersion": "apps/v1", "kind": kind, "name": "web"},
        "templateChanges": if u.ratio(3, 4)? { "InPlace" } else { "Native" },
        "restartedAt": u.choose(&[json!(null), json!("one"), json!("two")])?,
        "restart": {"containers": u.choose(&[json!([]), json!(["app"]), json!(["proxy"])])?},
        "strategy": {"maxUnavailable": most, "canary": canary, "soakSeconds": u.choose(&[0, 10])?,
            "failureThreshold": u.choose(&[1, 2])?, "onFailure": u.choose(&["Pause", "RollBack"])?,
            "unreadyGracePeriodSeconds": u.choose(&[json!(null), json!(5)])?},
        "paused": u.ratio(1, 8)?,
        "respectDisruptionBudgets": u.arbitrary::<bool>()?,
    });
    Ok(serde_json::from_value(spec).expect("a spec"))
}

fn script(u: &mut Unstructured<'_>) -> Result<()> {
    let mut story = Story::draw(u)?;
    let mut object = InPlaceRollout::new("ipr", spec(u, story.kind)?);
    let metadata =
        json!({"name": "ipr", "namespace": "shop", "uid": "ipr-1", "resourceVersion": "1", "generation": 1});
    object.metadata = serde_json::from_value(metadata).expect("metadata");
    let mut world = World::new(object, story.texts());
    world.settle();
    for _ in 0..60 {
        if u.is_empty() {
            break;
        }
        happens(u, &mut story, &mut world)?;
        world.settle();
    }
    Ok(())
}

fn happens(u: &mut Unstructured<'_>, story: &mut Story, world: &mut World) -> Result<()> {
    match u.int_in_range(0..=13)? {
        0..=3 => ends(u, world)?,
        4 => story.parked = u.arbitrary()?,
        5 => (story.seen, story.committed) = (u.ratio(3, 4)?, u.arbitrary()?),
        6 => story.tags = [*u.choose(&["v1", "v2", "v3"])?, "v1"],
        7 if !story.pods.is_empty() => {
            let at = u.choose_index(story.pods.len())?;
            story.pods[at] = Member::draw(u)?;
        }
        8 => world.rollout.spec = spec(u, story.kind)?,
        9 if u.ratio(1, 4)? => world.restart(),
        10 => {
            let failed = || "x".repeat(2_000);
            let ends =
                [Done::Effected, Done::Gone, Done::Conflict, Done::Retry(failed()), Done::Refused(failed())];
            world.done = u.choose(&ends)?.clone();
        }
        11 => return odd(u, world),
        _ => {
            world.wait(u.int_in_range(0..=90_000)?);
            return Ok(());
        }
    }
    // The watches deliver changes by other clients.
    world.texts = story.texts();
    world.show();
    Ok(())
}

/// Replaces one of the texts by an odd one.
fn odd(u: &mut Unstructured<'_>, world: &mut World) -> Result<()> {
    let text = (*u.choose(&ODD)?).to_owned();
    let texts = &mut world.texts;
    let all = [&mut texts.workload, &mut texts.older, &mut texts.budgets, &mut texts.pods];
    let at = u.choose_index(all.len())?;
    *all.into_iter().nth(at).expect("one of them") = text;
    world.show();
    Ok(())
}

/// A request reports its node's pull, and may end.
fn ends(u: &mut Unstructured<'_>, world: &mut World) -> Result<()> {
    if world.asked.is_empty() {
        return Ok(());
    }
    let at = u.choose_index(world.asked.len())?;
    let (complete, digest) = (u.ratio(3, 4)?, u.int_in_range(1..=2_u8)?);
    let (_, asked) = world.asked.iter_mut().nth(at).expect("one of them");
    if asked.ended.is_some() {
        return Ok(());
    }
    asked.pulled = Some((format!("{REPOSITORY}:v2"), format!("sha256:{digest:064x}")));
    if u.ratio(3, 4)? {
        asked.ended = Some(complete);
    }
    let pod = asked.pod.clone();
    world.changed(&pod);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pitstop_api::rollout::UpdateEnd;

    /// Scripts can reach the end of an update. Otherwise, they would test little.
    #[test]
    fn a_parked_workload_whose_requests_succeed_is_released() {
        let member = || Member { ready: true, deleting: false, made: 1, revision: 1 };
        for kind in KINDS {
            let mut story = Story {
                kind,
                tags: ["v2", "v1"],
                parked: true,
                seen: true,
                committed: false,
                other: false,
                restart: 0,
                pods: vec![member(), member()],
                budget: false,
            };
            let spec = json!({"targetRef": {"apiVersion": "apps/v1", "kind": kind, "name": "web"}, "templateChanges": "InPlace"});
            let mut object = InPlaceRollout::new("ipr", serde_json::from_value(spec).unwrap());
            (object.metadata.namespace, object.metadata.uid) = (Some("shop".into()), Some("ipr-1".into()));
            let mut world = World::new(object, story.texts());
            world.settle();
            for i in 0..20 {
                if i == 10 && kind == "StatefulSet" {
                    story.committed = true;
                    world.texts = story.texts();
                    world.show();
                }
                world.asked.values_mut().for_each(|asked| asked.ended = Some(true));
                (0..2).for_each(|i| world.changed(&format!("web{i}")));
                world.wait(10_000);
            }
            let end = world.rollout.status.update.as_ref().and_then(|update| update.ended);
            assert_eq!(end, Some(UpdateEnd::Updated), "{kind}: {:?}", world.rollout.status);
        }
    }
}
