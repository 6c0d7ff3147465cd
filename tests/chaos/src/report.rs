//! Prints how a run goes, and what is known about what was wrong.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use pitstop_api::nodework::request_uid;
use pitstop_e2e::Ns;
use tokio::time::{Instant, sleep};

use crate::facts::{Facts, Outcome, Pod, Request, Update, Uptime};
use crate::judge::{Breach, Findings};
use crate::kind::Kind;
use crate::logs::Keeper;
use crate::plan::counts;
use crate::run::say;
use crate::stream::uid;
use crate::trace::Entry;
use crate::watch::{Seen, Version};

const PERIOD: Duration = Duration::from_secs(15);
/// Of each kind, so many are told in full.
const IN_FULL: usize = 5;

/// Says now and then how far the run is, until its time is over.
pub(crate) async fn progress(seen: &RefCell<Seen>, start: Instant, length: Duration) {
    while start.elapsed() < length {
        sleep(PERIOD.min(length.saturating_sub(start.elapsed()))).await;
        let seen = seen.borrow();
        let (requests, updates) = (&seen.requests, &seen.updates);
        let open = requests.open().count() + updates.open().count();
        let (requests, updates) = (requests.versions.len(), updates.versions.len());
        let (hits, after) = (seen.kills.len(), start.elapsed().as_secs());
        say(format!(
            "{after} s: {requests} requests and {updates} image updates, {open} of them open, {hits} kills"
        ));
    }
}

/// Prints the counts and, of all that was wrong, what is known about it.
pub(crate) async fn show(ns: &Ns, facts: &Facts, findings: &Findings, seen: &RefCell<Seen>, keeper: &Keeper) {
    println!("kills: {}", counts(facts.kills.iter().map(|kill| kill.victim)));
    println!("unused images taken from a node: {} times", seen.borrow().losses);
    for (name, pod) in &facts.pods {
        if let Err(error) = keeper.write(&format!("{name}.trace"), &lines(pod).join("\n")) {
            println!("{error:#}");
        }
    }
    let starts = facts.pods.values().flat_map(|pod| &pod.trace);
    println!("written down by the containers: {}", counts(starts.map(|entry| format!("{:?}", entry.event))));
    let failed = |reason: &str| findings.failed.get(reason).copied().unwrap_or_default();
    println!(
        "requests: completed={}, failed by deadline={}, failed by the daemon's silence={}",
        findings.completed,
        failed("DeadlineExceeded"),
        failed("DaemonNotResponding")
    );
    let updated = findings.updated.iter().map(|(end, count)| format!("{end} {count}"));
    println!("image updates: {}", updated.collect::<Vec<_>>().join(", "));
    for (kind, breaches) in
        [("lost", &findings.lost), ("doubled", &findings.doubled), ("stuck", &findings.stuck)]
    {
        for (breach, n) in breaches.iter().zip(1..) {
            println!("\n=== {kind}: {}", text(breach));
            if n <= IN_FULL {
                evidence(ns, facts, breach, seen).await;
            }
        }
    }
    if findings.shows_nothing() {
        println!("no request completed, or no image update succeeded, so nothing was shown");
    }
    if !findings.is_good() {
        println!("\nlogs of controllers and daemons, lines of the containers: {}", keeper.folder.display());
    }
}

fn text(breach: &Breach) -> String {
    let request = breach.request.iter().map(|name| format!("request {name}: "));
    let pod = breach.pod.iter().map(|name| format!("Pod {name}: "));
    request.chain(pod).chain([breach.text.clone()]).collect()
}

async fn evidence(ns: &Ns, facts: &Facts, breach: &Breach, seen: &RefCell<Seen>) {
    if let Some(name) = &breach.request {
        let lines = {
            let seen = seen.borrow();
            match seen.updates.versions.get(name) {
                Some(versions) => history(&seen, name, versions),
                None => history(&seen, name, seen.requests.versions.get(name).map_or(&[], Vec::as_slice)),
            }
        };
        println!("{}", lines.join("\n"));
        events(ns, name).await;
    }
    let Some((name, pod)) = breach.pod.as_ref().and_then(|name| facts.pods.get_key_value(name)) else {
        return;
    };
    println!("--- requests about Pod {name}");
    for (name, request) in facts.requests.iter().filter(|(_, request)| request.pod == *name) {
        println!("{name} {}", short(request));
    }
    for (name, update) in facts.updates.iter().filter(|(_, update)| update.pod == *name) {
        println!("{name} {}", short_update(update));
    }
    println!("--- what the containers of Pod {name} on {} wrote down", pod.node);
    println!("{}", lines(pod).join("\n"));
    println!("--- kills");
    let kills = facts.kills.iter().map(|kill| format!("{} {}", seconds(kill.time), kill.victim));
    println!("{}", kills.collect::<Vec<_>>().join("; "));
}

