//! How a container is restarted: by a stop through the runtime, or by the kubelet, which restarts a container if its
//! image string changes. A string with the running digest changes nothing else.

use pitstop_api::image::{is_digest, split_tag};
use pitstop_api::recreate::{Mechanism, Pin, RecreateStrategy, TargetContainer};
use pitstop_api::text::quoted;

use crate::change::ImageChange;
use crate::pod::{AfterStop, Container, ContainerKind, ContainerState, Pod};

/// Longest image string that is written, in bytes: the field's limit in the request's schema.
const MAX_IMAGE: usize = 512;

/// The kubelet's reason for an ended container that it starts again later (`ErrCrashLoopBackOff`).
const BACK_OFF: &str = "CrashLoopBackOff";

/// Chooses the mechanism for one container: the pin for the kubelet, or `None` for the runtime. Fails with the reasons
/// against every mechanism that the request allows.
pub(super) fn choose(
    strategy: Option<&RecreateStrategy>,
    pod: &Pod,
    container: &Container,
) -> Result<Option<Pin>, String> {
    let by_kubelet = || by_kubelet(strategy, pod, container);
    match (strategy.and_then(|s| s.mechanism).unwrap_or_default(), by_runtime(pod, container)) {
        (Mechanism::Kubelet, _) => by_kubelet().map(Some),
        // No instance runs. Without a pin, the container starts again after the back-off.
        (Mechanism::Auto, _) if in_back_off(container) => Ok(by_kubelet().ok()),
        (Mechanism::Runtime, ByRuntime::Sure | ByRuntime::Unsure(_)) | (Mechanism::Auto, ByRuntime::Sure) => {
            Ok(None)
        }
        (Mechanism::Runtime, ByRuntime::Never(why)) => Err(why),
        (Mechanism::Auto, ByRuntime::Never(why)) => {
            by_kubelet().map(Some).map_err(|kubelet| format!("{why}; mechanism Kubelet fails too: {kubelet}"))
        }
        (Mechanism::Auto, ByRuntime::Unsure(why)) => by_kubelet().map(Some).map_err(|kubelet| {
            format!(
                "{why} (mechanism Runtime accepts that); the kubelet cannot restart it instead: {kubelet}"
            )
        }),
    }
}

/// What the kubelet does after a stop through the runtime.
enum ByRuntime {
    /// It starts this container again, and no other.
    Sure,
    /// That depends on the exit code, which the program chooses: why.
    Unsure(String),
    /// It does not start the container again: why.
    Never(String),
}

fn by_runtime(pod: &Pod, container: &Container) -> ByRuntime {
    let policy = || pod.restart_policy_of(container);
    match pod.after_stop(container) {
        AfterStop::Runs => ByRuntime::Sure,
        AfterStop::RunsPerhapsAll => ByRuntime::Unsure(format!(
            "{}, so a stopped container may make the kubelet restart every container of the Pod",
            policy()
        )),
        AfterStop::Depends(code) => ByRuntime::Unsure(format!(
            "{}, so a container that ends with exit code {code} when it is stopped would not come back",
            policy()
        )),
        AfterStop::Stays => {
            ByRuntime::Never(format!("{}, so a stopped container would not come back", policy()))
        }
    }
}

/// Whether the kubelet waits before it starts the container again.
pub(super) fn in_back_off(container: &Container) -> bool {
    let state = container.status.as_ref().map(|s| &s.state);
    matches!(state, Some(ContainerState::Waiting { reason, .. }) if reason == BACK_OFF)
}

/// The pin by which the kubelet restarts the container.
pub(super) fn by_kubelet(
    strategy: Option<&RecreateStrategy>,
    pod: &Pod,
    container: &Container,
) -> Result<Pin, String> {
    let own = pod.grace_seconds;
    let asked = strategy.and_then(|s| s.termination_grace_period_seconds);
    if let Some(asked) = asked.filter(|asked| own.is_some_and(|own| own != *asked)) {
        return Err(format!(
            "the kubelet takes the Pod's own terminationGracePeriodSeconds ({}), not {asked}; leave it out or take \
             mechanism Runtime",
            own.unwrap_or_default()
        ));
    }
    let running = container.status.as_ref().map_or("", |s| &s.image_id);
    let image = pinned(&container.image, running)?;
    Ok(Pin { from: container.image.clone(), image })
}

/// The change that pins a target's image; `None` if the image has changed since.
pub(super) fn pin(target: &TargetContainer, pod: &Pod) -> Option<ImageChange> {
    let pin = target.pin.as_ref()?;
    let container = pod.container(&target.name).filter(|c| c.image == pin.from)?;
    let init = container.kind != ContainerKind::Main;
    Some(ImageChange { container: target.name.clone(), init, image: pin.image.clone(), tried: false })
}

