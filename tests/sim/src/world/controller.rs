//! One controller process: the production engine, elector and wire, put together as in `controller/src`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use pitstop_api::logic::answer::{Answer, Failure};
use pitstop_api::logic::watch::Watch;
use pitstop_api::rollout::{PARKED, TargetKind};
use pitstop_controller_core::image::{self, ImageUpdate};
use pitstop_controller_core::kind::Kind as _;
use pitstop_controller_core::lease::{self, Elector, Record};
use pitstop_controller_core::recreate;
use pitstop_controller_core::recreate::Request;
use pitstop_controller_core::resize::{self, Resize};
use pitstop_controller_core::rollout::{self, Rollout};
use pitstop_controller_core::wire::{Exchange, HttpRequest, Step, observe};
use pitstop_controller_core::{Action, Config, Engine, Event};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::clock::Clock;
use super::effect::{Effect, Out, Sent};
use super::parking;
use super::plan::Schedule;
use super::skew::NextController;
use super::story::decision;
use super::watcher::{Watcher, convert};

/// As in `controller/src/executor.rs`.
const MAX_WRITES: usize = 16;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/pitstop-system/leases";
const LEASE: &str = "pitstop-controller";
const WATCH_OF_PODS: usize = 0;
/// The election's watch; all others are the core's.
const WATCH_OF_THE_LEASE: usize = 3;
/// Objects in a part of a list; few, so that lists have several parts.
const PART: usize = 2;
/// Watches of kinds beside restarts, in this order. A schedule has them up to the last kind that it needs.
const WATCH_OF_RESIZES: usize = 4;
const WATCH_OF_UPDATES: usize = 5;
const WATCH_OF_ROLLOUTS: usize = 6;
/// Watch of parked workloads of one kind, in schedules that park.
const WATCH_OF_PARKED: usize = 7;
const MORE: [&str; 3] = [
    "/apis/pitstop.dev/v1alpha1/podresizes",
    "/apis/pitstop.dev/v1alpha1/podimageupdates",
    "/apis/pitstop.dev/v1alpha1/inplacerollouts",
];

/// A controller process.
pub struct Controller {
    /// Clocks of its machine.
    pub clock: Clock,
    /// Watches of Pods, requests, order books and the lease; then, if needed, of resizes, updates, rollouts and parked
    /// workloads.
    pub watchers: Vec<Watcher>,
    /// The core.
    pub index: Engine,
    elector: Elector,
    leading: bool,
    /// The process led and no longer does: it ends.
    pub lost_lead: bool,
    /// The lead stays as it is, without renewals.
    settled: bool,
    under_way: BTreeMap<u64, Option<Exchange>>,
    waiting: VecDeque<Action>,
    serial: u64,
    /// Kind of the workloads that may be parked, if any.
    parks: Option<TargetKind>,
    /// Set if the process is of the next version.
    next: Option<NextController>,
}

/// An input of the process.
#[derive(Debug)]
pub enum Input {
    /// The watch of that index delivered an event.
    Delivered(usize, Watch<Arc<Value>>),
    /// The request with that token was answered.
    Answered(u64, Answer),
    /// Time passed.
    Tick,
}

impl Controller {
    /// A new process with a unique `identity`. It watches the kinds that `schedule` needs.
    pub fn new(identity: String, config: Config, clock: Clock, next: bool, schedule: &Schedule) -> Self {
        let mut watchers = vec![
            Watcher::new("/api/v1/pods", "").in_parts_of(PART),
            Watcher::new("/apis/apps.kruise.io/v1alpha1/containerrecreaterequests", "").in_parts_of(PART),
            Watcher::new("/apis/pitstop.dev/v1alpha1/nodeworks", "").in_parts_of(PART),
            Watcher::new(LEASES, format!("metadata.name={LEASE}")),
        ];
        let more = MORE.iter().take(schedule.kinds().saturating_sub(1));
        watchers.extend(more.map(|path| Watcher::new(path, "").in_parts_of(PART)));
        let parks = schedule.workload.as_ref().filter(|workload| workload.native);
        let parks = parks.map(|workload| parking::kind(&workload.kind));
        watchers.extend(parks.map(|kind| Watcher::new(parking::path(kind), PARKED).in_parts_of(PART)));
        let mut index = Engine::new(config);
        // The admission policy exists from the beginning; the core has a rule for its absence.
        index.step(clock.mono(0), DateTime::UNIX_EPOCH, Event::Guarded(true));
        Self {
            clock,
            watchers,
            index,
            elector: Elector::new(identity, lease::Config::default()),
            leading: false,
            lost_lead: false,
            settled: false,
            under_way: BTreeMap::new(),
            waiting: VecDeque::new(),
            serial: 0,
            parks,
            next: next.then(NextController::default),
        }
    }

