//! Waits until everything has come to rest, and gathers the facts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::image_update::{self, PodImageUpdate};
use pitstop_api::labels;
use pitstop_api::nodework::NodeWork;
use pitstop_api::recreate::{self, ContainerRecreateRequest, Phase, conditions};
use pitstop_e2e::{Ns, images, pods, requests};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use crate::facts::{End, Facts, Outcome, Pod, Request, Target, Update};
use crate::judge;
use crate::kind::Kind as _;
use crate::plan::{Images, LONGEST_DEADLINE, Plan, version};
use crate::run::say;
use crate::setup::read_trace;
use crate::stream::bare;
use crate::watch::Seen;

/// After the last kill: all parts come back and another controller leads (a minute at most), the deadline of the last
/// request in a Pod's queue passes, counted anew by that controller, and what it left is tidied up (half a minute).
pub(crate) const BOUND: Duration = Duration::from_secs(60 + LONGEST_DEADLINE.as_secs() + 30);
const PERIOD: Duration = Duration::from_millis(500);
/// For all answers of one look.
const ANSWER: Duration = Duration::from_secs(20);
/// The user agents of holds of requests and of image updates.
const AGENTS: [&str; 2] = [recreate::KIND, image_update::KIND];

/// Waits until nothing is left to be done, or the bound has passed; gives back the facts as they are then. `uids` are
/// those of the Pods, by name.
pub(crate) async fn settle(
    ns: &Ns,
    plan: &Plan,
    uids: &BTreeMap<String, String>,
    seen: &RefCell<Seen>,
) -> Result<Facts> {
    let start = Instant::now();
    loop {
        let looked = timeout(ANSWER, look(ns, plan, uids, seen)).await;
        let is_over = start.elapsed() >= BOUND;
        match looked {
            Ok(Ok(facts)) => {
                if judge::stuck(&facts).is_empty() {
                    say(format!("at rest after {:.1} s", start.elapsed().as_secs_f64()));
                    return Ok(facts);
                }
                if is_over {
                    return Ok(facts);
                }
            }
            Ok(Err(error)) if is_over => return Err(error.context("the cluster does not come back")),
            Err(_) if is_over => anyhow::bail!("the cluster does not answer"),
            _ => {}
        }
        sleep(PERIOD).await;
    }
}

/// Asks for everything.
async fn look(ns: &Ns, plan: &Plan, uids: &BTreeMap<String, String>, seen: &RefCell<Seen>) -> Result<Facts> {
    let all = ListParams::default();
    let books: Api<NodeWork> = Api::all(ns.cluster.client.clone());
    let (requests, updates, pods, books) = tokio::try_join!(
        async { ns.requests().list(&all).await },
        async { images::api(ns).list(&all).await },
        async { ns.pods().list(&all).await },
        async { books.list(&all).await }
    )?;
    let mut seen = seen.borrow_mut();
    seen.requests.list(requests.items);
    seen.updates.list(updates.items);

    let mut facts = Facts { kills: seen.kills.clone(), ..Facts::default() };
    facts.orders = books.items.iter().flat_map(orders).collect();
    for (name, object) in seen.requests.newest() {
        let before = seen.before.get(name).cloned().unwrap_or_default();
        let request = Request { before, is_gone: seen.requests.gone.contains(name), ..request(object) };
        facts.requests.insert(name.clone(), request);
    }
    for (name, versions) in &seen.updates.versions {
        let Some((first, last)) = versions.first().zip(versions.last()) else { continue };
        let before = seen.before.get(name).cloned().unwrap_or_default();
        let (times, is_gone) = ((first.time, last.time), seen.updates.gone.contains(name));
        facts.updates.insert(name.clone(), Update { before, seen: times, is_gone, ..update(&last.object) });
    }
    for plan in &plan.pods {
        let uid = uids.get(&plan.name).context("a Pod that was not started")?;
        let shown = pods.items.iter().find(|pod| pod.uid().as_ref() == Some(uid));
        let trace = read_trace(&ns.cluster, plan.node, uid)?;
        let holds = shown.map(|pod| holds(pod, plan.gate)).unwrap_or_default();
        let pod =
            Pod { node: plan.node.to_owned(), is_ready: shown.is_some_and(pods::is_ready), holds, trace };
        facts.pods.insert(plan.name.clone(), pod);
    }
    Ok(facts)
}

/// What stands in a book.
fn orders(book: &NodeWork) -> Vec<String> {
    book.spec.orders.iter().map(|order| format!("{} on {}", order.id, book.name_any())).collect()
}

/// Holds of requests in the message of the gate's condition.
fn holds(pod: &v1::Pod, gate: Option<&str>) -> Vec<String> {
    let message = gate.and_then(|gate| pods::condition(pod, gate)).and_then(|c| c.message.as_deref());
    let list: Vec<Value> = message.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let agent = |hold: &Value| hold.get("userAgent").and_then(Value::as_str).map(str::to_owned);
    let ours = list.iter().filter(|hold| agent(hold).is_some_and(|agent| AGENTS.contains(&agent.as_str())));
    ours.filter_map(|hold| Some(hold.get("key")?.as_str()?.to_owned())).collect()
}

/// What the newest version of a request says.
fn request(object: &ContainerRecreateRequest) -> Request {
    let status = object.status.clone().unwrap_or_default();
    let target = status.target.iter().flat_map(|target| &target.containers).map(|container| {
        let id = bare(&container.container_id).to_owned();
        (container.name.clone(), Target { id, is_pinned: container.pin.is_some() })
    });
    let succeeded = status.container_recreate_states.iter().filter(|state| state.phase == Phase::Succeeded);
    Request {
        pod: object.spec.pod_name.clone(),
        containers: object.spec.containers.iter().map(|container| container.name.clone()).collect(),
        target: target.collect(),
        succeeded: succeeded.map(|state| state.name.clone()).collect(),
        outcome: outcome(object),
        is_active: requests::label(object, labels::ACTIVE).is_some(),
        expires: object.spec.ttl_seconds_after_finished.is_some(),
        ..Request::default()
    }
}

/// What the newest version of an image update says.
fn update(object: &PodImageUpdate) -> Update {
    let wanted = object.spec.containers.iter().map(|c| (c.name.clone(), version(c).to_owned()));
    let status = object.status.clone().unwrap_or_default();
    let given = status.containers.iter().filter(|container| !container.written.is_empty());
    let replaced = given.map(|c| (c.name.clone(), bare(&c.before.container_id).to_owned()));
    let reason = images::reason(object).unwrap_or_default().to_owned();
    let end = status.phase.filter(|_| object.is_over()).map(|phase| End { phase, reason });
    Update {
        pod: object.pod().to_owned(),
        wanted: wanted.collect(),
        images: Images::of(&object.spec),
        replaced: replaced.collect(),
        end,
        ..Update::default()
    }
}

fn outcome(object: &ContainerRecreateRequest) -> Outcome {
    if !requests::is_over(object) {
        return Outcome::Open;
    }
    let all = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let is_true = |type_| condition::find(all, type_).filter(|c| c.status == ConditionStatus::True);
    match (is_true(conditions::COMPLETE), is_true(conditions::FAILED)) {
        (Some(_), None) => Outcome::Complete,
        (None, Some(failed)) => Outcome::Failed(failed.reason.clone()),
        (complete, _) => Outcome::Failed(if complete.is_some() { "both" } else { "neither" }.to_owned()),
    }
}
