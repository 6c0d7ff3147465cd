//! How far the Pod is, by its spec, by what its kubelet says of it, and by what the node's daemon says.

use std::time::Duration;

use pitstop_api::id::split_reference;
use pitstop_api::image_update::ContainerStatus;
use pitstop_api::nodework::{Pulled, Running};

use super::observe::{ImageUpdate, Observed, is_ready};
use super::orders;
use super::status::{self, End};
use crate::pod::{self, Container, ContainerState, Pod};
use crate::time::seconds;

/// Which images the Pod's spec has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Those of before.
    Before,
    /// Those that were written down for it.
    Written,
    /// Those that were written down for the way back.
    Restored,
    /// Some of the one and some of the other.
    Between,
    /// That container has another one: somebody else has changed it.
    Other(String),
}

/// Which images the Pod's spec has.
pub(super) fn place(update: &ImageUpdate, pod: &Pod) -> Place {
    let restores = update.status.restoring.is_some();
    let mut places = Vec::new();
    for container in &update.status.containers {
        let Some(image) = pod.container(&container.name).map(|c| c.image.as_str()) else {
            return Place::Other(container.name.clone());
        };
        places.push(if restores && image == container.restored {
            Place::Restored
        } else if !container.written.is_empty() && image == container.written {
            Place::Written
        } else if image == container.before.image || is_pinned(image, &container.before.image_id) {
            Place::Before
        } else {
            return Place::Other(container.name.clone());
        });
    }
    match places.split_first() {
        Some((first, rest)) if rest.iter().all(|place| place == first) => first.clone(),
        _ => Place::Between,
    }
}

/// The image string names the digest that ran: a restart through the kubelet writes such strings, and changes nothing.
fn is_pinned(image: &str, image_id: &str) -> bool {
    let digest = |text: &str| text.rsplit_once('@').map(|(_, digest)| digest.to_owned());
    digest(image).is_some_and(|named| digest(image_id) == Some(named))
}

/// The Pod has had that very string all along, so that the kubelet replaces nothing.
pub(super) fn is_unchanged(status: &ContainerStatus) -> bool {
    !status.written.is_empty() && status.written == status.before.image
}

/// How far a container is that has got another image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The kubelet has not stopped the old one, or not started the new one: a sentence.
    Waits(String),
    /// The new one runs, and is not ready.
    Unready,
    /// It is ready, and the daemon has not told yet what runs.
    Untold,
    /// It is ready, and runs what was pulled.
    Ready,
    /// It does badly.
    Bad(End),
}

/// The kubelet waits before it starts a container again that has ended.
const CRASH_LOOP: &str = "CrashLoopBackOff";
/// Reasons of the kubelet for a container that it does not start, and that no waiting mends.
const FATAL: [&str; 8] = [
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    CRASH_LOOP,
];

/// How long the kubelet may go on telling of a container what was so before the change.
pub(super) const STALE: Duration = Duration::from_secs(10);
/// How long the kubelet may take to begin with the stop of a container whose image string has changed.
const BEGINS: Duration = Duration::from_secs(5);

impl Observed<'_> {
    /// That a container waits for such a reason is to be blamed on its new image. What did not run before may have waited for
    /// the same reason, and a loop of crashes is that of the instance that is named.
    fn is_news(&self, status: &ContainerStatus, now: &pod::ContainerStatus, reason: &str) -> bool {
        if now.container_id != status.before.container_id
            && !(reason == CRASH_LOOP && is_old(self, status, now))
        {
            return true;
        }
        let long = self.memory.written_since.is_some_and(|since| since.after(STALE) <= self.now);
        reason != CRASH_LOOP && (status.before.running || long)
    }

    /// The old image is back in the container, which is as well as it was before. One that was never replaced may be yet: the
    /// kubelet may be about to stop it.
    pub(super) fn is_back(&self, status: &ContainerStatus, pod: &Pod) -> bool {
        let Some(container) = pod.container(&status.name) else { return false };
        let Some(now) = &container.status else { return false };
        let same = now.container_id == status.before.container_id;
        let since = self.memory.restored_since;
        let long = since.is_some_and(|since| since.after(self.settles(pod)) <= self.now);
        // A kubelet that says which spec its word is about has no other stop under way then; it may take the Pod's grace.
        let settled = pod.seen() || (long && !pod.unseen());
        if same && !status.before.running {
            return settled;
        }
        // The kubelet may have started it by the string that was there first, just when another one was written, for which it then
        // stops it once more. It tells which image runs, not by which string, but for what did not run when it had seen the new one.
        let by_other = status.restored != status.before.image && !self.memory.down.contains(&status.name);
        let runs = now.state == ContainerState::Running && now.image_id == status.before.image_id;
        runs && (now.ready || !status.before.ready) && (!same || settled) && (!by_other || long)
    }

    /// How long it may take until nothing of a Pod is stopped any more for the images that it had before. Its containers have no
    /// more time than to be ready at all.
    pub(super) fn settles(&self, pod: &Pod) -> Duration {
        let grace = seconds(pod.grace_seconds.unwrap_or_default());
        BEGINS.saturating_add(grace).min(seconds(self.update.spec.ready_timeout()))
    }
}

