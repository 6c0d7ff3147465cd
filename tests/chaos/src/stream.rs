//! Makes the requests.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::PostParams;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_e2e::{Ns, pods};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::plan::{Plan, PodPlan, RequestPlan};
use crate::run::say;
use crate::watch::Seen;

/// Requests of one Pod that are open at a time: one at work, and one that waits for its turn.
const OPEN: usize = 2;
/// Between two tries, and between two looks.
const PERIOD: Duration = Duration::from_millis(250);
/// For one call.
const ANSWER: Duration = Duration::from_secs(10);

/// Makes the requests of the plan until the time is over; those of one Pod one after another.
pub(crate) async fn send(
    ns: &Ns,
    plan: &Plan,
    seen: &RefCell<Seen>,
    start: Instant,
    length: Duration,
) -> Result<()> {
    let to = async |pod: &PodPlan| -> Result<()> {
        for request in plan.requests.iter().filter(|request| request.spec.pod_name == pod.name) {
            sleep_until(start + request.at).await;
            while seen.borrow().open().filter(|open| open.spec.pod_name == pod.name).count() >= OPEN
                && start.elapsed() < length
            {
                sleep(PERIOD).await;
            }
            if start.elapsed() >= length {
                break;
            }
            make(ns, request, seen).await?;
        }
        Ok(())
    };
    try_join_all(plan.pods.iter().map(to)).await.map(drop)
}

/// Makes a request, however often it takes. One whose answer was lost is found by its name.
async fn make(ns: &Ns, plan: &RequestPlan, seen: &RefCell<Seen>) -> Result<()> {
    let name = &plan.name;
    let request = ContainerRecreateRequest::new(name, plan.spec.clone());
    let mut told = String::new();
    loop {
        match timeout(ANSWER, try_to_make(ns, &request, seen)).await {
            Ok(Ok(made)) => {
                seen.borrow_mut().request(made);
                return Ok(());
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {
                if let Ok(Ok(made)) = timeout(ANSWER, ns.requests().get(name)).await {
                    let same = made.spec.pod_name == plan.spec.pod_name;
                    anyhow::ensure!(same, "request {name} was there before");
                    seen.borrow_mut().request(made);
                    return Ok(());
                }
            }
            // A refusal can be right for a moment; it is told, and asked again as people do.
            Ok(Err(kube::Error::Api(status))) if [400, 422].contains(&status.code) => {
                if told != status.message {
                    say(format!("request {name} is refused: {}", status.message));
                    told = status.message;
                }
            }
            Ok(Err(_)) | Err(_) => {}
        }
        sleep(PERIOD).await;
    }
}

async fn try_to_make(
    ns: &Ns,
    request: &ContainerRecreateRequest,
    seen: &RefCell<Seen>,
) -> kube::Result<ContainerRecreateRequest> {
    // Only the look before the first try is sure to be before the request.
    let looked = seen.borrow().before.contains_key(&request.name_any());
    if !looked {
        let pod = ns.pods().get(&request.spec.pod_name).await?;
        seen.borrow_mut().before.insert(request.name_any(), ids(&pod));
    }
    ns.requests().create(&PostParams::default(), request).await
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
pub(crate) fn uid(request: &ContainerRecreateRequest) -> Result<String> {
    request.uid().context("a request without a UID")
}
