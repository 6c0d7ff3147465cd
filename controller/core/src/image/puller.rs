//! The puller Pod: a Pod on the node of the target Pod, with its service account and `imagePullSecrets`. By it the
//! kubelet pulls images for which the registry requires credentials. Nothing of an image runs in it, and no Secret is
//! read. If the node can, its containers have the images that the target Pod's containers run, and mount the new ones.
//!
//! A pull by it proves nothing yet: the node's daemon is asked what the node has.

use std::time::Duration;

use pitstop_api::image_update::ContainerImage;
use pitstop_api::logic::pull::{meaning, without_secrets};
use pitstop_api::nodework::AnswerReason;

use super::observe::ImageUpdate;
use super::status::{self, End};
use crate::deed::{Deed, Done};
use crate::key::ObjectKey;
use crate::lifecycle::made_by;
use crate::pod::{Container, ContainerState, Pod};
use crate::time::{Mono, seconds};

/// How long the watch may take to show a Pod that was made.
pub(super) const LAG: Duration = Duration::from_secs(10);
/// How often in a row its creation or its deletion may be refused before the refusal counts.
pub(super) const REFUSALS: u32 = 3;
/// How often it is made: another client may delete it.
pub(super) const TRIES: u32 = 3;
/// Longest reason of the kubelet in messages.
const MAX_WORD: usize = 64;

/// The kubelet has the image, and cannot start the container, as intended.
const PULLED: [&str; 3] = ["CreateContainerConfigError", "CreateContainerError", "RunContainerError"];
/// The kubelet has tried to pull, and tries again.
const TRIES_AGAIN: [&str; 2] = ["ErrImagePull", "ImagePullBackOff"];
/// Waiting does not solve these.
const FATAL: [&str; 3] = ["InvalidImageName", "ErrImageNeverPull", "SignatureValidationFailed"];
/// The kubelet has ended a Pod after its `activeDeadlineSeconds`.
const LATE: &str = "DeadlineExceeded";

/// The name of the puller Pod of the request with that UID. It is the same however often the Pod is made.
pub(super) fn key(request: &ObjectKey, uid: &str) -> ObjectKey {
    ObjectKey::new(&request.namespace, format!("pitstop-pull-{uid}"))
}

/// What this process remembers of a request's puller Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// How often in a row its creation was refused, and the last message.
    pub(super) refused: Option<(u32, String)>,
    /// How often it was made since this process deleted one.
    pub(super) made: u32,
    /// Since when it may exist although the watch does not show it yet.
    pub(super) awaited_since: Option<Mono>,
    /// UID of the Pod that the watch shows, and since when.
    pub(super) shown: Option<(String, Mono)>,
    /// Why it does not pull all its images. Stays when the Pod is gone, because the Pod is deleted before this is
    /// stored.
    pub(super) failed: Option<End>,
    /// UID of the Pod that was deleted.
    pub(super) deleted: String,
    /// How often in a row its deletion was refused.
    pub(super) undeletable: u32,
}

impl Memory {
    /// Notes what the watch shows under the Pod's name.
    pub(super) fn see(&mut self, now: Mono, update: &ImageUpdate, shown: Option<&Pod>) {
        let lost = self.awaited_since.is_some_and(|since| since.after(LAG) <= now);
        if shown.is_some() || lost {
            self.awaited_since = None;
        }
        let Some(pod) = shown.filter(|pod| is_own(update, pod)) else {
            self.shown = None;
            return;
        };
        if self.shown.as_ref().is_none_or(|(uid, _)| *uid != pod.uid) {
            self.shown = Some((pod.uid.clone(), now));
        }
        let until = self.until(update);
        if self.failed.is_none() && !self.is_deleting(pod) {
            let late = until.is_some_and(|until| until <= now);
            let failed = || failure(pod, update.spec.pull_timeout(), late);
            self.failed = changed(update, pod).or_else(failed);
        }
    }

    /// Until when the Pod that the watch shows may pull.
    pub(super) fn until(&self, update: &ImageUpdate) -> Option<Mono> {
        self.shown.as_ref().map(|(_, since)| since.after(seconds(update.spec.pull_timeout())))
    }

    /// The Pod is being deleted.
    pub(super) fn is_deleting(&self, pod: &Pod) -> bool {
        pod.deleting || pod.uid == self.deleted
    }

    /// Takes in the result of a deed.
    pub(super) fn done(&mut self, now: Mono, deed: &Deed, done: Done) {
        match (deed, done) {
            (Deed::Pull(_), Done::Effected) => {
                self.made = self.made.saturating_add(1);
                (self.refused, self.awaited_since) = (None, Some(now));
            }
            // It exists already, and may be the request's own.
            (Deed::Pull(_), Done::Conflict) => self.awaited_since = Some(now),
            // It may exist.
            (Deed::Pull(_), Done::Retry(text)) => {
                self.awaited_since = Some(now);
                self.refused = Some((self.refusals(), text));
            }
            (Deed::Pull(_), Done::Refused(text)) => {
                self.refused = Some((self.refusals().saturating_add(1), text));
            }
            (Deed::DeletePod { uid, .. }, Done::Effected | Done::Gone) => {
                (self.deleted, self.undeletable, self.made) = (uid.clone(), 0, 0);
            }
            (Deed::DeletePod { .. }, Done::Refused(_)) => {
                self.undeletable = self.undeletable.saturating_add(1);
            }
            (Deed::Pull(_), Done::Gone | Done::Read(_))
            | (Deed::DeletePod { .. }, Done::Conflict | Done::Retry(_) | Done::Read(_))
            | (
                Deed::Create(_)
                | Deed::Delete { .. }
                | Deed::Resume { .. }
                | Deed::TryImages { .. }
                | Deed::AskNode(_)
                | Deed::AskWorkload(_)
                | Deed::MarkPod { .. }
                | Deed::Release(_)
                | Deed::Commit(_)
                | Deed::TryRelease { .. }
                | Deed::Evict { .. },
                _,
            ) => {}
        }
    }

