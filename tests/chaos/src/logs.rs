//! Keeps the logs of pitstop's containers, also of those that were killed, which the kubelet removes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use pitstop_e2e::{Cluster, cluster, system};
use tokio::time::sleep;

use crate::plan::NODES;

const PERIOD: Duration = Duration::from_secs(1);

/// Puts every log into one folder.
pub(crate) struct Keeper {
    pub(crate) folder: PathBuf,
}

impl Keeper {
    /// With an empty folder.
    pub(crate) fn new(seed: u64) -> Result<Self> {
        let folder = cluster::root().join("target/chaos").join(format!("seed-{seed}"));
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder })
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Looks for new logs, for ever.
    pub(crate) async fn keep(&self, cluster: &Cluster) {
        loop {
            for node in NODES {
                // Folders come and go.
                let _ = self.link_all(node, &cluster.var(node).join("log/pods"));
            }
            sleep(PERIOD).await;
        }
    }

    /// The kubelet's layout: `NAMESPACE_POD_UID/CONTAINER/INSTANCE.log`.
    fn link_all(&self, node: &str, logs: &Path) -> std::io::Result<()> {
        for pod in fs::read_dir(logs)? {
            let pod = pod?;
            let name = pod.file_name().to_string_lossy().into_owned();
            let Some(name) = name.strip_prefix(&format!("{}_", system::NAMESPACE)) else { continue };
            for container in fs::read_dir(pod.path())? {
                for log in fs::read_dir(container?.path())? {
                    let log = log?;
                    let kept = format!("{node}_{name}_{}", log.file_name().to_string_lossy());
                    // A second name for the file: it grows on, and stays when the kubelet removes the first one.
                    match fs::hard_link(log.path(), self.folder.join(kept)) {
                        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}
