//! Rollouts in a small world: Pods, requests, and a workload to read.

mod ahead;
mod back;
mod budgets;
mod deployments;
mod engine;
mod history;
mod order;
mod pins;
mod selected;
mod stalls;
mod updates;

use std::borrow::Cow;
use std::collections::BTreeMap;

use chrono::DateTime;
use pitstop_api::rollout::{InPlaceRollout, Phase, TargetKind};
use serde_json::{Value, json};

use self::selected::Others;
use super::child::{self, KINDS, RESTARTS, UPDATES};
use super::plan::plan;
use super::{Memory, Plan, Rollout};
use crate::config::Config;
use crate::deed::{CommitStep, Deed, Done, Strategy};
use crate::fixtures::{container, controller};
use crate::hold::Force;
use crate::hold::admission::Usage;
use crate::key::{KindId, ObjectKey};
use crate::kind::{Ahead, Cx, Ended, Kind as _, Lookup, PodWrites, Relative, Sight};
use crate::plan::Urgency;
use crate::pod::{Group, Pod};
use crate::pod_check::PodCheck;
use crate::time::Mono;
use crate::workload::{Listed, Parked, Parking, Workload, revision_hash};

/// A request, as a rollout sees it.
struct Asked {
    kind: KindId,
    uid: String,
    owner: String,
    pod: String,
    spec: Value,
    /// Whether it succeeded. None while it is open.
    ended: Option<bool>,
    /// The image that its node pulled, and the digest.
    pulled: Option<(String, String)>,
}

impl Asked {
    fn suspended(&self) -> bool {
        self.spec["suspend"] == true && self.ended.is_none()
    }
}

struct World {
    rollout: Rollout,
    memory: Memory,
    config: Config,
    now: Mono,
    pods: BTreeMap<ObjectKey, Pod>,
    /// Pods that the watch does not show yet.
    unseen: Vec<ObjectKey>,
    asked: BTreeMap<(KindId, ObjectKey), Asked>,
    workload: Result<Workload, Done>,
    ahead: Option<Ahead>,
    /// The Pods that the rollout watches.
    groups: Vec<Group>,
    /// Other rollouts that select Pods.
    others: Others,
    /// How the API server answers a create.
    create: Done,
    /// The watch does not show new requests.
    hides_new: bool,
    /// The watch still shows deleted requests.
    shows_deleted: bool,
    deletes: usize,
    /// Names of the Pods whose request began, in order.
    begun: Vec<String>,
    /// The same for suspended requests.
    pulled: Vec<String>,
    /// Numbers of reads, and of those with a list of the Pods.
    readings: usize,
    lists: usize,
    /// A create whose result is unknown.
    unknown: Option<Deed>,
    /// Deeds under way.
    doing: Vec<Deed>,
    /// Most deeds at a time.
    most: usize,
    /// Number of status writes.
    writes: usize,
    /// The workload, while it is parked.
    parked: Option<Parked>,
    /// What other revisions lack for the one that Pods go back to.
    back: BTreeMap<String, crate::template::Change>,
    /// Names of the Pods that were marked, in order.
    marked: Vec<String>,
    /// What was written into `ReplicaSet`s, in order.
    committed: Vec<CommitStep>,
    /// The API server refuses these writes.
    refuses: bool,
    /// A Pod that appears when a `ReplicaSet` gets the new template; the answer is lost.
    late_pod: Option<Pod>,
    /// What the workload was released to.
    released: Option<Strategy>,
    /// How the API server answers a release.
    release: Done,
    /// How it answers a trial release.
    trial: Done,
    trials: u64,
}

struct Surroundings<'a>(&'a World);

