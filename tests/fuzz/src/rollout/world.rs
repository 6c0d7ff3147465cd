//! A stored rollout, its Pods and its requests, and the texts of an API server. Every plan is checked before it is
//! carried out.

use std::collections::BTreeMap;

use chrono::DateTime;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pitstop_api::logic::answer::{Answer, Failure};
use pitstop_api::rollout::{ARMED, InPlaceRollout, PARKED, POD_REVISION, TargetKind};
use pitstop_controller_core::deed::{Child, Commit, CommitStep, Strategy};
use pitstop_controller_core::key::{KindId, ObjectKey};
use pitstop_controller_core::kind::{Cx, Kind as _, PodWrites, Sight};
use pitstop_controller_core::pod::{Group, Pod};
use pitstop_controller_core::pod_check::PodCheck;
use pitstop_controller_core::rollout::{ID, Memory, Plan, Rollout};
use pitstop_controller_core::wire::{Exchange, Step, observe};
use pitstop_controller_core::workload::{Parked, Version};
use pitstop_controller_core::{Action, Config, Deed, Done, Event, Mono, Object};
use serde_json::{Value, json};

use super::around::Surroundings;
use super::items;
use crate::refusals;

/// Kind of requests that restart Pods.
const RESTARTS: KindId = KindId::new("ContainerRecreateRequest");
/// Pages of one list. An exchange fails after five times as many requests, because a list may be endless.
const PAGES: usize = 4;

/// An API server's answers about a workload.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts<T> {
    /// The object.
    pub(super) workload: T,
    /// Its `ReplicaSet`s, or its `ControllerRevision`s.
    pub(super) older: T,
    /// The disruption budgets of its namespace.
    pub(super) budgets: T,
    /// Its Pods.
    pub(super) pods: T,
}

impl<T> Texts<T> {
    pub(super) fn map<U>(self, of: impl Fn(T) -> U) -> Texts<U> {
        let Self { workload, older, budgets, pods } = self;
        Texts { workload: of(workload), older: of(older), budgets: of(budgets), pods: of(pods) }
    }
}

/// A request that the rollout created.
pub(super) struct Asked {
    pub(super) uid: String,
    pub(super) pod: String,
    pod_uid: String,
    spec: Value,
    pub(super) ended: Option<bool>,
    pub(super) pulled: Option<(String, String)>,
}

pub(super) struct World {
    pub(super) now: Mono,
    pub(super) rollout: Rollout,
    pub(super) memory: Memory,
    pub(super) texts: Texts<String>,
    pub(super) pods: BTreeMap<ObjectKey, Pod>,
    pub(super) asked: BTreeMap<(KindId, ObjectKey), Asked>,
    pub(super) parked: Option<Parked>,
    /// Result of the controller's deeds, except reads.
    pub(super) done: Done,
    groups: Vec<Group>,
    made: usize,
    /// Marked revisions by Pod UID.
    marks: BTreeMap<String, String>,
}

impl World {
    pub(super) fn new(object: InPlaceRollout, texts: Texts<String>) -> Self {
        let mut world = Self {
            now: Mono(1_000_000),
            rollout: Rollout::observe(object),
            memory: Rollout::remember(Mono(1_000_000)),
            texts,
            pods: BTreeMap::new(),
            asked: BTreeMap::new(),
            parked: None,
            done: Done::Effected,
            groups: Vec::new(),
            made: 0,
            marks: BTreeMap::new(),
        };
        world.show();
        world
    }

    /// The workload's kind; `None` for selected Pods.
    fn kind(&self) -> Option<TargetKind> {
        self.rollout.spec.kind()
    }

    /// The workload's name; empty for selected Pods.
    fn name(&self) -> &str {
        self.rollout.spec.target_ref.as_ref().map_or("", |target| &target.name)
    }

    /// Delivers the content of the texts to the watches.
    pub(super) fn show(&mut self) {
        let workload: Value = serde_json::from_str(&self.texts.workload).unwrap_or_default();
        let metadata: Option<ObjectMeta> = serde_json::from_value(workload["metadata"].clone()).ok();
        let marked = |metadata: &ObjectMeta| metadata.labels.as_ref().is_some_and(|l| l.contains_key(PARKED));
        let parked = metadata.filter(marked).zip(self.kind());
        self.parked = parked.map(|(metadata, kind)| observe::parked(kind, metadata));
        let mut all = items(&self.texts.pods);
        for pod in &mut all {
            self.mark(pod);
        }
        if !all.is_empty() {
            self.texts.pods = json!({"metadata": {}, "items": all}).to_string();
        }
        let slim = |item: Value| serde_json::from_value::<observe::SlimPod>(item).ok().map(observe::pod);
        let shown = all.into_iter().filter_map(slim).filter(is_possible);
        let before = std::mem::take(&mut self.pods);
        self.pods = shown.map(|pod| (ObjectKey::new("shop", &pod.key.name), pod)).collect();
        self.pods.iter_mut().for_each(|(key, pod)| pod.key = key.clone());
        for key in before.into_keys().chain(self.pods.keys().cloned()) {
            Rollout::member_changed(&mut self.memory, &key);
        }
    }

