//! Carries out the leader election that the core decides, over one `Lease` in the own namespace.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use pitstop_controller_core::Mono;
use pitstop_controller_core::lease::{Config, Elector, Event, Record, Write};
use pitstop_kit::clock::{Monotonic, wall_micros};
use pitstop_kit::health::Condition;
use pitstop_kit::watch::{self, Source};
use pitstop_kit::{Class, Shutdown, WatchMetrics, classify, describe};
use std::time::Duration;
use tokio::sync::{mpsc, watch as signal};
use tracing::{debug, info, warn};

/// Name of the `Lease`.
pub const LEASE: &str = "pitstop-controller";

/// A participant of the election.
pub struct Candidate {
    /// Kubernetes client.
    pub client: Client,
    /// The own namespace.
    pub namespace: String,
    /// Unique to this process.
    pub identity: String,
    /// Holds once the record is known.
    pub synced: Condition,
    /// Counters of the watch.
    pub metrics: WatchMetrics,
}

/// Takes part until the shutdown starts, then releases the lease.
///
/// Sends to `leading` whether this process leads, and to `until` when its lead ends without another renewal. If it
/// loses the lead, it returns an error early: a new process should start the unfinished work again.
pub async fn run(
    candidate: Candidate,
    leading: signal::Sender<bool>,
    until: signal::Sender<Option<Mono>>,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let Candidate { client, namespace, identity, synced, metrics } = candidate;
    let config = Config::default();
    let (sender, mut inbox) = mpsc::channel(16);
    let watching = tokio::spawn(observe(client.clone(), &namespace, synced, metrics, sender.clone()));
    let api: Api<Lease> = Api::namespaced(client, &namespace);
    let mut elector = Elector::new(identity, config);
    let mut event = Event::Tick;
    let mut ending = false;
    loop {
        let now = Mono(Monotonic::now());
        if let Some(write) = elector.step(now, event) {
            let (api, sender, term) = (api.clone(), sender.clone(), config.term);
            tokio::spawn(async move {
                let outcome = carry_out(&api, write, term).await;
                let _ = sender.send(outcome).await;
            });
        }
        let now = Mono(Monotonic::now());
        let leads = elector.leads(now);
        until.send_replace(elector.leads_until());
        let led = leading.send_replace(leads);
        if leads != led {
            info!(leading = leads, "leadership changed");
        }
        if ending && !elector.holds() {
            break;
        }
        if led && !leads && !ending {
            anyhow::bail!("lost the leader lease {namespace}/{LEASE}");
        }
        let wait = elector.wake_at(now).map_or(Duration::from_mins(1), |at| at.since(now));
        event = tokio::select! {
            Some(event) = inbox.recv() => event,
            () = tokio::time::sleep(wait) => Event::Tick,
            () = shutdown.wait(), if !ending => {
                ending = true;
                Event::Release
            }
        };
    }
    watching.abort();
    Ok(())
}

/// Sends what the watch shows of the lease, until the receiver is dropped.
fn observe(
    client: Client,
    namespace: &str,
    synced: Condition,
    metrics: WatchMetrics,
    events: mpsc::Sender<Event>,
) -> impl Future<Output = ()> + use<> {
    let source = Source {
        name: "lease",
        config: watcher::Config::default().fields(&format!("metadata.name={LEASE}")),
        synced,
        metrics,
    };
    let event = |watch: watch::Watch<Record>| Event::Observed(watch.shown());
    watch::run(Api::namespaced(client, namespace), source, |lease: Lease| Some(record(&lease)), event, events)
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.as_ref();
    Record {
        holder: spec.and_then(|s| s.holder_identity.clone()).unwrap_or_default(),
        transitions: spec.and_then(|s| s.lease_transitions).unwrap_or_default(),
        resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
    }
}

async fn carry_out(api: &Api<Lease>, write: Write, term: Duration) -> Event {
    // The times are for people. No replica's election depends on them.
    let now = pitstop_kit::time::to_micro_time(wall_micros()).ok();
    let create = write.resource_version.is_none();
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(LEASE.to_owned()),
            resource_version: write.resource_version,
            ..ObjectMeta::default()
        },
        spec: Some(spec(write.holder, write.transitions, now, term)),
    };
    let result = if create {
        api.create(&PostParams::default(), &lease).await
    } else {
        api.replace(LEASE, &PostParams::default(), &lease).await
    };
    match result {
        Ok(stored) => Event::Written(record(&stored)),
        Err(error) => {
            if classify(&error) == Class::Conflict {
                debug!("another replica wrote the leader lease first");
            } else {
                warn!(error = describe(&error), "cannot write the leader lease");
            }
            Event::NotWritten
        }
    }
}

fn spec(holder: String, transitions: i32, now: Option<MicroTime>, term: Duration) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(holder),
        lease_transitions: Some(transitions),
        lease_duration_seconds: i32::try_from(term.as_secs()).ok(),
        acquire_time: None,
        renew_time: now,
        ..LeaseSpec::default()
    }
}
