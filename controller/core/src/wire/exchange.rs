//! Writes and reads as requests to the API server.

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::Pod;
use kube::core::params::{Patch, PatchParams};
use kube::core::{PartialObjectMeta, request};
use pitstop_api::logic::answer::{Answer, Class, Failure};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::books::{self, First, NewBook};
use super::observe::{self, SlimPod};
use super::pods::{self, PodVersion};
use super::puller::{self, Forms};
use super::reading::Reading;
use super::requests::{HttpRequest, delete, objects, replace_status};
use super::survey::SurveyReading;
use super::workload::{self, Released, WorkloadReading};
use super::{deeds, denial, node, sets};
use crate::action::{Action, Event, Object, Write};
use crate::change::PodChange;
use crate::deed::{Commit, Deed, Done, Puller, Release};
use crate::key::ObjectKey;
use crate::kind::WriteNames;
use crate::kinds::{ForEach, Registered, Written, about, for_each};
use crate::outcome::{NOT_SERVED, Outcome};

/// A write or read under way: which answer it awaits, and what that means.
#[derive(Clone, Debug)]
pub struct Exchange {
    name: &'static str,
    subject: Subject,
    awaits: Awaits,
}

/// What is written or read, and for which request.
#[derive(Clone, Debug)]
enum Subject {
    /// An object of a kind.
    Object(Object),
    /// The Pod itself.
    Pod(ObjectKey, String),
    /// A dry run of a change of the Pod.
    Trial(ObjectKey, String),
    Book(String),
    /// Only a reading.
    Survey(Box<SurveyReading>),
    /// Only a reading, for this request.
    Workload(Object, Box<WorkloadReading>),
    /// A deed of this request.
    Deed(Object, Box<Deed>),
    /// Only a reading of the Pod of this request.
    PodCheck(Object),
}

/// The awaited answer.
#[derive(Clone, Debug)]
enum Awaits {
    /// The stored object.
    Stored,
    /// The stored book, if it passes the tests of the patch.
    Tested,
    /// Success, whatever the answer says.
    Done,
    /// The Pod as it would be stored. If the change is as requested, the real request follows, if any.
    DryRun(Option<Box<HttpRequest>>, PodChange),
    /// Whether the node is ready.
    Node,
    /// The node of the Pod whose containers get the images; then that Pod is read.
    Mounter(Box<Puller>),
    /// That Pod; then the puller Pod is made, with image volumes if its node can mount them.
    Lender(Box<Puller>, bool),
    /// The object with the template that is written next.
    Template(Box<Commit>),
    /// The policy's denial of a similar form; then this one is sent.
    Denial(Box<HttpRequest>),
    /// The denial by the policy for workloads.
    Policy,
    /// The workload that admission has released; otherwise it is released without the policy.
    Released(Box<Release>),
    /// A part of a reading.
    Reading,
    /// The node's metadata, for the owner of its book.
    Owner(String, NewBook),
}

/// What to do next.
#[derive(Debug)]
pub enum Step {
    /// Send this, and pass the answer on.
    Send(Box<HttpRequest>, Box<Exchange>),
    /// Tell the core the result.
    Over(Box<Over>),
}

/// The end of an exchange.
#[derive(Debug)]
pub struct Over {
    /// The event for the core.
    pub event: Event,
    /// The write's name in metrics.
    pub name: &'static str,
    /// What was written, for logs: namespace and name, or the node.
    pub object: String,
    /// Why it failed.
    pub failure: Option<Failure>,
}

