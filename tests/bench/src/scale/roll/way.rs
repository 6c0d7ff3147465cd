//! Cost of a way to service all Pods.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1 as core;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::ContainerRecreateRequest;

use super::{Bench, NAMESPACE, PATIENCE};
use crate::harness::books::no_orders;
use crate::harness::figures::{counted, ratio};
use crate::scale::bound::Figure;
use crate::scale::ledger::Ledger;
use crate::scale::purpose::REQUESTS;
use crate::scale::queue::print_writes;
use crate::scale::sizes::mib;

/// Bound: time of a rollout, divided by that of the benchmark's requests.
const TIME: f64 = 1.5;
/// Bound: a rollout's own writes per Pod: it creates the request, lets it continue, tells the controller, and deletes
/// the request.
const WRITES: f64 = 4.0;
/// Bound: writes of its requests, divided by those of the benchmark's requests.
const REQUESTS_OF: f64 = 1.25;
/// Bound: processor time of the controller, divided by that for the benchmark's requests.
const CPU: f64 = 3.0;
/// Bound: peak resident memory, likewise. The allocator returns memory late, so the second way has some of the first.
const MEMORY: f64 = 2.0;
/// Time until the last writes are in the audit log.
const REST: Duration = Duration::from_secs(2);
/// Resources of a rollout's requests.
const KINDS: [&str; 2] = [REQUESTS, "podimageupdates"];
/// Resources that a rollout writes besides requests and Pods.
const OWN: [&str; 4] = ["inplacerollouts", "inplacerollouts/status", "deployments", "replicasets"];
const PERIOD: Duration = Duration::from_millis(200);

/// Measurement of one way, until its requests and orders are gone.
pub(super) struct Way {
    seconds: f64,
    /// Processor time of the controller.
    cpu: Duration,
    /// Its largest resident memory, in KiB.
    peak: u64,
    ledger: Ledger,
    /// Number of gone and of new Pods.
    replaced: usize,
    /// Number of Pods whose container was restarted exactly once.
    restarted: usize,
}

/// Restart counts by Pod UID.
type Restarts = BTreeMap<String, i32>;

impl Bench<'_> {
    /// Measures a way: `work` returns the seconds.
    pub(super) async fn way(&self, work: impl AsyncFnOnce() -> Result<f64>) -> Result<Way> {
        let before = self.restarts_of_pods().await?;
        self.controller.forget_peak()?;
        let cpu = self.controller.cpu()?;
        let mut ledger = Ledger::open(&self.stage.audit_log)?;
        let all = async {
            let seconds = work().await?;
            self.tidy().await?;
            Ok(seconds)
        };
        let seconds = tokio::select! {
            seconds = all => seconds,
            error = follow(&mut ledger) => Err(error),
        }?;
        tokio::time::sleep(REST).await;
        ledger.read()?;
        let (cpu, peak) = (self.controller.cpu()?.saturating_sub(cpu), self.controller.memory()?.peak);
        print_writes(&ledger);
        let (replaced, restarted) = changed(&before, &self.restarts_of_pods().await?);
        Ok(Way { seconds, cpu, peak, ledger, replaced, restarted })
    }

    /// Waits until all requests and orders are gone.
    async fn tidy(&self) -> Result<()> {
        let restarts: Api<ContainerRecreateRequest> = Api::namespaced(self.client.clone(), NAMESPACE);
        let updates: Api<PodImageUpdate> = Api::namespaced(self.client.clone(), NAMESPACE);
        let (begin, one) = (Instant::now(), ListParams::default().limit(1));
        while !restarts.list_metadata(&one).await?.items.is_empty()
            || !updates.list_metadata(&one).await?.items.is_empty()
        {
            if begin.elapsed() > PATIENCE {
                bail!("requests are left after {} s", PATIENCE.as_secs());
            }
            tokio::time::sleep(PERIOD).await;
        }
        no_orders(self.client, PATIENCE).await
    }

    async fn restarts_of_pods(&self) -> Result<Restarts> {
        let api: Api<core::Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        let pods = api.list(&ListParams::default()).await?;
        let of = |pod: core::Pod| {
            let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
            Some((pod.uid()?, statuses.iter().map(|status| status.restart_count).sum()))
        };
        Ok(pods.items.into_iter().filter_map(of).collect())
    }
}

impl Way {
    /// Number of the controller's writes of that kind.
    fn written(&self, what: &str) -> usize {
        let of = self.ledger.writes().counts.get(&format!("pitstop-controller: {what}"));
        of.map_or(0, |count| count.all)
    }
}

