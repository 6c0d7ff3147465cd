//! Simulates nodes in this process: each has the production core of the daemon and a model of the rest. All nodes share
//! one watch.

mod images;
mod machine;
pub(crate) mod pod;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use kube::runtime::watcher;
use kube::{Api, Client};
use pitstop_api::logic::answer::{Answer, Failure};
use pitstop_api::nodework::{NodeWork, NodeWorkStatus};
use pitstop_daemon_core::{Book, Outcome, wire};
use pitstop_kit::shutdown::Trigger;
use pitstop_kit::watch::Source;
use pitstop_kit::{Readiness, Shutdown, WatchMetrics, client, watch};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use self::images::Spec;
use self::machine::{Action, Event, Player};
use self::pod::Pod;
use super::load::patch_pod_status;
use crate::harness::programs::NAMESPACE;

/// Writes of all nodes in flight at a time.
const WRITES: usize = 32;
/// Capacity of the queue of events.
const QUEUE: usize = 1024;

/// The running simulation. Drop stops it.
pub(crate) struct Played {
    _trigger: Trigger,
    _tasks: JoinSet<()>,
}

/// Starts to simulate the nodes of these Pods.
pub(crate) fn play(client: &Client, pods: Vec<Pod>) -> Played {
    begin(client, pods, None)
}

/// The same, with kubelets that see the images of that namespace's Pods.
pub(crate) fn play_with_images(client: &Client, pods: Vec<Pod>, namespace: &str) -> Played {
    begin(client, pods, Some(namespace))
}

fn source(name: &'static str) -> Source {
    let synced = Readiness::new().condition("what is played is synced");
    Source { name, config: watcher::Config::default(), synced, metrics: WatchMetrics::default() }
}

fn begin(client: &Client, pods: Vec<Pod>, images_of: Option<&str>) -> Played {
    let (trigger, shutdown) = Shutdown::manual();
    let (events, mut inbox) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    let books = Api::all(client.clone());
    tasks.spawn(watch::run(books, source("nodeworks"), book, Event::Books, events.clone()));
    if let Some(namespace) = images_of {
        let pods = Api::namespaced(client.clone(), namespace);
        tasks.spawn(watch::run(pods, source("pods"), Spec::of, Event::Specs, events.clone()));
    }
    let writer = Writer { client: client.clone(), slots: Arc::new(Semaphore::new(WRITES)), events };
    let mut player = Player::new(pods);
    tasks.spawn(async move {
        let mut actions = JoinSet::new();
        let execute = |action: Action| {
            while actions.try_join_next().is_some() {}
            actions.spawn(writer.clone().execute(action));
        };
        pitstop_kit::drive(&mut player, &mut inbox, &shutdown, execute, |_, _| ()).await;
    });
    Played { _trigger: trigger, _tasks: tasks }
}

fn book(object: NodeWork) -> Option<(String, Book)> {
    Some((object.metadata.name.clone()?, wire::book(object)))
}

/// Carries out the nodes' writes.
#[derive(Clone)]
struct Writer {
    client: Client,
    slots: Arc<Semaphore>,
    events: mpsc::Sender<Event>,
}

impl Writer {
    async fn execute(self, action: Action) {
        let Ok(_slot) = self.slots.acquire().await else { return };
        let event = match action {
            Action::WriteBook { node, resource_version, status } => {
                let outcome = self.write_book(&node, resource_version, *status).await;
                Event::BookWritten(node, outcome)
            }
            Action::WritePod { pod, namespace, name, patch } => {
                let ok = patch_pod_status(&self.client, &namespace, &name, &patch).await.is_ok();
                Event::PodWritten(pod, ok)
            }
        };
        // The receiver is gone only after the simulation.
        let _ = self.events.send(event).await;
    }

    /// Writes as the daemon of that node, so that its policy applies and the audit log has its account.
    async fn write_book(&self, node: &str, version: String, status: NodeWorkStatus) -> Outcome {
        let request = || -> Result<_> {
            let mut request = wire::write_status(node, version, status)?;
            let user = format!("system:serviceaccount:{NAMESPACE}:pitstop-daemon");
            let headers = request.headers_mut();
            headers.insert("impersonate-user", user.parse()?);
            headers.insert(
                "impersonate-extra-authentication.kubernetes.io%2fnode-name",
                node.parse().context("the node's name")?,
            );
            headers.insert("impersonate-extra-authentication.kubernetes.io%2fpod-uid", "played".parse()?);
            Ok(request)
        };
        let answer = match request() {
            Ok(request) => client::send(&self.client, request).await,
            Err(error) => Answer::Failed(Failure::of_code(400, format!("{error:#}"))),
        };
        wire::written(&answer)
    }
}