impl Exchange {
    /// Begins a write or read; `None` for an action without a request. `wall` is written into conditions.
    pub fn begin(action: Action, wall: DateTime<Utc>) -> Option<Step> {
        let (exchange, request) = match action {
            Action::Emit(_) | Action::Count(_) => return None,
            Action::Write { object, write } => {
                let (name, awaits, request) = write_object(&object, write);
                (Self::new(name, Subject::Object(object), awaits), request)
            }
            Action::Survey { key } => {
                let reading = SurveyReading::new(key);
                let request = reading.request();
                (Self::new("survey", Subject::Survey(Box::new(reading)), Awaits::Reading), request)
            }
            Action::ReadPod { object, pod } => {
                let request = pods::read(&pod);
                (Self::new("read_pod", Subject::PodCheck(object), Awaits::Stored), request)
            }
            Action::PatchPod { key, uid, resource_version, change } => {
                Self::pod_change(key, uid, &resource_version, change, wall)
            }
            Action::Do { object, deed } => Self::deed(object, deed),
            Action::WriteOrders { node, basis, orders, closed, adopt } => {
                let (first, request) = books::write(&node, basis, orders, closed, adopt);
                let awaits = match first {
                    First::Stored => Awaits::Stored,
                    First::Tested => Awaits::Tested,
                    First::Owner(book) => Awaits::Owner(node.clone(), book),
                };
                (Self::new("write_orders", Subject::Book(node), awaits), request)
            }
        };
        Some(exchange.send(request))
    }

    fn deed(object: Object, deed: Deed) -> (Self, Result<HttpRequest, request::Error>) {
        let (name, request) = deeds::request(&object, &deed);
        let awaits = match &deed {
            Deed::AskWorkload(query) => {
                let subject = Subject::Workload(object, Box::new(WorkloadReading::new((**query).clone())));
                return (Self::new(name, subject, Awaits::Reading), request);
            }
            Deed::TryImages { images, .. } => Awaits::DryRun(None, PodChange::Images(images.clone())),
            Deed::AskNode(_) => Awaits::Node,
            Deed::TryRelease { .. } => Awaits::Policy,
            Deed::Pull(puller) => Awaits::Mounter(puller.clone()),
            Deed::Commit(commit) => Awaits::Template(commit.clone()),
            Deed::Create(_)
            | Deed::Delete { .. }
            | Deed::Resume { .. }
            | Deed::DeletePod { .. }
            | Deed::Evict { .. }
            | Deed::MarkPod { .. } => Awaits::Done,
            Deed::Release(release) => Awaits::Released(release.clone()),
        };
        (Self::new(name, Subject::Deed(object, Box::new(deed)), awaits), request)
    }

    fn pod_change(
        key: ObjectKey,
        uid: String,
        resource_version: &str,
        change: PodChange,
        wall: DateTime<Utc>,
    ) -> (Self, Result<HttpRequest, request::Error>) {
        let version = PodVersion { uid: &uid, resource_version };
        let (name, real, dry_run) = match &change {
            PodChange::Gates(gates) => {
                let request = pods::patch_gates(&key, version, gates, wall);
                return (Self::new("patch_pod_conditions", Subject::Pod(key, uid), Awaits::Stored), request);
            }
            PodChange::Images(images) => {
                let patch = |dry_run| pods::patch_images(&key, version, images, dry_run);
                let (name, real) = ("patch_pod_images", patch(false));
                if images.iter().all(|image| image.tried) {
                    return (Self::new(name, Subject::Pod(key, uid), Awaits::Stored), real);
                }
                (name, Some(real), patch(true))
            }
            PodChange::Resources(sizing) => {
                let patch = |dry_run| pods::patch_resources(&key, version, &sizing.containers, dry_run);
                ("patch_pod_resize", (!sizing.dry_run).then(|| patch(false)), patch(true))
            }
        };
        let subject = if real.is_some() { Subject::Pod(key, uid) } else { Subject::Trial(key, uid) };
        match real.transpose() {
            Ok(real) => (Self::new(name, subject, Awaits::DryRun(real.map(Box::new), change)), dry_run),
            Err(error) => (Self::new(name, subject, Awaits::Stored), Err(error)),
        }
    }