/// Another image string for the same content: the spec's own repository with the running digest.
///
/// The kubelet keeps its back-off per image string, and restarts only if the string changes, so the result always
/// differs: `repo:tag` -> `repo:tag@D`, `repo:tag@D` -> `repo@D`, `repo@D` -> `repo:pinned@D`. A digest overrides a
/// tag, so the result never means other content.
fn pinned(image: &str, image_id: &str) -> Result<String, String> {
    let Some((_, running)) = image_id.split_once('@') else {
        return Err(format!(
            "its imageID {} names no repository digest (an image that was loaded, not pulled?), so its image cannot be \
             pinned",
            quoted(image_id)
        ));
    };
    if !is_digest(running) {
        return Err(format!("its imageID {} does not end in sha256: and 64 hex digits", quoted(image_id)));
    }
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    if digest.is_some_and(|digest| digest != running) {
        return Err(format!("its image {image} names another digest than the one that runs, {running}"));
    }
    let (repository, tag) = split_tag(named);
    if repository.is_empty() {
        return Err(format!("its image {} names no repository", quoted(image)));
    }
    let result = match (tag, digest) {
        (Some(tag), None) => format!("{repository}:{tag}@{running}"),
        (None, None) | (Some(_), Some(_)) => format!("{repository}@{running}"),
        (None, Some(_)) => format!("{repository}:pinned@{running}"),
    };
    if image.len().max(result.len()) > MAX_IMAGE {
        return Err(format!("its image would be longer than {MAX_IMAGE} bytes with its digest"));
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{ContainerStatus, OwnPolicy, RestartPolicy, RestartRule};

    fn digest() -> String {
        format!("sha256:{}", "0123456789abcdef".repeat(4))
    }

    #[test]
    fn the_string_changes_and_the_digest_stays() {
        let d = digest();
        for (image, expected) in [
            ("nginx".to_owned(), format!("nginx@{d}")),
            ("nginx:1.25".to_owned(), format!("nginx:1.25@{d}")),
            (format!("nginx:1.25@{d}"), format!("nginx@{d}")),
            (format!("nginx@{d}"), format!("nginx:pinned@{d}")),
            (format!("nginx:pinned@{d}"), format!("nginx@{d}")),
            ("localhost:5000/app".to_owned(), format!("localhost:5000/app@{d}")),
            ("localhost:5000/app:2".to_owned(), format!("localhost:5000/app:2@{d}")),
            (format!("localhost:5000/app@{d}"), format!("localhost:5000/app:pinned@{d}")),
            (format!("localhost:5000/app:2@{d}"), format!("localhost:5000/app@{d}")),
        ] {
            let got = pinned(&image, &format!("docker.io/library/nginx@{d}")).unwrap();
            assert_eq!(got, expected);
            assert_ne!(got, image);
        }
        assert_eq!(pinned("a:1", &format!("docker-pullable://a@{d}")).unwrap(), format!("a:1@{d}"));
    }

    #[test]
    fn what_cannot_be_pinned_says_why() {
        let d = digest();
        let other = format!("sha256:{}", "f".repeat(64));
        for (image, id, why) in [
            ("a:1", d.clone(), "no repository digest"),
            ("a:1", String::new(), "no repository digest"),
            ("a:1", "a@sha256:12".to_owned(), "64 hex digits"),
            ("", format!("a@{d}"), "no repository"),
            (&format!("a@{other}"), format!("a@{d}"), "another digest"),
            (&"a".repeat(500), format!("a@{d}"), "longer than"),
        ] {
            let error = pinned(image, &id).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        // The limit of the request's field.
        let longest = "a".repeat(512 - "@".len() - d.len());
        assert_eq!(pinned(&longest, &format!("a@{d}")).unwrap().len(), 512);
        assert!(pinned(&format!("{longest}a"), &format!("a@{d}")).is_err());
    }

    fn case(policy: RestartPolicy, kind: ContainerKind, image_id: &str) -> (Pod, Container) {
        let status = ContainerStatus { image_id: image_id.into(), ..ContainerStatus::default() };
        let image = "a:1".to_owned();
        let container =
            Container { name: "app".into(), kind, image, status: Some(status), ..Container::default() };
        (Pod { restart_policy: policy, grace_seconds: Some(30), ..Pod::default() }, container)
    }

    fn chosen(mechanism: Option<Mechanism>, (pod, container): &(Pod, Container)) -> Result<bool, String> {
        let strategy = RecreateStrategy { mechanism, ..RecreateStrategy::default() };
        choose(Some(&strategy), pod, container).map(|pin| pin.is_some())
    }

    #[test]
    fn auto_takes_the_runtime_where_the_container_comes_back() {
        let id = format!("a@{}", digest());
        let always = case(RestartPolicy::Always, ContainerKind::Main, &id);
        assert_eq!(chosen(None, &always), Ok(false));
        assert_eq!(chosen(Some(Mechanism::Auto), &always), Ok(false));
        assert_eq!(chosen(Some(Mechanism::Kubelet), &always), Ok(true));
        let never = case(RestartPolicy::Never, ContainerKind::Main, &id);
        assert_eq!(chosen(None, &never), Ok(true));
        assert!(chosen(Some(Mechanism::Runtime), &never).unwrap_err().contains("would not come back"));
        let sidecar = case(RestartPolicy::Never, ContainerKind::Sidecar, &id);
        assert_eq!(chosen(Some(Mechanism::Runtime), &sidecar), Ok(false));
    }

    fn own(policy: RestartPolicy, rules: Vec<RestartRule>) -> OwnPolicy {
        OwnPolicy { policy, rules }
    }

    #[test]
    fn auto_takes_the_kubelet_where_the_container_may_not_come_back() {
        let id = format!("a@{}", digest());
        let on_failure = case(RestartPolicy::OnFailure, ContainerKind::Main, &id);
        assert_eq!(
            chosen(None, &on_failure),
            Ok(true),
            "a program may exit 0 on SIGTERM, which completes it"
        );
        assert_eq!(chosen(Some(Mechanism::Runtime), &on_failure), Ok(false), "who asks for it gets it");
        let mut never_here = case(RestartPolicy::Always, ContainerKind::Main, &id);
        never_here.1.own_policy = Some(Box::new(own(RestartPolicy::Never, Vec::new())));
        assert_eq!(chosen(None, &never_here), Ok(true));
        let error = chosen(Some(Mechanism::Runtime), &never_here).unwrap_err();
        assert_eq!(
            error,
            "the container's restartPolicy is Never, so a stopped container would not come back"
        );
        let mut always_here = case(RestartPolicy::Never, ContainerKind::Main, &id);
        always_here.1.own_policy = Some(Box::new(own(RestartPolicy::Always, Vec::new())));
        assert_eq!(chosen(None, &always_here), Ok(false));
        assert_eq!(chosen(Some(Mechanism::Runtime), &always_here), Ok(false));
    }

    #[test]
    fn auto_takes_the_kubelet_where_a_stop_may_restart_the_whole_pod() {
        let mut all = case(RestartPolicy::Always, ContainerKind::Main, &format!("a@{}", digest()));
        let rule = RestartRule { all: true, not_in: false, codes: [143].into() };
        all.1.own_policy = Some(Box::new(own(RestartPolicy::Always, vec![rule])));
        assert_eq!(chosen(None, &all), Ok(true));
        assert_eq!(chosen(Some(Mechanism::Runtime), &all), Ok(false));
    }

    /// A container that may not come back is stopped only if the request asks for that.
    #[test]
    fn what_may_not_come_back_and_cannot_be_pinned_is_refused() {
        let error =
            chosen(None, &case(RestartPolicy::OnFailure, ContainerKind::Main, &digest())).unwrap_err();
        for part in ["exit code 0", "mechanism Runtime accepts that", "no repository digest"] {
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(
            chosen(Some(Mechanism::Runtime), &case(RestartPolicy::OnFailure, ContainerKind::Main, &digest())),
            Ok(false)
        );
    }

    #[test]
    fn auto_takes_the_kubelet_for_a_container_that_waits_in_back_off() {
        let waiting = |image_id: &str, reason: &str| {
            let mut case = case(RestartPolicy::Always, ContainerKind::Main, image_id);
            let state = ContainerState::Waiting { reason: reason.into(), message: String::new() };
            case.1.status.as_mut().unwrap().state = state;
            case
        };
        let id = format!("a@{}", digest());
        assert_eq!(chosen(None, &waiting(&id, "CrashLoopBackOff")), Ok(true));
        assert_eq!(chosen(Some(Mechanism::Runtime), &waiting(&id, "CrashLoopBackOff")), Ok(false));
        let mut bare = waiting(&digest(), "CrashLoopBackOff");
        assert_eq!(chosen(None, &bare), Ok(false), "it is waited for");
        bare.0.restart_policy = RestartPolicy::OnFailure;
        assert_eq!(chosen(None, &bare), Ok(false), "it comes back by itself, and is not stopped");
        // The image that cannot be pulled is not the one that ran last.
        assert_eq!(chosen(None, &waiting(&id, "ImagePullBackOff")), Ok(false));
    }

    /// D14: a container that neither mechanism can restart is refused with both reasons.
    #[test]
    fn d14_both_reasons_are_given() {
        let error = chosen(None, &case(RestartPolicy::Never, ContainerKind::Main, &digest())).unwrap_err();
        assert!(error.contains("would not come back") && error.contains("no repository digest"), "{error}");
    }

    #[test]
    fn the_kubelet_takes_no_other_grace_period_than_the_pods() {
        let (pod, container) = case(RestartPolicy::Always, ContainerKind::Main, &format!("a@{}", digest()));
        let strategy = |grace| RecreateStrategy {
            termination_grace_period_seconds: grace,
            mechanism: Some(Mechanism::Kubelet),
            ..RecreateStrategy::default()
        };
        assert!(choose(Some(&strategy(Some(30))), &pod, &container).is_ok());
        assert!(choose(Some(&strategy(None)), &pod, &container).is_ok());
        let error = choose(Some(&strategy(Some(3))), &pod, &container).unwrap_err();
        assert!(error.contains("(30), not 3"), "{error}");
    }
}