    /// Whether it believes that it leads.
    pub fn leads(&self) -> bool {
        self.leading
    }

    /// Freezes the lead: renewals are nearly all that happens in a world at rest.
    pub fn settle(&mut self) {
        self.settled = true;
    }

    /// True time at which it wants a tick, in milliseconds.
    pub fn wake_at(&self, now: u64) -> Option<u64> {
        let mono = self.clock.mono(now);
        let index = self.index.wake_at();
        let elector = if self.settled { None } else { self.elector.wake_at(mono) };
        index.into_iter().chain(elector).min().map(|at| self.clock.when(at))
    }

    /// Handles one input.
    pub fn step(&mut self, now: u64, input: Input) -> Out {
        let mut out = Out::default();
        match input {
            Input::Delivered(0, event) => self.core(now, Event::Pods(convert(event, pod)), &mut out),
            Input::Delivered(1, event) => {
                self.core(now, Event::of::<Request>(convert(event, |o| Request::observe(read(o)))), &mut out);
            }
            Input::Delivered(2, event) => {
                if let Some(next) = &mut self.next {
                    objects(&event).for_each(|book| next.delivered(book));
                }
                self.core(now, Event::NodeWorks(convert(event, |o| observe::nodework(read(o)))), &mut out);
            }
            Input::Delivered(WATCH_OF_RESIZES, event) => {
                self.core(now, Event::of::<Resize>(convert(event, |o| Resize::observe(read(o)))), &mut out);
            }
            Input::Delivered(WATCH_OF_UPDATES, event) => {
                self.core(
                    now,
                    Event::of::<ImageUpdate>(convert(event, |o| ImageUpdate::observe(read(o)))),
                    &mut out,
                );
            }
            Input::Delivered(WATCH_OF_ROLLOUTS, event) => {
                self.core(now, Event::of::<Rollout>(convert(event, |o| Rollout::observe(read(o)))), &mut out);
            }
            Input::Delivered(WATCH_OF_PARKED, event) => {
                let Some(kind) = self.parks else { return out };
                let parked = |o: &Value| observe::parked(kind, read(&o["metadata"]));
                self.core(now, Event::Parked(kind, convert(event, parked)), &mut out);
            }
            Input::Delivered(_, event) => {
                let observed = convert(event, record).shown();
                self.elect(now, lease::Event::Observed(observed), &mut out);
            }
            Input::Answered(token, answer) => match self.under_way.remove(&token) {
                Some(Some(exchange)) => {
                    let step = exchange.answered(answer);
                    self.go_on(now, step, &mut out);
                }
                Some(None) => {
                    let event = match answer {
                        Answer::Body(text) => {
                            lease::Event::Written(record(&serde_json::from_str(&text).unwrap()))
                        }
                        Answer::Failed(_) => lease::Event::NotWritten,
                    };
                    self.elect(now, event, &mut out);
                }
                None => {}
            },
            Input::Tick => {
                self.elect(now, lease::Event::Tick, &mut out);
                self.core(now, Event::Tick, &mut out);
            }
        }
        out
    }

    fn core(&mut self, now: u64, event: Event, out: &mut Out) {
        let actions = self.index.step(self.clock.mono(now), self.clock.wall(now), event);
        for action in actions {
            if matches!(action, Action::Emit(_) | Action::Count(_)) {
                continue;
            }
            out.decisions.push(decision(&action));
            self.waiting.push_back(action);
        }
        self.send_waiting(now, out);
    }