    fn new(name: &'static str, subject: Subject, awaits: Awaits) -> Self {
        Self { name, subject, awaits }
    }

    /// Takes in the answer.
    pub fn answered(mut self, answer: Answer) -> Step {
        let reading: &mut dyn Reading = match &mut self.subject {
            Subject::Survey(reading) => &mut **reading,
            Subject::Workload(_, reading) => &mut **reading,
            _ => return self.answered_write(answer),
        };
        match reading.answered(answer) {
            Ok(true) => {
                let request = reading.request();
                self.send(request)
            }
            Ok(false) => self.end(Ok(None)),
            Err(failure) => self.end(Err(failure)),
        }
    }

    /// Takes in the answer to anything but a reading.
    fn answered_write(mut self, answer: Answer) -> Step {
        match (std::mem::replace(&mut self.awaits, Awaits::Stored), answer) {
            (Awaits::Stored | Awaits::Tested, Answer::Body(text)) => self.end(Ok(Some(&text))),
            (Awaits::Done | Awaits::Reading, Answer::Body(_)) => self.end(Ok(None)),
            (Awaits::DryRun(request, change), Answer::Body(text)) => {
                // Other admission may refuse or alter the change: that must be known before any container ends.
                let altered = parse(&text).map(observe::pod).map(|admitted| match &change {
                    PodChange::Gates(_) => None,
                    PodChange::Images(images) => pods::altered(&admitted, images),
                    PodChange::Resources(sizing) => pods::resized_otherwise(&admitted, &sizing.containers),
                });
                match (altered, request) {
                    (Ok(None), Some(request)) => self.send(Ok(*request)),
                    (Ok(None), None) => self.end(Ok(Some(&text))),
                    (Ok(Some(text)), _) => self.end(Err(Failure::of_code(422, text))),
                    (Err(failure), _) => self.end(Err(failure)),
                }
            }
            (Awaits::Policy, answer) => {
                let denied = denial::denied(answer, &workload::POLICY);
                self.end(denied.map(|()| None))
            }
            (Awaits::Released(release), answer) => self.released(&release, answer),
            (Awaits::Node, Answer::Body(text)) => self.end(node::is_ready(&text).map(|()| None)),
            (Awaits::Mounter(puller), answer) => {
                // Every node can pull the image of a container.
                let mounts = matches!(&answer, Answer::Body(text) if node::mounts_images(text));
                let request = puller::lender(&puller);
                Self { awaits: Awaits::Lender(puller, mounts), ..self }.send(request)
            }
            (Awaits::Lender(puller, mounts), Answer::Body(text)) => self.puller(&puller, mounts, &text),
            (Awaits::Template(commit), Answer::Body(text)) => match sets::write(&commit, &text) {
                Ok(request) => Self { awaits: Awaits::Done, ..self }.send(Ok(request)),
                Err(failure) => self.end(Err(failure)),
            },
            (Awaits::Denial(good), answer) => match denial::denied(answer, &puller::POLICY) {
                Ok(()) => Self { awaits: Awaits::Done, ..self }.send(Ok(*good)),
                Err(failure) => self.end(Err(failure)),
            },
            (Awaits::Owner(node, book), answer) => self.owned(&node, book, answer),
            // The API server does not serve the subresource. If the Pod were gone, it would name the Pod.
            (Awaits::DryRun(_, PodChange::Resources(_)), Answer::Failed(failure))
                if failure.gone && failure.message.contains(NOT_SERVED) =>
            {
                self.end(Err(Failure::of_code(422, failure.message)))
            }
            // The test failed. Any other error occurs again in the next write, which is based on the version.
            (Awaits::Tested, Answer::Failed(failure)) if failure.class == Class::Invalid && !failure.gone => {
                self.end(Err(Failure { class: Class::Conflict, ..failure }))
            }
            (_, Answer::Failed(failure)) => self.end(Err(failure)),
        }
    }

