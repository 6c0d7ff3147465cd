//! A schedule as data: what the world is made of, what users do, and what goes wrong.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::imaging::{Images, UpdatePlan};
use super::rolling::{RolloutPlan, WorkloadPlan};
use super::sizing::{Amounts, ResizePlan, Room, Size};
use crate::node::registry::Refusing;

/// A word of a plan.
pub type Word = Cow<'static, str>;

/// Everything that a run is made of. Two runs of one schedule are the same, bit for bit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Schedule {
    /// Decides latencies, jitter and the like.
    pub seed: u64,
    /// A name for people.
    pub name: String,
    /// How many nodes.
    pub nodes: usize,
    /// Controller processes.
    pub replicas: usize,
    /// Seconds after which a request without a deadline ends.
    pub default_deadline: u64,
    /// Clocks: API server, controllers, nodes.
    pub clocks: Clocks,
    /// The Pods at the beginning.
    pub pods: Vec<PodPlan>,
    /// Which sides run in two versions.
    #[serde(default)]
    pub skew: Skew,
    /// What resizes find.
    #[serde(default)]
    pub room: Room,
    /// What registries have.
    #[serde(default)]
    pub images: Images,
    /// What some of the Pods belong to.
    #[serde(default)]
    pub workload: Option<WorkloadPlan>,
    /// How many requests of one kind are carried out in a namespace at a time; absent for as many as usual.
    #[serde(default)]
    pub most_open: Option<usize>,
    /// What users do.
    pub steps: Vec<Timed<Step>>,
    /// What goes wrong.
    pub faults: Vec<Timed<Fault>>,
    /// A process that is killed at one of its effects.
    pub crash: Option<Crash>,
}

impl Schedule {
    /// Somebody resizes something. Where nobody does, nothing watches resizes.
    pub fn resizes(&self) -> bool {
        self.steps.iter().any(|s| matches!(s.what, Step::Resize(_)))
    }

    /// Somebody updates images. Where nobody does, nothing watches updates, and pulls take no time.
    pub fn updates(&self) -> bool {
        self.wishes() || self.steps.iter().any(|s| matches!(s.what, Step::Update(_)))
    }

    /// The workload has native controllers, and its users park it and change its template.
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

    /// Kinds that are watched: as many as somebody makes objects of, with those before them.
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
    /// When.
    pub at: u64,
    /// What.
    pub what: T,
}

/// Versions side by side, as during an update or a way back: see [`super::skew`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skew {
    /// Every second controller is of the next version.
    pub controllers: bool,
    /// Every second daemon is.
    pub daemons: bool,
}

/// The clocks of all machines.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Clocks {
    /// The API server's.
    pub server: Clock,
    /// Each controller's; the last one goes for all further ones.
    pub controllers: Vec<Clock>,
    /// Each node's; the last one goes for all further ones.
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
    /// Somebody makes it anew, with the same name, when it is gone.
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
    /// Its own restart policy.
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
    /// The exit codes of the rule; there is none without any.
    pub codes: Vec<i32>,
}

/// Whether the kubelet starts a container again that has ended.
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
    /// Whether the kubelet starts the container of that name again.
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

    /// Every container is started again, whatever its exit code.
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

/// What a user does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Makes a request.
    Create(Box<RequestPlan>),
    /// Deletes a request, if it is there.
    Delete(String),
    /// Writes a label on a request, so that its version moves on.
    Touch(String),
    /// Deletes a Pod with its own grace.
    DeletePod(String),
    /// Deletes a Pod at once.
    ForceDeletePod(String),
    /// Another writer of a Pod's readiness conditions takes its hold, or gives it up.
    Meddle(String),
    /// Somebody else writes a text into a Pod's readiness conditions, and makes them False.
    Occupy(String),
    /// Somebody else makes a Pod's readiness conditions True, and leaves who holds them.
    Open(String),
    /// Somebody else puts an order for a Pod's container into its node's book.
    Forge(String, Forgery),
    /// The finalizers of a request are taken off.
    Free(String),
    /// Another image for a container, from somebody else.
    SetImage(String, Word),
    /// A container's process ends by itself, with that exit code.
    Crash(String, Word, i32),
    /// Makes a `PodResize`.
    Resize(Box<ResizePlan>),
    /// Cancels a `PodResize`.
    CancelResize(String),
    /// Deletes a `PodResize`, if it is there.
    DeleteResize(String),
    /// The finalizers of a `PodResize` are taken off.
    FreeResize(String),
    /// Somebody else resizes a container: requests and limits.
    SetSize(String, Word, Amounts, Amounts),
    /// Other Pods on a node ask for so many millicores from now on.
    Crowd(usize, i64),
    /// A container uses that many mebibytes for a moment.
    Bloat(String, Word, i64),
    /// Makes a `PodImageUpdate`.
    Update(Box<UpdatePlan>),
    /// Lets a suspended `PodImageUpdate` go on.
    ReleaseUpdate(String),
    /// Cancels a `PodImageUpdate`.
    CancelUpdate(String),
    /// Deletes a `PodImageUpdate`, if it is there.
    DeleteUpdate(String),
    /// The finalizers of a `PodImageUpdate` are taken off.
    FreeUpdate(String),
    /// The kubelet of a node collects the images that no container uses.
    CollectImages(usize),
    /// From now on a name means the content that was first there under another one.
    MoveTag(Word, Word),
    /// The webhook that looks at images is switched on or off.
    SwitchWebhook(bool),
    /// Makes an `InPlaceRollout`.
    Rollout(Box<RolloutPlan>),
    /// Gives an `InPlaceRollout` another `restartedAt`.
    RestartAt(String, Word),
    /// Gives an `InPlaceRollout` that selects Pods other images: names of containers and tags.
    Wish(String, Vec<(Word, Word)>),
    /// Pauses an `InPlaceRollout`, or lets it go on.
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

