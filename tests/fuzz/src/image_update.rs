//! The controller's reaction to a `PodImageUpdate`, a daemon that lies about images, and a colluding kubelet.

use arbitrary::{Result, Unstructured};
use chrono::DateTime;
use pitstop_api::image::{Reference, is_digest};
use pitstop_api::image_update::{PodImageUpdate, PodImageUpdateSpec, Pull, validate};
use pitstop_api::nodework::{
    Answer, AnswerReason, AnswerState, ImageAnswer, MAX_MESSAGE, Order, Pulled, Running,
};
use pitstop_controller_core::image::{ImageUpdate, Memory, Observed, Plan, plan};
use pitstop_controller_core::key::ObjectKey;
use pitstop_controller_core::kind::{Kind as _, Owner};
use pitstop_controller_core::nodework::OrderView;
use pitstop_controller_core::pod::{Container, ContainerState, ContainerStatus, Made, Pod};
use pitstop_controller_core::pod_check::{Found, PodCheck};
use pitstop_controller_core::{Config, Deed, Done, Mono};
use serde_json::{Value, json};

use crate::{read, refusals, texts};

/// Repository of all images in this module.
const REPOSITORY: &str = "registry.example.com/shop/web";

/// Input: a `PodImageUpdate` and a daemon's answers as JSON, or a script of events.
pub fn image_update(input: &[u8]) {
    if input.first() == Some(&b'{') {
        let Some([text, answers]) = texts(input) else { return };
        if let Some(object) = read::<PodImageUpdate>(text) {
            stored(object, answers);
        }
    } else {
        // A script may end early.
        let _ = script(&mut Unstructured::new(input));
    }
}

fn id(n: u8) -> String {
    format!("containerd://{n:064x}")
}

fn digest(n: u8) -> String {
    format!("sha256:{n:064x}")
}

fn container(name: &str) -> Container {
    let status = ContainerStatus {
        container_id: id(0),
        image_id: format!("{REPOSITORY}@{}", digest(0)),
        ready: true,
        state: ContainerState::Running,
        ..ContainerStatus::default()
    };
    let image = format!("{REPOSITORY}:v1");
    Container { name: name.to_owned(), image, status: Some(status), ..Container::default() }
}

fn pod(names: &[&str]) -> Pod {
    Pod {
        key: ObjectKey::new("shop", "web"),
        uid: "pod-1".to_owned(),
        node: Some("node1".to_owned()),
        ready: true,
        containers: names.iter().map(|name| container(name)).collect(),
        ..Pod::default()
    }
}

/// Runs an object for a Pod with its containers. The daemon gives the answers.
fn stored(mut object: PodImageUpdate, answers: &str) {
    // A user cannot write the status.
    object.status = None;
    let bounded = refusals("PodImageUpdate", &json!({"spec": object.spec})).is_empty();
    if let Err(invalid) = validate(&object.spec) {
        assert!(invalid.field.starts_with("spec.") && !invalid.message.is_empty(), "{invalid}");
    }
    if !bounded {
        return;
    }
    let names: Vec<&str> = object.spec.containers.iter().map(|c| c.name.as_str()).collect();
    let mut world =
        World::new(ImageUpdate::observe(PodImageUpdate::new("piu", object.spec.clone())), pod(&names));
    world.settle();
    if let Some(answers) = serde_json::from_str(answers)
        .ok()
        .and_then(|answers| read::<Vec<Answer>>(&Value::to_string(&answers)))
    {
        world.answers(answers);
    }
    world.over();
}

/// A stored request, its Pod and its orders. Every plan is checked before it is carried out.
struct World {
    now: Mono,
    update: ImageUpdate,
    pod: Option<Pod>,
    puller: Option<Pod>,
    /// Number of created puller Pods, for unique UIDs.
    pullers: u32,
    orders: Vec<Order>,
    answers: Vec<Answer>,
    pod_check: PodCheck,
    memory: Memory,
    guarded: bool,
    /// Result of the controller's deeds.
    done: Done,
}

impl World {
    fn new(update: ImageUpdate, mut pod: Pod) -> Self {
        let key = ObjectKey::new("shop", "piu");
        let update = ImageUpdate { key, uid: "uid-1".to_owned(), generation: Some(1), ..update };
        pod.key = update.pod_key();
        Self {
            now: Mono(1_000_000),
            update,
            pod: Some(pod),
            puller: None,
            pullers: 0,
            orders: Vec::new(),
            answers: Vec::new(),
            pod_check: PodCheck::default(),
            memory: Memory::new(Mono(1_000_000)),
            guarded: true,
            done: Done::Effected,
        }
    }