/// A rollout's own writes: writes of its own objects, and additional writes of requests and Pods.
fn own_writes(by_rollout: &Way, by_requests: &Way) -> usize {
    let of = |what: &str| by_rollout.written(what).saturating_sub(by_requests.written(what));
    let own = by_rollout
        .ledger
        .writes()
        .counts
        .iter()
        .filter(|(what, _)| OWN.iter().any(|resource| what.ends_with(&format!(" {resource}"))));
    let own: usize = own.map(|(_, count)| count.all).sum();
    // The rollout patches a request to let it continue, and a Pod to mark it.
    let verbs = ["create", "delete", "patch"];
    let of_requests = KINDS.iter().flat_map(|kind| verbs.map(|verb| format!("{verb} {kind}")));
    own + of_requests.chain(["patch pods".to_owned()]).map(|what| of(&what)).sum::<usize>()
}

/// Reads the log before each rotation. Returns only with an error.
async fn follow(ledger: &mut Ledger) -> anyhow::Error {
    loop {
        tokio::time::sleep(REST).await;
        if let Err(error) = ledger.read() {
            return error;
        }
    }
}

/// Numbers of Pods that are gone or new, and of Pods restarted once.
fn changed(before: &Restarts, after: &Restarts) -> (usize, usize) {
    let gone = before.keys().filter(|uid| !after.contains_key(*uid)).count();
    let new = after.keys().filter(|uid| !before.contains_key(*uid)).count();
    let once = |(uid, count): &(&String, &i32)| before.get(*uid).is_some_and(|before| before + 1 == **count);
    (gone + new, after.iter().filter(once).count())
}

/// The figures of a rollout, compared with the benchmark's requests.
pub(super) fn compared(what: &str, by_requests: &Way, by_rollout: &Way, pods: usize) -> Vec<Figure> {
    let each = |count: usize| counted(count) / counted(pods.max(1));
    let writes = |way: &Way| each(way.ledger.writes().total());
    let cpu = |way: &Way| way.cpu.as_secs_f64();
    let peak = |way: &Way| mib(way.peak);
    let part = |of: &dyn Fn(&Way) -> f64| ratio(of(by_rollout), of(by_requests));
    let plain = |name: &str, of: &dyn Fn(&Way) -> f64, unit: &str| {
        let both = [("requests", by_requests), ("rollout", by_rollout)];
        both.map(|(by, way)| Figure::plain(format!("{what} by {by}: {name}"), of(way), unit))
    };
    let own = own_writes(by_rollout, by_requests);
    let of_requests = writes(by_rollout) - each(own);
    let children = ["create", "delete"].map(|verb| {
        let count = KINDS.map(|kind| by_rollout.written(&format!("{verb} {kind}"))).into_iter().sum();
        Figure::all(format!("{what} by rollout: requests {verb}d"), count, pods)
    });
    let mut figures: Vec<Figure> = Vec::new();
    figures.extend(plain("time", &|way| way.seconds, "s"));
    figures.push(Figure::most(format!("{what}: time, rollout/requests"), part(&|way| way.seconds), TIME, ""));
    figures.extend(plain("writes for a Pod", &writes, ""));
    figures.extend([
        Figure::most(format!("{what} by rollout: writes of itself for a Pod"), each(own), WRITES, ""),
        Figure::most(
            format!("{what}: other writes, rollout/requests"),
            ratio(of_requests, writes(by_requests)),
            REQUESTS_OF,
            "",
        ),
    ]);
    figures.extend(children);
    figures.extend(plain("reads for a Pod", &|way| each(way.ledger.reads()), ""));
    figures.extend(plain("processor time for 1,000 Pods", &|way| cpu(way) / counted(pods.max(1)) * 1e3, "s"));
    figures.push(Figure::most(format!("{what}: processor time, rollout/requests"), part(&cpu), CPU, ""));
    figures.extend(plain("largest resident memory", &peak, "MiB"));
    figures.push(Figure::most(
        format!("{what}: largest resident memory, rollout/requests"),
        part(&peak),
        MEMORY,
        "",
    ));
    figures.push(Figure::all(format!("{what} by rollout: Pods made or gone"), by_rollout.replaced, 0));
    figures.push(Figure::all(
        format!("{what} by rollout: Pods restarted just once"),
        by_rollout.restarted,
        pods,
    ));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_is_another_one_counts_twice_and_was_not_restarted() {
        let pods = |of: &[(&str, i32)]| of.iter().map(|(uid, count)| ((*uid).to_owned(), *count)).collect();
        let before: Restarts = pods(&[("a", 0), ("b", 4), ("c", 1), ("d", 0)]);
        let after: Restarts = pods(&[("a", 1), ("b", 5), ("c", 3), ("e", 1)]);
        assert_eq!(changed(&before, &after), (2, 2));
        assert_eq!(changed(&before, &before), (0, 0));
    }
}