    /// Takes in the answer to a release by admission.
    fn released(self, release: &Release, answer: Answer) -> Step {
        match workload::released(release, answer) {
            Ok(Released::All) => self.end(Ok(None)),
            Ok(Released::Nothing(version)) => {
                let request = workload::release_without_policy(release, &version);
                Self { awaits: Awaits::Done, ..self }.send(request)
            }
            Err(failure) => self.end(Err(failure)),
        }
    }

    /// Takes in the node of a book.
    fn owned(self, node: &str, book: NewBook, answer: Answer) -> Step {
        match (books::owner(node, answer), book) {
            (Ok(owner), NewBook::Made(orders)) => self.send(books::create(node, owner, orders)),
            (Ok(owner), NewBook::Adopted(change)) => {
                self.send(books::patch(node, books::adopted(change, &owner)))
            }
            // Orders are withdrawn even if the node is gone.
            (Err(failure), NewBook::Adopted(change)) if failure.gone => self.send(books::patch(node, change)),
            (Err(failure), _) => self.end(Err(failure)),
        }
    }

    /// Takes in the Pod whose containers get the images.
    fn puller(self, puller: &Puller, mounts: bool, text: &str) -> Step {
        let Subject::Deed(object, _) = &self.subject else { return self.end(Ok(None)) };
        match puller::forms(object, puller, mounts, text) {
            Ok(Forms { denied, good }) => {
                Self { awaits: Awaits::Denial(Box::new(good)), ..self }.send(Ok(denied))
            }
            Err(failure) => self.end(Err(failure)),
        }
    }

    fn send(self, request: Result<HttpRequest, request::Error>) -> Step {
        match request {
            Ok(request) => Step::Send(Box::new(request), Box::new(self)),
            Err(error) => {
                self.end(Err(Failure { gone: false, class: Class::Invalid, message: error.to_string() }))
            }
        }
    }

    /// Ends with the text of the stored object, without one, or with a failure.
    fn end(self, result: Result<Option<&str>, Failure>) -> Step {
        let object = match &self.subject {
            Subject::Object(object) | Subject::Deed(object, _) | Subject::PodCheck(object) => {
                object.key.to_string()
            }
            Subject::Pod(key, _) | Subject::Trial(key, _) => key.to_string(),
            Subject::Book(node) => node.clone(),
            Subject::Survey(reading) => reading.key.to_string(),
            Subject::Workload(_, reading) => reading.key().to_string(),
        };
        let (event, failure) = match self.subject {
            Subject::Object(object) => written(object, result),
            Subject::Trial(key, uid) => {
                let (outcome, failure) = outcome(result, |_: SlimPod| ());
                (Event::PodTried { key, uid, outcome }, failure)
            }
            Subject::Pod(key, uid) => {
                let (outcome, failure) = outcome(result, observe::pod);
                (Event::PodWritten { key, uid, outcome }, failure)
            }
            Subject::Survey(reading) => {
                let SurveyReading { key, survey, .. } = *reading;
                let failure = result.err();
                let outcome = failure.as_ref().map_or(Outcome::Written(survey), failed);
                (Event::Surveyed { key, outcome }, failure)
            }
            Subject::PodCheck(object) => {
                let read = |pod: PartialObjectMeta<Pod>| pod.metadata.uid.unwrap_or_default();
                let (outcome, failure) = outcome(result, read);
                (Event::PodRead { object, outcome }, failure)
            }
            Subject::Deed(object, deed) => {
                let failure = result.err();
                (Event::DeedDone { object, deed, done: done(failure.as_ref()) }, failure)
            }
            Subject::Workload(object, reading) => {
                let failure = result.err();
                let WorkloadReading { query, workload, .. } = *reading;
                let read = Done::Read(Box::new(workload));
                let done = failure.as_ref().map_or(read, |f| done(Some(f)));
                let deed = Box::new(Deed::AskWorkload(Box::new(query)));
                (Event::DeedDone { object, deed, done }, failure)
            }
            Subject::Book(node) => {
                let (outcome, failure) = outcome(result, observe::nodework);
                (Event::NodeWorkWritten(node, outcome), failure)
            }
        };
        Step::Over(Box::new(Over { event, name: self.name, object, failure }))
    }
}