    fn plan(&mut self) -> Plan {
        let of = |order: &Order| self.answers.iter().find(|answer| answer.order_id == order.id);
        let views = self.orders.iter().map(|order| OrderView { order, answer: of(order), closed: false });
        let orders: Vec<OrderView<'_>> = views.collect();
        self.memory.see(self.now, &self.update, self.pod.as_ref(), self.puller.as_ref(), &orders);
        let observed = Observed {
            now: self.now,
            update: &self.update,
            pod: self.pod.as_ref(),
            ahead: None,
            earlier: None,
            puller: self.puller.as_ref(),
            proven: Vec::new(),
            orders,
            guarded: self.guarded,
            writing: &[],
            written_now: false,
            deed: None,
            pod_check: &self.pod_check,
            memory: &self.memory,
        };
        plan(DateTime::UNIX_EPOCH, &Config::default(), &observed)
    }

    /// Carries out one plan. Returns when to plan again; the current time after a change.
    fn step(&mut self) -> Option<Mono> {
        let plan = self.plan();
        self.check(&plan);
        let Plan { status, orders, images, deed, read, wake_at, .. } = plan;
        let mut changed = status.is_some() || orders != self.orders || !images.is_empty() || read.is_some();
        self.orders = orders;
        self.answers.retain(|answer| self.orders.iter().any(|order| order.id == answer.order_id));
        if let Some(deed) = deed {
            let before = self.memory.clone();
            self.does(&deed);
            changed |= self.memory != before;
        }
        if read.is_some() {
            self.pod_check.begin();
            self.pod_check.answered(self.now, if self.pod.is_some() { Found::There } else { Found::Gone });
        }
        for change in images {
            self.memory.images_written(None);
            let pod = self.pod.as_mut().expect("a change of a Pod that is not there");
            let container = pod.containers.iter_mut().find(|c| c.name == change.container);
            container.expect("a change of no container").image = change.image;
        }
        if let Some(write) = status {
            self.update.status = write.status;
        }
        if changed { Some(self.now) } else { wake_at.or_else(|| self.retry_at()) }
    }

    /// Time when the engine retries a failed deed; `None` if there is none.
    fn retry_at(&self) -> Option<Mono> {
        (!self.update.completed() && self.done != Done::Effected).then(|| Mono(self.now.0 + 60_000))
    }

    fn does(&mut self, deed: &Deed) {
        let done = match (deed, &self.done) {
            (Deed::Pull(_), Done::Effected) if self.puller.is_some() => Done::Conflict,
            (_, done) => done.clone(),
        };
        match deed {
            Deed::Pull(made) if done == Done::Effected => {
                let owner = Owner {
                    kind: "PodImageUpdate".to_owned(),
                    name: "piu".to_owned(),
                    uid: "uid-1".to_owned(),
                };
                let containers = made.images.iter().map(|image| Container {
                    name: image.container.clone(),
                    image: image.image.clone(),
                    ..Container::default()
                });
                self.pullers += 1;
                self.puller = Some(Pod {
                    key: made.key.clone(),
                    uid: format!("puller-{}", self.pullers),
                    node: Some(made.node.clone()),
                    made: Some(Box::new(Made { owner, ..Made::default() })),
                    containers: containers.collect(),
                    ..Pod::default()
                });
            }
            // A Pod reported as gone must be gone.
            Deed::DeletePod { uid, .. } if matches!(done, Done::Effected | Done::Gone) => {
                self.puller.take_if(|puller| puller.uid == *uid);
            }
            _ => {}
        }
        self.memory.deed_done(self.now, deed, done);
    }

    /// Asserts that the API server would accept the plan, and that its image changes are permitted.
    fn check(&self, plan: &Plan) {
        if let Some(write) = &plan.status {
            let refused =
                refusals("PodImageUpdate", &json!({"spec": self.update.spec, "status": write.status}));
            assert!(refused.is_empty(), "the API server would refuse it: {refused:?}: {:?}", write.status);
        }
        let refused = refusals("NodeWork", &json!({"spec": {"orders": plan.orders}}));
        assert!(refused.is_empty(), "the API server would refuse them: {refused:?}: {:?}", plan.orders);
        for change in &plan.images {
            let pod = self.pod.as_ref().expect("a change of a Pod that is not there");
            let has = &pod.container(&change.container).expect("a change of no container").image;
            let status = self.update.status.containers.iter().find(|c| c.name == change.container);
            let status = status.expect("a container that the request does not name");
            let new = Reference::parse(&change.image).expect("an image that nobody can read");
            assert!(
                Reference::parse(has).is_ok_and(|has| has.same_repository(&new)),
                "{has} becomes {change:?}"
            );
            assert!(new.digest.as_deref().is_none_or(is_digest), "{change:?}");
            assert!(
                [&status.written, &status.restored].contains(&&change.image),
                "{change:?} is not written down"
            );
            let pulled = status.pulled.is_some() || status.before.container_id.is_empty();
            let back = self.update.status.restoring.is_some();
            assert!(
                back || pulled || self.update.spec.pull() != Pull::Required,
                "{change:?} before the pull"
            );
            assert!(!self.update.spec.dry_run, "a dry run changes {change:?}");
        }
    }

