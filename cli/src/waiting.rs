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
use pitstop_cli_core::follow::{Ending, Follow, Goal, timed_out};
use pitstop_cli_core::plain;
use pitstop_cli_core::standing::Request;
use pitstop_cli_core::target::RequestKind;
use pitstop_cli_core::told;
use pitstop_kit::{Class, classify, describe};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout_at};

use crate::args::duration;
use crate::failure::Failure;
use crate::output::say;
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
    /// Wait until it is done: exit code 0 for success, 1 for failure, 2 when the time is over.
    #[arg(long)]
    pub wait: bool,
    /// With --wait: for how long, such as `90s` or `10m`.
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m")]
    pub timeout: Duration,
}

impl Waiting {
    /// Waits also if `wait` is true.
    pub fn or(self, wait: bool) -> Self {
        Self { wait: self.wait || wait, ..self }
    }
}

/// What to wait for.
pub struct Awaited {
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
pub fn of(kind: RequestKind, stored: &DynamicObject) -> Awaited {
    let meta = &stored.metadata;
    Awaited { kind, name: meta.name.clone().unwrap_or_default(), uid: meta.uid.clone(), goal: Goal::End }
}

/// Waits if the user asks for it and something is stored.
pub async fn if_asked(
    session: &Session,
    waiting: &Waiting,
    storing: &Storing,
    awaited: Vec<Awaited>,
) -> Result<ExitCode, Failure> {
    if !(waiting.wait && storing.stores()) {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(all(session, awaited, waiting.timeout, storing.prints_objects()).await)
}

/// Waits for all of them, prints how each ends, and returns the worst exit code: failure, timeout, success. `aside`:
/// success is printed on standard error, like failures.
pub async fn all(session: &Session, awaited: Vec<Awaited>, timeout: Duration, aside: bool) -> ExitCode {
    let wait = Wait { session, deadline: Instant::now() + timeout, aside, told: Cell::new(false) };
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
                "interrupted: nothing is taken back. To wait again: kubectl pitstop wait --namespace={} {}",
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
    /// The user was told that the API server does not answer.
    told: Cell<bool>,
}

impl Wait<'_> {
    async fn one(&self, awaited: Awaited) -> Result<u8, Failure> {
        match awaited.kind {
            RequestKind::Restart => {
                self.request(awaited, self.session.api::<pitstop_api::recreate::ContainerRecreateRequest>())
                    .await
            }
            RequestKind::Resize => {
                self.request(awaited, self.session.api::<pitstop_api::resize::PodResize>()).await
            }
            RequestKind::ImageUpdate => {
                self.request(awaited, self.session.api::<pitstop_api::image_update::PodImageUpdate>()).await
            }
            RequestKind::Rollout => self.request(awaited, self.session.api::<InPlaceRollout>()).await,
        }
    }

    /// Waits for one, and prints how it ends.
    async fn request<R>(&self, awaited: Awaited, api: Api<R>) -> Result<u8, Failure>
    where
        R: Request + Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
        R: DeserializeOwned + Send + Sync + 'static,
    {
        let first = api.get(&awaited.name).await?;
        let name = told::name(&R::kind(&()), &R::group(&()), first.meta());
        let mut follow = Follow::of(&first, awaited.uid).until(awaited.goal);
        // Look once, even if the timeout is 0.
        let mut ending = self.look(&mut follow, &first).await?;
        if ending.is_none() {
            let waits = timeout_at(self.deadline, self.ending(&api, first, &mut follow));
            ending = waits.await.ok().transpose()?;
        }
        let Some(ending) = ending else {
            eprintln!("error: {}", timed_out(&name, follow.last()));
            return Ok(TIMED_OUT);
        };
        let told = ending.told(&name);
        if let Ending::Done(_) = ending {
            if self.aside {
                eprintln!("{told}");
            } else {
                say(&told);
            }
            return Ok(0);
        }
        eprintln!("error: {told}");
        Ok(1)
    }

    async fn ending<R>(&self, api: &Api<R>, first: R, follow: &mut Follow) -> Result<Ending, Failure>
    where
        R: Request + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let name = first.meta().name.clone().unwrap_or_default();
        let events =
            watcher(api.clone(), watcher::Config::default().fields(&format!("metadata.name={name}")));
        let mut looks = Looks { events: Box::pin(events.backoff(Pause)), missing: false };
        let mut last = first;
        loop {
            match looks.next(self).await? {
                Some(Look::There(object)) => last = object,
                Some(Look::Deleted(object)) => return Ok(follow.deleted(object.as_ref())),
                // Its workload may have been released since.
                None => {}
            }
            if let Some(ending) = self.look(follow, &last).await? {
                return Ok(ending);
            }
        }
    }

    /// The ending, if this state ends the wait.
    async fn look<R: Request>(&self, follow: &mut Follow, request: &R) -> Result<Option<Ending>, Failure> {
        let Some(ending) = follow.see(request) else { return Ok(None) };
        let settled = follow.goal() == Goal::Armed || self.is_settled(request, &ending).await?;
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
                eprintln!("whether {} {name} is parked cannot be read: {}", kind.name(), failure.message());
                Ok(true)
            }
            Err(failure) => {
                self.lost(failure.message());
                Ok(false)
            }
        }
    }

    fn lost(&self, why: &str) {
        if !self.told.replace(true) {
            eprintln!("waiting goes on: {}", plain::line(why, plain::MOST));
        }
    }

    fn back(&self) {
        if self.told.replace(false) {
            eprintln!("the API server answers again");
        }
    }
}

/// A state that a watch shows.
enum Look<R> {
    /// The object.
    There(R),
    /// The object is gone; this is its last state, if known.
    Deleted(Option<R>),
}

/// The states that a watch shows, one after another.
struct Looks<S> {
    events: S,
    /// A list has begun, and has not shown the object yet.
    missing: bool,
}

impl<S> Looks<S> {
    /// The next state that the watch shows; `None` after a while without any.
    async fn next<R>(&mut self, wait: &Wait<'_>) -> Result<Option<Look<R>>, Failure>
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
                    broken(wait, &error)?;
                    continue;
                }
                None => return Ok(None),
            };
            if !matches!(event, Event::Init) {
                wait.back();
            }
            match event {
                // The API server has not been asked yet.
                Event::Init => self.missing = true,
                Event::InitApply(object) | Event::Apply(object) => {
                    self.missing = false;
                    return Ok(Some(Look::There(object)));
                }
                Event::Delete(object) => return Ok(Some(Look::Deleted(Some(object)))),
                Event::InitDone if self.missing => return Ok(Some(Look::Deleted(None))),
                Event::InitDone => {}
            }
        }
    }
}

/// Fails if the API server refuses the watch. After other errors, the watch is tried again.
fn broken(wait: &Wait<'_>, error: &watcher::Error) -> Result<(), Failure> {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => match classify(cause) {
            Class::Invalid | Class::Fatal => return Err(Failure::api(cause)),
            Class::Retry | Class::Conflict => wait.lost(&describe(cause)),
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