    /// Adds its mark to a Pod.
    fn mark(&self, pod: &mut Value) {
        let Some(revision) = pod["metadata"]["uid"].as_str().and_then(|uid| self.marks.get(uid)) else {
            return;
        };
        let (under, name) = match self.kind() {
            None | Some(TargetKind::Deployment) => ("annotations", POD_REVISION),
            Some(TargetKind::StatefulSet | TargetKind::DaemonSet) => ("labels", "controller-revision-hash"),
        };
        if !pod["metadata"][under].is_object() {
            pod["metadata"][under] = json!({});
        }
        pod["metadata"][under][name] = json!(revision);
    }

    pub(super) fn changed(&mut self, pod: &str) {
        Rollout::member_changed(&mut self.memory, &ObjectKey::new("shop", pod));
    }

    /// Replaces the leader, which then sees all objects.
    pub(super) fn restart(&mut self) {
        self.memory = Rollout::remember(self.now);
        self.groups.clear();
        self.show();
    }

    fn plan(&mut self) -> Plan {
        let mut memory = self.memory.clone();
        let (lookup, pod_check, config) = (Surroundings(self), PodCheck::default(), Config::default());
        let writes = PodWrites { images: &[], images_now: false, resources: None, resources_open: false };
        let sight = Sight {
            request: &self.rollout,
            pod: None,
            book: None,
            wants_orders: false,
            guarded: true,
            ahead: None,
            owner_over: false,
            child: None,
            made_pod: None,
            writes,
            deed: None,
            doing: &[],
            pod_check: &pod_check,
            survey: None,
            reinstated: None,
            lookup: &lookup,
        };
        let cx = Cx { now: self.now, wall: DateTime::UNIX_EPOCH, config: &config };
        let (plan, _) = Rollout::decide(cx, sight, &mut memory);
        self.memory = memory;
        plan
    }

    /// Carries out one plan; returns whether it had an effect.
    fn step(&mut self) -> bool {
        let plan = self.plan();
        self.check(&plan);
        let Plan { status, deed, groups, labels, .. } = plan;
        let before = std::mem::replace(&mut self.groups, groups);
        let mut did = before != self.groups;
        if did {
            let all: Vec<String> = self.pods.keys().map(|key| key.name.clone()).collect();
            for pod in &all {
                self.changed(pod);
            }
        }
        if let Some(label) = labels.get(ARMED) {
            self.rollout.more = label.is_some();
            did = true;
        }
        if let Some(deed) = deed {
            let done = self.carry_out(&deed);
            // Failed deeds take time, and so do commits, which other controllers must observe.
            if matches!(deed, Deed::Commit(_)) || !matches!(done, Done::Effected | Done::Read(_)) {
                self.now = Mono(self.now.0 + 1_000);
            }
            Rollout::deed_done(&mut self.memory, self.now, deed, done);
            did = true;
        }
        if let Some(write) = status {
            assert_ne!(self.rollout.status, write.status, "a write that changes nothing");
            self.rollout.status = write.status;
            did = true;
        }
        did
    }

    /// Milliseconds after which [`World::settle`] stops, because a deed may fail forever.
    const MOST_FAILED: u64 = 10_000;

    /// Carries out plans until none has an effect at this time.
    pub(super) fn settle(&mut self) {
        let began = self.now;
        for _ in 0..400 {
            if !self.step() || self.now.0 > began.0 + Self::MOST_FAILED {
                return;
            }
        }
        assert!(self.now > began, "the controller does not come to rest: {:?}", self.rollout.status);
    }

    pub(super) fn wait(&mut self, milliseconds: u64) {
        self.now = Mono(self.now.0 + milliseconds);
        self.settle();
    }

