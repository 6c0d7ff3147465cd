//! `status --watch`: watches the objects of the target, and draws the tree again when they change.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::stream::{BoxStream, StreamExt as _, select_all, unfold};
use k8s_openapi::api::core::v1::Pod;
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher as watched;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_api::resize::PodResize;
use pitstop_api::rollout::InPlaceRollout;
use pitstop_cli_core::changes::Changes;
use pitstop_cli_core::draw::{Look, draw};
use pitstop_cli_core::scope::{Scope, Select};
use pitstop_cli_core::target::Target;
use pitstop_cli_core::tree::{Mark, Objects, Tree, tree};
use pitstop_kit::clock::wall;
use pitstop_kit::describe;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::gather::MOST;
use super::screen::{self, Screen};
use super::{Subject, missing};
use crate::failure::Failure;
use crate::output;
use crate::session::Session;

/// Least time between two pictures.
const FRAME: Duration = Duration::from_millis(100);
/// Time between updates of the ages.
const AGES: Duration = Duration::from_secs(1);
/// Time after which a broken watch begins again.
const AGAIN: Duration = Duration::from_secs(1);
/// The exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// An event of a watch, or why it failed.
type WatchEvent<K> = Result<Event<K>, String>;

/// The same of any kind.
#[allow(clippy::large_enum_variant, reason = "each is handled at once, one at a time")]
enum AnyEvent {
    Rollout(WatchEvent<InPlaceRollout>),
    Restart(WatchEvent<ContainerRecreateRequest>),
    Resize(WatchEvent<PodResize>),
    Update(WatchEvent<PodImageUpdate>),
    Pod(WatchEvent<Pod>),
}

/// The objects of one kind, by UID.
struct Cache<K> {
    objects: BTreeMap<String, K>,
    /// The objects of a list that is under way.
    listed: BTreeMap<String, K>,
    /// The objects were listed at least once.
    complete: bool,
    /// Since when the watch fails, and why.
    broken: Option<(Instant, String)>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeMap::new(), complete: false, broken: None }
    }
}

impl<K: Resource<DynamicType = ()> + Clone> Cache<K> {
    fn apply(&mut self, event: WatchEvent<K>) {
        let uid = |object: &K| object.meta().uid.clone().unwrap_or_default();
        let event = match event {
            Ok(event) => event,
            Err(why) => {
                let since = self.broken.take().map_or_else(Instant::now, |(since, _)| since);
                self.broken = Some((since, why));
                return;
            }
        };
        // `Init` proves nothing: the watcher asks the API server only afterwards.
        if !matches!(event, Event::Init) {
            self.broken = None;
        }
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) if self.listed.len() < MOST => {
                self.listed.insert(uid(&object), object);
            }
            Event::InitDone => (self.objects, self.complete) = (std::mem::take(&mut self.listed), true),
            Event::Apply(object) if self.objects.len() < MOST || self.objects.contains_key(&uid(&object)) => {
                self.objects.insert(uid(&object), object);
            }
            Event::Delete(object) => drop(self.objects.remove(&uid(&object))),
            Event::InitApply(_) | Event::Apply(_) => {}
        }
    }

    /// The objects were listed, cannot be listed, or are not needed.
    fn is_ready(&self, select: Option<&Select>) -> bool {
        self.complete || self.broken.is_some() || select.is_none()
    }

    /// What is missing, and why.
    fn unread(&self) -> Option<String> {
        let ((since, why), kind) = (self.broken.as_ref()?, K::plural(&()));
        Some(if self.complete {
            format!("{kind} are {} s old: {why}", since.elapsed().as_secs())
        } else {
            format!("{kind} cannot be read: {why}")
        })
    }

    fn all(&self) -> Vec<K> {
        self.objects.values().cloned().collect()
    }
}

/// The objects that the watches have shown.
#[derive(Default)]
struct Caches {
    rollouts: Cache<InPlaceRollout>,
    restarts: Cache<ContainerRecreateRequest>,
    resizes: Cache<PodResize>,
    updates: Cache<PodImageUpdate>,
    pods: Cache<Pod>,
}

impl Caches {
    fn apply(&mut self, event: AnyEvent) {
        match event {
            AnyEvent::Rollout(event) => self.rollouts.apply(event),
            AnyEvent::Restart(event) => self.restarts.apply(event),
            AnyEvent::Resize(event) => self.resizes.apply(event),
            AnyEvent::Update(event) => self.updates.apply(event),
            AnyEvent::Pod(event) => self.pods.apply(event),
        }
    }

