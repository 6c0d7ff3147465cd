//! One update against a Pod, a daemon and an API server that the test plays.

mod drains;
mod fails;
mod nodes;
mod proofs;
mod pullers;
mod pulls;
mod reasons;
mod same;

use chrono::DateTime;
use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::image_update::{Phase, conditions};
use pitstop_api::nodework::{Answer, AnswerReason, AnswerState, ImageAnswer, Order, Pulled, Running};
use serde_json::{Value, json};

use super::observe::{ImageUpdate, Memory, Observed};
use super::{Plan, plan};
use crate::blocker::Blocker;
use crate::change::{ImageChange, Named};
use crate::config::Config;
use crate::deed::{Deed, Done};
use crate::key::ObjectKey;
use crate::kind::Ahead;
use crate::nodework::OrderView;
use crate::plan::Urgency;
use crate::pod::{Container, ContainerKind, ContainerState, ContainerStatus, Pod};
use crate::pod_check::{Found, PodCheck};
use crate::time::Mono;

const OLD: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
const NEW: &str = "sha256:2222222222222222222222222222222222222222222222222222222222222222";

fn id(n: u8) -> String {
    format!("containerd://{}", format!("{n:02x}").repeat(32))
}

fn container(name: &str) -> Container {
    Container {
        name: name.into(),
        image: "registry.example.com/shop/web:v1".into(),
        status: Some(ContainerStatus {
            container_id: id(1),
            image_id: format!("registry.example.com/shop/web@{OLD}"),
            ready: true,
            state: ContainerState::Running,
            ..ContainerStatus::default()
        }),
        ..Container::default()
    }
}

fn web() -> Pod {
    Pod {
        key: ObjectKey::new("shop", "web-0"),
        uid: "pod-1".into(),
        node: Some("node1".into()),
        ready: true,
        containers: vec![container("app")],
        ..Pod::default()
    }
}

fn asked(spec: &Value) -> ImageUpdate {
    let mut whole = json!({"podRef": {"name": "web-0"},
        "containers": [{"name": "app", "image": "registry.example.com/shop/web:v2"}]});
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    ImageUpdate {
        key: ObjectKey::new("shop", "web-0-v2"),
        uid: "u-1".into(),
        generation: Some(1),
        spec: serde_json::from_value(whole).unwrap(),
        ..ImageUpdate::default()
    }
}

struct World {
    now: Mono,
    update: ImageUpdate,
    pod: Option<Pod>,
    orders: Vec<Order>,
    answers: Vec<Answer>,
    ahead: Option<Ahead>,
    earlier: Option<Named>,
    guarded: bool,
    /// The API server's refusal of dry runs and changes, if any.
    refuses: Option<String>,
    /// The Pod with the name of the puller Pod, as the watch shows it.
    puller: Option<Pod>,
    /// The API server's refusal of a puller Pod, if any.
    no_puller: Option<String>,
    /// Number of dry runs.
    tried: usize,
    /// Other deeds that were done.
    deeds: Vec<Deed>,
    /// The deed under way.
    doing: Option<Deed>,
    /// Images that the node is known to have.
    proven: Vec<(String, Pulled)>,
    /// Whether a dry run of each written image had just succeeded.
    wrote: Vec<bool>,
    /// The API server's answer about the node.
    node: Done,
    pod_check: PodCheck,
    memory: Memory,
    wake_at: Option<Mono>,
    /// Writes that only report a wait are skipped: the wait is over before.
    quick: bool,
    /// Number of writes of the status.
    writes: usize,
    deleted: bool,
}

impl World {
    fn new(spec: &Value) -> Self {
        Self {
            now: Mono(10_000),
            update: asked(spec),
            pod: Some(web()),
            orders: Vec::new(),
            answers: Vec::new(),
            ahead: None,
            earlier: None,
            guarded: true,
            refuses: None,
            puller: None,
            no_puller: Some("there is no right to".into()),
            tried: 0,
            deeds: Vec::new(),
            doing: None,
            proven: Vec::new(),
            wrote: Vec::new(),
            node: Done::Effected,
            pod_check: PodCheck::default(),
            memory: Memory::new(Mono(0)),
            wake_at: None,
            quick: false,
            writes: 0,
            deleted: false,
        }
    }