/// What is wrong with an order that pitstop did not write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Forgery {
    /// It names another Pod than the container's.
    Pod,
    /// It names another namespace.
    Namespace,
    /// It names the beginning of the container's ID.
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
    /// The webhook does not answer.
    pub unasked: bool,
    /// Somebody's finalizer keeps it.
    #[serde(default)]
    pub kept: bool,
}

/// What goes wrong. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// A controller's process is killed and comes back.
    KillController(usize, u64),
    /// A controller is asked to end, and comes back.
    PauseController(usize, u64),
    /// The daemon of a node is killed and comes back.
    KillDaemon(usize, u64),
    /// A daemon does nothing for a while.
    PauseDaemon(usize, u64),
    /// A second daemon runs on a node for a while; the older one ends after that.
    TwoDaemons(usize, u64),
    /// A node dies and boots; its runtime remembers its containers, or not.
    Reboot(usize, u64, bool),
    /// A node is gone for good: its object and its Pods are deleted.
    RemoveNode(usize),
    /// A kubelet's process is away.
    KubeletDown(usize, u64),
    /// Nobody hears of a node: its kubelet is cut off, and it is said not to be ready. Its containers go on.
    NodeLost(usize, u64),
    /// A runtime's process is away.
    RuntimeDown(usize, u64),
    /// A runtime does not answer.
    RuntimeHangs(usize, u64),
    /// The next calls of a runtime fail: stops or reads; after they took effect or before.
    RuntimeFails(usize, bool, bool),
    /// So many stops say that they worked and did nothing.
    RuntimeLies(usize, u32),
    /// A Pod's sandbox dies with all its containers.
    BreakSandbox(String),
    /// The API server answers nobody.
    ApiDown(u64),
    /// It takes seconds to answer.
    ApiSlow(u64),
    /// Of so many requests in a hundred the answer is lost, with or without effect.
    LoseAnswers(u64, u64),
    /// pitstop's requests are refused with this code: 403 for a lost right, 409, 429, 500, 503.
    Refuse(u16, u64),
    /// All watches of a controller break.
    BreakWatches(usize),
    /// A kind's watch of a controller delivers nothing for a while.
    HoldWatch(usize, usize, u64),
    /// So many events of a kind's watch of a controller come twice, as after a connection that broke.
    RepeatEvents(usize, usize, u32),
    /// What a kind's watch of a controller would deliver meanwhile is lost; then it is told so (410) and lists anew.
    LoseEvents(usize, usize, u64),
    /// The daemon's watch of a node delivers nothing for a while.
    HoldBook(usize, u64),
    /// All watches of a controller begin anew at a server that is behind.
    StaleLists(usize, u64),
    /// The history is compacted: who asks for older versions gets 410.
    Compact,
    /// etcd is restored as it was so long ago.
    Restore(u64),
    /// A node's book is deleted.
    DeleteBook(usize),
    /// Somebody touches all requests, books and Pods so often, half a second apart.
    Storm(u32),
    /// Nobody can read the control groups of a node.
    HideCgroups(usize, u64),
    /// What is written into the control groups of a node holds only so much later: for how long, and by how much.
    SlowCgroups(usize, u64, u64),
    /// The next write of a daemon into a node's control groups goes wrong.
    FailWrite(usize, Failing),
    /// No registry answers.
    RegistryAway(u64),
    /// Pulls that begin meanwhile take so much longer: for how long, and by how much.
    RegistrySlow(u64, u64),
    /// Registries give nothing.
    RegistryRefuses(Refusing, u64),
    /// A node has no room for images.
    DiskFull(usize, u64),
    /// The wall clock of a machine jumps: -1 the API server, controllers from 0, nodes from 100.
    JumpClock(i32, i64),
}

/// How a write into a control group goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failing {
    /// It fails, and has had no effect.
    Before,
    /// It fails, and has taken effect.
    After,
    /// It fails, and always would.
    Never,
    /// It says that it has worked, and has had no effect.
    Lies,
}

/// Where in an effect a process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Position {
    /// It was decided and not begun.
    Before,
    /// It was begun; its outcome is not known to the process.
    Begun,
    /// The outcome was taken in; nothing that follows from it was begun.
    Known,
}

/// A process is killed at its nth effect, counted over all processes in the order in which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// Which one, from 0.
    pub effect: usize,
    /// Where in it.
    pub position: Position,
}