    /// Asserts that the API server would accept the plan, and that its deeds are for existing objects.
    fn check(&self, plan: &Plan) {
        assert!(plan.wake_at.is_none_or(|at| at > self.now), "it would be planned again at once: {plan:?}");
        if let Some(write) = &plan.status {
            let object = json!({"spec": self.rollout.spec, "status": write.status});
            let refused = refusals("InPlaceRollout", &object);
            assert!(refused.is_empty(), "the API server would refuse it: {refused:?}: {:?}", write.status);
        }
        assert!(plan.labels.keys().all(|label| label == ARMED), "{:?}", plan.labels);
        let target = self.name();
        match &plan.deed {
            Some(Deed::Create(child)) => self.check_child(child),
            Some(Deed::Resume { kind, key, uid, pod }) => {
                let asked = &self.asked[&(*kind, key.clone())];
                assert!(asked.uid == *uid && asked.pod == pod.name && is_suspended(asked), "{key}");
                assert!(!self.rollout.spec.paused, "it is paused");
            }
            Some(Deed::Delete { kind, key, uid }) => {
                assert_eq!(self.asked[&(*kind, key.clone())].uid, *uid);
            }
            Some(Deed::MarkPod { key, uid, .. }) => assert_eq!(self.pods[key].uid, *uid),
            Some(Deed::AskWorkload(query)) => assert_eq!(query.key.name, target),
            Some(Deed::TryRelease { key, .. }) => assert_eq!(key.name, target),
            Some(Deed::Release(release)) => {
                assert_eq!(release.key.name, target);
                assert!(self.parked.is_some() && self.rollout.spec.changes_in_place(), "it is not parked");
            }
            Some(Deed::Commit(commit)) => {
                let deployment = (self.kind(), commit.deployment.name.as_str());
                assert_eq!(deployment, (Some(TargetKind::Deployment), target));
                assert!(self.parked.is_some() && self.rollout.spec.changes_in_place(), "it is not parked");
            }
            Some(other) => panic!("this is not a rollout's to do: {other:?}"),
            None => {}
        }
    }

    fn check_child(&self, child: &Child) {
        assert!(child.key.namespace == "shop" && child.key.name.len() <= 63, "{}", child.key);
        assert!(!self.asked.contains_key(&(child.kind, child.key.clone())), "it is there: {}", child.key);
        let refused = refusals(child.kind.name(), &json!({"spec": child.spec}));
        // The API server does not bound images of a template.
        let long = |why: &String| why.contains("image");
        assert!(refused.iter().all(long), "the API server would refuse it: {refused:?}: {:?}", child.spec);
        let pod = self.pods.get(&ObjectKey::new("shop", pod_of(child))).expect("a Pod that is not there");
        assert!(!pod.gone(), "a Pod that is gone: {}", pod.key);
        let names = child.spec["containers"].as_array().expect("containers").iter();
        for name in names.filter_map(|container| container["name"].as_str()) {
            assert!(pod.container(name).is_some(), "a container that the Pod does not have: {name}");
        }
        let begins = child.spec["suspend"] != true;
        assert!(!begins || !self.rollout.spec.paused, "it is paused");
        let open = self.asked.values().filter(|asked| asked.ended.is_none() && asked.pod_uid == pod.uid);
        assert_eq!(open.count(), 0, "two requests for Pod {}", pod.key);
    }

    /// Carries out a deed by its requests to the API server and the answers.
    fn carry_out(&mut self, deed: &Deed) -> Done {
        let done = match (self.exchange(deed), deed) {
            (done, Deed::AskWorkload(_)) => return done,
            (done, Deed::Commit(_)) if done != Done::Effected => return done,
            _ => self.done.clone(),
        };
        if matches!(done, Done::Effected) {
            self.takes_effect(deed);
        }
        match (deed, done) {
            // A request reported as gone must be gone.
            (Deed::Delete { kind, key, .. }, Done::Gone) => {
                self.forget(*kind, key);
                Done::Gone
            }
            (Deed::Create(_) | Deed::MarkPod { .. }, Done::Conflict) => Done::Retry("lost".to_owned()),
            (_, done) => done,
        }
    }

    fn forget(&mut self, kind: KindId, key: &ObjectKey) {
        if let Some(asked) = self.asked.remove(&(kind, key.clone())) {
            self.changed(&asked.pod);
        }
    }