    fn plan(&mut self) -> Plan {
        let orders: Vec<OrderView<'_>> = self
            .orders
            .iter()
            .map(|order| OrderView {
                order,
                answer: self.answers.iter().find(|answer| answer.order_id == order.id),
                closed: false,
            })
            .collect();
        self.memory.see(self.now, &self.update, self.pod.as_ref(), self.puller.as_ref(), &orders);
        let observed = Observed {
            now: self.now,
            update: &self.update,
            pod: self.pod.as_ref(),
            ahead: self.ahead.clone(),
            earlier: self.earlier.clone(),
            puller: self.puller.as_ref(),
            proven: self.proven.clone(),
            orders,
            guarded: self.guarded,
            writing: &[],
            written_now: false,
            deed: self.doing.as_ref(),
            pod_check: &self.pod_check,
            memory: &self.memory,
        };
        plan(DateTime::UNIX_EPOCH, &Config::default(), &observed)
    }

    /// Carries out one plan. Returns whether it changed anything.
    fn step(&mut self) -> bool {
        let Plan { status, orders, images, deed, read, delete, wake_at, .. } = self.plan();
        let status = status.filter(|write| !self.quick || write.urgency == Urgency::Now);
        let changed = status.is_some() || orders != self.orders || !images.is_empty();
        self.orders = orders;
        self.wake_at = wake_at;
        self.deleted |= delete;
        if let Some(deed) = deed {
            let done = self.does(&deed);
            let before = self.memory.clone();
            self.memory.deed_done(self.now, &deed, done);
            if let Some(write) = status {
                self.writes += 1;
                self.update.status = write.status;
                return true;
            }
            // A deed without effect is tried again later.
            return !matches!(deed, Deed::AskNode(_)) || self.memory != before;
        }
        if read.is_some() {
            self.pod_check.begin();
            self.pod_check.answered(self.now, Found::Gone);
            return true;
        }
        if !images.is_empty() {
            self.patch(&images);
        }
        if let Some(write) = status {
            self.writes += 1;
            self.update.status = write.status;
        }
        changed
    }

    fn does(&mut self, deed: &Deed) -> Done {
        if let Deed::TryImages { .. } = deed {
            self.tried += 1;
            return self.refuses.clone().map_or(Done::Effected, Done::Refused);
        }
        self.deeds.push(deed.clone());
        match deed {
            Deed::AskNode(name) => {
                assert_eq!(name, "node1");
                self.node.clone()
            }
            Deed::Pull(puller) => match &self.no_puller {
                Some(text) => Done::Refused(text.clone()),
                None if self.puller.is_some() => Done::Conflict,
                None => {
                    self.puller = Some(pullers::pod(puller));
                    Done::Effected
                }
            },
            Deed::DeletePod { uid, .. } => match self.puller.take() {
                Some(pod) if pod.uid == *uid => Done::Effected,
                other => {
                    self.puller = other;
                    Done::Gone
                }
            },
            other => panic!("{other:?}"),
        }
    }

    fn patch(&mut self, images: &[ImageChange]) {
        let refused = self.refuses.clone();
        self.wrote.extend(images.iter().map(|image| image.tried));
        self.memory.images_written(refused.clone());
        let Some(pod) = self.pod.as_mut().filter(|_| refused.is_none()) else { return };
        pod.generation = pod.generation.map(|generation| generation + 1);
        for change in images {
            pod.containers
                .iter_mut()
                .find(|c| c.name == change.container)
                .unwrap()
                .image
                .clone_from(&change.image);
        }
    }

    /// Until nothing changes any more.
    fn settle(&mut self) {
        for _ in 0..20 {
            if !self.step() {
                return;
            }
        }
        panic!("no end: {:#?}", self.update.status);
    }

    fn pass(&mut self, seconds: u64) {
        self.now = Mono(self.now.0 + seconds * 1000);
        self.settle();
    }

    fn answer(&mut self, state: AnswerState, reason: Option<AnswerReason>, image: Option<&ImageAnswer>) {
        self.set_answers(state, reason, image);
        self.settle();
    }

    /// The daemon's answer to all orders.
    fn set_answers(&mut self, state: AnswerState, reason: Option<AnswerReason>, image: Option<&ImageAnswer>) {
        self.answers = self
            .orders
            .iter()
            .map(|order| Answer {
                order_id: order.id.clone(),
                state,
                reason,
                message: "the daemon's words".into(),
                acknowledged_uptime_seconds: None,
                acknowledged_by: String::new(),
                observed: None,
                image: image.cloned().map(Box::new),
            })
            .collect();
    }

    fn pulled(&mut self) {
        let image = ImageAnswer { pulled: Some(pulled()), running: None };
        self.answer(AnswerState::Done, None, Some(&image));
    }