/// An instance that runs the image of before, or ran it: the kubelet has not got to the new one yet. Where the new one may be
/// the same, what still runs is looked at further.
fn is_old(observed: &Observed<'_>, status: &ContainerStatus, now: &pod::ContainerStatus) -> bool {
    let old = &status.before.image_id;
    let other = |pulled: &Pulled| !is_pulled(old, pulled);
    let unknown = now.state != ContainerState::Running;
    !old.is_empty() && now.image_id == *old && pulled(observed, status).map_or(unknown, other)
}

/// How far the new container is.
pub(super) fn progress(observed: &Observed<'_>, status: &ContainerStatus, container: &Container) -> Progress {
    let name = &status.name;
    let Some(now) = &container.status else {
        return Progress::Waits(format!("waits for the kubelet to start container {name}"));
    };
    if let ContainerState::Waiting { reason, message } = &now.state {
        let fatal = FATAL.into_iter().find(|fatal| fatal == reason);
        return match fatal.filter(|reason| observed.is_news(status, now, reason)) {
            Some(reason) => {
                let text = format!("container {name}: {message}");
                Progress::Bad(End::bad(status::waiting(reason), text))
            }
            None => Progress::Waits(format!("the kubelet starts container {name}: {reason} {message}")),
        };
    }
    let same = now.container_id == status.before.container_id || is_old(observed, status, now);
    if same && is_unchanged(status) && now.state == ContainerState::Running {
        return unreplaced(observed, status, container);
    }
    if same || now.container_id.is_empty() {
        return waits_for_kubelet(name);
    }
    if now.oom_killed != status.before.container_id
        && !now.oom_killed.is_empty()
        && restarts(status, container) > 0
    {
        let text = format!("container {name} was killed for want of memory");
        return Progress::Bad(End::bad(status::OOM_KILLED, text));
    }
    // What ends with its node is started again.
    let node = &observed.memory.node;
    if let ContainerState::Terminated { exit_code } = now.state
        && !node.settles()
    {
        let text = format!("container {name} has ended with exit code {exit_code}");
        return Progress::Bad(End::bad(status::EXITED, text));
    }
    // The first restart is that to the new image. What did not run may have come up once more with its old one.
    let allowed = node.outages().saturating_add(if status.before.running { 1 } else { 2 });
    if restarts(status, container) > allowed {
        let text =
            format!("container {name} has restarted {} times", restarts(status, container).saturating_sub(1));
        return Progress::Bad(End::bad(status::RESTARTED, text));
    }
    if !is_ready(container) {
        return Progress::Unready;
    }
    attested(observed, status, container)
}

/// The kubelet waits before it starts the container again.
pub(super) fn in_back_off(container: &Container) -> bool {
    let state = container.status.as_ref().map(|now| &now.state);
    matches!(state, Some(ContainerState::Waiting { reason, .. }) if reason == CRASH_LOOP)
}

/// The container that got another image runs it yet.
pub(super) fn runs_new(status: &ContainerStatus, pod: &Pod) -> bool {
    let now = pod.container(&status.name).and_then(|container| container.status.as_ref());
    now.is_some_and(|now| now.state == ContainerState::Running && now.image_id != status.before.image_id)
}

/// How often the container was restarted since the request was accepted.
fn restarts(status: &ContainerStatus, container: &Container) -> i32 {
    let now = container.status.as_ref().map_or(0, |now| now.restart_count);
    now.saturating_sub(status.before.restart_count)
}

fn waits_for_kubelet(name: &str) -> Progress {
    Progress::Waits(format!("waits for the kubelet to stop container {name} and to start the new one"))
}

