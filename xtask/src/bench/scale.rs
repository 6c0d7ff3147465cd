//! `cargo xtask bench scale`: each scenario on a fresh cluster of its own, with the controller as it is in the image.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::cluster::Cluster;
use crate::image;
use crate::kubernetes::Kubernetes;
use crate::lab::{self, with_cluster};
use crate::progress::Step;
use crate::sh::Cmd;

/// All scenarios; `tests/bench/src/scale/sizes.rs` describes them.
const SCENARIOS: [&str; 6] = ["cluster", "queue", "spread", "hostile", "roll", "unrolled"];
/// Crates, and names of their programs: the measured one, and the benchmark.
const CONTROLLER: &str = "pitstop-controller";
const BENCH: &str = "pitstop-bench";

/// The command. `args`: names of scenarios (none: all), then flags for their sizes.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    lab::require()?;
    let (scenarios, flags) = chosen(args);
    let step =
        Step::begin("building the controller and the benchmark (about 8 minutes when nothing is built yet)");
    // Built together: the benchmark has few dependencies that the controller does not have.
    let programs = image::programs(root, &image::AMD64, &[CONTROLLER, BENCH], &[], false)?;
    let built = |name: &str| programs.get(name).with_context(|| format!("{name} was not built"));
    let (controller, bench) = (built(CONTROLLER)?, built(BENCH)?);
    step.done();
    let (cluster, mut good) = (Cluster::of(root), true);
    for scenario in scenarios {
        let measure = || {
            let bench = Cmd::new(bench).args(["scale", scenario]).args(flags);
            Ok(cluster.with_env(bench).env("PITSTOP_CONTROLLER", controller).dir(root).status()?.success())
        };
        let outcome = with_cluster(cluster, Kubernetes::default(), 1, &[], measure, |good| *good)?;
        outcome.down?;
        good &= outcome.value;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The scenarios at the start of the arguments (none: all), and the remaining arguments.
fn chosen(args: &[String]) -> (Vec<&str>, &[String]) {
    let named = args.iter().take_while(|arg| SCENARIOS.contains(&arg.as_str())).count();
    let (scenarios, flags) = args.split_at_checked(named).unwrap_or((&[], args));
    match scenarios {
        [] => (SCENARIOS.to_vec(), flags),
        named => (named.iter().map(String::as_str).collect(), flags),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_stand_before_the_flags() {
        let args = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let all = args("--scale 0.1");
        assert_eq!(chosen(&all), (SCENARIOS.to_vec(), all.as_slice()));
        let two = args("queue hostile --requests 5");
        assert_eq!(chosen(&two), (vec!["queue", "hostile"], &two[2..]));
        assert_eq!(chosen(&[]), (SCENARIOS.to_vec(), &[][..]));
    }
}