    fn runs(&mut self, image_id: &str) {
        let running =
            Running { container_id: "02".repeat(32), image_id: image_id.into(), digest: NEW.into() };
        let image = ImageAnswer { pulled: Some(pulled()), running: Some(running) };
        self.answer(AnswerState::Done, None, Some(&image));
    }

    /// The kubelet has stopped the old container and started the new one.
    fn starts(&mut self, ready: bool) {
        self.show(|status| {
            status.container_id = id(2);
            status.image_id = format!("registry.example.com/shop/web@{NEW}");
            status.restart_count += 1;
            (status.state, status.ready) = (ContainerState::Running, ready);
        });
    }

    fn show(&mut self, change: impl Fn(&mut ContainerStatus)) {
        for container in &mut self.pod.as_mut().unwrap().containers {
            change(container.status.as_mut().unwrap());
        }
        self.settle();
    }

    /// Accepted, and pulled: the Pod has its new image.
    fn changed(spec: &Value) -> Self {
        let mut world = Self::new(spec);
        world.settle();
        world.pulled();
        assert_eq!(world.phase(), Phase::Updating, "{:#?}", world.update.status);
        world
    }

    fn phase(&self) -> Phase {
        self.update.status.phase.unwrap()
    }

    fn reason(&self) -> &str {
        &self.condition(conditions::COMPLETE).reason
    }

    fn condition(&self, type_: &str) -> &condition::Condition {
        condition::find(&self.update.status.conditions, type_).unwrap()
    }

    fn image(&self) -> &str {
        &self.pod.as_ref().unwrap().containers[0].image
    }
}

fn pulled() -> Pulled {
    Pulled { image_id: "config-2".into(), digest: NEW.into(), bytes: 7, milliseconds: 5, present: false }
}

#[test]
fn an_image_is_pulled_then_written_then_watched() {
    let mut world = World::new(&json!({}));
    world.settle();
    assert_eq!((world.phase(), world.reason()), (Phase::Pulling, "Pulling"));
    let order = &world.orders[0];
    assert_eq!((order.id.as_str(), order.container.id.as_str()), ("u-1/app/1", "01".repeat(32).as_str()));
    let pull = order.action.pull.as_ref().unwrap();
    assert_eq!((pull.image.as_str(), pull.timeout_seconds), ("registry.example.com/shop/web:v2", 600));
    assert_eq!(world.image(), "registry.example.com/shop/web:v1", "nothing is stopped before");
    world.pulled();
    assert_eq!(world.condition(conditions::PULLED).status, ConditionStatus::True);
    let written = format!("registry.example.com/shop/web:v2@{NEW}");
    assert_eq!((world.image(), world.phase()), (written.as_str(), Phase::Updating));
    world.starts(false);
    assert_eq!(world.phase(), Phase::Updating);
    world.now = Mono(world.now.0 + 1_500);
    world.show(|status| status.ready = true);
    // The kubelet names the digest that the daemon has pulled.
    assert_eq!((world.phase(), world.reason()), (Phase::Observing, "Observing"));
    assert_eq!(world.update.status.gap_milliseconds, Some(1_500));
    assert!(world.orders.is_empty(), "nothing is left to order");
    world.pass(29);
    assert_eq!(world.phase(), Phase::Observing);
    world.pass(1);
    assert_eq!((world.phase(), world.reason()), (Phase::Succeeded, "Updated"));
    assert_eq!(world.update.status.containers[0].running.as_ref().unwrap().digest, NEW);
}

/// One image may have several digests, of indexes and of manifests.
#[test]
fn where_the_kubelet_names_another_digest_the_daemons_word_is_waited_for() {
    let mut world = World::changed(&json!({}));
    world.starts(false);
    world.show(|status| {
        status.image_id = format!("registry.example.com/shop/web@sha256:{}", "ab".repeat(32));
        status.ready = true;
    });
    assert_eq!(world.phase(), Phase::Updating, "ready, and nobody knows yet what runs");
    world.runs("config-2");
    assert_eq!((world.phase(), world.orders.len()), (Phase::Observing, 1));
    world.pass(30);
    assert_eq!((world.phase(), world.orders.len()), (Phase::Succeeded, 0), "the order goes with the request");
}

/// The acceptance, the strings to write, and the end. The order, its withdrawal and the Pod's change are three more.
#[test]
fn what_goes_well_takes_three_writes_of_the_status() {
    let mut world = World { quick: true, ..World::new(&json!({"observeSeconds": 0})) };
    world.settle();
    world.pulled();
    world.starts(true);
    world.runs("config-2");
    assert_eq!((world.phase(), world.writes), (Phase::Succeeded, 3));
}

