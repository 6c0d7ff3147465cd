//! Many requests for one Pod: pitstop carries them out one after another, and requests of another namespace do not wait
//! for them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::bound::Figure;
use super::controller::Controller;
use super::ends::{Ends, out_of_order};
use super::lease::{Renewals, late_after};
use super::ledger::Ledger;
use super::load;
use super::objects::{restart, running};
use super::player::play;
use super::player::pod::Pod;
use super::probe::{self, Probe, Times};
use super::sizes::{Sizes, mib};
use super::stage::Stage;
use crate::harness::figures::{Samples, counted, ratio, table};
use crate::harness::say;

/// Bound: writes per request.
const WRITES: f64 = 5.0;
/// Writes that empty the book after a second without orders: after the previous requests, and after the last measured
/// one.
const EMPTIED: f64 = 2.0;
/// Bound: longest step of the controller's core, in milliseconds.
const STEP: f64 = 50.0;
/// Bound: time of a request in another namespace, divided by its time without load.
const PART: f64 = 2.0;
const NAMESPACE: &str = "scale-queue";
/// Time without an end after which the benchmark gives up.
const PATIENCE: Duration = Duration::from_mins(2);
/// Time until the last writes are in the audit log.
const REST: Duration = Duration::from_secs(2);

/// Runs the scenario.
pub(crate) async fn run(stage: &Stage, sizes: &Sizes) -> Result<Vec<Figure>> {
    let client = &stage.client;
    let mut pods = prepare(stage).await?;
    let _played = play(client, pods.clone());
    let mut probe = Probe::new(client, vec![pods.pop().context("there is no Pod")?]);
    let pod = pods.pop().context("there is no Pod")?;
    let controller = Controller::leading(stage, "queue").await?;
    let alone = probe.alone().await?;
    let (before, cpu) = (probe.sent(), controller.cpu()?);

    let renewals = Renewals::watch(client);
    let mut ends = Ends::watch(client, Some(NAMESPACE));
    let mut ledger = Ledger::open(&stage.audit_log)?;
    let begin = Instant::now();
    tokio::select! {
        done = queue(stage, &pod, sizes.requests, &mut ends, &mut ledger) => done?,
        failed = probe.on_and_on() => failed?,
    }
    let took = begin.elapsed();
    let beside = probe.taken_and_open();
    tokio::time::sleep(REST).await;
    ledger.read()?;
    print_writes(&ledger);
    let mut figures = ends_in_order(&ends, sizes.requests);
    let requests = counted(sizes.requests + probe.sent() - before);
    figures.extend(ledger.figures(requests, (WRITES * requests + EMPTIED) / requests));
    figures.extend([
        Figure::plain("most writes of one request itself", counted(ledger.most_of_one("queue-")), ""),
        longest_step(&controller).await?,
    ]);
    figures.extend(lease_in_time(&renewals));
    figures.extend(beside_alone("a request in another namespace", &alone, &beside));
    figures.extend([
        Figure::plain("time for all", took.as_secs_f64(), "s"),
        Figure::plain("controller: processor time", controller.cpu()?.saturating_sub(cpu).as_secs_f64(), "s"),
        Figure::plain("controller: largest resident memory", mib(controller.memory()?.peak), "MiB"),
    ]);
    Ok(figures)
}

/// Creates the Pod with the queue, and then a Pod of another namespace on another node.
async fn prepare(stage: &Stage) -> Result<Vec<Pod>> {
    let client = &stage.client;
    load::nodes(client, ["scale-queue", "scale-probe"].map(str::to_owned).into()).await?;
    load::namespaces(client, [NAMESPACE, probe::NAMESPACE].map(str::to_owned).into()).await?;
    let pods =
        vec![running(NAMESPACE, "web", "scale-queue"), running(probe::NAMESPACE, "probe", "scale-probe")];
    load::pods(client, &pods).await?;
    Ok(pods)
}

