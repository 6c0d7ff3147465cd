//! How far an update is, by the Pod's spec and by the reports of its kubelet and of the node's daemon.

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
pub(super) enum SpecImages {
    /// The old images.
    Before,
    /// Those in `written` of the status.
    Written,
    /// Those in `restored` of the status.
    Restored,
    /// Some of one and some of another.
    Mixed,
    /// This container has another image: another writer has changed it.
    Other(String),
}

/// Which images the Pod's spec has.
pub(super) fn spec_images(update: &ImageUpdate, pod: &Pod) -> SpecImages {
    let restores = update.status.restoring.is_some();
    let mut each = Vec::new();
    for container in &update.status.containers {
        let Some(image) = pod.container(&container.name).map(|c| c.image.as_str()) else {
            return SpecImages::Other(container.name.clone());
        };
        each.push(if restores && image == container.restored {
            SpecImages::Restored
        } else if !container.written.is_empty() && image == container.written {
            SpecImages::Written
        } else if image == container.before.image || is_pinned(image, &container.before.image_id) {
            SpecImages::Before
        } else {
            return SpecImages::Other(container.name.clone());
        });
    }
    match each.split_first() {
        Some((first, rest)) if rest.iter().all(|images| images == first) => first.clone(),
        _ => SpecImages::Mixed,
    }
}

/// The image string names the digest that ran. A restart through the kubelet writes such strings, and changes no image.
fn is_pinned(image: &str, image_id: &str) -> bool {
    let digest = |text: &str| text.rsplit_once('@').map(|(_, digest)| digest.to_owned());
    digest(image).is_some_and(|named| digest(image_id) == Some(named))
}

/// The image string is the same as before, so the kubelet replaces nothing.
pub(super) fn is_unchanged(status: &ContainerStatus) -> bool {
    !status.written.is_empty() && status.written == status.before.image
}

/// How far a container with a new image string is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The kubelet has not stopped the old container, or not started the new one. Holds a message.
    Waits(String),
    /// The new container runs, but is not ready.
    Unready,
    /// It is ready, but the daemon has not reported what runs.
    Unattested,
    /// It is ready and runs the pulled image.
    Ready,
    /// It has failed.
    Bad(End),
}

/// Reason of the kubelet while it waits before it restarts an ended container.
const CRASH_LOOP: &str = "CrashLoopBackOff";
/// Reasons of the kubelet for not starting a container, which waiting does not solve.
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

/// How long the kubelet may still report the state of a container from before the change.
pub(super) const STALE: Duration = Duration::from_secs(10);
/// How long the kubelet may take to begin the stop of a container whose image string has changed.
const BEGINS: Duration = Duration::from_secs(5);

impl Observed<'_> {
    /// Whether the new image causes this wait of a container. A container that did not run before may have waited for
    /// the same reason. `CrashLoopBackOff` concerns the instance that the status names.
    fn is_news(&self, status: &ContainerStatus, now: &pod::ContainerStatus, reason: &str) -> bool {
        if now.container_id != status.before.container_id
            && !(reason == CRASH_LOOP && is_old(self, status, now))
        {
            return true;
        }
        let long = self.memory.written_since.is_some_and(|since| since.after(STALE) <= self.now);
        reason != CRASH_LOOP && (status.before.running || long)
    }

    /// The container has its old image again and is as healthy as before. If it was never replaced, the kubelet may
    /// still be about to stop it.
    pub(super) fn is_back(&self, status: &ContainerStatus, pod: &Pod) -> bool {
        let Some(container) = pod.container(&status.name) else { return false };
        let Some(now) = &container.status else { return false };
        let same = now.container_id == status.before.container_id;
        let since = self.memory.restored_since;
        let long = since.is_some_and(|since| since.after(self.settle_time(pod)) <= self.now);
        // A kubelet that reports which spec it has seen has no other stop under way then. A stop may take the Pod's
        // grace.
        let settled = pod.seen() || (long && !pod.unseen());
        if same && !status.before.running {
            return settled;
        }
        // The kubelet may have started it with the first string just when another one was written, and then stops it
        // again for that one. It reports which image runs, not with which string, except for containers that did not
        // run when it had seen the new string.
        let by_other = status.restored != status.before.image && !self.memory.down.contains(&status.name);
        let runs = now.state == ContainerState::Running && now.image_id == status.before.image_id;
        runs && (now.ready || !status.before.ready) && (!same || settled) && (!by_other || long)
    }

    /// The container still runs the instance that it had when the Pod got its old images back, though the kubelet stops
    /// it for its string: tells what `runs_new` does not, if the new image is the old one with another string.
    pub(super) fn runs_yet(&self, status: &ContainerStatus, pod: &Pod) -> bool {
        let now = pod.container(&status.name).and_then(|container| container.status.as_ref());
        let Some(now) = now.filter(|now| now.state == ContainerState::Running) else { return false };
        let ran = self.memory.ran.get(&status.name) == Some(&now.container_id);
        ran && now.container_id != status.before.container_id && !is_unchanged(status)
    }

    /// How long the kubelet may still stop containers of a Pod for earlier images. At most the time in which containers
    /// must become ready.
    pub(super) fn settle_time(&self, pod: &Pod) -> Duration {
        let grace = seconds(pod.grace_seconds.unwrap_or_default());
        BEGINS.saturating_add(grace).min(seconds(self.update.spec.ready_timeout()))
    }
}