impl Lookup<Rollout> for Surroundings<'_> {
    fn force(&self) -> Force {
        Force::default()
    }
    fn usage(&self) -> Option<Usage<'_>> {
        None
    }
    fn begun(&self) -> Vec<&Rollout> {
        Vec::new()
    }
    fn first_waiting(&self) -> Option<&Rollout> {
        None
    }
    fn last_waiting(&self) -> Vec<&Rollout> {
        Vec::new()
    }
    fn is_last(&self) -> bool {
        false
    }
    fn pod(&self, key: &ObjectKey) -> Option<Cow<'_, Pod>> {
        self.0.pods.get(key).filter(|_| !self.0.unseen.contains(key)).map(Cow::Borrowed)
    }
    fn parking(&self, _: TargetKind) -> Parking<'_> {
        self.0.parked.as_ref().map_or(Parking::No, Parking::Yes)
    }
    fn relative(&self, kind: KindId, key: &ObjectKey) -> Option<Relative<'_>> {
        assert!(KINDS.contains(&kind));
        let found = self.0.asked.get_key_value(&(kind, key.clone()));
        found.map(|((_, key), asked)| relative(key, asked))
    }
    fn others_begun(&self, kind: KindId, pod: &ObjectKey) -> bool {
        let open = |asked: &Asked| asked.kind == kind && asked.pod == pod.name && asked.ended.is_none();
        self.0.asked.values().any(|asked| open(asked) && asked.owner != self.0.rollout.uid)
    }
    fn pod_of(&self, kind: KindId, key: &ObjectKey) -> Option<ObjectKey> {
        self.0.asked.get(&(kind, key.clone())).map(|asked| ObjectKey::new("shop", &asked.pod))
    }
    fn selects_too_many(&self) -> bool {
        self.0.others == Others::TooMany
    }
    fn older_rival(&self, _: &Pod) -> Option<ObjectKey> {
        if let Others::Gives(other) = &self.0.others { Some(other.clone()) } else { None }
    }
    fn children(&self, kind: KindId) -> Box<dyn Iterator<Item = Relative<'_>> + '_> {
        let own = move |asked: &Asked| asked.kind == kind && asked.owner == self.0.rollout.uid;
        let own = self.0.asked.iter().filter(move |(_, asked)| own(asked));
        Box::new(own.map(|((_, key), asked)| relative(key, asked)))
    }
}

fn relative<'a>(key: &'a ObjectKey, asked: &'a Asked) -> Relative<'a> {
    let ended = asked.ended.map(|complete| Ended { complete, reason: "R", message: "it did not come up" });
    let suspended = asked.suspended();
    let pulled = asked.pulled.iter().map(|(image, digest)| (image.as_str(), digest.as_str())).collect();
    let owner_uid = Some(asked.owner.as_str());
    Relative { key, uid: &asked.uid, owner_uid, deleting: false, suspended, ended, pulled }
}

pub(super) fn rollout(kind: &str, strategy: &Value) -> Rollout {
    of_spec(
        &json!({"targetRef": {"apiVersion": "apps/v1", "kind": kind, "name": "web"}, "strategy": strategy,
        "restartedAt": "one"}),
    )
}

fn of_spec(spec: &Value) -> Rollout {
    let object = json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "InPlaceRollout",
        "metadata": {"name": "web", "namespace": "shop", "uid": "ipr-1", "resourceVersion": "1", "generation": 1},
        "spec": spec});
    let object: InPlaceRollout = serde_json::from_value(object).unwrap();
    Rollout::observe(object)
}

fn pod(name: &str) -> Pod {
    Pod {
        key: ObjectKey::new("shop", name),
        uid: format!("uid-{name}"),
        created: 100,
        controller: Some(Box::new(controller("ReplicaSet"))),
        node: Some("node1".into()),
        ready: true,
        containers: vec![container("app")],
        ..Pod::default()
    }
}

impl World {
    /// A workload of these Pods, of which `max_unavailable` may be unavailable.
    fn new(kind: &str, strategy: &Value, pods: &[&str], max_unavailable: u32) -> Self {
        let workload = Workload {
            uid: "w".into(),
            controllers: vec!["owner-1".into()],
            desired: u32::try_from(pods.len()).unwrap(),
            max_unavailable,
            ..Workload::default()
        };
        let mut world = Self {
            rollout: rollout(kind, strategy),
            memory: Memory::default(),
            config: Config::default(),
            now: Mono(0),
            pods: BTreeMap::new(),
            unseen: Vec::new(),
            asked: BTreeMap::new(),
            workload: Ok(workload),
            ahead: None,
            groups: Vec::new(),
            others: Others::None,
            create: Done::Effected,
            hides_new: false,
            shows_deleted: false,
            deletes: 0,
            begun: Vec::new(),
            pulled: Vec::new(),
            readings: 0,
            lists: 0,
            unknown: None,
            doing: Vec::new(),
            most: 8,
            writes: 0,
            parked: None,
            back: BTreeMap::new(),
            marked: Vec::new(),
            committed: Vec::new(),
            refuses: false,
            late_pod: None,
            released: None,
            release: Done::Effected,
            trial: Done::Effected,
            trials: 0,
        };
        for name in pods {
            world.put(pod(name));
        }
        world
    }

