//! Requests of a namespace that has nothing to do with the load, one after another.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::Client;

use super::ends::Ends;
use super::load;
use super::objects::restart;
use super::player::pod::Pod;
use crate::harness::figures::{Samples, milliseconds};

/// The namespace.
pub(crate) const NAMESPACE: &str = "scale-probe";
/// After this time a request counts as one that took as long.
const PATIENCE: Duration = Duration::from_mins(2);
/// Requests before those that are measured alone, and those.
const FIRST: usize = 2;
const ALONE: usize = 15;
/// Between the end of one and the next.
const PAUSE: Duration = Duration::from_millis(200);

/// Sends them, for Pods in turn.
pub(crate) struct Probe {
    client: Client,
    ends: Ends,
    pods: Vec<Pod>,
    prefix: &'static str,
    sent: usize,
    last: Option<(Pod, String)>,
    /// Since when one is under way.
    open: Option<Instant>,
    /// How long each took in milliseconds, from just before it was sent.
    took: Vec<f64>,
    /// How long the API server took to answer each create.
    answered: Vec<f64>,
}

/// Times of some requests, in milliseconds.
pub(crate) struct Times {
    /// From just before one is sent to its end.
    pub(crate) whole: Samples,
    /// The API server's answer to the create: what the machine and the API server do, without the controller.
    pub(crate) create: Samples,
}

impl Probe {
    /// For these Pods.
    pub(crate) fn new(client: &Client, pods: Vec<Pod>) -> Self {
        Self::named(client, "probe", pods)
    }

    /// For these Pods, with names of requests that begin so.
    pub(crate) fn named(client: &Client, prefix: &'static str, pods: Vec<Pod>) -> Self {
        let ends = Ends::watch(client, Some(NAMESPACE));
        let client = client.clone();
        Self {
            client,
            ends,
            pods,
            prefix,
            sent: 0,
            last: None,
            open: None,
            took: Vec::new(),
            answered: Vec::new(),
        }
    }

    /// Sends some before there is any load, and gives back how long they took.
    pub(crate) async fn alone(&mut self) -> Result<Times> {
        for _ in 0..FIRST {
            self.once().await?;
        }
        // What is done once, such as making the node's book, is no part of it.
        drop(self.taken());
        for _ in 0..ALONE {
            self.once().await?;
        }
        Ok(self.taken())
    }

    /// Sends one after another until it is dropped.
    pub(crate) async fn on_and_on(&mut self) -> Result<()> {
        loop {
            self.once().await?;
        }
    }

    /// Sends one, and gives back when it was accepted, if it ever was.
    pub(crate) async fn accepted(&mut self, patience: Duration) -> Result<Option<Instant>> {
        let (pod, name) = self.send().await?;
        Ok(self.ends.accepted(&pod, &name, patience).await)
    }

    /// The Pods.
    pub(crate) fn pods(&self) -> Vec<Pod> {
        self.pods.clone()
    }

    /// Waits until the last one that was sent has ended.
    pub(crate) async fn settle(&mut self, patience: Duration) {
        let Some(last) = self.last.clone() else { return };
        self.ends.ended(&last.0, &last.1, patience).await;
    }

    /// How long those took that were sent since.
    fn taken(&mut self) -> Times {
        let [whole, create] = [&mut self.took, &mut self.answered].map(|times| times.drain(..).collect());
        Times { whole, create }
    }

    /// How long those took that were sent since. One that is under way for longer than any of them counts with the time
    /// so far.
    pub(crate) fn taken_and_open(&mut self) -> Times {
        let open = self.open.take().map(|since| milliseconds(since.elapsed()));
        self.took.extend(open.filter(|so_far| self.took.iter().all(|took| took < so_far)));
        self.taken()
    }

    /// How many were sent in all.
    pub(crate) fn sent(&self) -> usize {
        self.sent
    }

    async fn once(&mut self) -> Result<()> {
        let begin = Instant::now();
        self.open = Some(begin);
        let (pod, name) = self.send().await?;
        self.answered.push(milliseconds(begin.elapsed()));
        let ended = self.ends.ended(&pod, &name, PATIENCE).await;
        self.open = None;
        self.took.push(milliseconds(ended.map_or(PATIENCE, |at| at - begin)));
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    async fn send(&mut self) -> Result<(Pod, String)> {
        let pod = self.pods.iter().cycle().nth(self.sent).context("there is no Pod for a probe")?.clone();
        let name = format!("{}-{:05}", self.prefix, self.sent);
        self.sent += 1;
        load::request(&self.client, &restart(&name, &pod)).await?;
        self.last = Some((pod.clone(), name.clone()));
        Ok((pod, name))
    }
}