    fn takes_effect(&mut self, deed: &Deed) {
        match deed {
            Deed::Create(child) => {
                self.made += 1;
                let (uid, pod) = (format!("child-{}", self.made), pod_of(child).to_owned());
                let of = self.pods.get(&ObjectKey::new("shop", &pod)).expect("it is there");
                let (pod_uid, spec) = (of.uid.clone(), child.spec.clone());
                let asked = Asked { uid, pod, pod_uid, spec, ended: None, pulled: None };
                self.changed(&asked.pod);
                self.asked.insert((child.kind, child.key.clone()), asked);
            }
            Deed::Resume { kind, key, pod, .. } => {
                let asked = self.asked.get_mut(&(*kind, key.clone())).expect("it is there");
                asked.spec["suspend"] = json!(false);
                self.changed(&pod.name);
            }
            Deed::Delete { kind, key, .. } => self.forget(*kind, key),
            Deed::MarkPod { uid, revision, .. } => {
                self.marks.insert(uid.clone(), revision.clone());
                self.show();
            }
            Deed::Commit(commit) => self.commit(commit),
            Deed::Release(release) => {
                let mut workload: Value = serde_json::from_str(&self.texts.workload).unwrap_or_default();
                workload["metadata"]["labels"] = json!({});
                workload["spec"]["paused"] = json!(false);
                workload["spec"]["updateStrategy"] = match release.to {
                    Strategy::Partition(partition) => json!({"rollingUpdate": {"partition": partition}}),
                    Strategy::AsIs | Strategy::Rolling | Strategy::Unpaused => {
                        json!({"type": "RollingUpdate"})
                    }
                };
                self.texts.workload = workload.to_string();
                self.parked = None;
            }
            _ => {}
        }
    }

    /// Changes the templates of `ReplicaSet`s.
    fn commit(&mut self, commit: &Commit) {
        let workload: Value = serde_json::from_str(&self.texts.workload).unwrap_or_default();
        let mut sets = items(&self.texts.older);
        let is = |set: &Value, version: &Version| set["metadata"]["uid"] == version.uid.as_str();
        let active = sets.iter().find(|set| is(set, &commit.active.version)).cloned().unwrap_or_default();
        let mut write = |of: &Version, template: &Value| {
            let found = sets.iter_mut().find(|set| is(set, of));
            if let Some(set) = found {
                set["spec"]["template"] = template.clone();
            }
        };
        match &commit.step {
            CommitStep::Swap => write(&commit.active.version, &workload["spec"]["template"]),
            CommitStep::Keep(set) => write(&set.version, &active["spec"]["template"]),
            CommitStep::Void(set) => {
                write(&set.version, &json!({"metadata": {"annotations": {"void": "true"}}}));
            }
            CommitStep::Make => {
                self.made += 1;
                let mut kept = active;
                let name = format!("kept-{}", self.made);
                (kept["metadata"]["uid"], kept["metadata"]["name"]) = (json!(name), json!(name));
                (kept["spec"]["replicas"], kept["status"]["replicas"]) = (json!(0), json!(0));
                sets.push(kept);
            }
        }
        self.texts.older = json!({"metadata": {}, "items": sets}).to_string();
    }

    /// Result that the controller reads from the API server's answers.
    fn exchange(&self, deed: &Deed) -> Done {
        let object = Object::new(ID, self.rollout.key.clone(), "ipr-1");
        let action = Action::Do { object, deed: deed.clone() };
        let mut step = Exchange::begin(action, DateTime::UNIX_EPOCH).expect("it is sent");
        let mut sent = 0;
        loop {
            match step {
                Step::Send(request, exchange) => {
                    let target = request.uri().to_string();
                    let answer = if sent < PAGES * 5 {
                        Answer::Body(self.text(target.split('?').next().unwrap_or_default()))
                    } else {
                        Answer::Failed(Failure::of_code(500, "a list without an end"))
                    };
                    sent += 1;
                    step = exchange.answered(answer);
                }
                Step::Over(over) => {
                    let Event::DeedDone { done, .. } = over.event else { panic!("{:?}", over.event) };
                    return done;
                }
            }
        }
    }

    fn text(&self, path: &str) -> String {
        let mut parts = path.rsplit('/');
        let (last, before) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let set = || items(&self.texts.older).into_iter().find(|set| set["metadata"]["name"] == last);
        match (before, last) {
            ("replicasets", _) => set().map_or_else(|| "{}".to_owned(), |set| set.to_string()),
            (_, "replicasets" | "controllerrevisions") => self.texts.older.clone(),
            (_, "poddisruptionbudgets") => self.texts.budgets.clone(),
            (_, "pods") => self.texts.pods.clone(),
            (_, last) if last == self.name() => self.texts.workload.clone(),
            _ => "{}".to_owned(),
        }
    }
}

/// Whether the API server would store such a Pod.
fn is_possible(pod: &Pod) -> bool {
    let named = |name: &str| {
        (1..=63).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let containers = pod.containers.iter().all(|container| named(&container.name));
    named(&pod.key.name) && named(&pod.uid) && containers
}

pub(super) fn is_suspended(asked: &Asked) -> bool {
    asked.spec["suspend"] == true && asked.ended.is_none()
}

/// Name of the Pod of a request.
fn pod_of(child: &Child) -> &str {
    let of = if child.kind == RESTARTS { &child.spec["podName"] } else { &child.spec["podRef"]["name"] };
    of.as_str().expect("it names a Pod")
}
