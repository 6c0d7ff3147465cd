//! A schedule as data: the parts of the world, the steps of users, and the faults.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::imaging::{Images, UpdatePlan};
use super::rolling::{RolloutPlan, WorkloadPlan};
use super::sizing::{Amounts, ResizePlan, Room, Size};
use crate::node::registry::Refusing;

/// A word of a plan.
pub type Word = Cow<'static, str>;

/// All inputs of a run. Two runs of one schedule are the same, bit for bit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// Decides latencies, jitter and the like.
    pub seed: u64,
    /// A name for people.
    pub name: String,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of controller processes.
    pub replicas: usize,
    /// Seconds after which a request without a deadline ends.
    pub default_deadline: u64,
    /// Clocks: API server, controllers, nodes.
    pub clocks: Clocks,
    /// The Pods at the beginning.
    pub pods: Vec<PodPlan>,
    /// Programs that run in two versions.
    #[serde(default)]
    pub skew: Skew,
    /// Room for resizes.
    #[serde(default)]
    pub room: Room,
    /// Registries, and admission of images.
    #[serde(default)]
    pub images: Images,
    /// Workload of some of the Pods, if any.
    #[serde(default)]
    pub workload: Option<WorkloadPlan>,
    /// Maximum open requests of one kind in a namespace; None for the default.
    #[serde(default)]
    pub most_open: Option<usize>,
    /// Steps of users and other clients.
    pub steps: Vec<Timed<Step>>,
    /// Faults.
    pub faults: Vec<Timed<Fault>>,
    /// Effect at which a process is killed, if any.
    pub crash: Option<Crash>,
}

impl Schedule {
    /// True if a step makes a `PodResize`.
    pub fn resizes(&self) -> bool {
        self.steps.iter().any(|s| matches!(s.what, Step::Resize(_)))
    }

    /// True if images are updated. If not, and no workload parks, pulls take no time.
    pub fn updates(&self) -> bool {
        self.wishes() || self.steps.iter().any(|s| matches!(s.what, Step::Update(_)))
    }

    /// True if the workload has native controllers: its users park it and change its template.
    pub fn parks(&self) -> bool {
        self.workload.as_ref().is_some_and(|workload| workload.native)
    }

    /// A rollout gives images to Pods that it selects.
    pub fn wishes(&self) -> bool {
        self.steps.iter().any(|step| matches!(&step.what, Step::Rollout(plan) if !plan.images.is_empty()))
    }

    /// A rollout selects its Pods.
    pub fn selects(&self) -> bool {
        self.steps.iter().any(|step| matches!(&step.what, Step::Rollout(plan) if plan.selects))
    }

    /// Number of watched kinds: up to the last one that steps make objects of.
    pub fn kinds(&self) -> usize {
        let rolls = self.steps.iter().any(|s| matches!(s.what, Step::Rollout(_)));
        match (rolls || self.parks(), self.updates(), self.resizes()) {
            (true, ..) => 4,
            (_, true, _) => 3,
            (_, _, true) => 2,
            _ => 1,
        }
    }
}

/// Something at a time, in milliseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timed<T> {
    /// True time.
    pub at: u64,
    /// The step or fault.
    pub what: T,
}

/// Versions side by side, as during an upgrade or rollback: see [`super::skew`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skew {
    /// Every second controller is of the next version.
    pub controllers: bool,
    /// Every second daemon is of the next version.
    pub daemons: bool,
}

/// The clocks of all machines.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Clocks {
    /// The API server's.
    pub server: Clock,
    /// Each controller's; further ones use the last clock.
    pub controllers: Vec<Clock>,
    /// Each node's; further ones use the last clock.
    pub nodes: Vec<Clock>,
}

/// A Pod.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PodPlan {
    /// Its name.
    pub name: String,
    /// Its node, by number.
    pub node: usize,
    /// Its containers.
    pub containers: Vec<ContainerPlan>,
    /// `restartPolicy`.
    pub restart_policy: Word,
    /// `terminationGracePeriodSeconds`.
    pub grace: i64,
    /// Its readiness gates.
    pub gates: Vec<Word>,
    /// The Pod is recreated when it is gone, under the same name unless its workload gives another one.
    pub controlled: bool,
}

/// A container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerPlan {
    /// Its name.
    pub name: Word,
    /// It is a native sidecar.
    pub sidecar: bool,
    /// Its preStop hook.
    pub hook: Option<HookPlan>,
    /// How it behaves, see [`crate::node::behaviour`].
    pub behaviour: String,
    /// Its resources.
    #[serde(default)]
    pub size: Size,
    /// Its own restart policy; None for the Pod's.
    #[serde(default)]
    pub restarts: Option<Restarts>,
    /// `imagePullPolicy`.
    #[serde(default)]
    pub pulls: Option<Word>,
}