fn ends_in_order(ends: &Ends, count: usize) -> Vec<Figure> {
    let (ended, complete) = ends.counts();
    let order = ends.order();
    vec![
        Figure::all("requests that ended", ended, count),
        Figure::all("requests that ended as Complete", complete, count),
        Figure::all("requests that were overtaken", out_of_order(order.iter().map(String::as_str)), 0),
    ]
}

/// Creates the requests one after another, so that their names are in the order of creation, and waits for all.
async fn queue(stage: &Stage, pod: &Pod, count: usize, ends: &mut Ends, ledger: &mut Ledger) -> Result<()> {
    let begin = Instant::now();
    for i in 0..count {
        load::request(&stage.client, &restart(&format!("queue-{i:05}"), pod)).await?;
    }
    say(format!("{count} requests made in {:.1} s", begin.elapsed().as_secs_f64()));
    wait_for_all(ends, ledger, count, PATIENCE).await
}

/// Waits until `count` requests have ended and lost their label `active`, or no more end. Reads the ledger meanwhile.
pub(crate) async fn wait_for_all(
    ends: &mut Ends,
    ledger: &mut Ledger,
    count: usize,
    patience: Duration,
) -> Result<()> {
    let waiting = ends.all_tidy(count, patience);
    let reading = async {
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            if let Err(error) = ledger.read() {
                return error;
            }
        }
    };
    tokio::select! {
        () = waiting => Ok(()),
        error = reading => Err(error),
    }
}

/// Median time of a request under load, divided by that without load. The same for the API server's answer to its
/// create, which shows how busy the machine was.
pub(crate) fn beside_alone(what: &str, alone: &Times, beside: &Times) -> Vec<Figure> {
    let part = |of: fn(&Times) -> &Samples| {
        let (alone, beside) = (of(alone), of(beside));
        // Without samples the bound must not hold.
        if beside.len() == 0 { f64::NAN } else { ratio(beside.median(), alone.median()) }
    };
    let plain = |when: &str, times: &Times| {
        let name = format!("{what}, {when} (median of {})", times.whole.len());
        Figure::plain(name, times.whole.median(), "ms")
    };
    vec![
        plain("alone", alone),
        plain("beside the load", beside),
        Figure::plain(format!("{what}, beside the load: the longest"), beside.whole.max(), "ms"),
        Figure::plain(format!("{what}: answer to its create, beside/alone"), part(|times| &times.create), ""),
        Figure::most(format!("{what}: beside/alone"), part(|times| &times.whole), PART, ""),
    ]
}

/// Prints the numbers of writes.
pub(crate) fn print_writes(ledger: &Ledger) {
    let of = &ledger.writes().counts;
    let rows: Vec<[String; 3]> = of
        .iter()
        .map(|(what, count)| [what.clone(), count.all.to_string(), count.refused.to_string()])
        .collect();
    println!("{}\n", table(["API writes", "number", "of them refused"], &rows));
}

/// The longest step so far, with its bound.
pub(crate) async fn longest_step(controller: &Controller) -> Result<Figure> {
    let step = controller.metric("longest_step_seconds").await? * 1e3;
    Ok(Figure::most("longest step of the core", step, STEP, "ms"))
}

/// Figures for a lease that is renewed in time and keeps its holder.
pub(crate) fn lease_in_time(renewals: &Renewals) -> [Figure; 2] {
    let (gap, holders) = renewals.longest();
    let (gap, late) = (gap.as_secs_f64(), late_after().as_secs_f64());
    [
        Figure::most("longest time between renewals of the lease", gap, late, "s"),
        Figure::all("holders of the lease", holders, 1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::BoundCheck;
    use crate::scale::bound::report;

    #[test]
    fn without_a_sample_beside_the_load_the_bound_does_not_hold() {
        let times = |whole: &[f64]| {
            let whole: Samples = whole.iter().copied().collect();
            Times { create: whole.clone(), whole }
        };
        let check = |beside: &[f64]| report("x", &beside_alone("a", &times(&[10.0]), &times(beside)));
        assert_eq!(check(&[]), BoundCheck::Exceeded);
        assert_eq!(check(&[20.0]), BoundCheck::Within);
        assert_eq!(check(&[21.0]), BoundCheck::Exceeded);
    }
}
