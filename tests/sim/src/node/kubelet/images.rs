//! How the kubelet gets the image of a container that it starts: `EnsureImageExists` of
//! `pkg/kubelet/images/image_manager.go`, Kubernetes 1.36. By then it has stopped the previous container.

use super::pod::{PodContainer, PullPolicy};
use super::worker::{Cx, Doing, Pass, Step, Worker};
use crate::node::runtime::{Call, CallId, Client, Reply};

/// First and longest wait between two pulls.
const BACK_OFF_MS: (u64, u64) = (10_000, 300_000);

impl Worker {
    /// Whether the node has the image. If not, it is being pulled, or `reasons` says why not.
    pub(super) fn has_image(&mut self, cx: &mut Cx<'_>, pass: &mut Pass, spec: &PodContainer) -> bool {
        let there = cx.runtime.image(&spec.image).is_some();
        match spec.pull_policy {
            PullPolicy::IfNotPresent | PullPolicy::Never if there => return true,
            PullPolicy::Never => {
                let text =
                    format!("Container image {:?} is not present with pull policy of Never", spec.image);
                self.no_image(pass, spec, "ErrImageNeverPull", text);
                return false;
            }
            PullPolicy::Always | PullPolicy::IfNotPresent => {}
        }
        let key = self.image_key(&spec.image);
        if cx.image_backoff.waits(cx.now, &key) {
            self.no_image(pass, spec, "ImagePullBackOff", format!("Back-off pulling image {:?}", spec.image));
            return false;
        }
        if cx.runtime.pulls_at_once() {
            let result = cx.runtime.fetch(cx.now, Client::KUBELET, &spec.image);
            return match result {
                Ok(_) => true,
                Err(failure) => {
                    self.pull_failed(cx, pass, spec, &failure.message);
                    false
                }
            };
        }
        let image = spec.image.clone();
        let call = cx.runtime.call(cx.now, Client::KUBELET, Call::PullImage { image: image.clone() });
        pass.doing = Some(Doing::Pull { call, name: spec.name.clone(), image });
        false
    }

    /// Takes the reply to the pass's pull; returns false for any other call.
    pub(super) fn pulled(&mut self, cx: &mut Cx<'_>, pass: &mut Pass, call: CallId, reply: &Reply) -> bool {
        let Some(Doing::Pull { call: own, name, image }) = pass.doing.clone() else { return false };
        if own != call {
            return false;
        }
        pass.doing = None;
        let spec = self.pod.container(&name).filter(|spec| spec.image == image).cloned();
        match (reply, spec) {
            (Ok(_), _) => pass.steps.push_front(Step::Make(name)),
            (Err(failure), Some(spec)) => self.pull_failed(cx, pass, &spec, &failure.message),
            (Err(_), None) => pass.failed = true,
        }
        true
    }

    fn pull_failed(&mut self, cx: &mut Cx<'_>, pass: &mut Pass, spec: &PodContainer, why: &str) {
        let key = self.image_key(&spec.image);
        cx.image_backoff.failed(cx.now, key, BACK_OFF_MS.0, BACK_OFF_MS.1);
        let text = format!("failed to pull image {:?}: {why}", spec.image);
        self.no_image(pass, spec, "ErrImagePull", text);
    }

    fn no_image(&mut self, pass: &mut Pass, spec: &PodContainer, reason: &str, message: String) {
        self.reasons.insert(spec.name.clone(), (reason.to_owned(), message));
        pass.failed = true;
    }

    /// Key of the pull back-off: the Pod and the image string.
    fn image_key(&self, image: &str) -> (String, String, String) {
        (self.pod.uid.clone(), String::new(), image.to_owned())
    }
}