/// A container's own `restartPolicy`, with one rule of `restartPolicyRules`: these exit codes restart it, whatever the
/// policy says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Restarts {
    /// `restartPolicy`.
    pub policy: Word,
    /// Exit codes of the rule; empty for no rule.
    pub codes: Vec<i32>,
}

/// Whether the kubelet restarts a container that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComesBack {
    /// Whatever its exit code.
    Surely,
    /// With some exit codes.
    Perhaps,
    /// With none.
    Never,
}

impl PodPlan {
    /// Whether the kubelet restarts the container of that name.
    pub fn comes_back(&self, container: &str) -> ComesBack {
        let Some(container) = self.containers.iter().find(|c| *c.name == *container) else {
            return ComesBack::Never;
        };
        let own = container.restarts.as_ref();
        match own.map_or(&*self.restart_policy, |own| &*own.policy) {
            _ if container.sidecar => ComesBack::Surely,
            "Always" => ComesBack::Surely,
            "Never" if own.is_none_or(|own| own.codes.is_empty()) => ComesBack::Never,
            _ => ComesBack::Perhaps,
        }
    }

    /// True if the kubelet restarts every container, whatever its exit code.
    pub fn stays(&self) -> bool {
        self.containers.iter().all(|c| self.comes_back(&c.name) == ComesBack::Surely)
    }
}

/// A preStop hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookPlan {
    /// A command; the behaviour says how long it takes.
    Exec,
    /// Sleeps for that many seconds.
    Sleep(i64),
}

/// A step of a user or another client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Makes a request.
    Create(Box<RequestPlan>),
    /// Deletes a request, if it is there.
    Delete(String),
    /// Writes a label on a request, to change its resourceVersion.
    Touch(String),
    /// Deletes a Pod with its own grace period.
    DeletePod(String),
    /// Deletes a Pod at once.
    ForceDeletePod(String),
    /// Another writer adds its hold to a Pod's readiness conditions, or removes it.
    Meddle(String),
    /// Another client writes a text into a Pod's readiness conditions, and makes them False.
    Occupy(String),
    /// Another client makes a Pod's readiness conditions True, and leaves their holds.
    Open(String),
    /// Another client puts an order for a Pod's container into its node's book.
    Forge(String, Forgery),
    /// Removes the finalizers of a request.
    Free(String),
    /// Another client changes the image of a container.
    SetImage(String, Word),
    /// A container's process ends by itself, with that exit code.
    Crash(String, Word, i32),
    /// Makes a `PodResize`.
    Resize(Box<ResizePlan>),
    /// Cancels a `PodResize`.
    CancelResize(String),
    /// Deletes a `PodResize`, if it is there.
    DeleteResize(String),
    /// Removes the finalizers of a `PodResize`.
    FreeResize(String),
    /// Another client resizes a container: requests and limits.
    SetSize(String, Word, Amounts, Amounts),
    /// Other Pods on a node request that many millicores from now on.
    Crowd(usize, i64),
    /// A container uses that many mebibytes for a moment.
    Bloat(String, Word, i64),
    /// Makes a `PodImageUpdate`.
    Update(Box<UpdatePlan>),
    /// Resumes a suspended `PodImageUpdate`.
    ReleaseUpdate(String),
    /// Cancels a `PodImageUpdate`.
    CancelUpdate(String),
    /// Deletes a `PodImageUpdate`, if it is there.
    DeleteUpdate(String),
    /// Removes the finalizers of a `PodImageUpdate`.
    FreeUpdate(String),
    /// The kubelet of a node collects the images that no container uses.
    CollectImages(usize),
    /// The first name means the content of the second from now on.
    MoveTag(Word, Word),
    /// Switches another program's image webhook on or off.
    SwitchWebhook(bool),
    /// Makes an `InPlaceRollout`.
    Rollout(Box<RolloutPlan>),
    /// Gives an `InPlaceRollout` another `restartedAt`.
    RestartAt(String, Word),
    /// Gives an `InPlaceRollout` that selects Pods other images: names of containers and tags.
    Wish(String, Vec<(Word, Word)>),
    /// Pauses or resumes an `InPlaceRollout`.
    PauseRollout(String, bool),
    /// Deletes the requests of an `InPlaceRollout` that have failed.
    RetryRollout(String),
    /// Deletes an `InPlaceRollout`, if it is there.
    DeleteRollout(String),
    /// Parks the workload and gives containers of its template images with these tags, in one write.
    Template(Vec<(Word, Word)>),
    /// Releases the workload.
    Release,
    /// Gives the workload another number of Pods.
    Scale(usize),
}

/// What is wrong with a forged order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Forgery {
    /// It has a wrong Pod UID.
    Pod,
    /// It names another namespace.
    Namespace,
    /// It has only the beginning of the container's ID.
    Prefix,
}

