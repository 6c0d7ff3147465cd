//! Waiting for requests: one watch for each, by the request's UID, until its end or until the time is over.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures::{Stream, StreamExt as _, stream};
use kube::Api;
use kube::core::{DynamicObject, NamespaceResourceScope, Resource};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use pitstop_api::rollout::InPlaceRollout;
use pitstop_cli_core::follow::{Ending, Goal, Tracker, timed_out};
use pitstop_cli_core::naming::qualified_name;
use pitstop_cli_core::plain;
use pitstop_cli_core::summary::Request;
use pitstop_cli_core::target::RequestKind;
use pitstop_kit::{Class, classify, describe};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use crate::args::duration;
use crate::failure::Failure;
use crate::output;
use crate::session::Session;
use crate::store::Storing;

/// Exit code if a request has not ended in time.
pub const TIMED_OUT: u8 = 2;
/// Exit code of a program that the user interrupts: 128 and the number of the signal.
const INTERRUPTED: u8 = 130;
/// Most requests that are watched at a time: each has a connection.
const MOST_WATCHED: usize = 50;
/// Time between checks whether a workload is released.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);

/// Whether a command waits for what it has asked for.
#[derive(Args, Clone, Debug)]
pub struct Waiting {
    /// Wait until the work is done: exit code 0 for success, 1 for failure, 2 for a timeout.
    #[arg(long)]
    pub wait: bool,
    /// With --wait: how long to wait, such as `90s` or `10m`.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    pub timeout: Duration,
}

impl Waiting {
    /// Waits also if `wait` is true.
    pub fn or(self, wait: bool) -> Self {
        Self { wait: self.wait || wait, ..self }
    }
}

/// A request to wait for.
pub struct WaitTarget {
    /// Its kind.
    pub kind: RequestKind,
    /// Its name.
    pub name: String,
    /// Its UID; `None`: that of the object that has the name now.
    pub uid: Option<String>,
    /// The goal of the wait.
    pub goal: Goal,
}

/// A wait for the object that a command has just stored.
pub fn of(kind: RequestKind, stored: &DynamicObject) -> WaitTarget {
    let meta = &stored.metadata;
    WaitTarget { kind, name: meta.name.clone().unwrap_or_default(), uid: meta.uid.clone(), goal: Goal::End }
}

/// Waits if the user asks for it and something is stored.
pub async fn if_asked(
    session: &Session,
    waiting: &Waiting,
    storing: &Storing,
    awaited: Vec<WaitTarget>,
) -> Result<ExitCode, Failure> {
    if !(waiting.wait && storing.stores()) {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(all(session, awaited, waiting.timeout, storing.prints_objects()).await)
}

/// Waits for all of them, prints how each ends, and returns the worst exit code: failure, timeout, success. `aside`:
/// success is printed on standard error, like failures.
pub async fn all(session: &Session, awaited: Vec<WaitTarget>, timeout: Duration, aside: bool) -> ExitCode {
    let wait = Wait { session, deadline: Instant::now() + timeout, aside, outage_reported: Cell::new(false) };
    let names: Vec<String> =
        awaited.iter().map(|it| format!("{}/{}", it.kind.singular(), it.name)).take(5).collect();
    let ends = stream::iter(awaited).map(|one| wait.one(one)).buffer_unordered(MOST_WATCHED);
    let codes = ends.map(|end| match end {
        Ok(code) => code,
        Err(failure) => {
            // The other requests may succeed.
            eprintln!("{}", failure.message());
            1
        }
    });
    tokio::select! {
        codes = codes.collect::<Vec<u8>>() => {
            let worst = [1, TIMED_OUT].into_iter().find(|code| codes.contains(code));
            ExitCode::from(worst.unwrap_or_default())
        }
        Ok(()) = tokio::signal::ctrl_c() => {
            eprintln!(
                "interrupted: the requests continue. To wait again: kubectl pitstop wait --namespace={} {}",
                session.namespace,
                names.join(" ")
            );
            ExitCode::from(INTERRUPTED)
        }
    }
}

/// The state that all waits of a command share.
struct Wait<'a> {
    session: &'a Session,
    /// On the monotonic clock.
    deadline: Instant,
    /// Standard output is for objects.
    aside: bool,
    /// The user knows that the API server does not answer.
    outage_reported: Cell<bool>,
}

