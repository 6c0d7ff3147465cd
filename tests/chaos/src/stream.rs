//! Makes the requests and the image updates.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::PostParams;
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_e2e::{Ns, pods};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::kind::Kind;
use crate::plan::{Plan, PodPlan, RequestPlan, UpdatePlan};
use crate::run::say;
use crate::watch::Seen;

/// Requests of one Pod that are open at a time: one at work, and one that waits for its turn.
const REQUESTS: usize = 2;
/// The same of image updates.
const UPDATES: usize = 1;
/// Between two tries, and between two looks.
const PERIOD: Duration = Duration::from_millis(250);
/// For one call.
const ANSWER: Duration = Duration::from_secs(10);

/// Makes the objects of a plan until the time is over; those of one Pod and kind one after another.
pub(crate) struct Stream<'a> {
    pub(crate) ns: &'a Ns,
    pub(crate) plan: &'a Plan,
    pub(crate) seen: &'a RefCell<Seen>,
    pub(crate) start: Instant,
    pub(crate) length: Duration,
}

impl Stream<'_> {
    pub(crate) async fn requests(&self) -> Result<()> {
        let new = |r: &RequestPlan| (r.offset, ContainerRecreateRequest::new(&r.name, r.spec.clone()));
        self.send(REQUESTS, self.plan.requests.iter().map(new).collect()).await
    }

    pub(crate) async fn updates(&self) -> Result<()> {
        let new = |u: &UpdatePlan| (u.offset, PodImageUpdate::new(&u.name, u.spec.clone()));
        self.send(UPDATES, self.plan.updates.iter().map(new).collect()).await
    }

    /// At most so many of one Pod are open at a time.
    async fn send<K: Kind>(&self, most: usize, planned: Vec<(Duration, K)>) -> Result<()> {
        let to = async |pod: &PodPlan| -> Result<()> {
            for (offset, object) in planned.iter().filter(|(_, object)| object.pod() == pod.name) {
                sleep_until(self.start + *offset).await;
                while self.open::<K>(&pod.name) >= most && self.start.elapsed() < self.length {
                    sleep(PERIOD).await;
                }
                if self.start.elapsed() >= self.length {
                    break;
                }
                self.make(object).await?;
            }
            Ok(())
        };
        try_join_all(self.plan.pods.iter().map(to)).await.map(drop)
    }

    fn open<K: Kind>(&self, pod: &str) -> usize {
        K::objects(&mut self.seen.borrow_mut()).open().filter(|open| open.pod() == pod).count()
    }

    /// Makes an object, however often it takes. One whose answer was lost is found by its name.
    async fn make<K: Kind>(&self, object: &K) -> Result<()> {
        let name = object.name_any();
        let made = |made| K::objects(&mut self.seen.borrow_mut()).take(made);
        let mut refusal = String::new();
        loop {
            match timeout(ANSWER, self.try_to_make(object)).await {
                Ok(Ok(object)) => {
                    made(object);
                    return Ok(());
                }
                Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                    if let Ok(Ok(found)) = timeout(ANSWER, K::api(self.ns).get(&name)).await {
                        anyhow::ensure!(found.pod() == object.pod(), "{name} was there before");
                        made(found);
                        return Ok(());
                    }
                }
                // A refusal can be right for a moment; it is told, and asked again as people do.
                Ok(Err(kube::Error::Api(status))) if [400, 422].contains(&status.code) => {
                    if refusal != status.message {
                        say(format!("{name} is refused: {}", status.message));
                        refusal = status.message;
                    }
                }
                Ok(Err(_)) | Err(_) => {}
            }
            sleep(PERIOD).await;
        }
    }

    async fn try_to_make<K: Kind>(&self, object: &K) -> kube::Result<K> {
        // Only the look before the first try is sure to be before the object.
        let looked = self.seen.borrow().before.contains_key(&object.name_any());
        if !looked {
            let pod = self.ns.pods().get(object.pod()).await?;
            self.seen.borrow_mut().before.insert(object.name_any(), ids(&pod));
        }
        K::api(self.ns).create(&PostParams::default(), object).await
    }
}

/// The IDs of the Pod's containers, without the runtime's name.
fn ids(pod: &Pod) -> BTreeMap<String, String> {
    let names = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| &container.name);
    names.filter_map(|name| Some((name.clone(), bare(&pods::id(pod, name).ok()?).to_owned()))).collect()
}

/// The ID in `containerd://ID`.
pub(crate) fn bare(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// The UID of an object that the API server gave.
pub(crate) fn uid(object: &impl Kind) -> Result<String> {
    object.uid().context("an object without a UID")
}