fn outcome<K: DeserializeOwned, T>(
    result: Result<Option<&str>, Failure>,
    convert: impl Fn(K) -> T,
) -> (Outcome<T>, Option<Failure>) {
    let failure = match result.and_then(|text| text.map(parse).transpose()) {
        Ok(Some(object)) => return (Outcome::Written(convert(object)), None),
        Ok(None) => return (Outcome::Gone, None),
        Err(failure) => failure,
    };
    (failed(&failure), Some(failure))
}

fn failed<T>(failure: &Failure) -> Outcome<T> {
    match failure.class {
        _ if failure.gone => Outcome::Gone,
        Class::Conflict => Outcome::Conflict,
        Class::Retry => Outcome::Retry,
        Class::Invalid | Class::Fatal => Outcome::Refused(failure.message.clone()),
    }
}

fn done(failure: Option<&Failure>) -> Done {
    let Some(failure) = failure else { return Done::Effected };
    match failure.class {
        _ if failure.gone => Done::Gone,
        Class::Conflict => Done::Conflict,
        Class::Retry => Done::Retry(failure.message.clone()),
        Class::Invalid | Class::Fatal => Done::Refused(failure.message.clone()),
    }
}

/// Parses the answer to a success. If that fails, the write may still have taken effect.
pub(super) fn parse<K: DeserializeOwned>(text: &str) -> Result<K, Failure> {
    serde_json::from_str(text).map_err(|error| Failure {
        gone: false,
        class: Class::Retry,
        message: format!("the API server's answer cannot be read: {error}"),
    })
}

/// The name of a write of an object, the answer that it awaits, and the request.
fn write_object(
    object: &Object,
    write: Write,
) -> (&'static str, Awaits, Result<HttpRequest, request::Error>) {
    let names = about(object.kind).map(|about| &about.writes);
    let name = |of: fn(&WriteNames) -> &'static str| names.map_or("write", of);
    match write {
        Write::Status { resource_version, status } => {
            let request = replace_status(object, resource_version, status);
            (name(|names| names.status), Awaits::Stored, request)
        }
        Write::Metadata { resource_version, labels, annotations } => {
            let body = Patch::Merge(json!({"metadata":
                {"resourceVersion": resource_version, "labels": labels, "annotations": annotations}}));
            let request =
                objects(object.kind, &object.key).patch(&object.key.name, &PatchParams::default(), &body);
            (name(|names| names.metadata), Awaits::Stored, request)
        }
        Write::Delete => {
            (name(|names| names.delete), Awaits::Done, delete(object.kind, &object.key, &object.uid))
        }
    }
}

/// The end of a write of an object, by its kind.
struct Ending<'a> {
    object: Object,
    result: Option<Result<Option<&'a str>, Failure>>,
    over: Option<(Written, Option<Failure>)>,
}

impl ForEach for Ending<'_> {
    fn kind<K: Registered>(&mut self) {
        if let Some(result) = self.result.take_if(|_| K::ABOUT.id == self.object.kind) {
            let (outcome, failure) = outcome(result, K::observe);
            self.over = Some((K::written(outcome), failure));
        }
    }
}

fn written(object: Object, result: Result<Option<&str>, Failure>) -> (Event, Option<Failure>) {
    let mut ending = Ending { object, result: Some(result), over: None };
    for_each(&mut ending);
    let Ending { object: Object { key, uid, .. }, over, .. } = ending;
    match over {
        Some((outcome, failure)) => (Event::Written { key, uid, outcome }, failure),
        // The kind is not registered.
        None => (Event::Tick, None),
    }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
