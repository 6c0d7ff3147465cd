//! The same without a rollout: the benchmark creates the next request when one ends, and deletes all at the end.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Instant;

use anyhow::{Result, bail};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Resource, ResourceExt as _};
use pitstop_api::condition::{self, Condition, ConditionStatus};
use pitstop_api::image_update::{ContainerImage, PodImageUpdate, PodImageUpdateSpec};
use pitstop_api::labels::POD_UID;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_api::resize::PodRef;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Bench, NAMESPACE, PATIENCE};
use crate::harness::tape::Tape;
use crate::scale::objects::{APP, restart};
use crate::scale::player::pod::Pod;

/// Whether a request ended as complete; `None` until it ends.
type Ended<K> = fn(&K) -> Option<bool>;

impl Bench<'_> {
    /// Restarts all Pods; returns the seconds.
    pub(super) async fn restarted_by_requests(&self) -> Result<f64> {
        let ended: Ended<ContainerRecreateRequest> = |request| {
            let status = request.status.as_ref()?;
            status.completion_time.map(|_| complete(&status.conditions))
        };
        // A rollout's requests also get no labels here, because no webhook runs.
        let restart = |pod: &Pod| {
            let mut request = restart(&pod.name, pod);
            request.metadata.labels.get_or_insert_default().retain(|label, _| label == POD_UID);
            request
        };
        self.by_requests(restart, ended).await
    }

    /// Updates all Pods to that image; returns the seconds.
    pub(super) async fn updated_by_requests(&self, image: &str) -> Result<f64> {
        let ended: Ended<PodImageUpdate> = |update| {
            let status = update.status.as_ref()?;
            status.completion_time.map(|_| complete(&status.conditions))
        };
        let update = |pod: &Pod| {
            let pod_ref = PodRef { name: pod.name.clone(), uid: Some(pod.uid.clone()) };
            let containers = vec![ContainerImage { name: APP.to_owned(), image: image.to_owned() }];
            let observe_seconds = Some(0);
            let spec =
                PodImageUpdateSpec { pod_ref, containers, observe_seconds, ..PodImageUpdateSpec::default() };
            PodImageUpdate::new(&pod.name, spec)
        };
        self.by_requests(update, ended).await
    }

    async fn by_requests<K>(&self, make: impl Fn(&Pod) -> K, ended: Ended<K>) -> Result<f64>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
        K: Clone + Debug + Serialize + DeserializeOwned + Send + 'static,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut tape = Tape::start(api.clone()).await?;
        let begin = Instant::now();
        let (mut left, mut open, mut last) = (self.pods.iter(), BTreeSet::new(), begin);
        loop {
            while open.len() < self.at_a_time
                && let Some(pod) = left.next()
            {
                api.create(&PostParams::default(), &make(pod)).await?;
                open.insert(pod.name.clone());
            }
            if open.is_empty() {
                api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
                return Ok((last - begin).as_secs_f64());
            }
            let over = |seen: &K| {
                let name = seen.name_any();
                open.contains(&name).then(|| Some((name, ended(seen)?))).flatten()
            };
            let (at, (name, complete)) = tape.find(last, PATIENCE, "a request to end", over).await?;
            if !complete {
                bail!("request {name} has failed");
            }
            open.remove(&name);
            last = at;
        }
    }
}

fn complete(conditions: &[Condition]) -> bool {
    condition::find(conditions, condition::COMPLETE)
        .is_some_and(|condition| condition.status == ConditionStatus::True)
}
