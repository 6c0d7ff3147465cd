//! `cargo xtask bench`: measurements of `tests/bench` on the running cluster; `scale` on clusters of its own.

mod scale;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::cluster::Cluster;
use crate::sh::{Cmd, exit_code};

/// The command. The variable KUBECONFIG, if set, has precedence over our own cluster.
pub(crate) fn run(root: &Path, args: &[String]) -> Result<ExitCode> {
    if let Some(("scale", rest)) = args.split_first().map(|(name, rest)| (name.as_str(), rest)) {
        return scale::run(root, rest);
    }
    let cluster = Cluster::of(root);
    let kubeconfig = std::env::var_os("KUBECONFIG").map_or_else(|| cluster.kubeconfig(), Into::into);
    if !kubeconfig.is_file() {
        bail!("no cluster runs ({} is not there); start one with `make demo`", kubeconfig.display());
    }
    let bench = Cmd::cargo().args(["run", "--release", "--quiet", "-p", "pitstop-bench", "--"]).args(args);
    let status = cluster.with_env(bench).env("KUBECONFIG", kubeconfig).dir(root).status()?;
    Ok(exit_code(status))
}
