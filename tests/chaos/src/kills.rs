//! Kills, and losses of images.

use std::cell::RefCell;

use anyhow::Result;
use pitstop_e2e::{Cluster, images, process};
use tokio::time::{Instant, sleep_until};

use crate::facts::Killed;
use crate::plan::{NODES, Plan, Victim};
use crate::watch::{Seen, now};

/// Carries out the kills of the plan. One that finds nothing to kill, since it was killed just before, is left out.
pub(crate) async fn carry_out(
    cluster: &Cluster,
    plan: &Plan,
    seen: &RefCell<Seen>,
    start: Instant,
) -> Result<()> {
    for kill in &plan.kills {
        sleep_until(start + kill.offset).await;
        if hit(cluster, kill.victim)? {
            seen.borrow_mut().kills.push(Killed { time: now()?, victim: kill.victim });
        }
    }
    Ok(())
}

/// Lets nodes lose images as the plan says. A node whose runtime is away loses none.
pub(crate) async fn lose_images(cluster: &Cluster, plan: &Plan, seen: &RefCell<Seen>, start: Instant) {
    for loss in &plan.losses {
        sleep_until(start + loss.offset).await;
        if images::forget_unused(cluster, loss.node).is_ok() {
            seen.borrow_mut().losses += 1;
        }
    }
}

/// Whether there was something to kill.
fn hit(cluster: &Cluster, victim: Victim) -> Result<bool> {
    match victim {
        Victim::Etcd | Victim::ApiServer | Victim::Kubelet(_) | Victim::Containerd(_) => {
            match cluster.kill(&victim.to_string()) {
                Ok(()) => Ok(true),
                Err(error) if format!("{error:#}").contains("is not running") => Ok(false),
                Err(error) => Err(error),
            }
        }
        Victim::Daemon(node) => all(&process::of_program(cluster, node, "pitstop-daemon")?),
        Victim::Controllers => all(&controllers(cluster)?),
        Victim::Controller(which) => {
            let running = controllers(cluster)?;
            let one = which.checked_rem(running.len()).and_then(|i| running.get(i)).copied();
            all(one.as_slice())
        }
    }
}

fn controllers(cluster: &Cluster) -> Result<Vec<i32>> {
    let mut running = Vec::new();
    for node in NODES {
        running.extend(process::of_program(cluster, node, "pitstop-controller")?);
    }
    Ok(running)
}

fn all(running: &[i32]) -> Result<bool> {
    running.iter().try_for_each(|pid| process::kill_9(*pid))?;
    Ok(!running.is_empty())
}