    /// The watch shows the Pod.
    fn put(&mut self, pod: Pod) {
        self.changed(&pod.key.clone());
        self.pods.insert(pod.key.clone(), pod);
    }

    fn changed(&mut self, pod: &ObjectKey) {
        self.memory.changed(pod);
    }

    /// Another process leads, and looks at everything.
    fn restart(&mut self) {
        self.memory = Memory::default();
        self.groups.clear();
    }

    fn plan(&mut self) -> Plan {
        let mut memory = std::mem::take(&mut self.memory);
        let lookup = Surroundings(self);
        let pod_check = PodCheck::default();
        let writes = PodWrites { images: &[], images_now: false, resources: None, resources_open: false };
        let sight = Sight {
            request: &self.rollout,
            pod: None,
            book: None,
            wants_orders: false,
            guarded: true,
            ahead: self.ahead.clone(),
            owner_over: false,
            child: None,
            made_pod: None,
            writes,
            deed: self.unknown.as_ref(),
            doing: &self.doing,
            pod_check: &pod_check,
            survey: None,
            reinstated: None,
            lookup: &lookup,
        };
        let config = self.config;
        let plan =
            plan(Cx { now: self.now, wall: DateTime::UNIX_EPOCH, config: &config }, &sight, &mut memory);
        self.memory = memory;
        plan
    }

    /// Plans, and carries out the plan once. Returns whether anything was done.
    fn step(&mut self) -> bool {
        let mut plan = self.plan();
        while let Some(deed) = plan.deed.take().filter(|deed| self.may_begin(deed)) {
            self.doing.push(deed);
            plan = self.plan();
        }
        assert!(plan.wake_at.is_none_or(|at| at > self.now), "it would be planned again at once: {plan:?}");
        let mut did = false;
        let before = std::mem::replace(&mut self.groups, plan.groups.clone());
        for group in plan.groups.iter().filter(|group| !before.contains(group)) {
            let Group::Controller(uid) = group else { continue };
            let own =
                self.pods.values().filter(|pod| pod.controller.as_ref().is_some_and(|of| *of.uid == *uid));
            let own: Vec<ObjectKey> = own.map(|pod| pod.key.clone()).collect();
            for pod in own {
                self.changed(&pod);
                did = true;
            }
        }
        for deed in std::mem::take(&mut self.doing) {
            let done = self.carry_out(&deed);
            let lost = matches!(deed, Deed::Create(_)) && matches!(done, Done::Retry(_));
            self.unknown = lost.then(|| deed.clone());
            self.memory.deed_done(self.now, &deed, done);
            did = true;
        }
        if let Some(label) = plan.labels.get("pitstop.dev/armed") {
            assert_ne!(self.rollout.more, label.is_some(), "it is so already");
            self.rollout.more = label.is_some();
            did = true;
        }
        // A status with [`Urgency::Later`] is only written if nothing else happens first.
        if let Some(write) = plan.status.filter(|write| write.urgency == Urgency::Now || !did) {
            self.rollout.status = write.status;
            self.writes += 1;
            did = true;
        }
        did
    }

    /// Whether the engine would begin this deed now.
    fn may_begin(&self, deed: &Deed) -> bool {
        let mut doing = self.doing.iter();
        let beside = deed.is_one_of_many() && doing.all(|other| other.is_one_of_many() && other != deed);
        self.doing.is_empty() || (beside && self.doing.len() < self.most)
    }

