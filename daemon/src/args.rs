//! Command line.

use std::path::PathBuf;

use pitstop_kit::CommonArgs;

/// Carries out the orders in its node's NodeWork over the CRI socket.
#[derive(clap::Parser, Debug)]
#[command(version)]
pub(crate) struct Args {
    /// Name of the node that this daemon runs on.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub(crate) node_name: String,

    /// Socket of the container runtime. Without it, the daemon looks where runtimes usually listen.
    #[arg(long, env = "PITSTOP_RUNTIME_ENDPOINT", value_name = "PATH")]
    pub(crate) runtime_endpoint: Option<PathBuf>,

    /// Folder under which the node's `/run`, `/var` and `/sys/fs/cgroup` are, as far as they are mounted.
    #[arg(long, env = "PITSTOP_HOST_ROOT", default_value = "/", value_name = "PATH")]
    pub(crate) host_root: PathBuf,

    /// Folder for what must outlive the process: which preStop hooks have ended.
    #[arg(long, env = "PITSTOP_STATE_DIR", default_value = "/var/lib/pitstop", value_name = "PATH")]
    pub(crate) state_dir: PathBuf,

    /// Change CPU and memory of running containers and their Pods where the kubelet does not. It needs the right to
    /// write cgroups, which `deploy/components/resize-cri` gives; without this flag nothing is changed.
    #[arg(long, env = "PITSTOP_RESIZE")]
    pub(crate) resize: bool,

    /// Bytes that must be free in the runtime's image store before a pull, if the daemon can see that. 0: no check.
    #[arg(long, env = "PITSTOP_IMAGE_ROOM", default_value_t = 1 << 30, value_name = "BYTES")]
    pub(crate) image_room: u64,

    /// Logs and metrics.
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn the_node_must_be_named() {
        let args = Args::try_parse_from(["pitstop-daemon", "--node-name", "node1"]).unwrap();
        assert_eq!((args.runtime_endpoint, args.host_root), (None, PathBuf::from("/")));
        assert!(!args.resize);
        if std::env::var_os("NODE_NAME").is_none() {
            assert!(Args::try_parse_from(["pitstop-daemon"]).is_err());
        }
    }
}
