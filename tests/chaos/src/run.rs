//! A run from beginning to end.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::{Either, join_all, select};
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::ContainerRecreateRequest;
use tokio::time::{Instant, timeout};

use crate::logs::Keeper;
use crate::plan::{Plan, counts};
use crate::rolls::{self, Changes};
use crate::stream::Stream;
use crate::watch::Seen;
use crate::{calm, judge, kills, report, setup, watch};

/// A request that could not be made while parts were killed is made within that time of the last kill.
const PATIENCE: Duration = Duration::from_secs(90);

/// Runs; true when nothing was lost, doubled or stuck.
pub(crate) async fn run(minutes: u64, seed: u64) -> Result<bool> {
    let length = Duration::from_mins(minutes);
    let plan = Plan::draw(seed, length);
    say(format!("seed {seed}, {minutes} min: {}", outline(&plan)));
    let ns = setup::installed().await?;
    let pods = setup::start(&ns, &plan).await?;
    let rolls = rolls::start().await?;

    let keeper = Keeper::new(seed)?;
    let shown = RefCell::new(Seen::default());
    let watched = async {
        tokio::join!(
            watch::objects::<ContainerRecreateRequest>(&ns, &shown),
            watch::objects::<PodImageUpdate>(&ns, &shown),
            watch::books(&ns, &shown),
            keeper.keep(&ns.cluster)
        );
    };
    let flow = async {
        let start = Instant::now();
        let stream = Stream { ns: &ns, plan: &plan, seen: &shown, start, length };
        let busy = async {
            tokio::join!(
                stream.requests(),
                stream.updates(),
                kills::carry_out(&ns.cluster, &plan, &shown, start),
                kills::lose_images(&ns.cluster, &plan, &shown, start),
                report::progress(&shown, start, length),
                join_all(rolls.iter().map(|roll| roll.change(seed, start, length))),
            )
        };
        let (requests, updates, killed, (), (), changed) =
            timeout(length + PATIENCE, busy).await.context("requests could not be made")?;
        requests.and(updates).and(killed)?;
        say(format!("calm after {} kills that hit", shown.borrow().kills.len()));
        let facts = calm::settle(&ns, &plan, &pods, &shown).await?;
        let mut findings = judge::judge(&facts);
        findings.rolls = changed.iter().map(Changes::times).sum();
        findings.stuck.extend(rolls::judge(&rolls, &changed).await);
        Ok::<_, anyhow::Error>((facts, findings))
    };
    let (facts, findings) = match select(Box::pin(flow), Box::pin(watched)).await {
        Either::Left((facts, _)) => facts?,
        Either::Right(_) => anyhow::bail!("the watches ended"),
    };

    report::show(&ns, &facts, &findings, &shown, &keeper).await;
    println!("{}", findings.line());
    Ok(findings.is_good())
}

fn outline(plan: &Plan) -> String {
    format!(
        "{} Pods, up to {} requests and {} image updates, {} kills ({})",
        plan.pods.len(),
        plan.requests.len(),
        plan.updates.len(),
        plan.kills.len(),
        counts(plan.kills.iter().map(|kill| kill.victim))
    )
}

/// Says on standard error what is being done.
pub(crate) fn say(text: impl AsRef<str>) {
    eprintln!("    {}", text.as_ref());
}