    /// Each kind was listed, or cannot be listed.
    fn is_complete(&self, scope: &Scope) -> bool {
        self.rollouts.is_ready(scope.rollouts.as_ref())
            && self.restarts.is_ready(scope.restarts.as_ref())
            && self.resizes.is_ready(scope.resizes.as_ref())
            && self.updates.is_ready(scope.updates.as_ref())
            && self.pods.is_ready(scope.pods.as_ref())
    }

    fn objects(&self) -> Objects {
        let unread = [
            self.rollouts.unread(),
            self.restarts.unread(),
            self.resizes.unread(),
            self.updates.unread(),
            self.pods.unread(),
        ];
        Objects {
            rollouts: self.rollouts.all(),
            restarts: self.restarts.all(),
            resizes: self.resizes.all(),
            updates: self.updates.all(),
            pods: self.pods.all(),
            unread: unread.into_iter().flatten().collect(),
        }
    }
}

fn stream<K>(
    api: Api<K>,
    select: Option<&Select>,
    wrap: fn(WatchEvent<K>) -> AnyEvent,
) -> Option<BoxStream<'static, AnyEvent>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let select = select?;
    let config = watcher::Config::default().labels(&select.labels).fields(&select.fields);
    // A watch that recovers by itself is silent until something changes. A new watch begins with a list.
    let next = move |(watch, broken): (Option<BoxStream<'static, watcher::Result<Event<K>>>>, bool)| {
        let (api, config) = (api.clone(), config.clone());
        async move {
            if broken {
                sleep(AGAIN).await;
            }
            let mut watch = watch.unwrap_or_else(|| watched(api, config).boxed());
            Some(match watch.next().await {
                Some(Ok(event)) => (wrap(Ok(event)), (Some(watch), false)),
                Some(Err(error)) => (wrap(Err(describe(&error))), (None, true)),
                None => (wrap(Err("the watch ended".to_owned())), (None, true)),
            })
        }
    };
    Some(unfold((None, false), next).boxed())
}

/// The output of pictures.
struct Sink<'a> {
    screen: Option<Screen>,
    changes: Changes,
    frames: Option<(File, &'a Path)>,
    begun: Instant,
    look: Look,
}

impl Sink<'_> {
    fn show(&mut self, tree: &Tree) -> Result<(), Failure> {
        let broken = |error: io::Error| Failure::local("cannot write to the terminal", &error);
        if self.screen.is_none() {
            for line in self.changes.since(tree) {
                output::print(&format!("{} {line}", wall().format("%H:%M:%S")));
            }
            return Ok(());
        }
        let (now, look) = (wall(), Look { size: Some(screen::size()), ..self.look });
        Screen::show(&draw(tree, now, look)).map_err(broken)?;
        let Some((file, path)) = &mut self.frames else { return Ok(()) };
        let plain = draw(tree, now, Look { colour: false, ..look });
        let at = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let frame = json!({"at": at, "resourceVersions": tree.resource_versions, "lines": plain});
        writeln!(file, "{frame}")
            .map_err(|error| Failure::local(&format!("cannot write {}", path.display()), &error))
    }
}

/// Shows the target until it has ended or the user interrupts.
pub(super) async fn run(
    session: &Session,
    subject: &Subject,
    wide: bool,
    frames: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let scope = &subject.scope;
    let streams = [
        stream(session.api_of(scope), scope.rollouts.as_ref(), AnyEvent::Rollout),
        stream(session.api_of(scope), scope.restarts.as_ref(), AnyEvent::Restart),
        stream(session.api_of(scope), scope.resizes.as_ref(), AnyEvent::Resize),
        stream(session.api_of(scope), scope.updates.as_ref(), AnyEvent::Update),
        stream(session.api_of(scope), scope.pods.as_ref(), AnyEvent::Pod),
    ];
    let cannot = |error: io::Error| Failure::local("cannot watch", &error);
    let mut signals = Signals::new().map_err(cannot)?;
    let terminal = io::stdout().is_terminal();
    if frames.is_some() && !terminal {
        return Err(Failure::invalid("--frames needs a terminal as standard output"));
    }
    let frames = match frames {
        Some(path) => Some((File::create(path).map_err(cannot)?, path)),
        None => None,
    };
    let screen = if terminal { Some(Screen::open().map_err(cannot)?) } else { None };
    let look = Look { wide, ..screen::look(terminal) };
    let mut sink = Sink { screen, changes: Changes::default(), frames, begun: Instant::now(), look };
    let end = follow(subject, select_all(streams.into_iter().flatten()), &mut signals, &mut sink).await;
    drop(sink.screen.take());
    let (end, tree) = end?;
    if terminal {
        let width = (screen::size().0, usize::MAX);
        for line in draw(&tree, wall(), Look { size: Some(width), ..look }) {
            output::print(&line);
        }
    }
    Ok(match (end, &subject.target) {
        (End::Succeeded, _) => ExitCode::SUCCESS,
        (End::Gone, Some(target)) => return Err(missing(session, target)),
        (End::Failed | End::Gone, _) => ExitCode::FAILURE,
        (End::Interrupted, _) => {
            eprintln!("{}", hint(session, subject));
            ExitCode::from(INTERRUPTED)
        }
    })
}

