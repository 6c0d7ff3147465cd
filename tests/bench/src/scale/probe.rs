//! Successive requests in a namespace outside of the load.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use kube::Client;

use super::ends::Ends;
use super::load;
use super::objects::restart;
use super::player::pod::Pod;
use crate::harness::figures::{Samples, milliseconds};

/// The probe's namespace.
pub(crate) const NAMESPACE: &str = "scale-probe";
/// Longest wait for a request's end. After it, the request counts with this duration.
const PATIENCE: Duration = Duration::from_mins(2);
/// Numbers of warm-up requests and of requests measured without load.
const FIRST: usize = 2;
const ALONE: usize = 15;
/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(200);

/// Sends requests for Pods in turn.
pub(crate) struct Probe {
    client: Client,
    ends: Ends,
    pods: Vec<Pod>,
    prefix: &'static str,
    sent: usize,
    last: Option<(Pod, String)>,
    /// Start of the open request; `None` between requests.
    open: Option<Instant>,
    /// Durations of the requests in milliseconds, from just before each was sent.
    took: Vec<f64>,
    /// Milliseconds until the API server answered each create.
    answered: Vec<f64>,
}

/// Times of some requests, in milliseconds.
pub(crate) struct Times {
    /// From just before the request is sent to its end.
    pub(crate) whole: Samples,
    /// Until the API server's answer to the create: the share of machine and API server, without the controller.
    pub(crate) create: Samples,
}

impl Probe {
    /// A probe for these Pods.
    pub(crate) fn new(client: &Client, pods: Vec<Pod>) -> Self {
        Self::named(client, "probe", pods)
    }

    /// A probe for these Pods, with a prefix of the requests' names.
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

    /// Sends requests without load, and returns their times.
    pub(crate) async fn alone(&mut self) -> Result<Times> {
        for _ in 0..FIRST {
            self.once().await?;
        }
        // Work done once, such as creating the node's book, does not count.
        drop(self.taken());
        for _ in 0..ALONE {
            self.once().await?;
        }
        Ok(self.taken())
    }

    /// Sends requests until the future is dropped.
    pub(crate) async fn on_and_on(&mut self) -> Result<()> {
        loop {
            self.once().await?;
        }
    }

    /// Sends a request, and returns when it was accepted; `None` after `patience`.
    pub(crate) async fn accepted(&mut self, patience: Duration) -> Result<Option<Instant>> {
        let (pod, name) = self.send().await?;
        Ok(self.ends.accepted(&pod, &name, patience).await)
    }

    /// The probe's Pods.
    pub(crate) fn pods(&self) -> Vec<Pod> {
        self.pods.clone()
    }

    /// Waits until the last request has ended.
    pub(crate) async fn settle(&mut self, patience: Duration) {
        let Some(last) = self.last.clone() else { return };
        self.ends.ended(&last.0, &last.1, patience).await;
    }

    /// Takes the times of the requests since the last call.
    fn taken(&mut self) -> Times {
        let [whole, create] = [&mut self.took, &mut self.answered].map(|times| times.drain(..).collect());
        Times { whole, create }
    }

    /// The same. The open request counts with its time so far if that is the longest.
    pub(crate) fn taken_and_open(&mut self) -> Times {
        let open = self.open.take().map(|since| milliseconds(since.elapsed()));
        self.took.extend(open.filter(|so_far| self.took.iter().all(|took| took < so_far)));
        self.taken()
    }

    /// Number of all sent requests.
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