    fn send_waiting(&mut self, now: u64, out: &mut Out) {
        while self.under_way.values().flatten().count() < MAX_WRITES {
            let Some(action) = self.waiting.pop_front() else { return };
            if let Some(step) = Exchange::begin(action, self.clock.wall(now)) {
                self.go_on(now, step, out);
            }
        }
    }

    fn go_on(&mut self, now: u64, step: Step, out: &mut Out) {
        match step {
            Step::Send(mut request, exchange) => {
                if let Some(next) = &self.next {
                    next.sends(&mut request);
                }
                self.serial += 1;
                self.under_way.insert(self.serial, Some(*exchange));
                out.effects.push(Effect::Send(Sent {
                    token: self.serial,
                    request: *request,
                    election: false,
                }));
            }
            Step::Over(over) => {
                self.core(now, over.event, out);
            }
        }
    }

    fn elect(&mut self, now: u64, event: lease::Event, out: &mut Out) {
        if self.settled {
            return;
        }
        let mono = self.clock.mono(now);
        if let Some(write) = self.elector.step(mono, event) {
            self.serial += 1;
            self.under_way.insert(self.serial, None);
            let request = lease_request(&write, self.clock.wall(now));
            out.effects.push(Effect::Send(Sent { token: self.serial, request, election: true }));
        }
        let leads = self.elector.leads(mono);
        if leads != self.leading {
            self.leading = leads;
            self.lost_lead = !leads;
            out.decisions.push(format!("leads: {leads}"));
            // As in `controller/src/lead.rs`: decisions need lists that are not older than the lead, except lists of
            // Pods.
            for (at, watcher) in self.watchers.iter_mut().enumerate() {
                if ![WATCH_OF_PODS, WATCH_OF_THE_LEASE].contains(&at) {
                    watcher.forget();
                }
            }
            self.core(now, Event::Leader(leads), out);
            let kinds = [recreate::ID, resize::ID, image::ID, rollout::ID];
            let watched = &kinds[..=(self.watchers.len() - WATCH_OF_RESIZES).min(MORE.len())];
            // Kinds without a watch get empty lists.
            for none in Event::none_but(watched) {
                self.core(now, none, out);
            }
        }
    }
}

/// Objects of an event.
fn objects(event: &Watch<Arc<Value>>) -> impl Iterator<Item = &Value> {
    match event {
        Watch::Listed(list) => list.objects.as_slice(),
        Watch::Upsert(one) | Watch::Gone(one) => std::slice::from_ref(one),
    }
    .iter()
    .map(AsRef::as_ref)
}

fn read<T: DeserializeOwned>(object: &Value) -> T {
    T::deserialize(object).expect("the server stores what production can read")
}

fn pod(object: &Value) -> pitstop_controller_core::pod::Pod {
    observe::pod(read(object))
}

fn record(object: &Value) -> Record {
    let spec = &object["spec"];
    Record {
        holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
        transitions: spec["leaseTransitions"].as_i64().unwrap_or_default().try_into().unwrap(),
        resource_version: object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
    }
}

fn lease_request(write: &lease::Write, wall: DateTime<Utc>) -> HttpRequest {
    // Each renewal changes the record, which shows others that the holder lives.
    let renewed = wall.to_rfc3339_opts(SecondsFormat::Micros, true);
    let body = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": "pitstop-system", "resourceVersion": write.resource_version},
        "spec": {"holderIdentity": write.holder, "leaseTransitions": write.transitions, "leaseDurationSeconds": 15,
            "renewTime": renewed},
    });
    let request = match write.resource_version {
        None => http::Request::post(LEASES),
        Some(_) => http::Request::put(format!("{LEASES}/{LEASE}")),
    };
    let request = request.header(http::header::CONTENT_TYPE, "application/json");
    request.body(serde_json::to_vec(&body).unwrap()).unwrap()
}

/// The answer that a process gets for a response of the model server.
pub fn answer(response: &http::Response<Value>) -> Answer {
    if response.status().is_success() {
        return Answer::Body(response.body().to_string());
    }
    let message = response.body()["message"].as_str().unwrap_or_default();
    Answer::Failed(Failure::of_code(response.status().as_u16(), message))
}