/// What the containers of a Pod wrote down.
fn lines(pod: &Pod) -> Vec<String> {
    let line = |entry: &Entry| {
        let Entry { event, container, id, version, time } = entry;
        format!("{} {event:?} {container} {} of {version}", seconds(*time), head(id))
    };
    pod.trace.iter().map(line).collect()
}

/// Every version of a request, and of its orders with their answers.
fn history<K: Kind>(seen: &Seen, name: &str, versions: &[Version<K>]) -> Vec<String> {
    let mut lines: Vec<(Uptime, String)> =
        versions.iter().map(|version| (version.time, version.object.summary())).collect();
    let uid = versions.first().and_then(|version| uid(&version.object).ok()).unwrap_or_default();
    let mut last = BTreeMap::new();
    for version in &seen.books {
        let (book, node) = (&version.object, version.object.name_any());
        let orders = book.spec.orders.iter().filter(|order| request_uid(&order.id) == uid);
        let answers = book.status.iter().flat_map(|status| &status.answers);
        let now: Vec<String> = orders
            .map(|order| {
                let answer = answers.clone().find(|answer| answer.order_id == order.id);
                let answer = answer.map(|a| format!("{:?} {:?} {}", a.state, a.reason, a.message));
                format!("{} of {}: {answer:?}", order.id, head(&order.container.id))
            })
            .collect();
        let before: Option<Vec<String>> = last.insert(node.clone(), now.clone());
        if before.unwrap_or_default() != now {
            lines.push((version.time, format!("book {node}: {now:?}")));
        }
    }
    lines.sort_by_key(|(time, _)| *time);
    let mut text = vec![format!("--- history of request {name}")];
    text.extend(lines.into_iter().map(|(time, line)| format!("{} {line}", seconds(time))));
    if let Some(version) = versions.last() {
        text.push("--- its last version".to_owned());
        text.push(serde_json::to_string(&version.object).unwrap_or_default());
    }
    text
}

/// Events on the request, and those on its Pod that name it.
async fn events(ns: &Ns, name: &str) {
    println!("--- its events");
    let api: Api<Event> = Api::namespaced(ns.cluster.client.clone(), &ns.name);
    match api.list(&ListParams::default()).await {
        Ok(list) => {
            for event in list {
                let message = event.message.unwrap_or_default();
                if event.involved_object.name.as_deref() == Some(name) || message.contains(name) {
                    println!("{} {message}", event.reason.unwrap_or_default());
                }
            }
        }
        Err(error) => println!("{error}"),
    }
}

fn short(request: &Request) -> String {
    let target = request.target.iter().map(|(name, target)| {
        format!("{name} {}{}", head(&target.id), if target.is_pinned { " by the kubelet" } else { "" })
    });
    let before = request.before.iter().map(|(name, id)| format!("{name} {}", head(id)));
    let outcome = match &request.outcome {
        Outcome::Open => "open",
        Outcome::Complete => "complete",
        Outcome::Failed(reason) => reason,
    };
    let (target, before) = (target.collect::<Vec<_>>(), before.collect::<Vec<_>>());
    format!("{outcome}: resolved to {}; before it {}", target.join(", "), before.join(", "))
}

fn short_update(update: &Update) -> String {
    let Update { wanted, images, before, replaced, end, seen: (first, last), .. } = update;
    let heads = |ids: &BTreeMap<String, String>| {
        let heads = ids.iter().map(|(name, id)| format!("{name} {}", head(id)));
        heads.collect::<Vec<_>>().join(", ")
    };
    let end = end.as_ref().map_or("open".to_owned(), |end| format!("{} {}", end.phase.name(), end.reason));
    let (first, last, before, replaced) = (seconds(*first), seconds(*last), heads(before), heads(replaced));
    format!("{first} to {last} {end}: {images:?} {wanted:?}; replaced {replaced}; before it {before}")
}

fn head(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// In seconds.
fn seconds(time: Uptime) -> String {
    format!("{}.{:02}", time / 100, time % 100)
}