    fn settle(&mut self) {
        for _ in 0..50 {
            if self.step() != Some(self.now) {
                return;
            }
        }
        panic!("the controller does not come to rest: {:?}", self.update.status);
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now = Mono(self.now.0 + milliseconds);
        self.settle();
    }

    /// Stores a daemon's answers unless the schema refuses them.
    fn answers(&mut self, mut answers: Vec<Answer>) {
        for (answer, order) in answers.iter_mut().zip(&self.orders) {
            answer.order_id.clone_from(&order.id);
        }
        let object = json!({"spec": {}, "status": {"answers": answers}});
        if refusals("NodeWork", &object).is_empty() {
            self.answers = answers;
        }
        self.settle();
    }

    /// Asserts that the request ends when only time passes and every deed succeeds.
    fn over(&mut self) {
        self.done = Done::Effected;
        self.update.spec.suspend = false;
        for _ in 0..2_000 {
            match self.step() {
                Some(Mono(at)) => self.now = Mono(at.max(self.now.0)),
                None => break,
            }
        }
        assert!(self.update.completed(), "a request that does not end: {:?}", self.update.status);
    }
}

fn answer(u: &mut Unstructured<'_>) -> Result<Answer> {
    use AnswerReason::{
        ImageGone, ImageNeverPull, NoDiskRoom, PullFailed, PullRetried, PullTimedOut, PullUnauthorized,
        Pulling, Unknown, WrongRepository,
    };
    use AnswerState::{Acknowledged, Done, Failed, Refused};
    let reasons = [
        ImageGone,
        ImageNeverPull,
        NoDiskRoom,
        PullFailed,
        PullRetried,
        PullTimedOut,
        PullUnauthorized,
        Pulling,
        Unknown,
        WrongRepository,
    ];
    let digests =
        [digest(1), digest(1), digest(0), digest(2), String::new(), "sha256:".to_owned(), "x@y".repeat(40)];
    let ids = ["config-1", "config-1", "config-0", "", "\u{1F600}"];
    let pulled = Pulled {
        image_id: (*u.choose(&ids)?).to_owned(),
        digest: u.choose(&digests)?.clone(),
        bytes: *u.choose(&[0, 7, i64::MAX])?,
        milliseconds: *u.choose(&[0, 5, i64::MAX])?,
        present: u.arbitrary()?,
    };
    let running = Running {
        container_id: u.choose(&[id(0), id(1), id(2)])?.replace("containerd://", ""),
        image_id: (*u.choose(&ids)?).to_owned(),
        digest: u.choose(&digests)?.clone(),
    };
    let image =
        ImageAnswer { pulled: u.ratio(3, 4)?.then_some(pulled), running: u.ratio(1, 2)?.then_some(running) };
    Ok(Answer {
        order_id: (*u.choose(&["uid-1/app/1", "uid-1/app/2", "uid-2/app/1", "/"])?).to_owned(),
        state: *u.choose(&[Acknowledged, Done, Done, Refused, Failed])?,
        reason: if u.arbitrary()? { Some(*u.choose(&reasons)?) } else { None },
        message: (*u.choose(&["", "no", "\u{1F600}"])?).repeat(u.int_in_range(0..=MAX_MESSAGE / 4)?),
        acknowledged_uptime_seconds: None,
        acknowledged_by: String::new(),
        observed: None,
        image: u.ratio(4, 5)?.then(|| Box::new(image)),
    })
}