/// A container that has the image already: the daemon tells of others only, but the kubelet tells the digest of its image.
fn unreplaced(observed: &Observed<'_>, status: &ContainerStatus, container: &Container) -> Progress {
    let id = container.status.as_ref().map_or("", |now| &now.image_id);
    let since = observed.memory.written_since;
    let settled = since.zip(observed.pod).map(|(since, pod)| since.after(observed.settles(pod)));
    // It may be about to stop the container for an image that the Pod had for a while, or be at it for this one: another update has
    // written it, and was given up.
    match pulled(observed, status) {
        _ if observed.pod.is_some_and(Pod::unseen) => {
            let text = format!("waits for the kubelet to see what the Pod has for container {}", status.name);
            Progress::Waits(text)
        }
        _ if !is_ready(container) => Progress::Unready,
        Some(pulled) if !is_pulled(id, pulled) && settled.is_none_or(|at| at > observed.now) => {
            waits_for_kubelet(&status.name)
        }
        Some(pulled) if !is_pulled(id, pulled) => {
            let name = &status.name;
            let text = format!(
                "container {name} runs image {id}, not the pulled {} ({})",
                pulled.digest, pulled.image_id
            );
            Progress::Bad(End::bad(status::OTHER_IMAGE, text))
        }
        _ => Progress::Ready,
    }
}

/// A container that had never run runs the digest that the node has pulled, or else the one that was written.
fn runs_written(status: &ContainerStatus, container: &Container, pulled: Option<&Pulled>) -> bool {
    let digest = |text: &str| text.rsplit_once('@').map(|(_, digest)| digest.to_owned());
    let runs = container.status.as_ref().and_then(|now| digest(&now.image_id));
    let wanted = pulled.map(|pulled| pulled.digest.clone()).or_else(|| digest(&status.written));
    status.before.container_id.is_empty() && runs.is_some() && runs == wanted
}

/// Whether what runs is known to be what was pulled.
fn attested(observed: &Observed<'_>, status: &ContainerStatus, container: &Container) -> Progress {
    let pulled = pulled(observed, status);
    match (running(observed, status, container), pulled) {
        // No order could name an instance of what had never run: the kubelet tells the digest of what runs.
        (None, _) if runs_written(status, container, pulled) => Progress::Ready,
        (Some(running), Some(pulled)) if running.image_id == pulled.image_id => Progress::Ready,
        (Some(running), Some(pulled)) => {
            let text = format!(
                "container {} runs image {} ({}), not the pulled {} ({})",
                status.name, running.digest, running.image_id, pulled.digest, pulled.image_id
            );
            Progress::Bad(End::bad(status::OTHER_IMAGE, text))
        }
        // The daemon has not looked yet, or is asked once the new container is there.
        _ => Progress::Untold,
    }
}

/// What runs in the instance that the Pod shows: by the daemon's word, else by the kubelet's where that is one of the two digests
/// that the daemon has told of the image. Most kubelets are sooner than the daemon's next look.
pub(super) fn running(
    observed: &Observed<'_>,
    status: &ContainerStatus,
    container: &Container,
) -> Option<Running> {
    let now = container.status.as_ref()?;
    let (_, id) = split_reference(&now.container_id).ok()?;
    let told = orders::told(observed, &status.name).and_then(|told| told.running.as_ref());
    let by_kubelet = || {
        let Pulled { image_id, digest, .. } =
            pulled(observed, status).filter(|it| is_pulled(&now.image_id, it))?;
        Some(Running { container_id: id.to_string(), image_id: image_id.clone(), digest: digest.clone() })
    };
    told.filter(|running| running.container_id == id).cloned().or_else(by_kubelet)
}

/// The new containers have been seen to run what was pulled, and the kubelet's word alone is enough to say so.
pub(super) fn is_known(update: &ImageUpdate, pod: &Pod) -> bool {
    update.status.containers.iter().all(|status| {
        let now = pod.container(&status.name).and_then(|container| container.status.as_ref());
        let pulled = status.pulled.as_ref().filter(|_| status.running.is_some());
        now.zip(pulled).is_some_and(|(now, pulled)| is_pulled(&now.image_id, pulled))
    })
}

/// What the node has of the image, by the daemon's last word.
fn pulled<'a>(observed: &'a Observed<'_>, status: &'a ContainerStatus) -> Option<&'a Pulled> {
    orders::told(observed, &status.name).and_then(|told| told.pulled.as_ref()).or(status.pulled.as_ref())
}

/// The kubelet's `imageID` names that image: by its ID, or by a digest of its repository.
pub(super) fn is_pulled(image_id: &str, pulled: &Pulled) -> bool {
    let digest = image_id.rsplit_once('@').map(|(_, digest)| digest);
    image_id == pulled.image_id || digest == Some(pulled.digest.as_str())
}