    fn carry_out(&mut self, deed: &Deed) -> Done {
        match deed {
            Deed::AskWorkload(query) => {
                self.readings += 1;
                self.lists += usize::from(query.pods);
                let mut workload = match &self.workload {
                    Ok(workload) => workload.clone(),
                    Err(done) => return done.clone(),
                };
                let listed = self.pods.values().map(|pod| Listed {
                    name: pod.key.name.clone(),
                    uid: pod.uid.clone(),
                    created: pod.created,
                    revision: if query.kind.is_some() { pod.revision } else { pod.marked },
                });
                workload.template = workload.template.filter(|_| query.template);
                if let (Some(template), Some(back)) = (&mut workload.template, &query.back) {
                    self.compared_with(back, template);
                }
                workload.pods = query.pods.then(|| listed.collect());
                workload.budgets = query.budgets.then(|| workload.budgets.unwrap_or_default());
                Done::Read(Box::new(workload))
            }
            Deed::Create(child) => {
                if self.create != Done::Effected {
                    return self.create.clone();
                }
                let pod = child::pod_of(child).name;
                let uid = &self.pods[&ObjectKey::new("shop", &pod)].uid;
                if child.kind == RESTARTS {
                    assert_eq!(child.labels["crr.apps.kruise.io/pod-uid"], *uid);
                } else {
                    assert_eq!(child.spec["podRef"]["uid"], *uid);
                }
                let begins = child::begins(child);
                if begins { &mut self.begun } else { &mut self.pulled }.push(pod.clone());
                if self.hides_new {
                    return Done::Effected;
                }
                let uid = format!("crr-{}", self.begun.len() + self.pulled.len());
                let (owner, spec) = (self.rollout.uid.clone(), child.spec.clone());
                let before = self.asked.insert(
                    (child.kind, child.key.clone()),
                    Asked { kind: child.kind, uid, owner, pod: pod.clone(), spec, ended: None, pulled: None },
                );
                assert!(before.is_none(), "it is there already: {}", child.key);
                self.changed(&ObjectKey::new("shop", pod));
                Done::Effected
            }
            Deed::Resume { kind, key, uid, pod } => {
                self.begun.push(pod.name.clone());
                let asked = self.asked.get_mut(&(*kind, key.clone())).unwrap();
                assert!(asked.uid == *uid && asked.suspended());
                if !self.hides_new {
                    asked.spec["suspend"] = json!(false);
                }
                self.changed(pod);
                Done::Effected
            }
            Deed::Delete { .. } if self.shows_deleted => {
                self.deletes += 1;
                Done::Effected
            }
            Deed::Delete { kind, key, .. } => {
                let gone = self.asked.remove(&(*kind, key.clone())).unwrap();
                self.changed(&ObjectKey::new("shop", gone.pod));
                Done::Effected
            }
            Deed::MarkPod { key, uid, revision, kind, .. } => {
                let pod = self.pods.get_mut(key).unwrap();
                assert_eq!(pod.uid, *uid);
                *if kind.is_some() { &mut pod.revision } else { &mut pod.marked } = revision_hash(revision);
                self.marked.push(key.name.clone());
                self.changed(key);
                Done::Effected
            }
            Deed::Release(release) => {
                if self.release == Done::Effected {
                    self.released = Some(release.to);
                    self.parked = None;
                    let template = self.workload.as_mut().unwrap().template.as_mut().unwrap();
                    (template.parked, template.holds) = (None, false);
                    if let Strategy::Partition(partition) = release.to {
                        self.workload.as_mut().unwrap().partition = partition;
                    }
                }
                self.release.clone()
            }
            Deed::Commit(_) if self.refuses => Done::Refused("no right to replicasets".into()),
            Deed::Commit(commit) => self.commit(commit),
            Deed::TryRelease { .. } => {
                self.trials += 1;
                self.trial.clone()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Steps until nothing is left to do.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            if !self.step() {
                return;
            }
        }
        panic!("it never comes to rest: {:?}", self.rollout.status);
    }

    /// Names of the Pods that are being restarted.
    fn open(&self) -> Vec<&str> {
        let open = self.asked.values().filter(|asked| asked.ended.is_none() && !asked.suspended());
        open.map(|asked| asked.pod.as_str()).collect()
    }

    /// The request for the Pod ends.
    fn end(&mut self, pod: &str, complete: bool) {
        let asked = self.asked.values_mut().find(|asked| asked.pod == pod && asked.ended.is_none()).unwrap();
        asked.ended = Some(complete);
        self.changed(&ObjectKey::new("shop", pod));
        self.settle();
    }

    /// Every request succeeds, one after another, until none is open. Returns the most that were open at a time.
    fn run(&mut self) -> usize {
        let mut most = 0;
        self.settle();
        while let Some(pod) = self.open().first().map(|pod| (*pod).to_owned()) {
            most = most.max(self.open().len());
            self.end(&pod, true);
        }
        most
    }

    fn later(&mut self, seconds: u64) {
        self.now = Mono(self.now.0 + seconds * 1_000);
        self.settle();
    }

    fn phase(&self) -> Option<Phase> {
        self.rollout.status.phase
    }

    fn report(&self) -> (&str, &str) {
        let last = pitstop_api::condition::find(&self.rollout.status.conditions, "Complete").unwrap();
        (&last.reason, &last.message)
    }

    fn counts(&self) -> (i32, i32, i32, i32) {
        let status = &self.rollout.status;
        (status.pods, status.current, status.started, status.failed)
    }
}