    fn refusals(&self) -> u32 {
        self.refused.as_ref().map_or(0, |(times, _)| *times)
    }

    /// The last message on why it is not made, as the end of a sentence.
    pub(super) fn words(&self) -> String {
        self.refused.as_ref().map_or_else(String::new, |(_, text)| format!(": {text}"))
    }

    /// The end of a request whose puller Pod cannot be made, or has not pulled.
    pub(super) fn end(&self) -> Option<End> {
        if let Some(failed) = &self.failed {
            return Some(failed.clone());
        }
        let refused = self.refused.as_ref().filter(|(times, _)| *times >= REFUSALS);
        if let Some((_, text)) = refused {
            return Some(End::failed(status::CANNOT_PROVE, format!("no puller Pod can be made: {text}")));
        }
        (self.made >= TRIES && self.shown.is_none() && self.awaited_since.is_none()).then(|| {
            let text =
                format!("another client deleted the puller Pod {} times before it had pulled", self.made);
            End::failed(status::CANNOT_PROVE, text)
        })
    }
}

/// The Pod was made by the request.
pub(super) fn is_own(update: &ImageUpdate, pod: &Pod) -> bool {
    made_by::<ImageUpdate>(&update.uid, pod)
}

/// The kubelet reports that it has pulled the image for this container.
pub(super) fn has_pulled(pod: &Pod, container: &str) -> bool {
    pod.container(container).is_some_and(pulled)
}

fn pulled(container: &Container) -> bool {
    let Some(now) = &container.status else { return false };
    match &now.state {
        ContainerState::Waiting { reason, .. } => PULLED.contains(&reason.as_str()),
        ContainerState::Running | ContainerState::Terminated { .. } => !now.image_id.is_empty(),
        ContainerState::Unknown => false,
    }
}

/// What the kubelet does about a container whose image it does not have yet, as a sentence.
pub(super) fn underway(pod: &Pod) -> String {
    let waits = pod.containers.iter().filter(|container| !pulled(container)).find_map(waiting_message);
    waits.unwrap_or_else(|| format!("the kubelet pulls by the puller Pod {}", pod.key.name))
}

/// The kubelet's message about a waiting container, without secrets.
fn waiting_message(container: &Container) -> Option<String> {
    let ContainerState::Waiting { reason, message } = &container.status.as_ref()?.state else { return None };
    let text = meaning(message, false).text;
    let word = word(reason);
    let cause = if text.is_empty() { word } else { format!("{word}: {text}") };
    Some(format!("container {}: the kubelet says {cause}", container.name))
}

fn word(reason: &str) -> String {
    pitstop_api::condition::truncate(&without_secrets(reason), MAX_WORD)
}

/// The image that the Pod pulls for this container: the one that it mounts, or else its own.
fn image<'a>(pod: &'a Pod, container: &'a Container) -> &'a str {
    let mounted = pod.made.as_ref().and_then(|made| made.volumes.get(&container.name));
    mounted.unwrap_or(&container.image)
}

/// The end of a request whose puller Pod is not as it was sent: the daemon would be asked for another image.
fn changed(update: &ImageUpdate, pod: &Pod) -> Option<End> {
    let name = &pod.key.name;
    let node = update.status.target.as_ref().map(|target| &target.node_name);
    let text = if pod.node.as_ref() == node {
        let other = |wanted: &&ContainerImage| {
            pod.container(&wanted.name).is_some_and(|there| image(pod, there) != wanted.image)
        };
        let wanted = update.spec.containers.iter().find(other)?;
        let there = image(pod, pod.container(&wanted.name)?);
        format!("admission changes the image {} of the puller Pod {name} to {there}", wanted.image)
    } else {
        format!("puller Pod {name} is not on node {}", node.map_or("", String::as_str))
    };
    Some(End::failed(status::CANNOT_PROVE, text))
}

/// Why the Pod will not pull all of its images, once that is known; `late`: its time is over.
fn failure(pod: &Pod, timeout: i64, late: bool) -> Option<End> {
    let open = || pod.containers.iter().filter(|container| !pulled(container));
    if let Some(end) = open().find_map(refused) {
        return Some(end);
    }
    open().next()?;
    let made = pod.made.as_deref().filter(|_| pod.finished);
    let ended = made.map(|made| &made.ended);
    if late || ended.is_some_and(|ended| ended.reason == LATE) {
        let text = format!("not pulled within {timeout} s (pullTimeoutSeconds): {}", underway(pod));
        return Some(End::failed(status::PULL_FAILED, text));
    }
    let ended = ended?;
    let (word, why) = (word(&ended.reason), meaning(&ended.message, false).text);
    let node = pod.node.as_deref().unwrap_or_default();
    let text = format!("the kubelet of node {node} does not run the puller Pod: {word}: {why}");
    Some(End::failed(status::CANNOT_PROVE, text))
}

/// The end of a request by the kubelet's reason for a waiting container, if waiting does not solve that.
fn refused(container: &Container) -> Option<End> {
    let ContainerState::Waiting { reason, message } = &container.status.as_ref()?.state else { return None };
    let failed = |reason| Some(End::failed(reason, waiting_message(container)?));
    if FATAL.contains(&reason.as_str()) {
        return failed(status::PULL_FAILED);
    }
    if !TRIES_AGAIN.contains(&reason.as_str()) {
        return None;
    }
    match meaning(message, false).reason? {
        AnswerReason::NoDiskRoom => failed(status::NO_ROOM),
        _ => failed(status::PULL_FAILED),
    }
}