/// A `ContainerRecreateRequest`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RequestPlan {
    /// Its name.
    pub name: String,
    /// `spec.podName`.
    pub pod: String,
    /// `spec.containers`.
    pub containers: Vec<Word>,
    /// `spec.activeDeadlineSeconds`.
    pub deadline: Option<i64>,
    /// `spec.ttlSecondsAfterFinished`.
    pub ttl: Option<i32>,
    /// `spec.strategy.mechanism`.
    pub mechanism: Option<Word>,
    /// `spec.strategy.failurePolicy`.
    pub failure_policy: Option<Word>,
    /// `spec.strategy.orderedRecreate`.
    pub ordered: bool,
    /// `spec.strategy.forceRecreate`.
    pub force: bool,
    /// `spec.strategy.terminationGracePeriodSeconds`.
    pub grace: Option<i64>,
    /// `spec.strategy.unreadyGracePeriodSeconds`.
    pub unready_grace: Option<i64>,
    /// `spec.strategy.minStartedSeconds`.
    pub min_started: i32,
    /// pitstop's webhook does not answer.
    pub unasked: bool,
    /// Another client's finalizer keeps it.
    #[serde(default)]
    pub kept: bool,
}

/// A fault. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// A controller's process is killed and comes back.
    KillController(usize, u64),
    /// A controller does nothing for a while.
    PauseController(usize, u64),
    /// The daemon of a node is killed and comes back.
    KillDaemon(usize, u64),
    /// A daemon does nothing for a while.
    PauseDaemon(usize, u64),
    /// A second daemon runs on a node for a while; the older one ends after that.
    TwoDaemons(usize, u64),
    /// A node dies and boots; with true, its runtime forgets its containers.
    Reboot(usize, u64, bool),
    /// A node is gone for good: its object and its Pods are deleted.
    RemoveNode(usize),
    /// A kubelet's process is down.
    KubeletDown(usize, u64),
    /// A node is lost: its kubelet is cut off, and the node becomes not ready. Its containers run on.
    NodeLost(usize, u64),
    /// A runtime's process is down.
    RuntimeDown(usize, u64),
    /// A runtime does not answer.
    RuntimeHangs(usize, u64),
    /// The next stop (true) or read (false) of a runtime fails, after (true) or before it took effect.
    RuntimeFails(usize, bool, bool),
    /// That many stops report success and do nothing.
    RuntimeLies(usize, u32),
    /// A Pod's sandbox dies with all its containers.
    BreakSandbox(String),
    /// The API server is down.
    ApiDown(u64),
    /// The API server takes seconds to answer.
    ApiSlow(u64),
    /// That percentage of requests loses its answer, with or without effect.
    LoseAnswers(u64, u64),
    /// pitstop's requests are refused with this code: 403 for a lost right, 409, 429, 500, 503.
    Refuse(u16, u64),
    /// All watches of a controller break.
    BreakWatches(usize),
    /// A controller's watch of a kind delivers nothing for a while.
    HoldWatch(usize, usize, u64),
    /// A controller's watch of a kind delivers that many events twice, as after a broken connection.
    RepeatEvents(usize, usize, u32),
    /// A controller's watch of a kind loses its events for a while; then it gets 410 and lists again.
    LoseEvents(usize, usize, u64),
    /// The watch of a node's daemon delivers nothing for a while.
    HoldBook(usize, u64),
    /// All watches of a controller list again, from a server that many versions behind.
    StaleLists(usize, u64),
    /// The history is compacted: requests for older versions get 410.
    Compact,
    /// etcd is restored to its state that long ago.
    Restore(u64),
    /// A node's book is deleted.
    DeleteBook(usize),
    /// Another client touches all requests, books and Pods that many times, half a second apart.
    Storm(u32),
    /// The control groups of a node cannot be read.
    HideCgroups(usize, u64),
    /// Writes into the control groups of a node take effect late: duration of the fault, and delay.
    SlowCgroups(usize, u64, u64),
    /// The next write of a daemon into a node's control groups goes wrong.
    FailWrite(usize, Failing),
    /// No registry answers.
    RegistryAway(u64),
    /// Pulls that begin meanwhile take longer: duration of the fault, and delay.
    RegistrySlow(u64, u64),
    /// Registries refuse every pull.
    RegistryRefuses(Refusing, u64),
    /// A node has no room for images.
    DiskFull(usize, u64),
    /// The wall clock of a machine jumps: -1 the API server, controllers from 0, nodes from 100.
    JumpClock(i32, i64),
}

/// How a write into a control group goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failing {
    /// It fails without effect.
    Before,
    /// It fails after it took effect.
    After,
    /// It fails without effect, and a retry would too.
    Never,
    /// It reports success without effect.
    Lies,
}

/// Where in an effect a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Position {
    /// The effect is decided, not begun.
    Before,
    /// The effect is begun; the process does not know its outcome.
    Begun,
    /// The process knows the outcome; nothing that follows from it is begun.
    Known,
}

/// A process is killed at its nth effect, counted over all processes in the order in which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// Number of the effect, from 0.
    pub effect: usize,
    /// Position in the effect.
    pub position: Position,
}