/// An instance that runs or ran the old image: the kubelet has not applied the new one yet. If both may be the same, an
/// instance that still runs is judged further.
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
                Progress::Bad(End::bad(status::end_reason(reason), text))
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
        let text = format!("container {name} ran out of memory and was killed");
        return Progress::Bad(End::bad(status::OOM_KILLED, text));
    }
    // The kubelet restarts a container that ended with its node.
    let node = &observed.memory.node;
    if let ContainerState::Terminated { exit_code } = now.state
        && !node.settles()
    {
        let text = format!("container {name} has ended with exit code {exit_code}");
        return Progress::Bad(End::bad(status::EXITED, text));
    }
    // The first restart is the one to the new image. A container that did not run may have started once more with its
    // old image.
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

/// The container still runs its new image.
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

/// A container that already has the image. The daemon reports only on others, but the kubelet reports the image's
/// digest.
fn unreplaced(observed: &Observed<'_>, status: &ContainerStatus, container: &Container) -> Progress {
    let id = container.status.as_ref().map_or("", |now| &now.image_id);
    let since = observed.memory.written_since;
    let settled = since.zip(observed.pod).map(|(since, pod)| since.after(observed.settle_time(pod)));
    // The kubelet may be about to stop the container for an image that the Pod had for a while. Or it replaces it for
    // this image, which an abandoned update has written.
    match pulled(observed, status) {
        _ if observed.pod.is_some_and(Pod::unseen) => {
            let text = format!("waits for the kubelet to process the spec of container {}", status.name);
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

/// A container that had never run runs the digest that the node has pulled or, without one, the written digest.
fn runs_written(status: &ContainerStatus, container: &Container, pulled: Option<&Pulled>) -> bool {
    let digest = |text: &str| text.rsplit_once('@').map(|(_, digest)| digest.to_owned());
    let runs = container.status.as_ref().and_then(|now| digest(&now.image_id));
    let wanted = pulled.map(|pulled| pulled.digest.clone()).or_else(|| digest(&status.written));
    status.before.container_id.is_empty() && runs.is_some() && runs == wanted
}

/// Whether the container is known to run the pulled image.
fn attested(observed: &Observed<'_>, status: &ContainerStatus, container: &Container) -> Progress {
    let pulled = pulled(observed, status);
    match (running(observed, status, container), pulled) {
        // No order could name an instance of a container that never ran, so the kubelet's digest counts.
        (None, _) if runs_written(status, container, pulled) => Progress::Ready,
        (Some(running), Some(pulled)) if running.image_id == pulled.image_id => Progress::Ready,
        (Some(running), Some(pulled)) => {
            let text = format!(
                "container {} runs image {} ({}), not the pulled {} ({})",
                status.name, running.digest, running.image_id, pulled.digest, pulled.image_id
            );
            Progress::Bad(End::bad(status::OTHER_IMAGE, text))
        }
        // The daemon has not looked yet, or is only asked once the new container exists.
        _ => Progress::Unattested,
    }
}

/// What the instance in the Pod's status runs. The daemon's report counts first, then the kubelet's, if it names one of
/// the two digests that the daemon has reported. Most kubelets are faster than the daemon's next look.
pub(super) fn running(
    observed: &Observed<'_>,
    status: &ContainerStatus,
    container: &Container,
) -> Option<Running> {
    let now = container.status.as_ref()?;
    let (_, id) = split_reference(&now.container_id).ok()?;
    let by_daemon = orders::report(observed, &status.name).and_then(|report| report.running.as_ref());
    let by_kubelet = || {
        let Pulled { image_id, digest, .. } =
            pulled(observed, status).filter(|it| is_pulled(&now.image_id, it))?;
        Some(Running { container_id: id.to_string(), image_id: image_id.clone(), digest: digest.clone() })
    };
    by_daemon.filter(|running| running.container_id == id).cloned().or_else(by_kubelet)
}

/// The new containers were seen to run the pulled images, and the kubelet's report alone suffices for that.
pub(super) fn is_known(update: &ImageUpdate, pod: &Pod) -> bool {
    update.status.containers.iter().all(|status| {
        let now = pod.container(&status.name).and_then(|container| container.status.as_ref());
        let pulled = status.pulled.as_ref().filter(|_| status.running.is_some());
        now.zip(pulled).is_some_and(|(now, pulled)| is_pulled(&now.image_id, pulled))
    })
}

/// The image on the node, by the daemon's last report.
fn pulled<'a>(observed: &'a Observed<'_>, status: &'a ContainerStatus) -> Option<&'a Pulled> {
    orders::report(observed, &status.name).and_then(|it| it.pulled.as_ref()).or(status.pulled.as_ref())
}

/// The kubelet's `imageID` names that image: by its ID, or by a digest of its repository.
pub(super) fn is_pulled(image_id: &str, pulled: &Pulled) -> bool {
    let digest = image_id.rsplit_once('@').map(|(_, digest)| digest);
    image_id == pulled.image_id || digest == Some(pulled.digest.as_str())
}