/// Changes a container's status, as a kubelet does.
fn kubelet(u: &mut Unstructured<'_>, pod: Option<&mut Pod>) -> Result<()> {
    let (at, n) = (u.int_in_range(0..=1_usize)?, u.int_in_range(0..=3_u8)?);
    let what = u.int_in_range(0..=9)?;
    let waits =
        *u.choose(&["CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "RunContainerError", ""])?;
    let Some(pod) = pod else { return Ok(()) };
    let Some(container) = pod.containers.get_mut(at) else { return Ok(()) };
    let status = container.status.get_or_insert_default();
    match what {
        0..=2 => {
            status.image_id = format!("{REPOSITORY}@{}", digest(n));
            status.restart_count = i32::from(n);
            status.container_id = id(n);
            (status.state, status.ready) = (ContainerState::Running, what > 0);
        }
        3 => status.ready = !status.ready,
        4 => status.state = ContainerState::Terminated { exit_code: i32::from(n) },
        5 => {
            let message = "401 Unauthorized".repeat(usize::from(n) * 100);
            status.state = ContainerState::Waiting { reason: waits.to_owned(), message };
        }
        6 => status.restart_count = i32::MAX,
        7 => status.oom_killed.clone_from(&status.container_id),
        8 => (status.container_id, status.image_id) = (String::new(), String::new()),
        _ => pod.unheard = !pod.unheard,
    }
    Ok(())
}

fn spec(u: &mut Unstructured<'_>) -> Result<PodImageUpdateSpec> {
    let tag = *u.choose(&["v2", "v2", "v1", "v2@sha256:1"])?;
    let image = format!("{REPOSITORY}:{tag}");
    let names = if u.arbitrary()? { &["app"][..] } else { &["app", "proxy"] };
    let containers: Vec<Value> = names.iter().map(|name| json!({"name": name, "image": image})).collect();
    let spec = json!({"podRef": {"name": "web"}, "containers": containers});
    let mut spec: PodImageUpdateSpec = serde_json::from_value(spec).expect("a spec");
    spec.pull = *u.choose(&[None, Some(Pull::IfPossible), Some(Pull::Skip)])?;
    (spec.suspend, spec.rollback_on_failure) = (u.arbitrary()?, u.arbitrary()?);
    spec.unready_grace_period_seconds = *u.choose(&[None, Some(0), Some(5)])?;
    spec.ready_timeout_seconds = *u.choose(&[None, Some(1), Some(60)])?;
    spec.active_deadline_seconds = *u.choose(&[None, Some(3), Some(600)])?;
    Ok(spec)
}

fn script(u: &mut Unstructured<'_>) -> Result<()> {
    let mut pod = pod(&["app", "proxy"]);
    (pod.pull_secrets, pod.generation) = (u.arbitrary()?, u.arbitrary::<bool>()?.then_some(2));
    let mut world = World::new(ImageUpdate { spec: spec(u)?, ..ImageUpdate::default() }, pod);
    world.guarded = u.ratio(7, 8)?;
    world.settle();
    for _ in 0..100 {
        if u.is_empty() {
            break;
        }
        match u.int_in_range(0..=15)? {
            0..=4 => {
                let answers = (0..u.int_in_range(1..=2)?).map(|_| answer(u)).collect::<Result<_>>()?;
                world.answers(answers);
            }
            5..=7 => kubelet(u, world.pod.as_mut())?,
            8 => kubelet(u, world.puller.as_mut())?,
            9 if u.ratio(1, 4)? => world.pod = None,
            9 if u.ratio(1, 4)? => world.update.spec.cancel = true,
            10 => world.update.spec.suspend = u.arbitrary()?,
            11 if u.ratio(1, 4)? => world.memory = Memory::new(world.now),
            12 => {
                let failed = || "x".repeat(2_000);
                let ends = [
                    Done::Effected,
                    Done::Gone,
                    Done::Conflict,
                    Done::Retry(failed()),
                    Done::Refused(failed()),
                ];
                world.done = u.choose(&ends)?.clone();
            }
            13 if u.ratio(1, 4)? => {
                if let Some(pod) = &mut world.pod {
                    "registry.example.com/other:v1".clone_into(&mut pod.containers[0].image);
                }
            }
            _ => world.wait(u.int_in_range(0..=90_000)?),
        }
        world.settle();
    }
    world.over();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scripts can reach the change of the Pod. Otherwise, they would test little.
    #[test]
    fn a_request_whose_daemon_tells_the_truth_succeeds() {
        let spec = json!({"podRef": {"name": "web"}, "containers": [{"name": "app", "image": format!("{REPOSITORY}:v2")}]});
        let spec = serde_json::from_value(spec).unwrap();
        let mut world = World::new(ImageUpdate { spec, ..ImageUpdate::default() }, pod(&["app", "proxy"]));
        world.settle();
        let pulled = Pulled { image_id: "config-1".into(), digest: digest(1), ..Pulled::default() };
        let image = ImageAnswer { pulled: Some(pulled), running: None };
        let answer = json!({"orderID": "uid-1/app/1", "state": "Done", "image": image});
        world.answers(vec![serde_json::from_value(answer).unwrap()]);
        let container = &mut world.pod.as_mut().unwrap().containers[0];
        assert_eq!(container.image, format!("{REPOSITORY}:v2@{}", digest(1)));
        let status = container.status.as_mut().unwrap();
        (status.container_id, status.image_id) = (id(1), format!("{REPOSITORY}@{}", digest(1)));
        status.restart_count = 1;
        world.over();
        assert!(world.update.status.message.starts_with("app: "), "{:?}", world.update.status);
    }
}