impl Wait<'_> {
    async fn one(&self, target: WaitTarget) -> Result<u8, Failure> {
        match target.kind {
            RequestKind::Restart => {
                self.request(target, self.session.api::<pitstop_api::recreate::ContainerRecreateRequest>())
                    .await
            }
            RequestKind::Resize => {
                self.request(target, self.session.api::<pitstop_api::resize::PodResize>()).await
            }
            RequestKind::ImageUpdate => {
                self.request(target, self.session.api::<pitstop_api::image_update::PodImageUpdate>()).await
            }
            RequestKind::Rollout => self.request(target, self.session.api::<InPlaceRollout>()).await,
        }
    }

    /// Waits for one, and prints how it ends.
    async fn request<R>(&self, target: WaitTarget, api: Api<R>) -> Result<u8, Failure>
    where
        R: Request + Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
        R: DeserializeOwned + Send + Sync + 'static,
    {
        let first = api.get(&target.name).await?;
        let name = qualified_name(&R::kind(&()), &R::group(&()), first.meta());
        let mut tracker = Tracker::of(&first, target.uid).until(target.goal);
        // Look once, even if the timeout is 0.
        let mut ending = self.judge(&mut tracker, &first).await?;
        if ending.is_none() {
            let watch = timeout_at(self.deadline, self.watch(&api, first, &mut tracker));
            ending = watch.await.ok().transpose()?;
        }
        let Some(ending) = ending else {
            eprintln!("error: {}", timed_out(&name, tracker.last()));
            return Ok(TIMED_OUT);
        };
        let message = ending.message(&name);
        if let Ending::Done(_) = ending {
            if self.aside {
                eprintln!("{message}");
            } else {
                output::print(&message);
            }
            return Ok(0);
        }
        eprintln!("error: {message}");
        Ok(1)
    }

    /// Watches the object until a state of it ends the wait.
    async fn watch<R>(&self, api: &Api<R>, first: R, tracker: &mut Tracker) -> Result<Ending, Failure>
    where
        R: Request + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let name = first.meta().name.clone().unwrap_or_default();
        let events =
            watcher(api.clone(), watcher::Config::default().fields(&format!("metadata.name={name}")));
        let mut states = States { events: Box::pin(events.backoff(Pause)), missing: false };
        let mut last = first;
        loop {
            match states.next(self).await? {
                Some(State::Present(object)) => last = object,
                Some(State::Deleted(object)) => return Ok(tracker.deleted(object.as_ref())),
                // Its workload may have been released since.
                None => {}
            }
            if let Some(ending) = self.judge(tracker, &last).await? {
                return Ok(ending);
            }
        }
    }

    /// The ending, if this state ends the wait.
    async fn judge<R: Request>(&self, tracker: &mut Tracker, request: &R) -> Result<Option<Ending>, Failure> {
        let Some(ending) = tracker.judge(request) else { return Ok(None) };
        let settled = tracker.goal() == Goal::Armed || self.is_settled(request, &ending).await?;
        Ok(settled.then_some(ending))
    }

    /// A rollout's status may be from before its workload was parked: success needs a released workload.
    async fn is_settled<R: Request>(&self, request: &R, ending: &Ending) -> Result<bool, Failure> {
        if !matches!(ending, Ending::Done(_)) {
            return Ok(true);
        }
        let Some((kind, name)) = request.workload() else { return Ok(true) };
        match self.session.workload(kind, name).await {
            Ok(workload) => Ok(!workload.is_parked()),
            // The rollout's status counts.
            Err(failure) if failure.class() == Class::Invalid => {
                eprintln!("cannot read whether {} {name} is parked: {}", kind.name(), failure.message());
                Ok(true)
            }
            Err(failure) => {
                self.report_outage(failure.message());
                Ok(false)
            }
        }
    }

    fn report_outage(&self, why: &str) {
        if !self.outage_reported.replace(true) {
            eprintln!("still waiting, but the API server does not answer: {}", plain::line(why, plain::MOST));
        }
    }

    fn report_recovery(&self) {
        if self.outage_reported.replace(false) {
            eprintln!("the API server answers again");
        }
    }
}

/// A state that a watch shows.
enum State<R> {
    /// The object.
    Present(R),
    /// The object is gone; this is its last state, if known.
    Deleted(Option<R>),
}

/// The states that a watch shows, one after another.
struct States<S> {
    events: S,
    /// A list has begun, and has not shown the object yet.
    missing: bool,
}

impl<S> States<S> {
    /// The next state that the watch shows; `None` after a while without any.
    async fn next<R>(&mut self, wait: &Wait<'_>) -> Result<Option<State<R>>, Failure>
    where
        S: Stream<Item = watcher::Result<Event<R>>> + Unpin,
    {
        loop {
            let next = tokio::select! {
                next = self.events.next() => next,
                () = sleep(RELEASED_WITHIN) => None,
            };
            let event = match next {
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    handle_error(wait, &error)?;
                    continue;
                }
                None => return Ok(None),
            };
            if !matches!(event, Event::Init) {
                wait.report_recovery();
            }
            match event {
                // The API server has not been asked yet.
                Event::Init => self.missing = true,
                Event::InitApply(object) | Event::Apply(object) => {
                    self.missing = false;
                    return Ok(Some(State::Present(object)));
                }
                Event::Delete(object) => return Ok(Some(State::Deleted(Some(object)))),
                Event::InitDone if self.missing => return Ok(Some(State::Deleted(None))),
                Event::InitDone => {}
            }
        }
    }
}

/// Fails if the API server refuses the watch. After other errors, the watch is tried again.
fn handle_error(wait: &Wait<'_>, error: &watcher::Error) -> Result<(), Failure> {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => match classify(cause) {
            Class::Invalid | Class::Fatal => return Err(Failure::api(cause)),
            Class::Retry | Class::Conflict => wait.report_outage(&describe(cause)),
        },
        // The API server no longer has changes that old: the watcher lists again.
        watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => {}
    }
    Ok(())
}

/// The constant time between two tries. A growing one would be reset: the watcher sends `Init` before it asks.
struct Pause;

impl Iterator for Pause {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }
}

impl Backoff for Pause {
    fn reset(&mut self) {}
}