#[test]
fn what_is_suspended_is_pulled_and_waits_for_as_long_as_it_is() {
    let mut world = World::new(&json!({"suspend": true, "activeDeadlineSeconds": 60}));
    world.settle();
    world.pulled();
    assert_eq!((world.phase(), world.reason()), (Phase::Pulled, "Suspended"));
    world.pass(100_000);
    assert_eq!(world.phase(), Phase::Pulled, "its deadline does not run");
    assert_eq!(world.image(), "registry.example.com/shop/web:v1");
    world.update.spec.suspend = false;
    world.settle();
    assert_eq!(world.phase(), Phase::Updating);
    world.update.spec.suspend = true;
    world.starts(true);
    world.runs("config-2");
    assert_eq!(world.phase(), Phase::Observing, "too late to suspend");
}

#[test]
fn what_others_do_to_the_pod_keeps_it_from_changing_and_not_from_pulling() {
    let mut world = World::new(&json!({}));
    let blocker = Blocker::Request(Named { kind: crate::resize::ID, key: ObjectKey::new("shop", "grow") });
    let ahead = Ahead { blocker, until: None, has_pod: true, crowded: false };
    world.ahead = Some(ahead.clone());
    world.settle();
    world.pulled();
    assert_eq!((world.phase(), world.reason()), (Phase::Pulled, "Queued"));
    world.ahead = None;
    world.earlier = Some(Named { kind: super::ID, key: ObjectKey::new("shop", "first") });
    world.settle();
    assert_eq!((world.phase(), world.reason()), (Phase::Pulled, "Queued"));
    world.earlier = None;
    world.settle();
    assert_eq!(world.phase(), Phase::Updating);
    // It waits for an earlier one of its own kind before anything begins.
    let mut world = World::new(&json!({}));
    let blocker = Blocker::Request(Named { kind: super::ID, key: ObjectKey::new("shop", "first") });
    world.ahead = Some(Ahead { blocker, ..ahead });
    world.settle();
    assert_eq!((world.phase(), world.reason(), world.orders.len()), (Phase::Pending, "Queued", 0));
    // Each end of an earlier one changes the head of the queue. Waiting requests do not write that.
    let before = world.update.status.clone();
    let blocker = Blocker::Request(Named { kind: super::ID, key: ObjectKey::new("shop", "second") });
    world.ahead = world.ahead.take().map(|ahead| Ahead { blocker, ..ahead });
    world.settle();
    assert_eq!(world.update.status, before);
}

#[test]
fn a_dry_run_changes_and_pulls_nothing() {
    let mut world = World::new(&json!({"dryRun": true}));
    world.settle();
    assert_eq!((world.phase(), world.reason()), (Phase::Succeeded, "WouldUpdate"));
    assert!(world.orders.is_empty());
    assert_eq!(world.image(), "registry.example.com/shop/web:v1");
}

#[test]
fn what_makes_no_sense_for_its_pod_ends_at_once() {
    let named = |name: &str, image: &str| json!({"containers": [{"name": name, "image": image}]});
    let good = "registry.example.com/shop/web:v2";
    for (spec, why) in [
        (named("other", good), "has no container \"other\""),
        (named("init", good), "is an init container"),
        (named("debug", good), "is an ephemeral container"),
        (named("app", "registry.example.com/shop/other:v2"), "of another repository"),
        (named("app", "shop/web:v2"), "of another repository"),
    ] {
        let mut world = World::new(&spec);
        let pod = world.pod.as_mut().unwrap();
        pod.containers.push(Container { kind: ContainerKind::Init, ..container("init") });
        pod.containers.push(Container { kind: ContainerKind::Ephemeral, ..container("debug") });
        world.settle();
        assert_eq!((world.phase(), world.reason()), (Phase::Failed, "Invalid"), "{spec}");
        assert!(world.update.status.message.contains(why), "{}", world.update.status.message);
        assert_eq!(world.condition(conditions::ACCEPTED).status, ConditionStatus::False);
    }
    let mut world = World::new(&json!({}));
    world.pod.as_mut().unwrap().containers[0].kind = ContainerKind::Sidecar;
    world.settle();
    assert_eq!(world.phase(), Phase::Pulling, "a sidecar's image can change");
}

#[test]
fn what_is_over_is_deleted_in_time() {
    let mut world = World::new(&json!({"dryRun": true, "ttlSecondsAfterFinished": 3}));
    world.settle();
    assert!(!world.deleted);
    world.pass(3);
    assert!(world.deleted);
}