/// What the user can do after an interrupt, which stops no request.
fn hint(session: &Session, subject: &Subject) -> String {
    let namespace = &session.namespace;
    match &subject.target {
        Some(target @ (Target::Request(..) | Target::Workload(..))) => {
            format!("The requests continue. To wait for them: kubectl pitstop wait {target} -n {namespace}")
        }
        Some(target) => {
            format!("The requests continue. To look again: kubectl pitstop status {target} -n {namespace}")
        }
        None if subject.scope.everywhere => {
            "The requests continue. To look again: kubectl pitstop status -A".to_owned()
        }
        None => format!("The requests continue. To look again: kubectl pitstop status -n {namespace}"),
    }
}

/// Why the watch ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Succeeded,
    Failed,
    /// The request does not exist any more.
    Gone,
    Interrupted,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    resize: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            resize: signal(SignalKind::window_change())?,
        })
    }
}

async fn follow(
    subject: &Subject,
    mut events: impl futures::Stream<Item = AnyEvent> + Unpin,
    signals: &mut Signals,
    sink: &mut Sink<'_>,
) -> Result<(End, Tree), Failure> {
    let mut caches = Caches::default();
    let mut picture = Tree::default();
    let (mut changed, mut aged) = (false, Instant::now());
    let mut frame = interval(FRAME);
    frame.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = signals.interrupt.recv() => return Ok((End::Interrupted, picture)),
            _ = signals.terminate.recv() => return Ok((End::Interrupted, picture)),
            _ = signals.hangup.recv() => return Ok((End::Interrupted, picture)),
            _ = signals.resize.recv() => changed = true,
            _ = frame.tick() => {
                let due = changed || (sink.screen.is_some() && aged.elapsed() >= AGES);
                if !due || !caches.is_complete(&subject.scope) {
                    continue;
                }
                changed = false;
                picture = tree(subject.about(), &caches.objects());
                sink.show(&picture)?;
                aged = Instant::now();
                if let Some(end) = ended(subject, &picture) {
                    return Ok((end, picture));
                }
            }
            event = events.next() => match event {
                Some(event) => {
                    caches.apply(event);
                    changed = true;
                }
                None => return Ok((End::Failed, picture)),
            },
        }
    }
}

/// How a request has ended; `None`: not yet. Rollouts and other targets never end.
fn ended(subject: &Subject, tree: &Tree) -> Option<End> {
    let Some(Target::Request(kind, _)) = &subject.target else { return None };
    if *kind == pitstop_cli_core::target::RequestKind::Rollout {
        return None;
    }
    match tree.items.first().map(|item| item.mark) {
        Some(Mark::Done) => Some(End::Succeeded),
        Some(Mark::Failed) => Some(End::Failed),
        None if tree.unread.is_empty() => Some(End::Gone),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_gone_has_ended_unless_it_cannot_be_read() {
        let target = Target::parse("crr/web-x7k2p").unwrap();
        let subject = Subject { scope: Scope::of(&target, None).unwrap(), target: Some(target) };
        assert_eq!(ended(&subject, &Tree::default()), Some(End::Gone));
        let unread = Tree { unread: vec!["pods cannot be read".to_owned()], ..Tree::default() };
        assert_eq!(ended(&subject, &unread), None);
        let namespace = Subject { target: None, scope: Scope::namespace() };
        assert_eq!(ended(&namespace, &Tree::default()), None);
    }
}
