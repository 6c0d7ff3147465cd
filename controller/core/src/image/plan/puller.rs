//! A puller Pod pulls images for which the registry requires credentials.

use pitstop_api::image_update::{ContainerStatus, Phase};
use pitstop_api::nodework::PullPolicy;

use super::pull::Pulling;
use super::{Plan, Planner};
use crate::deed::{Deed, ImageToPull, Puller};
use crate::image::orders::{self, Stage};
use crate::image::puller::{self, LAG, REFUSALS, is_own};
use crate::image::status::{self, End, Wait};
use crate::pod::Pod;
use crate::time::Mono;

/// Longest life of a puller Pod, in seconds, that its policy allows.
const MAX_LIMIT: i64 = 86_400;

impl Planner<'_> {
    /// The containers `needs` need a puller Pod for their images: what to wait for, and what to do.
    pub(super) fn by_puller(&self, pod: &Pod, needs: &[&ContainerStatus]) -> Result<Pulling, End> {
        let memory = &self.observed.memory.puller;
        if let Some(end) = memory.end() {
            return Err(end);
        }
        let waits = |text: String, at| Pulling::waits(Wait::new(Phase::Pulling, status::PULLER, text), at);
        let Some(shown) = self.observed.puller else {
            if let Some(since) = memory.awaited_since {
                let text = format!("waits for the API server to show its puller Pod{}", memory.words());
                return Ok(waits(text, Some(since.after(LAG))));
            }
            let deed = Deed::Pull(Box::new(self.puller(pod, needs)));
            return Ok(waits(format!("makes a puller Pod{}", memory.words()), None).with(deed));
        };
        let name = &shown.key.name;
        if !is_own(self.observed.update, shown) {
            let text =
                format!("Pod {name} has the name of its puller Pod, but another owner: make another request");
            return Err(End::failed(status::CANNOT_PROVE, text));
        }
        if memory.is_deleting(shown) {
            return Ok(waits(format!("waits for the old puller Pod {name} to be gone"), None));
        }
        if needs.iter().any(|container| shown.container(&container.name).is_none()) {
            let text = format!("replaces the puller Pod {name}, which lacks containers");
            return Ok(waits(text, None).with(delete(shown)));
        }
        Ok(if needs.iter().all(|container| puller::has_pulled(shown, &container.name)) {
            Pulling::waits(Wait::proof(), None)
        } else {
            waits(puller::underway(shown), memory.until(self.observed.update))
        })
    }

    fn puller(&self, pod: &Pod, needs: &[&ContainerStatus]) -> Puller {
        let update = self.observed.update;
        let image = |container: &&ContainerStatus| {
            let name = &container.name;
            let wanted = update.spec.containers.iter().find(|wanted| wanted.name == *name)?;
            let policy = pod.container(name).map_or(PullPolicy::default(), |c| c.pull_policy);
            Some(ImageToPull { container: name.clone(), image: wanted.image.clone(), policy })
        };
        Puller {
            key: puller::key(&update.key, &update.uid),
            lender: pod.key.clone(),
            lender_uid: pod.uid.clone(),
            node: pod.node.clone().unwrap_or_default(),
            limit: update.spec.pull_timeout().clamp(1, MAX_LIMIT),
            images: needs.iter().filter_map(image).collect(),
        }
    }

    /// Its puller Pod, if that is still to be deleted; `None` if it cannot be.
    fn leftover(&self) -> Option<&Pod> {
        let memory = &self.observed.memory.puller;
        let own = self.observed.puller.filter(|pod| is_own(self.observed.update, pod));
        own.filter(|_| memory.undeletable < REFUSALS)
    }

    /// Before the end of the request: deletes its puller Pod, and waits until that is seen.
    pub(super) fn delete_puller(&self) -> Option<Plan> {
        let memory = &self.observed.memory.puller;
        if let Some(pod) = self.leftover() {
            let deed = (!memory.is_deleting(pod)).then(|| delete(pod));
            return Some(Plan { deed, ..self.unsure() });
        }
        let at: Mono = memory.awaited_since?.after(LAG);
        Some(Plan { wake_at: Some(at), ..self.unsure() })
    }

    /// The plan, with the deletion of a puller Pod that nothing needs any more.
    pub(super) fn with_puller_deleted(&self, plan: Plan) -> Plan {
        let memory = &self.observed.memory.puller;
        let left = self.leftover().filter(|pod| plan.deed.is_none() && !memory.is_deleting(pod));
        match left.filter(|_| !self.needs_puller()) {
            Some(pod) => Plan { deed: Some(delete(pod)), ..plan },
            None => plan,
        }
    }

    /// It has to pull an image, or the daemon has yet to report that the node has the image.
    fn needs_puller(&self) -> bool {
        let update = self.observed.update;
        if update.completed() || update.deleting || update.changes() {
            return false;
        }
        update.status.containers.iter().any(|container| match orders::stage(self.observed, container) {
            Stage::Unauthorized(_) => self.observed.memory.puller.failed.is_none(),
            Stage::Unanswered => orders::is_asked_again(self.observed, &container.name),
            Stage::Pulled(_) | Stage::Unneeded | Stage::Pulls | Stage::Underway(_) | Stage::Failed(_) => {
                false
            }
        })
    }
}

fn delete(pod: &Pod) -> Deed {
    Deed::DeletePod { key: pod.key.clone(), uid: pod.uid.clone() }
}
